"""`WaitingRecords`: which records wait for others of their key, which belong together, and which wait in vain.

Times are milliseconds since 1970. A *side* is the number of a topic among those that are joined.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Final

from pipelines.runners.state.lastrecords import BareRecord
from pipelines.runners.state.tickclock import TickClock

Place = tuple[Hashable, Hashable]
"""The partition and the key that records which belong together have in common."""
_NOT_KEPT: Final = BareRecord(None)


@dataclass(slots=True, eq=False)
class Waiting:
    """A record that waits."""

    place: Place
    lane: Hashable
    side: int
    time: int
    number: int
    """It rises from record to record."""
    since: float
    """When it began to wait, on the clock of `WaitingRecords`."""
    row: int = -1
    """Its position in the batch that is run; -1: it came earlier, and `record` and `payload` are known."""
    record: BareRecord = _NOT_KEPT
    payload: bytes = b""
    """Its values, as a ProtoData message."""
    over: bool = False
    """Whether it waited in vain."""
    saved: bool = False
    order: tuple[int, int] = field(init=False)
    """Records that belong to others are chosen in this order."""

    def __post_init__(self) -> None:
        self.order = (self.time, self.number)


_ORDER: Final[Callable[[Waiting], tuple[int, int]]] = attrgetter("order")


@dataclass(slots=True)
class _Progress:
    """How far the records of a topic have come, in a partition."""

    time: int
    """The latest time of a record."""
    heard: float
    """When the last one came, on the clock of `WaitingRecords`."""


class WaitingRecords:
    """The records that wait, each in its lane and on its side. Used by one thread.

    What belongs together depends on the order of records alone, not on how they are batched.
    """

    def __init__(self, sides: int, within: int, lateness: int, most: int) -> None:
        """Records of all `sides` belong together whose times are at most `within` apart. `most`: records of a lane."""
        self._sides = sides
        self._within = within
        self._past = within + lateness
        self._most = most
        self._of: dict[Place, list[list[Waiting]]] = {}
        self._lanes: dict[Hashable, OrderedDict[Waiting, None]] = {}
        """The records of each lane, in the order in which they are due."""
        self._progress: dict[tuple[Hashable, int], _Progress] = {}
        self._next = 0
        self.over: dict[Waiting, None] = {}
        """The records that waited in vain, until they are removed."""
        self.changed: dict[Waiting, None] = {}
        """Those that are not saved as they are."""
        self.gone: dict[tuple[Hashable, Hashable, int], None] = {}
        """Lane, key and number of records that are saved and no longer there."""
        self.pushed_out = 0
        """Records that waited in vain because there were too many."""
        self.clock = TickClock()

    def __len__(self) -> int:
        """The number of records that wait."""
        return sum(map(len, self._lanes.values()))

    def arrive(self, place: Place, lane: Hashable, side: int, time: int, row: int) -> Sequence[Waiting] | Waiting:
        """A record comes: the records that it belongs together with, which wait no longer; or itself, if it waits."""
        progress = self._progress.get((place[0], side))
        if progress is None:
            self._progress[place[0], side] = _Progress(time, self.clock.seconds)
        else:
            progress.time = max(progress.time, time)
            progress.heard = self.clock.seconds
        sides = self._of.get(place)
        if sides is None:
            sides = self._of[place] = [[] for _ in range(self._sides)]
        else:
            self._pass(sides, side, time)
            picked = self._picked(sides, side, time)
            if picked is not None:
                for each in picked:
                    self._stop(each)
                    self.remove(each)
                return picked
        waiting = Waiting(place, lane, side, time, self._next, self.clock.seconds, row)
        self._next += 1
        # Those that were there may have ended, all of them.
        self._of[place] = sides
        insort(sides[side], waiting, key=_ORDER)
        self.changed[waiting] = None
        of_lane = self._lanes.get(lane)
        if of_lane is None:
            of_lane = self._lanes[lane] = OrderedDict()
        of_lane[waiting] = None
        if len(of_lane) > self._most:
            self.pushed_out += 1
            self._end(next(iter(of_lane)))
        return waiting

    def _pass(self, sides: list[list[Waiting]], side: int, time: int) -> None:
        """End the records that could only belong together with earlier ones of this side, unless one of these waits."""
        for other, records in enumerate(sides):
            if other == side:
                continue
            for waiting in records[: bisect_left(records, (time - self._past, -1), key=_ORDER)]:
                at = bisect_left(sides[side], (waiting.time - self._within, -1), key=_ORDER)
                if at == len(sides[side]) or sides[side][at].time > waiting.time + self._within:
                    self._end(waiting)

    def _picked(self, sides: list[list[Waiting]], side: int, time: int) -> list[Waiting] | None:
        """A record of each other side, all of which are within the time of each other and of this one."""
        least = time - self._within
        while True:
            picked = []
            for other, records in enumerate(sides):
                if other == side:
                    continue
                at = bisect_left(records, (least, -1), key=_ORDER)
                if at == len(records) or records[at].time > time + self._within:
                    return None
                picked.append(records[at])
            if len(picked) == 1:
                return picked
            times = [time, *(waiting.time for waiting in picked)]
            if max(times) - min(times) <= self._within:
                return picked
            # The earliest is too early for the latest, and for all that are later.
            least = min(times) + 1

    def fail(self, waiting: Waiting) -> None:
        """A record that began to wait cannot."""
        if waiting not in self.over:
            self._stop(waiting)
        self.remove(waiting)

    def remove(self, waiting: Waiting) -> None:
        """A record that has stopped waiting is done with: what is saved of it has to go."""
        self.over.pop(waiting, None)
        self.changed.pop(waiting, None)
        if waiting.saved:
            self.gone[waiting.lane, waiting.place[1], waiting.number] = None

    def end_old(self, patience: float) -> None:
        """End the records that have waited so many seconds of the clock, in which all was run that had come.

        Not those of a partition in which records of another side have come since that are older still.
        """
        for of_lane in list(self._lanes.values()):
            while of_lane:
                waiting = next(iter(of_lane))
                if self.clock.caught_up - waiting.since < patience:
                    break
                if self._is_ahead(waiting):
                    waiting.since = self.clock.seconds
                    of_lane.move_to_end(waiting)
                else:
                    self._end(waiting)

    def end_all(self) -> None:
        """End all records."""
        for waiting in list(self._all()):
            self._end(waiting)

    def load(self, waiting: Waiting) -> None:
        """Put back a record that was saved, in the order of their numbers within a lane."""
        self._next = max(self._next, waiting.number + 1)
        waiting.saved = True
        if waiting.over:
            self.over[waiting] = None
            return
        waiting.since = self.clock.seconds
        sides = self._of.setdefault(waiting.place, [[] for _ in range(self._sides)])
        insort(sides[waiting.side], waiting, key=_ORDER)
        self._lanes.setdefault(waiting.lane, OrderedDict())[waiting] = None

    def forget(self, lanes: Iterable[Hashable], partitions: Iterable[Hashable]) -> None:
        """Forget the records of these lanes; what is saved of them stays. Of other `partitions` none is left."""
        lanes = set(lanes)
        for lane in lanes:
            for waiting in list(self._lanes.get(lane, ())):
                self._stop(waiting)
        self.over = {waiting: None for waiting in self.over if waiting.lane not in lanes}
        self.changed = {waiting: None for waiting in self.changed if waiting.lane not in lanes}
        self.gone = {gone: None for gone in self.gone if gone[0] not in lanes}
        left = set(partitions)
        self._progress = {place: known for place, known in self._progress.items() if place[0] in left}

    def _is_ahead(self, waiting: Waiting) -> bool:
        known = (self._progress.get((waiting.place[0], side)) for side in range(self._sides) if side != waiting.side)
        return any(each is not None and each.heard > waiting.since and each.time < waiting.time for each in known)

    def _all(self) -> Iterator[Waiting]:
        for of_lane in self._lanes.values():
            yield from of_lane

    def _end(self, waiting: Waiting) -> None:
        """A record waited in vain."""
        self._stop(waiting)
        waiting.over = True
        self.over[waiting] = None
        self.changed[waiting] = None

    def _stop(self, waiting: Waiting) -> None:
        """A record waits no longer."""
        of_lane = self._lanes[waiting.lane]
        del of_lane[waiting]
        if not of_lane:
            del self._lanes[waiting.lane]
        sides = self._of[waiting.place]
        records = sides[waiting.side]
        at = bisect_left(records, waiting.order, key=_ORDER)
        while records[at] is not waiting:
            at += 1
        del records[at]
        if not any(sides):
            del self._of[waiting.place]
