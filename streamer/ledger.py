"""The ledger: which rows are done, and how far each lane may be acknowledged.

Integers only. A *row number* names a record inside the agent, a *position* names it on the bus. One thread
owns a ledger. All work is per block (a batch as it was taken), none per row in Python.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from connectors.records import Ints, Lane, Records
from pipelines.errors import StreamerError

Counts = npt.NDArray[np.int32]


@dataclass(slots=True, eq=False)
class Block:
    """The rows `[first, first + count)` as they were taken together.

    `pending[i]` is the number of outputs that row `first + i` still waits for; 0: complete.
    """

    first: int
    count: int
    byte_count: int
    taken_at: float
    pending: Counts
    open_rows: int
    note: Any = None
    """Whatever the caller of `take` wants to find again at confirmation."""


class Confirmed(NamedTuple):
    """Rows of one block that were confirmed: `rows` is `int64`, counted from the block's first row."""

    block: Block
    rows: Ints


@dataclass(slots=True)
class _Run:
    block: Block
    start: int
    stop: int
    positions: Ints


@dataclass(slots=True)
class _LaneState:
    runs: deque[_Run] = field(default_factory=deque)
    mark: int = -1
    told: int = -1


class Ledger:
    """Tracks rows from `take` to completion.

    A row waits for one output unless `expect` says otherwise; it is complete when all its outputs are
    confirmed. `marks` gives, lane by lane, the position after the longest prefix of complete rows.
    """

    def __init__(self) -> None:
        self._blocks: list[Block] = []
        self._firsts: list[int] = []
        self._lanes: dict[Lane, _LaneState] = {}
        self._ended: set[Lane] = set()
        self._released = 0

    def take(self, records: Records, first: int, note: Any = None) -> Block:
        """Enter a block of records as rows `first`, `first + 1`, ...; each waits for one output.

        Rows of a lane that has ended are complete at once: nobody may acknowledge them.
        """
        count = len(records)
        block = Block(first, count, records.byte_count, time.monotonic(), np.ones(count, np.int32), count, note)
        at = bisect_right(self._firsts, first)
        if at and self._blocks[at - 1].first + self._blocks[at - 1].count > first:
            raise StreamerError(f"row {first} was taken before")
        self._blocks.insert(at, block)
        self._firsts.insert(at, first)
        for lane, start, stop in records.spans:
            if lane in self._ended:
                block.pending[start:stop] = 0
                continue
            run = _Run(block, start, stop, records.positions[start:stop])
            self._lanes.setdefault(lane, _LaneState()).runs.append(run)
        self._settle(block)
        return block

    def expect(self, block: Block, outputs: Counts) -> None:
        """Row i of the block waits for `outputs[i]` confirmations (0: complete, it was dropped on purpose)."""
        # A row that is complete already belongs to an ended lane and stays complete.
        np.multiply(outputs, block.pending > 0, out=block.pending)
        self._settle(block)

    def wait_for(self, row: int, outputs: int) -> None:
        """One row waits for `outputs` confirmations from now on, whatever it waited for before."""
        block = self.block_of(row)
        if block is not None and block.pending[row - block.first]:
            block.pending[row - block.first] = outputs
            self._settle(block)

    def add(self, rows: Ints, more: Counts) -> None:
        """Row `rows[i]`, not complete yet, waits for `more[i]` confirmations more than it did (or fewer)."""
        for row, count in zip(rows.tolist(), more.tolist(), strict=True):
            block = self.block_of(row)
            if block is not None and block.pending[row - block.first]:
                self.wait_for(row, max(int(block.pending[row - block.first]) + count, 0))

    def confirm(self, rows: Ints) -> list[Confirmed]:
        """One output of each of these rows is confirmed; a row may stand several times."""
        found: list[Confirmed] = []
        while len(rows):
            at = bisect_right(self._firsts, int(rows[0])) - 1
            block = self._blocks[at] if at >= 0 else None
            if block is None or rows[0] >= block.first + block.count:
                # Their block is complete and forgotten: they belonged to a lane that has ended.
                above = self._firsts[at + 1] if at + 1 < len(self._firsts) else None
                rows = rows[rows < rows[0]] if above is None else rows[(rows < rows[0]) | (rows >= above)]
                continue
            index = rows - block.first
            inside = (index >= 0) & (index < block.count)
            if inside.all():
                rows = rows[:0]
            else:
                rows, index = rows[~inside], index[inside]
            block.pending -= np.bincount(index, minlength=block.count).astype(np.int32)
            np.maximum(block.pending, 0, out=block.pending)
            self._settle(block)
            found.append(Confirmed(block, index))
        return found

    def end(self, lane: Lane) -> None:
        """The lane is over: it acknowledges nothing more, and its rows hold nothing up."""
        self._ended.add(lane)
        state = self._lanes.pop(lane, None)
        if state is None:
            return
        for run in state.runs:
            run.block.pending[run.start : run.stop] = 0
            self._settle(run.block)

    def block_of(self, row: int) -> Block | None:
        """The block of this row; `None` once all its rows are complete."""
        at = bisect_right(self._firsts, row) - 1
        block = self._blocks[at] if at >= 0 else None
        return block if block is not None and row < block.first + block.count else None

    def has_ended(self, lane: Lane) -> bool:
        """Whether `end` was called for this lane."""
        return lane in self._ended

    def marks(self) -> dict[Lane, int]:
        """Positions that may be acknowledged, for lanes whose position moved since the last call."""
        moved: dict[Lane, int] = {}
        for lane, state in self._lanes.items():
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
    def released(self) -> int:
        """Bytes of all blocks that were completed so far; only ever grows."""
        return self._released

    @property
    def open_rows(self) -> int:
        """Rows that are not complete."""
        return sum(block.open_rows for block in self._blocks)

    def oldest(self) -> float | None:
        """When the oldest incomplete block was taken, on `time.monotonic`; `None` if all is complete."""
        return min((block.taken_at for block in self._blocks), default=None)

    def _settle(self, block: Block) -> None:
        block.open_rows = int(np.count_nonzero(block.pending))
        if block.open_rows:
            return
        at = bisect_right(self._firsts, block.first) - 1
        if at >= 0 and self._blocks[at] is block:
            del self._blocks[at], self._firsts[at]
            self._released += block.byte_count

    @staticmethod
    def _advance(state: _LaneState) -> None:
        runs = state.runs
        while runs:
            run = runs[0]
            waiting = run.block.pending[run.start : run.stop] > 0 if run.block.open_rows else None
            if waiting is None or not waiting.any():
                state.mark = int(run.positions[-1]) + 1
                runs.popleft()
                continue
            done = int(np.argmax(waiting))
            if done:
                state.mark = int(run.positions[done - 1]) + 1
            return
