"""Runs DEDUP."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import ClassVar, Final

import numpy as np

from pipelines.data.batch import Batch
from pipelines.data.columns import Rows
from pipelines.data.result import Result
from pipelines.runners.keyed.keyedrunner import KeyedRunner, by_number, dropped
from pipelines.runners.runner import OpenContext
from pipelines.runners.state.keytable import grown
from pipelines.runners.state.recordtimes import RecordTimes
from pipelines.runners.state.tickclock import TickClock
from pipelines.steps.keyed.dedup import Dedup

REPEATED: Final = "repeated"
"""Reason of a record that repeats another."""
NEVER: Final = -(1 << 62)
"""In place of the time at which a record was let through: none was."""
LONGER: Final = 60.0
"""Seconds by which keys are remembered longer than records need it that come as fast as time passes."""
LOOKED_AT: Final = 4096
"""Keys that one call of `tick` looks at, so that it is short however many there are."""

_PIECE = struct.Struct("<q")


class DedupRunner(KeyedRunner):
    """Drops the records whose key was let through less than `for` before, or after, the time of the record.

    The state of a key is the time of the record that was let through last. A key is forgotten when it was silent for
    `for` of the computer's clock, as `TickClock` counts it, and a minute more: so whether a record is a repetition does
    depend on its own key's time alone, also where another device's clock is ahead, or sends what it has kept for an
    hour, or the record waits behind a backlog.
    """

    opens_images: ClassVar[bool] = False
    keeps_keys: ClassVar[bool] = True

    def __init__(self, step: Dedup, context: OpenContext) -> None:
        super().__init__(step.by, step.most_keys, context, context.step or step.type_name)
        self._span = round(step.span * 1000)
        self._patience = step.span + LONGER
        self._times = RecordTimes(step.time, clock=context.clock)
        self._through = np.full(self.table.capacity, NEVER, np.int64)
        self._since = np.zeros(self.table.capacity, np.float64)
        """When `tick` first saw that a record was let through; NaN: it has not yet."""
        self._clock = TickClock()
        self._next = 0

    @property
    def reads(self) -> frozenset[str] | None:
        """The key, and the time if that is a value."""
        return frozenset(self.table.by) | self._times.reads

    @property
    def gives(self) -> frozenset[str] | None:
        """Nothing: records stay as they are."""
        return frozenset()

    def limit(self, records: int) -> bool:
        """It works on columns, of any size."""
        return True

    def run_batch(self, batch: Batch) -> Result:
        """The records that repeat none."""
        return self.table.in_portions(batch, self._run, self.reads)

    def _run(self, batch: Batch) -> Result:
        times, failed = self._times.of(batch)
        rows, codes = self.coded(batch, failed)
        passes = self._passing(codes, times[rows])
        if len(passes) == batch.size:
            return Result(batch)
        let_through = rows[passes]
        repeated = np.delete(rows, passes)
        return Result(batch.take(let_through), by_number(batch, failed), dropped(batch, repeated, REPEATED))

    def _passing(self, codes: Rows, times: Rows) -> Rows:
        """Which of these rows are let through. One after the other, as each may be a repetition of the one before."""
        span = self._span
        latest: dict[int, int] = {}
        passes: list[int] = []
        befores = self._through[codes].tolist()
        for row, (code, time, before) in enumerate(zip(codes.tolist(), times.tolist(), befores, strict=True)):
            if -span < time - latest.get(code, before) < span:
                continue
            latest[code] = time
            passes.append(row)
        changed = np.fromiter(latest, np.int64, len(latest))
        self._through[changed] = np.fromiter(latest.values(), np.int64, len(latest))
        self._since[changed] = np.nan
        self.pieces.change(changed)
        return np.array(passes, np.int64)

    def tick(self, now: float) -> Result:
        """Forget keys that were silent for long; some of them, if there are many."""
        start = self._next if self._next < self.table.capacity else 0
        self._next = start + LOOKED_AT
        part = slice(start, self._next)
        known = self._through[part] != NEVER
        since = self._since[part]
        self._clock.tick(now, self.caught_up)
        since[known & np.isnan(since)] = self._clock.seconds
        old = start + np.flatnonzero(known & (self._clock.caught_up - since > self._patience))
        if len(old):
            self.drop(old)
        return super().tick(now)

    def begin(self, codes: Rows) -> None:
        """No record of these keys was let through."""
        room = len(self._through)
        if room < self.table.capacity:
            self._through = grown(self._through, self.table.capacity)
            self._since = grown(self._since, self.table.capacity)
            self._through[room:] = NEVER
        self._through[codes] = NEVER

    def end(self, codes: Rows) -> None:
        """Nothing is known of these keys, so that `tick` does not look at them."""
        self._through[codes] = NEVER

    def written(self, codes: Rows) -> Sequence[bytes]:
        """The time of the record that was let through last, as int64."""
        return [_PIECE.pack(time) for time in self._through[codes].tolist()]

    def read(self, code: int, state: bytes) -> None:
        """See `written`."""
        if len(state) != _PIECE.size:
            raise ValueError(f"it has {len(state)} bytes, not {_PIECE.size}")
        (self._through[code],) = _PIECE.unpack(state)
        self._since[code] = np.nan
