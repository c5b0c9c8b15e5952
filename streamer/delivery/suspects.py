"""`Suspects`: records whose messages a bus refused after it had accepted them, kept until they are finished.

Such a refusal names a whole request, of which one message was to blame, and voids the transaction with everything in
it. So the records of the request are suspects. When they come again, each half of them is sent in a transaction of its
own: the half that is refused is halved again, the other half is accepted. A record that is refused alone is to blame:
it becomes a dead letter when it comes once more, or a shorter dead letter if it was one already.

Records are kept by partition and position, as they come again as other rows in other lanes. So are rows that time
makes, by the position of the record that they belong to. These cannot be sent apart, as the state that has made them is
saved as a whole: those of a request that is refused twice are all to blame.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from connectors.records import Ints, Lane
from pipelines.data.rowrange import as_array
from pipelines.errors import StepError
from streamer.agent.decodedbatch import DecodedBatch
from streamer.routing.sinkroute import SinkRoute

_Partition = tuple[str, str, bool]
"""Source, partition, and whether rows of it are those that time makes."""
_Place = tuple[_Partition, int]
"""A row's partition and position."""


@dataclass(slots=True)
class _Suspect:
    group: int
    error: StepError | None = None
    """Why its result was refused when it was tried alone; `None`: it was not tried yet, or was not refused."""
    refusals: list[str] = field(default_factory=list)
    """Why its dead letters were refused when they were tried alone."""


class Suspected(NamedTuple):
    """A row whose record is a suspect."""

    row: int
    group: int
    """Suspects of different groups are not sent in one transaction."""
    alone: bool
    """Whether the group has no others: then its messages are the only ones in their transaction."""
    error: StepError | None
    """The error that the record has failed with, if it was convicted already."""


class Part(NamedTuple):
    """Rows of a batch that are sent in one transaction. Rows without suspects may share it."""

    rows: Ints
    group: int | None
    """The group of suspects among them; `None` if there are none."""
    alone: bool = False
    """Whether the one row is to be alone in a transaction."""


class Suspects:
    """The suspects of a service: in which groups they are tried, and which were refused alone."""

    def __init__(self) -> None:
        self._suspects: dict[_Partition, dict[int, _Suspect]] = {}
        self._sizes: Counter[int] = Counter()
        """How many suspects each group has."""
        self._last = 0

    def __bool__(self) -> bool:
        return bool(self._suspects)

    def add(self, rows: Sequence[tuple[DecodedBatch, int]]) -> None:
        """The records of these rows are those of which one is to blame: two groups of half of them each.

        If some of them were suspects before, only these are suspects now: the others were accepted once without them.
        If that was wrong, the others are found later. Earlier suspects that lie between them (several requests may be
        refused at a time) join the half that they lie in: positions are committed in order, so groups that alternate
        would be sent row by row.
        """
        places = [_place(decoded, row) for decoded, row in rows]
        known = [place for place in places if self._at(place) is not None]
        suspected = sorted(known or places)
        half = (len(suspected) + 1) // 2
        groups = self._last + 1, self._last + 2
        self._last += 2
        for place in (*suspected, *self._between(suspected)):
            self._move(place, groups[place > suspected[half - 1]])

    def _between(self, places: Sequence[_Place]) -> list[_Place]:
        """Further suspects of a partition between the first and the last of these, which rise."""
        named = set(places)
        ends: dict[_Partition, tuple[int, int]] = {}
        for partition, position in places:
            first, _ = ends.get(partition, (position, position))
            ends[partition] = first, position
        return [
            (partition, position)
            for partition, (first, last) in ends.items()
            for position, suspect in self._suspects.get(partition, {}).items()
            if first < position < last and suspect.error is None and (partition, position) not in named
        ]

    def is_suspect(self, decoded: DecodedBatch, row: int) -> bool:
        """Whether the record of this row is a suspect already."""
        return self._at(_place(decoded, row)) is not None

    def convict(self, decoded: DecodedBatch, row: int, route: SinkRoute, error: Exception, *, letter: bool) -> None:
        """The record of this row was tried alone, and its message for this route was refused; `letter`: a dead one."""
        self._last += 1
        suspect = self._move(_place(decoded, row), self._last)
        if letter:
            suspect.refusals.append(str(error))
        else:
            suspect.error = StepError.of(f"sink {route.name}", error)

    def rows(self, decoded: DecodedBatch) -> Iterator[Suspected]:
        """The rows of suspects in this batch, rising."""
        rows = as_array(decoded.rows)
        for lane, start, stop in decoded.records.spans:
            suspects = self._suspects.get(_partition(lane, timed=decoded.timed))
            if not suspects:
                continue
            low, high = bisect_left(rows, decoded.first + start), bisect_left(rows, decoded.first + stop)
            positions = decoded.records.positions[rows[low:high] - decoded.first]
            for at in np.flatnonzero(np.isin(positions, list(suspects))).tolist():
                suspect = suspects[int(positions[at])]
                alone = self._sizes[suspect.group] == 1
                yield Suspected(int(rows[low + at]), suspect.group, alone, suspect.error)

    def convicted(self, decoded: DecodedBatch) -> dict[int, Exception]:
        """The errors of the records of this batch whose results were refused when they were tried alone."""
        suspects = self.rows(decoded) if self._suspects else ()
        return {suspect.row: suspect.error for suspect in suspects if suspect.error is not None}

    def parts(self, decoded: DecodedBatch) -> Iterator[Part]:
        """The rows of a batch in their order. Rows between suspects of one group are in the part of that group, as the
        positions of a lane are committed in order."""
        rows = as_array(decoded.rows)
        start, group = 0, None
        # A list, as suspects are added and removed while their parts are sent.
        for suspect in list(self.rows(decoded)) if self._suspects else ():
            if suspect.group == group:
                continue
            at = int(np.searchsorted(rows, suspect.row))
            if at > start:
                yield Part(rows[start:at], group)
            start, group = at, suspect.group
            if suspect.alone:
                yield Part(rows[at : at + 1], group, alone=True)
                start, group = at + 1, None
        if start < len(rows):
            yield Part(rows[start:], group)

    def part(self, decoded: DecodedBatch) -> Part:
        """All rows of a batch that is sent in one transaction, with the last of its groups."""
        last = max(self.rows(decoded), default=None) if self._suspects else None
        if last is None:
            return Part(as_array(decoded.rows), None)
        return Part(as_array(decoded.rows), last.group, last.alone and len(decoded.rows) == 1)

    def refusals(self, decoded: DecodedBatch, row: int) -> tuple[str, ...]:
        """Why dead letters of this row were refused."""
        suspect = self._at(_place(decoded, row)) if self._suspects else None
        return () if suspect is None else tuple(suspect.refusals)

    def finished(self, positions: Mapping[Lane, int]) -> None:
        """The records below these positions are finished: they do not come again."""
        for lane, end in positions.items():
            self._drop(_partition(lane), range(end))

    def finished_rows(self, decoded: DecodedBatch, rows: Ints) -> None:
        """These rows of a batch, which time made, are finished."""
        for row in rows.tolist() if self._suspects else ():
            partition, position = _place(decoded, row)
            self._drop(partition, (position,))

    def forget(self, lane: Lane) -> None:
        """Another consumer has the records of this lane."""
        for timed in (False, True):
            partition = _partition(lane, timed=timed)
            self._drop(partition, self._suspects.get(partition, ()))

    def _drop(self, partition: _Partition, positions: Container[int]) -> None:
        suspects = self._suspects.get(partition, {})
        for position in [position for position in suspects if position in positions]:
            self._leave(suspects.pop(position).group)
        if not suspects:
            self._suspects.pop(partition, None)

    def _move(self, place: _Place, group: int) -> _Suspect:
        partition, position = place
        suspects = self._suspects.setdefault(partition, {})
        suspect = suspects.get(position)
        if suspect is None:
            suspect = suspects[position] = _Suspect(group)
        else:
            self._leave(suspect.group)
            suspect.group = group
        self._sizes[group] += 1
        return suspect

    def _leave(self, group: int) -> None:
        self._sizes[group] -= 1
        if not self._sizes[group]:
            del self._sizes[group]

    def _at(self, place: _Place) -> _Suspect | None:
        partition, position = place
        return self._suspects.get(partition, {}).get(position)


def _place(decoded: DecodedBatch, row: int) -> _Place:
    index = row - decoded.first
    lane = decoded.records.lane_of(index)
    return _partition(lane, timed=decoded.timed), int(decoded.records.positions[index])


def _partition(lane: Lane, *, timed: bool = False) -> _Partition:
    return lane.source, lane.partition, timed
