"""`Ledger`: which rows are done, and up to which position each lane may be acknowledged.

A *row number* names a record inside the agent, a *position* names it on the bus; both are integers. A *lane* is one
partition of a source during one assignment. One thread owns a ledger. It loops over entries, one for each batch, never
over rows.
"""

from __future__ import annotations

import time
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from connectors.records import Ints, Lane, Records
from pipelines.data.rowrange import RowNumbers, RowRange, as_array, as_range, row_range
from pipelines.errors import StreamerError

Mask = npt.NDArray[np.bool_]
Places: TypeAlias = Ints | slice | None
"""Which rows of an entry, counted from its first: `int64 (n,)`, a slice `[start, stop)`, or `None`: all."""


class LedgerEntry:
    """The rows of one batch.

    A row is complete when it is decided (the pipeline has finished it) and none of its outputs is missing. Nearly
    always all rows of an entry have the same state; then one number stands for all, without work per row.
    """

    __slots__ = (
        "_alike",
        "_all_missing",
        "_all_undecided",
        "_missing",
        "_undecided",
        "byte_count",
        "count",
        "entered_at",
        "first",
        "lanes",
        "note",
    )

    _undecided: Mask
    _missing: npt.NDArray[np.int32]

    def __init__(self, first: int, count: int, byte_count: int, entered_at: float, note: Any = None) -> None:
        """The rows `first`, `first + 1`, ..., `count` of them.

        `note` is any object that the caller of `Ledger.enter` needs again when rows are confirmed.
        """
        self.first = first
        self.count = count
        self.byte_count = byte_count
        self.entered_at = entered_at
        self.note = note
        self.lanes: list[Lane] = []
        """The lanes of its rows."""
        self._all_undecided = True
        self._all_missing = 0
        # `_undecided` and `_missing`, with an element for each row, are made when the first row's state differs.
        self._alike = True

    @property
    def all_undecided(self) -> bool:
        """Whether all rows are undecided."""
        return self._all_undecided if self._alike else bool(self._undecided.all())

    @property
    def undecided(self) -> Mask:
        """Rows that the pipeline has not finished: not run yet, or held by a step."""
        return np.full(self.count, self._all_undecided) if self._alike else self._undecided

    @property
    def is_complete(self) -> bool:
        """Whether all rows are complete."""
        if self._alike:
            return not self._all_undecided and not self._all_missing
        return not self.is_open().any()

    @property
    def is_decided(self) -> bool:
        """Whether the pipeline has finished all rows."""
        return not self._all_undecided if self._alike else not self._undecided.any()

    @property
    def awaits_outputs(self) -> bool:
        """Whether rows that the pipeline has finished wait for outputs."""
        if self._alike:
            return not self._all_undecided and self._all_missing > 0
        return bool((~self._undecided & (self._missing > 0)).any())

    def is_open(self) -> Mask:
        """Which rows are not complete."""
        if self._alike:
            return np.full(self.count, not self.is_complete)
        waiting: Mask = self._missing > 0
        waiting |= self._undecided
        return waiting

    def first_open(self, start: int, stop: int) -> int:
        """The first of the rows `[start, stop)` that is not complete; `stop` if all are."""
        if self._alike:
            return stop if self.is_complete else start
        waiting = self.is_open()[start:stop]
        return start + int(np.argmax(waiting)) if waiting.any() else stop

    def is_row_open(self, place: int) -> bool:
        """Whether the row at this place is not complete."""
        if self._alike:
            return not self.is_complete
        return bool(self._undecided[place] or self._missing[place])

    def expect(self, places: Places) -> None:
        """Each of these rows that is not complete waits for one more output; an array may repeat a row."""
        if places is None and self._alike:
            self._all_missing += not self.is_complete
            return
        self._tell_apart()
        if places is None or isinstance(places, slice):
            at = slice(None) if places is None else places
            self._missing[at] += self.is_open()[at]
            return
        self._missing += np.bincount(places, minlength=self.count) * self.is_open()

    def decide(self, places: Places) -> None:
        """The pipeline has finished these rows: they wait only for their outputs."""
        if places is None and self._alike:
            self._all_undecided = False
            return
        self._tell_apart()
        self._undecided[slice(None) if places is None else places] = False

    def lower(self, places: Places) -> None:
        """Each of these rows waits for one output less; an array may repeat a row."""
        if places is None and self._alike:
            self._all_missing = max(self._all_missing - 1, 0)
            return
        self._tell_apart()
        if places is None or isinstance(places, slice):
            self._missing[slice(None) if places is None else places] -= 1
        else:
            self._missing -= np.bincount(places, minlength=self.count)
        np.maximum(self._missing, 0, out=self._missing)

    def wait_for(self, place: int, outputs: int) -> None:
        """This row waits for `outputs` outputs."""
        self._tell_apart()
        self._missing[place] = outputs

    def forget(self, start: int, stop: int) -> None:
        """The rows `[start, stop)` are complete, even if they waited for outputs."""
        self._tell_apart()
        self._undecided[start:stop] = False
        self._missing[start:stop] = 0

    def _tell_apart(self) -> None:
        if self._alike:
            self._undecided = np.full(self.count, self._all_undecided)
            self._missing = np.full(self.count, self._all_missing, np.int32)
            self._alike = False


class Confirmed(NamedTuple):
    """Rows of one entry that were confirmed."""

    entry: LedgerEntry
    rows: Places
    """Their places in the entry; `None`: all."""


@dataclass(slots=True)
class _Run:
    entry: LedgerEntry
    start: int
    stop: int
    positions: Ints
    """Of the whole entry."""


@dataclass(slots=True)
class _LaneState:
    runs: deque[_Run] = field(default_factory=deque)
    uncounted: list[_Run] = field(default_factory=list)
    """Those whose positions do not count for `mark`."""
    mark: int = -1
    reported_mark: int = -1


class Ledger:
    """Tracks rows from `enter` to completion.

    The order that loses nothing: `expect` the outputs of rows, `decide` the rows, send the outputs, `confirm` them.
    `marks` gives, lane by lane, the position after the longest prefix of complete rows. Calls about rows that are
    complete, or whose lane has ended, change nothing.
    """

    def __init__(
        self,
        freed: Callable[[int], None] = lambda byte_count: None,
        grown: Callable[[int], None] = lambda byte_count: None,
    ) -> None:
        """`freed` is called with the bytes of an entry when its last row is complete, `grown` with those that it got
        after it was entered."""
        self._freed = freed
        self._grown = grown
        self._entries: list[LedgerEntry] = []
        self._firsts: list[int] = []
        self._lanes: dict[Lane, _LaneState] = {}
        self._ended: dict[tuple[str, str], int] = {}
        self._left: dict[tuple[str, str], int] = {}

    def enter(self, records: Records, first: int, note: Any = None, *, counted: bool = True) -> LedgerEntry:
        """Enter a batch of records as rows `first`, `first + 1`, ..., all undecided; `note` goes into its entry.

        Rows of a lane that has ended are complete at once, and never acknowledged. `counted`: whether their positions
        count for those of their lanes.
        """
        at = bisect_right(self._firsts, first)
        if at and self._entries[at - 1].first + self._entries[at - 1].count > first:
            raise StreamerError(f"row {first} was entered before")
        entry = LedgerEntry(first, len(records), records.byte_count, time.monotonic(), note)
        entry.lanes = [span.lane for span in records.spans]
        self._entries.insert(at, entry)
        self._firsts.insert(at, first)
        for lane, start, stop in records.spans:
            if self._ended and self.has_ended(lane):
                entry.forget(start, stop)
                self._release_if_complete(entry)
                continue
            if self._left and self.is_left(lane):
                continue
            state = self._lanes.get(lane)
            if state is None:
                state = self._lanes[lane] = _LaneState()
            run = _Run(entry, start, stop, records.positions)
            if counted:
                state.runs.append(run)
            else:
                state.uncounted.append(run)
        return entry

    @property
    def awaits_outputs(self) -> bool:
        """Whether rows that the pipeline has finished wait for outputs."""
        return any(entry.awaits_outputs for entry in self._entries)

    @property
    def has_open_rows(self) -> bool:
        """Whether there are rows that are not complete."""
        return bool(self._entries)

    def expect(self, rows: RowNumbers) -> None:
        """These rows wait for one more output each; a row may stand several times."""
        for entry, places in self._by_entry(rows):
            entry.expect(places)

    def decide(self, rows: RowNumbers) -> None:
        """The pipeline has finished these rows: from now on they wait only for the outputs expected of them."""
        for entry, places in self._by_entry(rows):
            entry.decide(places)
            self._release_if_complete(entry)

    def confirm(self, rows: RowNumbers) -> list[Confirmed]:
        """One output of each of these rows is confirmed; a row may stand several times."""
        confirmed = [Confirmed(entry, places) for entry, places in self._by_entry(rows)]
        for entry, places in confirmed:
            entry.lower(places)
            self._release_if_complete(entry)
        return confirmed

    def grow(self, row: int, byte_count: int) -> None:
        """What is in memory for the entry of this row takes so many more bytes."""
        entry = self.open_entry(row)
        if entry is not None:
            entry.byte_count += byte_count
            self._grown(byte_count)

    def let_go(self, entry: LedgerEntry) -> None:
        """Give the bytes of an entry back before it is complete: its payloads are no longer in memory."""
        byte_count, entry.byte_count = entry.byte_count, 0
        if byte_count:
            self._freed(byte_count)

    def wait_for(self, row: int, outputs: int) -> None:
        """This row waits for `outputs` outputs, in place of those that it waited for before."""
        entry = self.open_entry(row)
        if entry is not None:
            entry.wait_for(row - entry.first, outputs)
            self._release_if_complete(entry)

    def end(self, lane: Lane) -> None:
        """The lane has ended: no more of its positions are acknowledged, and its rows are complete."""
        place = (lane.source, lane.partition)
        # Epochs rise: the highest that has ended stands for all earlier lanes of the partition.
        self._ended[place] = max(lane.epoch, self._ended.get(place, lane.epoch))
        state = self._lanes.pop(lane, None)
        if state is None:
            return
        for run in [*state.runs, *state.uncounted]:
            run.entry.forget(run.start, run.stop)
            self._release_if_complete(run.entry)

    def leave(self, lane: Lane) -> None:
        """The lane's positions are no longer acknowledged, but its rows are finished: its records do not come again."""
        place = (lane.source, lane.partition)
        self._left[place] = max(lane.epoch, self._left.get(place, lane.epoch))
        self._lanes.pop(lane, None)

    def is_left(self, lane: Lane) -> bool:
        """Whether this lane, or a later one of its partition, was left."""
        return lane.epoch <= self._left.get((lane.source, lane.partition), -1)

    def has_ended(self, lane: Lane) -> bool:
        """Whether this lane, or a later one of its partition, has ended."""
        return lane.epoch <= self._ended.get((lane.source, lane.partition), -1)

    def has_open(self, lane: Lane) -> bool:
        """Whether a batch with records of this lane, ended or not, is not complete."""
        return any(lane in entry.lanes for entry in self._entries)

    def open_entry(self, row: int) -> LedgerEntry | None:
        """The entry of this row; `None` if the row is complete, or was never entered."""
        at = bisect_right(self._firsts, row) - 1
        entry = self._entries[at] if at >= 0 else None
        if entry is None or row >= entry.first + entry.count:
            return None
        return entry if entry.is_row_open(row - entry.first) else None

    def note_of(self, row: int) -> Any:
        """The note of this row's entry; `None` as `open_entry`."""
        entry = self.open_entry(row)
        return None if entry is None else entry.note

    def open_among(self, rows: RowNumbers) -> list[tuple[LedgerEntry, Ints]]:
        """The incomplete ones of these rows, entry by entry."""
        entries: list[tuple[LedgerEntry, Ints]] = []
        for entry, places in self._by_entry(rows):
            numbers, is_open = as_array(row_range(entry.first, entry.count)), entry.is_open()
            left = numbers[is_open] if places is None else numbers[places][is_open[places]]
            if len(left):
                entries.append((entry, left))
        return entries

    def marks(self, sources: Collection[str] | None = None) -> dict[Lane, int]:
        """Positions that may be acknowledged, of lanes whose position has changed since the last call for them.

        `sources` names the sources of the lanes; `None`: all.
        """
        moved: dict[Lane, int] = {}
        for lane, state in self._lanes.items():
            if sources is not None and lane.source not in sources:
                continue
            self._advance(state)
            if state.mark > state.reported_mark:
                state.reported_mark = state.mark
                moved[lane] = state.mark
        return moved

    def all_marks(self, lanes: Iterable[Lane]) -> dict[Lane, int]:
        """Positions that may be acknowledged for these lanes, moved or not; lanes without any are left out."""
        marks: dict[Lane, int] = {}
        for lane in lanes:
            state = self._lanes.get(lane)
            if state is None:
                continue
            self._advance(state)
            if state.mark >= 0:
                marks[lane] = state.mark
        return marks

    def lanes_of(self, rows: Iterable[int]) -> set[Lane]:
        """The lanes (not ended) that these rows belong to."""
        wanted = sorted(rows)
        lanes: set[Lane] = set()
        for lane, state in self._lanes.items():
            for run in [*state.runs, *state.uncounted]:
                low = bisect_right(wanted, run.entry.first + run.start - 1)
                if low < len(wanted) and wanted[low] < run.entry.first + run.stop:
                    lanes.add(lane)
                    break
        return lanes

    @property
    def open_rows(self) -> int:
        """Rows that are not complete."""
        return sum(int(np.count_nonzero(entry.is_open())) for entry in self._entries)

    def oldest(self) -> float | None:
        """When the oldest incomplete entry was made, on `time.monotonic`; `None` if all rows are complete."""
        return min((entry.entered_at for entry in list(self._entries)), default=None)

    def _by_entry(self, rows: RowNumbers) -> Iterable[tuple[LedgerEntry, Places]]:
        """The entries of these rows, each with the places of its rows; complete entries are no longer known."""
        positions = rows if isinstance(rows, range) else as_range(rows)
        if positions is None:
            return self._searched(as_array(rows))
        at = bisect_left(self._firsts, positions.start)
        if at < len(self._firsts):
            entry = self._entries[at]
            if entry.first == positions.start and entry.first + entry.count == positions.stop:
                return ((entry, None),)
        return self._in_range(positions)

    def _in_range(self, rows: RowRange) -> Iterator[tuple[LedgerEntry, Places]]:
        at = max(bisect_right(self._firsts, rows.start) - 1, 0)
        # A copy, as entries may be released meanwhile.
        for entry in self._entries[at : bisect_left(self._firsts, rows.stop)]:
            start, stop = max(rows.start - entry.first, 0), min(rows.stop - entry.first, entry.count)
            if start < stop:
                yield entry, slice(start, stop)

    def _searched(self, rows: Ints) -> Iterator[tuple[LedgerEntry, Places]]:
        while len(rows):
            at = bisect_right(self._firsts, int(rows[0])) - 1
            entry = self._entries[at] if at >= 0 else None
            if entry is None or rows[0] >= entry.first + entry.count:
                # Their entry is complete and released: they belonged to a lane that has ended.
                above = self._firsts[at + 1] if at + 1 < len(self._firsts) else None
                rows = rows[rows < rows[0]] if above is None else rows[(rows < rows[0]) | (rows >= above)]
                continue
            places = rows - entry.first
            inside = (places >= 0) & (places < entry.count)
            if inside.all():
                rows = rows[:0]
            else:
                rows, places = rows[~inside], places[inside]
            yield entry, places

    def _release_if_complete(self, entry: LedgerEntry) -> None:
        if not entry.is_complete:
            return
        at = bisect_right(self._firsts, entry.first) - 1
        if at >= 0 and self._entries[at] is entry:
            del self._entries[at], self._firsts[at]
            self.let_go(entry)
            # The runs of lanes refer to the records too: advance the lanes now, to free the memory before `marks`.
            for lane in entry.lanes:
                if (state := self._lanes.get(lane)) is not None:
                    self._advance(state)

    @staticmethod
    def _advance(state: _LaneState) -> None:
        if state.uncounted:
            state.uncounted = [run for run in state.uncounted if not run.entry.is_complete]
        runs = state.runs
        while runs:
            run = runs[0]
            first_open = run.entry.first_open(run.start, run.stop)
            if first_open > run.start:
                state.mark = int(run.positions[first_open - 1]) + 1
            if first_open < run.stop:
                return
            runs.popleft()
