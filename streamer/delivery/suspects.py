"""`Suspects`: records whose messages a bus refused after it had accepted them, remembered until they are finished.

Such a refusal names a whole request, of which one message was to blame, and voids the transaction with everything in
it. So the records of the request are suspects: when they come again, each is sent in a transaction of its own. What is
refused alone is to blame, and becomes a dead letter when it comes once more, or a shorter one if it was a dead letter.

Records are remembered by partition and position, as they come again as other rows in other lanes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from connectors.records import Lane
from pipelines.data.rowrange import as_array
from pipelines.errors import StepError
from streamer.agent.decodedbatch import DecodedBatch
from streamer.routing.sinkroute import SinkRoute

_Partition = tuple[str, str]


@dataclass(slots=True)
class _Suspect:
    error: StepError | None = None
    """Why its result was refused when it was tried alone; `None`: it was not tried yet, or was not refused."""
    refusals: list[str] = field(default_factory=list)
    """Why its dead letters were refused when they were tried alone."""


class Suspects:
    """Which records are tried alone, and what came of it."""

    def __init__(self) -> None:
        self._found: dict[_Partition, dict[int, _Suspect]] = {}

    def __bool__(self) -> bool:
        return bool(self._found)

    def add(self, decoded: DecodedBatch, row: int) -> None:
        """The record of this row is one of those of which one is to blame."""
        lane, position = _place(decoded, row)
        self._found.setdefault(_partition(lane), {}).setdefault(position, _Suspect())

    def convict(self, decoded: DecodedBatch, row: int, route: SinkRoute, error: Exception, *, letter: bool) -> None:
        """The record of this row was tried alone, and its message for this route was refused; `letter`: a dead one."""
        self.add(decoded, row)
        suspect = self._of(decoded, row)
        assert suspect is not None
        if letter:
            suspect.refusals.append(str(error))
        else:
            suspect.error = StepError.of(f"sink {route.name}", error)

    def rows(self, decoded: DecodedBatch) -> Iterator[tuple[int, StepError | None]]:
        """The rows of suspects in this batch, rising, each with the error that it has failed with if it was convicted
        already."""
        rows = as_array(decoded.rows)
        for lane, start, stop in decoded.records.spans:
            found = self._found.get(_partition(lane))
            if not found:
                continue
            low, high = bisect_left(rows, decoded.first + start), bisect_left(rows, decoded.first + stop)
            positions = decoded.records.positions[rows[low:high] - decoded.first]
            for at in np.flatnonzero(np.isin(positions, list(found))).tolist():
                yield int(rows[low + at]), found[int(positions[at])].error

    def refusals(self, decoded: DecodedBatch, row: int) -> tuple[str, ...]:
        """Why dead letters of this row were refused."""
        suspect = self._of(decoded, row)
        return () if suspect is None else tuple(suspect.refusals)

    def finished(self, positions: Mapping[Lane, int]) -> None:
        """The records below these positions are finished: they do not come again."""
        for lane, end in positions.items():
            found = self._found.get(_partition(lane), {})
            self._keep(lane, {position: suspect for position, suspect in found.items() if position >= end})

    def forget(self, lane: Lane) -> None:
        """Another consumer has the records of this lane."""
        self._keep(lane, {})

    def _keep(self, lane: Lane, found: dict[int, _Suspect]) -> None:
        if found:
            self._found[_partition(lane)] = found
        else:
            self._found.pop(_partition(lane), None)

    def _of(self, decoded: DecodedBatch, row: int) -> _Suspect | None:
        if not self._found:
            return None
        lane, position = _place(decoded, row)
        return self._found.get(_partition(lane), {}).get(position)


def _place(decoded: DecodedBatch, row: int) -> tuple[Lane, int]:
    index = row - decoded.first
    return decoded.records.lane_of(index), int(decoded.records.positions[index])


def _partition(lane: Lane) -> _Partition:
    return lane.source, lane.partition
