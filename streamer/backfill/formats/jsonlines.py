"""JSON lines: a document in each line, decoded as the service decodes its records."""

from __future__ import annotations

import gzip
import importlib
import json
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO, ClassVar, Final, Literal, cast

from connectors.file.framing import FRAMINGS, MAX_RECORD
from connectors.file.recordbuffer import RecordBuffer
from connectors.records import Lane, Records, Span
from pipelines.errors import MissingPackageError, StreamerError, step_of
from streamer.agent.decodedbatch import DecodedBatch
from streamer.backfill.formats.inputformat import ERROR, Block, Feed, InputFormat, Planned
from streamer.backfill.payloads import JSON, records_of
from streamer.backfill.pieces import Piece
from streamer.backfill.places import Place, StoredFile

_LINES: Final = FRAMINGS["jsonl"]
_PAYLOAD: Final = "_payload"
_LINE: Final = "_line"


class LinesBlock(Block):
    """Lines, decoded."""

    def __init__(self, decoded: DecodedBatch) -> None:
        self.batch = decoded.batch.without([ERROR])
        self.failed = decoded.failed
        self.rows = records_of(decoded)
        self._decoded = decoded

    def failures(self, failed: Mapping[int, Exception]) -> bytes:
        """Lines: the document with its `_error`; of what could not be decoded `_payload` and `_line`, from 1."""
        records, first = self._decoded.records, self._decoded.first
        lines = []
        for number in sorted(failed):
            line, error = records.values[number - first], str(failed[number])
            document = None if step_of(failed[number]) == "decode" else _document(line)
            if document is None:
                place = int(records.positions[number - first]) + 1
                document = {_PAYLOAD: line.decode(errors="replace"), _LINE: place}
            lines.append(json.dumps({**document, ERROR: error}, ensure_ascii=False).encode() + b"\n")
        return b"".join(lines)


class JsonLines(InputFormat):
    """A JSON document in each line, also compressed."""

    name: ClassVar[str] = "jsonl"
    suffixes: ClassVar[tuple[str, ...]] = tuple(
        f"{kind}{compressed}" for kind in (".jsonl", ".ndjson") for compressed in ("", ".gz", ".zst")
    )
    errors: ClassVar[Literal["parquet", "jsonl"]] = "jsonl"

    def planned(self, place: Place, files: Sequence[StoredFile]) -> Planned:
        (file,) = files
        return Planned([Piece(self.name, (file,), self.stem(file))])

    def blocks(self, piece: Piece, feed: Feed) -> Generator[LinesBlock, None, None]:
        (file,) = piece.files
        payloads = feed.payloads(JSON)
        with feed.place.open(file.path) as raw, _opened(raw, file.path) as content:
            buffer = RecordBuffer(_LINES, MAX_RECORD, 0, 0)
            ended = False
            while not ended:
                chunk = content.read(buffer.wanted)
                ended = not chunk
                if ended:
                    # The last line may lack its end.
                    buffer.end_with(*(_LINES.rest(buffer.rest) or (0, 0)))
                else:
                    buffer.add(chunk)
                while len(buffer):
                    values, positions, _ = buffer.deliver(feed.rows, feed.max_bytes)
                    records = _records(payloads.source, file.relative, values, positions)
                    yield from map(LinesBlock, payloads.decoded(records))
                if buffer.problem is not None:
                    raise StreamerError(
                        f"line {buffer.number + 1}: {buffer.problem}, and no setting of a backfill: take the line out, "
                        "or write the file as Parquet"
                    )


def _records(source: str, name: str, values: list[bytes], positions: Any) -> Records:
    span = Span(Lane(source, name, 0), 0, len(values))
    return Records(source, values, None, positions, [span], [name], [0], sum(map(len, values)))


def _document(line: bytes) -> dict[str, Any] | None:
    try:
        document = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


@contextmanager
def _opened(raw: BinaryIO, path: str) -> Iterator[BinaryIO]:
    lower = path.lower()
    if lower.endswith(".gz"):
        with gzip.GzipFile(fileobj=raw) as content:
            yield cast(BinaryIO, content)
    elif lower.endswith(".zst"):
        with _zstd().ZstdFile(raw) as content:
            yield content
    else:
        yield raw


def _zstd() -> Any:
    for name in ("compression.zstd", "backports.zstd"):
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    raise MissingPackageError("backports.zstd", "zstd", "files that are compressed with zstd")
