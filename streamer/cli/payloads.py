"""Files as payloads for a topic."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import typer

from connectors.codec import Codec
from connectors.codecs.registry import codec_of
from connectors.file import FileSource
from connectors.file.config import CODECS
from connectors.records import Header, Records
from pipelines.data.batch import Batch
from pipelines.data.data import Data
from pipelines.errors import ConnectorError, DefinitionError
from pipelines.values import Image
from pipelines.values.imageheader import FORMATS, SUFFIXES
from streamer.routing.template import Template, template

ENDINGS: Final = {
    **dict.fromkeys((".jsonl", ".ndjson", ".json"), "jsonl"),
    **dict.fromkeys((".pb", ".bin", ".protodata", ".delimited"), "protodata"),
    **dict.fromkeys((".txt", ".log", ".csv"), "lines"),
    **dict.fromkeys(SUFFIXES, "image"),
}
"""Formats of files by their endings, in lower case."""

CODECS_OF_FORMS: Final = {**CODECS, "konduit-jsonl": "konduit-json"}
"""The codec that reads a format."""

ROOM: Final = 4 << 20
"""The most bytes of one part, unless a single record is larger."""


_PLACE_IN_LINE: Final = re.compile(r": line 1 column (\d+) \(char \d+\)")


@dataclass(frozen=True, slots=True)
class _Naming:
    """The records' keys and topics, as far as they are made from values."""

    key: Template | None
    topic: Template | None

    def constant(self, file: Path) -> list[bytes | None] | None:
        """The key of a file that has no values. Raises `typer.BadParameter` if one is needed."""
        for what, made in (("--key", self.key), ("the topic", self.topic)):
            if made is not None and not made.constant:
                raise typer.BadParameter(f"{file}: a raw file has no values for {what} '{made.text}'")
        return None if self.key is None else [self.key.text.encode()]


@dataclass(frozen=True, slots=True)
class PayloadBatch:
    """Encoded records, ready to be sent."""

    values: Sequence[bytes | None]
    keys: list[bytes | None] | None
    size: int
    """Bytes that the records take in their files."""
    headers: Sequence[Sequence[Header]] | None = None
    """Headers that the codec adds to the messages."""
    topics: list[str] | None = None
    """The topic of each record, where it is made from values."""


def parts(
    files: list[Path],
    form: str,
    setting: str | dict[str, object],
    key: str | None,
    *,
    repeat: int,
    at_most: int,
    topic: str | None = None,
    made: Template | None = None,
) -> Iterator[PayloadBatch]:
    """The records of all files in order, `repeat` times, at most `at_most` in one part.

    `form` is `auto` or one of the formats; `setting` is the codec of `topic`, `key` a text that may name values.
    `made` makes the records' topics, if they have several. Raises `typer.BadParameter` naming the file, and the record,
    that cannot be sent.
    """
    codec = codec_of(setting, topic=topic)
    naming = _Naming(_key(key), made)
    forms = [(file, form_of(file) if form == "auto" else form) for file in files]
    for _ in range(repeat):
        for file, kind in forms:
            if kind == "raw":
                yield PayloadBatch([_content(file)], naming.constant(file), size_of(file))
            elif kind == "image":
                yield _encoded(codec, _image(file), naming, [file.name.encode()], file, size_of(file))
            else:
                yield from _records(file, kind, codec, naming, at_most)


def template_of(topic: str) -> Template | None:
    """The topic, if it is made from values. Raises `typer.BadParameter` for a stray brace."""
    try:
        made = template(topic)
    except DefinitionError as error:
        raise typer.BadParameter(f"the topic {error}") from error
    return None if made.constant else made


def form_of(file: Path) -> str:
    """The format of a file with this ending. Raises `typer.BadParameter` for an unknown ending."""
    form = ENDINGS.get(file.suffix.lower())
    if form is None:
        raise typer.BadParameter(
            f"{file}: its ending is unknown; name the format with --format (raw: one record, its bytes as they are)"
        )
    return form


def size_of(file: Path) -> int:
    """The size of the file in bytes. Raises `typer.BadParameter` for a folder and a missing file."""
    if not file.is_file():
        raise typer.BadParameter(f"{file}: {'is a folder; name its files' if file.is_dir() else 'no such file'}")
    return file.stat().st_size


def _records(file: Path, kind: str, codec: Codec, naming: _Naming, at_most: int) -> Iterator[PayloadBatch]:
    reads = codec_of(CODECS_OF_FORMS[kind])
    source = FileSource(file, kind.removeprefix("konduit-"), unfinished="read", name=str(file))
    source.open()
    first = True
    try:
        while len(records := _polled(source, file, at_most)):
            decoded = reads.decode(records, None)
            for row, error in decoded.failed.items():
                hint = _over_lines(records.values[row]) or _next(kind, None if first else records)
                raise _wrong(file, records, row, error, hint)
            first = False
            yield _encoded(codec, decoded.batch, naming, None, file, records.byte_count, records)
    finally:
        source.close()


def _polled(source: FileSource, file: Path, at_most: int) -> Records:
    try:
        return source.poll(at_most, ROOM, 0.0)
    except ConnectorError as error:
        raise typer.BadParameter(f"{file}: {error}") from error


def _encoded(
    codec: Codec,
    batch: Batch,
    naming: _Naming,
    keys: list[bytes | None] | None,
    file: Path,
    size: int,
    records: Records | None = None,
) -> PayloadBatch:
    encoded = codec.encode(batch)
    for row, error in encoded.failed.items():
        raise _wrong(file, records, row, error)
    topics = None
    if naming.key is not None:
        keys = [text.encode() for text in _texts(naming.key, batch, file, records)]
    if naming.topic is not None:
        topics = _texts(naming.topic, batch, file, records)
    return PayloadBatch(encoded.values, keys, size, encoded.headers, topics)


def _texts(made: Template, batch: Batch, file: Path, records: Records | None) -> list[str]:
    texts, failures = made.texts(batch)
    for row, error in failures.items():
        raise _wrong(file, records, row, error)
    return texts


def _image(file: Path) -> Batch:
    content = _content(file)
    image = Image(content)
    if image.format is None:
        raise typer.BadParameter(f"{file}: is not a {FORMATS} file")
    return Batch.of([Data({"image": image})])


def _content(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise typer.BadParameter(f"{file}: {error.strerror or error}") from error


def _key(text: str | None) -> Template | None:
    try:
        return None if text is None else template(text)
    except DefinitionError as error:
        raise typer.BadParameter(f"--key: {error}") from error


def _over_lines(line: object) -> str:
    """The hint for a line `{` or `[`, which shows JSON that is spread over lines; else empty."""
    if not isinstance(line, bytes) or line.removeprefix(codecs.BOM_UTF8).strip() not in (b"{", b"["):
        return ""
    return "; each line has to be a whole record, so write each in one line, or send the file as one with --format raw"


def _next(kind: str, unsent: Records | None) -> str:
    """What to do about a wrong line; empty for files that are not made of lines.

    `unsent`: the part of the file that the line is in, if parts before it were sent.
    """
    if not kind.endswith("jsonl"):
        return ""
    rest = "this file again" if unsent is None else f"this file from line {int(unsent.positions[0]) + 1} on"
    return f"; correct that line and send {rest}"


def _wrong(file: Path, records: Records | None, row: int, error: Exception, hint: str = "") -> typer.BadParameter:
    place = "" if records is None else f":{int(records.positions[row]) + 1}"
    # Python's json counts lines within the record, which is one line; beside the line of the file that is confusing.
    reason = _PLACE_IN_LINE.sub(r" at column \1", " ".join(str(error).split()))
    return typer.BadParameter(f"{file}{place}: {reason}{hint}")
