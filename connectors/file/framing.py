"""How a file holds its records: with a length before each, or one in each line."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Literal

from pipelines.errors import ConnectorError, nearest

MAX_VARINT = 10
"""Bytes of the longest varint that protobuf writes."""


@dataclass(slots=True)
class RecordEdges:
    """The records of a buffer: record i is `buffer[starts[i]:stops[i]]`, the next one begins at `nexts[i]`.

    `numbers[i]` counts records from the beginning of the buffer, those that are skipped (blank lines) too. `missing` is
    how many more bytes the next record needs, as far as known; `problem` says why no record after the last one can be
    read.
    """

    starts: list[int] = field(default_factory=list)
    stops: list[int] = field(default_factory=list)
    nexts: list[int] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    missing: int = 0
    problem: str | None = None


class Framing(ABC):
    """A way to separate the records of a file."""

    name: str

    @abstractmethod
    def find(self, buffer: bytes, max_record: int) -> RecordEdges:
        """The complete records of a buffer that begins where a record does."""

    def foreign(self, rest: bytes) -> str | None:
        """Why these bytes, the last of a file, do not begin a record of this format; `None` if they may."""
        return None

    @abstractmethod
    def whole(self, rest: bytes) -> bool:
        """Whether the last bytes of a file lack nothing, though the end of the record does not stand there."""

    @abstractmethod
    def rest(self, rest: bytes) -> tuple[int, int] | None:
        """The last bytes of a file as a record (its edges), though its end is missing; `None` if it cannot be read."""

    @abstractmethod
    def frame(self, payload: bytes) -> bytes:
        """The bytes of this payload in the file. `ValueError` if it cannot be written."""


class Delimited(Framing):
    """A length, as protobuf's base-128 varint, before each message, as protobuf's `writeDelimitedTo` writes it.

    https://protobuf.dev/programming-guides/techniques/#streaming
    """

    name = "protodata"

    def find(self, buffer: bytes, max_record: int) -> RecordEdges:
        """As `Framing.find`. A length beyond `max_record` is a problem: no record after it can be found."""
        edges = RecordEdges()
        at, end = 0, len(buffer)
        while at < end:
            length, start = buffer[at], at + 1
            if length >= 0x80:
                length, start = _varint(buffer, at)
                if start < 0:
                    edges.missing = 1
                    break
            if length > max_record:
                edges.problem = (
                    f"a length of {length} bytes, which is more than max_record ({max_record}): the file is damaged, "
                    "is of another format, or needs a larger max_record"
                )
                break
            if start + length > end:
                edges.missing = start + length - end
                break
            edges.starts.append(start)
            at = start + length
            edges.stops.append(at)
        edges.nexts = edges.stops
        edges.numbers = list(range(len(edges.starts)))
        return edges

    def foreign(self, rest: bytes) -> str | None:
        """As `Framing.foreign`: JSON is no message."""
        if rest[:2] in (b'{"', b"[{"):
            # { is taken for a length of 123; but no message begins with a quotation mark.
            return "it is not a message behind its length; if the file holds JSON, a record a line, write format: jsonl"
        return None

    def whole(self, rest: bytes) -> bool:
        """As `Framing.whole`: the length says that bytes are missing."""
        return False

    def rest(self, rest: bytes) -> tuple[int, int] | None:
        """As `Framing.rest`: half a message is no record."""
        return None

    def frame(self, payload: bytes) -> bytes:
        """The payload with its length before it."""
        length = len(payload)
        prefix = bytearray()
        while length >= 0x80:
            prefix.append(length & 0x7F | 0x80)
            length >>= 7
        prefix.append(length)
        return bytes(prefix) + payload


class Lines(Framing):
    """A line is a record. A carriage return before the line feed is not part of it."""

    name = "lines"
    skips_blank = False

    def find(self, buffer: bytes, max_record: int) -> RecordEdges:
        """As `Framing.find`. A line beyond `max_record` is a problem."""
        edges = RecordEdges()
        at = 0
        number = 0
        while (stop := buffer.find(b"\n", at)) >= 0:
            if stop - at > max_record:
                break
            begin, end = self._content(buffer, at, stop)
            if begin < end or not self.skips_blank:
                edges.starts.append(begin)
                edges.stops.append(end)
                edges.nexts.append(stop + 1)
                edges.numbers.append(number)
            number += 1
            at = stop + 1
        line = (stop if stop >= 0 else len(buffer)) - at
        if line > max_record:
            edges.problem = f"a line of {line} bytes or more, which is more than max_record ({max_record})"
        return edges

    def whole(self, rest: bytes) -> bool:
        """As `Framing.whole`: half a text is a text, too."""
        return False

    def rest(self, rest: bytes) -> tuple[int, int] | None:
        """As `Framing.rest`: the line without its line feed."""
        return self._content(rest, 0, len(rest))

    def frame(self, payload: bytes) -> bytes:
        """The payload and a line feed. `ValueError` if it holds one itself."""
        if b"\n" in payload:
            raise ValueError("a payload with line feeds cannot be a line")
        return payload + b"\n"

    def _content(self, buffer: bytes, start: int, stop: int) -> tuple[int, int]:
        if stop > start and buffer[stop - 1] == 0x0D:
            stop -= 1
        return start, stop


class JsonLines(Lines):
    """One JSON document a line; blank lines are skipped. https://jsonlines.org"""

    name = "jsonl"
    skips_blank = True

    def whole(self, rest: bytes) -> bool:
        """As `Framing.whole`: a document that is complete, other than a number, which may have been cut short."""
        text = rest.rstrip()
        if not text:
            return True
        try:
            json.loads(text)
        except (ValueError, RecursionError):
            return False
        return text.endswith((b"}", b"]", b'"'))

    def frame(self, payload: bytes) -> bytes:
        """The payload and a line feed. `ValueError` if it holds one itself, or nothing."""
        if not payload.strip():
            raise ValueError("an empty payload is not a JSON document")
        return super().frame(payload)

    def _content(self, buffer: bytes, start: int, stop: int) -> tuple[int, int]:
        if buffer.startswith(b"\xef\xbb\xbf", start):
            start += 3
        while stop > start and buffer[stop - 1] in b" \t\r":
            stop -= 1
        return start, stop


Unfinished = Literal["wait", "read", "fail"]
"""What becomes of the last bytes of a file if the end of their record is missing: the next run reads them, they are a
record as they are (lines only, half a message cannot be one), or the source fails."""

MAX_RECORD = 64 * 2**20
"""The default of the largest size of a record, in bytes."""

FRAMINGS: dict[str, Framing] = {framing.name: framing for framing in (Delimited(), JsonLines(), Lines())}
"""Framings by the `format` of a service file."""


def framing(format: str) -> Framing:
    """The framing of this format. `ConnectorError` for an unknown one names the known ones."""
    if format not in FRAMINGS:
        known = [*FRAMINGS, "images"]
        raise ConnectorError(
            f'there is no file format "{format}"{nearest(format, known)}; there are {", ".join(known)}'
        )
    return FRAMINGS[format]


def _varint(buffer: bytes, at: int) -> tuple[int, int]:
    """The number and where it ends; -1 if it ends beyond the buffer."""
    value = 0
    for index in range(MAX_VARINT):
        if at + index >= len(buffer):
            return 0, -1
        byte = buffer[at + index]
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value, at + index + 1
    # Longer than any varint: treated as a length beyond `max_record`.
    return value, at + MAX_VARINT
