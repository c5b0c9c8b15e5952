"""The board: which records are suspected of killing processes, and which are convicted of it.

The parent publishes it, workers read it. The parent imports no numpy, so this module must not either.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import NamedTuple

Place = tuple[str, str, str]
"""Service, source and partition."""


class Entry(NamedTuple):
    """Records of a partition from the first to the last position, both included."""

    first: int
    last: int
    reason: str = ""
    """Why they are convicted; empty: they are suspects."""
    digest: bool = False
    """As in `Span`: positions are digests of the records."""

    @property
    def convicted(self) -> bool:
        """Whether it is known that the record kills a process; else it is a suspect, and is run alone."""
        return bool(self.reason)


class Board:
    """The suspects and the convicted of all services, at a version. Immutable."""

    def __init__(self, version: int = 0, places: Iterable[tuple[Place, Sequence[Entry]]] = ()) -> None:
        """Entries of a place do not overlap, and are in the order of their positions."""
        self.version = version
        self._entries = {place: tuple(entries) for place, entries in places if entries}
        self._lasts = {place: [entry.last for entry in entries] for place, entries in self._entries.items()}
        self._digests = {
            (service, source)
            for (service, source, _), entries in self._entries.items()
            if any(entry.digest for entry in entries)
        }

    def __bool__(self) -> bool:
        """Whether there is an entry."""
        return bool(self._entries)

    def __contains__(self, place: object) -> bool:
        """Whether this service, source and partition have an entry."""
        return place in self._entries

    @property
    def places(self) -> dict[Place, tuple[Entry, ...]]:
        """All entries, by service, source and partition."""
        return dict(self._entries)

    def has_digests(self, service: str, source: str) -> bool:
        """Whether a record of this source is listed by its digest; else digests need not be computed."""
        return (service, source) in self._digests

    def within(self, service: str, source: str, partition: str, first: int, last: int) -> tuple[Entry, ...]:
        """The entries that overlap the positions from `first` to `last`, both included, in order."""
        place = (service, source, partition)
        entries = self._entries.get(place)
        if entries is None:
            return ()
        begin = end = bisect_left(self._lasts[place], first)
        while end < len(entries) and entries[end].first <= last:
            end += 1
        return entries[begin:end]

    def at(self, service: str, source: str, partition: str, position: int) -> Entry | None:
        """The entry of a record."""
        return next(iter(self.within(service, source, partition, position, position)), None)

    def to_bytes(self) -> bytes:
        """The board as it is published. Each reason is written once."""
        reasons = list(dict.fromkeys(entry.reason for entries in self._entries.values() for entry in entries))
        number = {reason: index for index, reason in enumerate(reasons)}
        places = [
            [*place, [[entry.first, entry.last, number[entry.reason], int(entry.digest)] for entry in entries]]
            for place, entries in self._entries.items()
        ]
        return json.dumps({"reasons": reasons, "places": places}, separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, version: int, content: bytes) -> Board:
        """The board of `to_bytes`."""
        document = json.loads(content)
        reasons = document["reasons"]
        return cls(
            version,
            (
                (
                    (service, source, partition),
                    [Entry(first, last, reasons[reason], bool(digest)) for first, last, reason, digest in entries],
                )
                for service, source, partition, entries in document["places"]
            ),
        )
