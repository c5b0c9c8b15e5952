"""`Suspects`: which records may have killed a worker, and which are convicted of it, from what the dead left behind."""

from __future__ import annotations

import signal
from bisect import insort
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from streamer.workers.board import Board, Entry, Place
from streamer.workers.notes import Note, Span

CRASHES: Final = frozenset(
    number
    for name in ("SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE", "SIGABRT")
    if (number := getattr(signal, name, None)) is not None
)
"""Signals that a process gets for what its own code does."""
EXPIRY: Final = 600.0
"""Seconds after which a suspect that is known by its digest is forgotten: no acknowledged position passes it."""
MOST_DIGESTS: Final = 10_000
"""The most convicted records of a partition that are known by their digests; the newest stay."""

_ENOUGH: Final = 6
"""Points at which a record is convicted."""
_AT_ONCE: Final = 6
_SECOND_TIME: Final = 3
_THIRD_TIME: Final = 2
_TIMES: Final = {1: "", 2: ", twice", 3: ", three times"}


class Cause(NamedTuple):
    """How a worker died."""

    number: int
    """The signal."""
    hung: float | None = None
    """The seconds after which its parent killed it, because a batch had no end; `None`: it was not the parent."""

    @property
    def reason(self) -> str:
        """The cause as the label of a metric: `hung`, or the signal's name."""
        if self.hung is not None:
            return "hung"
        try:
            return signal.Signals(self.number).name
        except ValueError:
            return f"signal {self.number}"

    @property
    def text(self) -> str:
        """The cause as part of a sentence."""
        return f"signal {self.number}" if self.hung is None else f"no end after {self.hung:g} s"


class Convicted(NamedTuple):
    """A record of which it is known that it kills processes."""

    place: Place
    position: int
    reason: str


class Verdict(NamedTuple):
    """What a death has shown."""

    convicted: tuple[Convicted, ...]
    suspects: tuple[Span, ...]
    """The records that ran when the worker died, without those that are convicted."""


@dataclass(slots=True)
class _Partition:
    digests: bool
    ranges: list[tuple[int, int]] = field(default_factory=list)
    """Suspects by position, in order, without overlaps."""
    singles: dict[int, float] = field(default_factory=dict)
    """Suspects by digest, with the time of their last death."""
    convicted: dict[int, str] = field(default_factory=dict)
    points: dict[int, tuple[int, int]] = field(default_factory=dict)
    """By position: points, and deaths that gave some."""


class Suspects:
    """The suspects and the convicted of all services."""

    def __init__(self) -> None:
        self._partitions: dict[Place, _Partition] = {}

    def died(self, notes: Sequence[Note], cause: Cause, now: float) -> Verdict:
        """Note that a worker has died that left these notes. Of a hung one they are those of the batches that hang.

        A record that ran alone is convicted at once by a hang, or a signal that only its own code can have caused; by
        another signal, which may have come from outside, the second time. If others ran in other threads at the same
        time, a record that was a suspect before is taken to be the cause if it is the only suspect among them; else it
        needs three such deaths.
        """
        single = [note for note in notes if note.whole and note.size == 1]
        points: dict[tuple[Place, int], int] = {}
        if cause.hung is not None:
            # Each of them is known to hang by its own note.
            points = {_record(note): _AT_ONCE for note in single}
        else:
            decisive = self._decisive(notes, single)
            if decisive is not None:
                points[_record(decisive)] = _AT_ONCE if cause.number in CRASHES else _SECOND_TIME
            else:
                points = {_record(note): _THIRD_TIME for note in single}
        for note in notes:
            for span in note.spans:
                self._suspect(span, now)
        convicted = [
            Convicted(place, position, reason)
            for (place, position), more in points.items()
            if (reason := self._blame(place, position, more, cause)) is not None
        ]
        guilty = {(each.place, each.position) for each in convicted}
        spans = (span for note in notes for span in note.spans)
        return Verdict(tuple(convicted), tuple(s for s in spans if s.size > 1 or (_place(s), s.first) not in guilty))

    def acknowledged(self, marks: Mapping[Place, int]) -> bool:
        """Remove what lies below these positions; returns whether there was something."""
        changed = False
        for place, mark in marks.items():
            partition = self._partitions.get(place)
            if partition is None or partition.digests:
                continue
            left = [(max(first, mark), last) for first, last in partition.ranges if last >= mark]
            convicted = {position: why for position, why in partition.convicted.items() if position >= mark}
            changed = changed or left != partition.ranges or convicted != partition.convicted
            partition.ranges, partition.convicted = left, convicted
            partition.points = {position: given for position, given in partition.points.items() if position >= mark}
            self._forget_empty(place)
        return changed

    def expire(self, now: float) -> bool:
        """Remove suspects that are known by digests and have not killed for long; whether there were some."""
        changed = False
        for place, partition in list(self._partitions.items()):
            old = [digest for digest, at in partition.singles.items() if now - at > EXPIRY]
            for digest in old:
                del partition.singles[digest]
                partition.points.pop(digest, None)
            self._forget_empty(place)
            changed = changed or bool(old)
        return changed

    def halve(self) -> bool:
        """Remove the older half of what is known by digests, for a board that is too large; whether there was some."""
        changed = False
        for partition in self._partitions.values():
            for known in (partition.singles, partition.convicted):
                if partition.digests and known:
                    for digest in list(known)[: (len(known) + 1) // 2]:
                        del known[digest]
                    changed = True
        return changed

    def board(self) -> Board:
        """The board that workers are to see."""
        return Board(0, [(place, list(_entries(partition))) for place, partition in self._partitions.items()])

    def _decisive(self, notes: Sequence[Note], single: Sequence[Note]) -> Note | None:
        if len(notes) == 1:
            return single[0] if single else None
        before = [note for note in notes if any(self._is_suspect(span) for span in note.spans)]
        return before[0] if len(before) == 1 and before[0] in single else None

    def _is_suspect(self, span: Span) -> bool:
        partition = self._partitions.get(_place(span))
        if partition is None:
            return False
        if span.digest:
            return span.first in partition.singles
        return any(first <= span.last and span.first <= last for first, last in partition.ranges)

    def _suspect(self, span: Span, now: float) -> None:
        partition = self._partitions.setdefault(_place(span), _Partition(span.digest))
        if span.digest:
            partition.singles.pop(span.first, None)
            partition.singles[span.first] = now
            return
        first, last = span.first, span.last
        apart = []
        for begin, end in partition.ranges:
            if begin <= last + 1 and first <= end + 1:
                first, last = min(first, begin), max(last, end)
            else:
                apart.append((begin, end))
        insort(apart, (first, last))
        partition.ranges = apart

    def _blame(self, place: Place, position: int, more: int, cause: Cause) -> str | None:
        partition = self._partitions[place]
        points, deaths = partition.points.get(position, (0, 0))
        points, deaths = points + more, deaths + 1
        if points < _ENOUGH:
            partition.points[position] = points, deaths
            return None
        reason = f"{cause.text} while this record was run alone{_TIMES.get(deaths, f', {deaths} times')}"
        partition.points.pop(position, None)
        partition.singles.pop(position, None)
        partition.convicted[position] = reason
        if partition.digests and len(partition.convicted) > MOST_DIGESTS:
            del partition.convicted[next(iter(partition.convicted))]
        return reason

    def _forget_empty(self, place: Place) -> None:
        partition = self._partitions[place]
        if not (partition.ranges or partition.singles or partition.convicted):
            del self._partitions[place]


def _place(span: Span) -> Place:
    return span.service, span.source, span.partition


def _record(note: Note) -> tuple[Place, int]:
    return _place(note.spans[0]), note.spans[0].first


def _entries(partition: _Partition) -> Iterator[Entry]:
    """The entries in order; the convicted divide the suspects around them."""
    guilty = sorted(partition.convicted)
    if partition.digests:
        for digest in sorted({*partition.singles, *guilty}):
            yield Entry(digest, digest, partition.convicted.get(digest, ""), True)
        return
    inside: dict[tuple[int, int], list[int]] = defaultdict(list)
    alone = []
    for position in guilty:
        around = next((r for r in partition.ranges if r[0] <= position <= r[1]), None)
        if around is None:
            alone.append(Entry(position, position, partition.convicted[position]))
        else:
            inside[around].append(position)
    entries = alone
    for first, last in partition.ranges:
        for position in inside[first, last]:
            if first < position:
                entries.append(Entry(first, position - 1))
            entries.append(Entry(position, position, partition.convicted[position]))
            first = position + 1
        if first <= last:
            entries.append(Entry(first, last))
    yield from sorted(entries)
