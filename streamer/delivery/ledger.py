"""The ledger: which rows are done, and how far each lane may be acknowledged.

Integers only. A *row number* names a record inside the agent, a *position* names it on the bus. One thread
owns a ledger. All work is per block (a batch as it was taken), none per row in Python.
"""

from __future__ import annotations

import time
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from connectors.records import Ints, Lane, Records
from pipelines.data.rowrange import RowNumbers, RowRange, as_array, as_range, row_range
from pipelines.errors import StreamerError
from streamer.delivery.block import Block, Places


class Confirmed(NamedTuple):
    """Rows of one block that were confirmed."""

    block: Block
    rows: Places
    """Their places in the block; `None`: all."""


@dataclass(slots=True)
class _Run:
    block: Block
    start: int
    stop: int
    positions: Ints
    """Of the whole block."""


@dataclass(slots=True)
class _LaneState:
    runs: deque[_Run] = field(default_factory=deque)
    mark: int = -1
    told: int = -1


class Ledger:
    """Tracks rows from `take` to completion.

    The order that loses nothing: `expect` the outputs of rows, `decide` the rows, send the outputs, `confirm` them.
    `marks` gives, lane by lane, the position after the longest prefix of complete rows. What is said of rows that
    are complete, or whose lane has ended, changes nothing.
    """

    def __init__(self, freed: Callable[[int], None] = lambda byte_count: None) -> None:
        """`freed` is told the bytes of each block when its last row is complete."""
        self._freed = freed
        self._blocks: list[Block] = []
        self._firsts: list[int] = []
        self._lanes: dict[Lane, _LaneState] = {}
        self._ended: dict[tuple[str, str], int] = {}
        self._left: dict[tuple[str, str], int] = {}

    def take(self, records: Records, first: int, note: Any = None) -> Block:
        """Enter a block of records as rows `first`, `first + 1`, ..., all undecided.

        Rows of a lane that has ended are complete at once: nobody may acknowledge them.
        """
        at = bisect_right(self._firsts, first)
        if at and self._blocks[at - 1].first + self._blocks[at - 1].count > first:
            raise StreamerError(f"row {first} was taken before")
        block = Block(first, len(records), records.byte_count, time.monotonic(), note)
        block.lanes = [span.lane for span in records.spans]
        self._blocks.insert(at, block)
        self._firsts.insert(at, first)
        for lane, start, stop in records.spans:
            if self._ended and self.has_ended(lane):
                block.forget(start, stop)
                self._release_if_complete(block)
                continue
            if self._left and self.is_left(lane):
                continue
            state = self._lanes.get(lane)
            if state is None:
                state = self._lanes[lane] = _LaneState()
            state.runs.append(_Run(block, start, stop, records.positions))
        return block

    def expect(self, rows: RowNumbers) -> None:
        """These rows wait for one more output each; a row may stand several times."""
        for block, places in self._by_block(rows):
            block.expect(places)

    def decide(self, rows: RowNumbers) -> None:
        """The pipeline is done with these rows: they wait for their outputs alone, if there are any."""
        for block, places in self._by_block(rows):
            block.decide(places)
            self._release_if_complete(block)

    def confirm(self, rows: RowNumbers) -> list[Confirmed]:
        """One output of each of these rows is confirmed; a row may stand several times."""
        found = [Confirmed(block, places) for block, places in self._by_block(rows)]
        for block, places in found:
            block.lower(places)
            self._release_if_complete(block)
        return found

    def forgo(self, rows: RowNumbers) -> None:
        """One output of each of these rows will not come, and nothing is lost by that: its sink refused it."""
        self.confirm(rows)

    def wait_for(self, row: int, outputs: int) -> None:
        """This row waits for so many outputs, whatever it waited for before."""
        block = self.open_block(row)
        if block is not None:
            block.wait_for(row - block.first, outputs)
            self._release_if_complete(block)

    def end(self, lane: Lane) -> None:
        """The lane is over: it acknowledges nothing more, and its rows hold nothing up."""
        place = (lane.source, lane.partition)
        # Epochs rise, so that one number says it of all lanes that a partition ever had.
        self._ended[place] = max(lane.epoch, self._ended.get(place, lane.epoch))
        state = self._lanes.pop(lane, None)
        if state is None:
            return
        for run in state.runs:
            run.block.forget(run.start, run.stop)
            self._release_if_complete(run.block)

    def leave(self, lane: Lane) -> None:
        """The lane acknowledges nothing more, and nobody gets its records again: its rows are finished all the same."""
        place = (lane.source, lane.partition)
        self._left[place] = max(lane.epoch, self._left.get(place, lane.epoch))
        self._lanes.pop(lane, None)

    def is_left(self, lane: Lane) -> bool:
        """Whether this lane, or a later one of its partition, was left."""
        return lane.epoch <= self._left.get((lane.source, lane.partition), -1)

    def has_ended(self, lane: Lane) -> bool:
        """Whether this lane, or a later one of its partition, has ended."""
        return lane.epoch <= self._ended.get((lane.source, lane.partition), -1)

    def open_block(self, row: int) -> Block | None:
        """The block of this row; `None` if the row is complete, or was never taken."""
        at = bisect_right(self._firsts, row) - 1
        block = self._blocks[at] if at >= 0 else None
        if block is None or row >= block.first + block.count:
            return None
        return block if block.is_row_open(row - block.first) else None

    def open_among(self, rows: RowNumbers) -> list[tuple[Block, Ints]]:
        """Those of these rows that are not complete, block by block."""
        found: list[tuple[Block, Ints]] = []
        for block, places in self._by_block(rows):
            numbers, is_open = as_array(row_range(block.first, block.count)), block.is_open()
            left = numbers[is_open] if places is None else numbers[places][is_open[places]]
            if len(left):
                found.append((block, left))
        return found

    def marks(self, sources: Collection[str] | None = None) -> dict[Lane, int]:
        """Positions that may be acknowledged, for lanes whose position moved since the last call that asked for them.

        `sources` names those whose lanes are asked for; `None`: all.
        """
        moved: dict[Lane, int] = {}
        for lane, state in self._lanes.items():
            if sources is not None and lane.source not in sources:
                continue
            self._advance(state)
            if state.mark > state.told:
                state.told = state.mark
                moved[lane] = state.mark
        return moved

    def all_marks(self, lanes: Iterable[Lane]) -> dict[Lane, int]:
        """Positions that may be acknowledged for these lanes, moved or not; lanes without any are left out."""
        found: dict[Lane, int] = {}
        for lane in lanes:
            state = self._lanes.get(lane)
            if state is None:
                continue
            self._advance(state)
            if state.mark >= 0:
                found[lane] = state.mark
        return found

    def lanes_of(self, rows: Iterable[int]) -> set[Lane]:
        """The lanes (not ended) that these rows belong to."""
        wanted = sorted(rows)
        found: set[Lane] = set()
        for lane, state in self._lanes.items():
            for run in state.runs:
                low = bisect_right(wanted, run.block.first + run.start - 1)
                if low < len(wanted) and wanted[low] < run.block.first + run.stop:
                    found.add(lane)
                    break
        return found

    @property
    def open_rows(self) -> int:
        """Rows that are not complete."""
        return sum(int(np.count_nonzero(block.is_open())) for block in self._blocks)

    def oldest(self) -> float | None:
        """When the oldest incomplete block was taken, on `time.monotonic`; `None` if all is complete."""
        return min((block.taken_at for block in list(self._blocks)), default=None)

    def _by_block(self, rows: RowNumbers) -> Iterable[tuple[Block, Places]]:
        """The blocks of these rows that are not forgotten, each with the places of its rows."""
        found = rows if isinstance(rows, range) else as_range(rows)
        if found is None:
            return self._searched(as_array(rows))
        at = bisect_left(self._firsts, found.start)
        if at < len(self._firsts):
            block = self._blocks[at]
            if block.first == found.start and block.first + block.count == found.stop:
                return ((block, None),)
        return self._in_range(found)

    def _in_range(self, rows: RowRange) -> Iterator[tuple[Block, Places]]:
        at = max(bisect_right(self._firsts, rows.start) - 1, 0)
        # A copy, as blocks may be forgotten meanwhile.
        for block in self._blocks[at : bisect_left(self._firsts, rows.stop)]:
            start, stop = max(rows.start - block.first, 0), min(rows.stop - block.first, block.count)
            if start < stop:
                yield block, slice(start, stop)

    def _searched(self, rows: Ints) -> Iterator[tuple[Block, Places]]:
        while len(rows):
            at = bisect_right(self._firsts, int(rows[0])) - 1
            block = self._blocks[at] if at >= 0 else None
            if block is None or rows[0] >= block.first + block.count:
                # Their block is complete and forgotten: they belonged to a lane that has ended.
                above = self._firsts[at + 1] if at + 1 < len(self._firsts) else None
                rows = rows[rows < rows[0]] if above is None else rows[(rows < rows[0]) | (rows >= above)]
                continue
            places = rows - block.first
            inside = (places >= 0) & (places < block.count)
            if inside.all():
                rows = rows[:0]
            else:
                rows, places = rows[~inside], places[inside]
            yield block, places

    def _release_if_complete(self, block: Block) -> None:
        if not block.is_complete:
            return
        at = bisect_right(self._firsts, block.first) - 1
        if at >= 0 and self._blocks[at] is block:
            del self._blocks[at], self._firsts[at]
            self._freed(block.byte_count)
            # Its records' memory is held by the runs too, and is not to wait until somebody asks for marks.
            for lane in block.lanes:
                if (state := self._lanes.get(lane)) is not None:
                    self._advance(state)

    @staticmethod
    def _advance(state: _LaneState) -> None:
        runs = state.runs
        while runs:
            run = runs[0]
            first_open = run.block.first_open(run.start, run.stop)
            if first_open > run.start:
                state.mark = int(run.positions[first_open - 1]) + 1
            if first_open < run.stop:
                return
            runs.popleft()
