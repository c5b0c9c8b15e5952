"""Images: each file is a record, as with a file source of `format: images`."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, Final

import numpy as np

from connectors.file.framing import MAX_RECORD
from connectors.records import Lane, Records, Span
from pipelines.arrow.library import pa
from pipelines.arrow.reading import IMAGE
from pipelines.data.batch import Batch
from pipelines.data.columns import Column
from pipelines.errors import WireError
from pipelines.values.imageheader import SUFFIXES
from streamer.agent.decodedbatch import DecodedBatch
from streamer.backfill.formats.inputformat import ERROR, Block, Feed, InputFormat, Planned
from streamer.backfill.payloads import IMAGES, records_of
from streamer.backfill.pieces import Piece
from streamer.backfill.places import Place, StoredFile

_TOGETHER: Final = 200
"""How many images are a piece."""
FILE: Final = "_file"


class ImagesBlock(Block):
    """Images of files."""

    origins: ClassVar[Mapping[str, Any]] = MappingProxyType({FILE: pa.string()})

    def __init__(self, decoded: DecodedBatch, key: str) -> None:
        self.batch = decoded.batch
        self.failed = decoded.failed
        self.rows = records_of(decoded)
        self._decoded = decoded
        self._key = key

    @property
    def origin(self) -> Batch:
        """Also the path of each image below the fixed part of the pattern."""
        records, first = self._decoded.records, self._decoded.first
        names = [_name(records, number - first) for number in self.batch.rows.tolist()]
        return self.batch.with_columns({FILE: Column.of(names)})

    def failures(self, failed: Mapping[int, Exception]) -> Any:
        """A `pyarrow.RecordBatch`: the image under the key that it has for the pipeline, `_file` and `_error`."""
        records, first = self._decoded.records, self._decoded.first
        numbers = sorted(failed)
        images = pa.array([records.values[number - first] for number in numbers], pa.binary())
        names = pa.array([_name(records, number - first) for number in numbers], pa.string())
        texts = pa.array([str(failed[number]) for number in numbers], pa.string())
        schema = pa.schema(
            [
                pa.field(self._key, pa.binary(), metadata={IMAGE: b"true"}),
                pa.field(FILE, pa.string()),
                pa.field(ERROR, pa.string()),
            ]
        )
        return pa.RecordBatch.from_arrays([images, names, texts], schema=schema)


class Images(InputFormat):
    """Image files; some hundred of a folder are a piece, named after the first."""

    name: ClassVar[str] = "images"
    suffixes: ClassVar[tuple[str, ...]] = tuple(sorted(SUFFIXES))
    together: ClassVar[bool] = True
    origins: ClassVar[Mapping[str, Any]] = ImagesBlock.origins

    def planned(self, place: Place, files: Sequence[StoredFile]) -> Planned:
        groups = [tuple(files[start : start + _TOGETHER]) for start in range(0, len(files), _TOGETHER)]
        return Planned([Piece(self.name, group, _together(group), rows=len(group)) for group in groups])

    def blocks(self, piece: Piece, feed: Feed) -> Generator[ImagesBlock, None, None]:
        files, payloads = list(piece.files), feed.payloads(IMAGES)
        start = 0
        while start < len(files):
            stop, size = start, 0
            while stop < len(files) and stop - start < feed.rows and (stop == start or size < feed.max_bytes):
                size += files[stop].size
                stop += 1
            records = _records(payloads.source, files[start:stop], start, feed.place)
            for decoded in payloads.decoded(records):
                yield ImagesBlock(decoded, payloads.image_key)
            start = stop


def _together(files: Sequence[StoredFile]) -> str:
    return files[0].relative if len(files) == 1 else f"{files[0].relative}-and-{len(files) - 1}"


def _records(source: str, files: Sequence[StoredFile], first: int, place: Place) -> Records:
    values: list[bytes | None] = []
    faults: dict[int, Exception] = {}
    for at, file in enumerate(files):
        if file.size > MAX_RECORD:
            values.append(None)
            faults[at] = WireError(f"the file has {file.size} bytes, more than {MAX_RECORD}")
        else:
            values.append(place.read(file.path))
    return Records(
        source,
        values,
        [file.relative.encode() for file in files],
        np.arange(first, first + len(files), dtype=np.int64),
        [Span(Lane(source, "", 0), 0, len(files))],
        [""],
        [0],
        sum(file.size for file in files),
        faults=faults,
        keys_are_names=True,
    )


def _name(records: Records, place: int) -> str | None:
    key = None if records.keys is None else records.keys[place]
    return None if key is None else key.decode(errors="replace")
