"""A note: which records a thread of a worker runs at the moment, as bytes in the shared file.

The parent reads notes of workers that died. It imports no numpy, so this module must not either.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

_FIELDS: Final = struct.Struct("<Hqq?")
"""Length of the lane's name, first and last position, whether positions are digests."""
_SEPARATOR: Final = b"\0"


class Span(NamedTuple):
    """Records of a partition from the first to the last position, both included."""

    service: str
    source: str
    partition: str
    first: int
    last: int
    digest: bool = False
    """Positions are digests of the records, as their source counts anew after a restart (MQTT); then first is last."""

    @property
    def size(self) -> int:
        """The number of positions."""
        return self.last - self.first + 1


class Note(NamedTuple):
    """What a thread of a worker runs."""

    since: float
    """When it began, in seconds of `time.monotonic`, which is the same clock in all processes of a machine."""
    spans: tuple[Span, ...]
    whole: bool
    """Whether `spans` are all of its records; else there was no room for the rest."""

    @property
    def size(self) -> int:
        """The number of positions in the spans."""
        return sum(span.size for span in self.spans)


class SpanEncoder:
    """Encodes spans; the names of each partition only once."""

    def __init__(self) -> None:
        self._names: dict[tuple[str, str, str], bytes] = {}

    def encode(self, spans: Sequence[Span], room: int) -> tuple[bytes, bool]:
        """The spans as bytes, and whether all of them fit into `room` bytes; else they are the first ones that do."""
        parts: list[bytes] = []
        size = 0
        for service, source, partition, first, last, digest in spans:
            name = self._names.get((service, source, partition))
            if name is None:
                name = self._named(service, source, partition)
            size += _FIELDS.size + len(name)
            if size > room or len(name) > 0xFFFF:
                return b"".join(parts), False
            parts.append(_FIELDS.pack(len(name), first, last, digest))
            parts.append(name)
        return b"".join(parts), True

    def _named(self, service: str, source: str, partition: str) -> bytes:
        name = _SEPARATOR.join(part.encode("utf-8", "surrogatepass") for part in (service, source, partition))
        self._names[service, source, partition] = name
        return name


def decode_spans(content: bytes) -> tuple[Span, ...]:
    """The spans that `SpanEncoder` wrote."""
    spans, at = [], 0
    while at < len(content):
        length, first, last, digest = _FIELDS.unpack_from(content, at)
        at += _FIELDS.size
        service, source, partition = (
            part.decode("utf-8", "surrogatepass") for part in content[at : at + length].split(_SEPARATOR)
        )
        at += length
        spans.append(Span(service, source, partition, first, last, digest))
    return tuple(spans)
