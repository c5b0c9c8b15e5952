"""`BatchRuns`: runs batches through the pipeline, portion by portion, so that no call takes long; and `DrainTime`, the
deadlines that it keeps once the service was told to stop.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any, Literal

from pipelines.data.result import Result
from pipelines.executors.accounting import NO_ROWS
from pipelines.executors.executor import Executor
from streamer.agent.debugging import debugged
from streamer.agent.decodedbatch import DecodedBatch
from streamer.batching.roundsizer import RoundSizer
from streamer.batching.sizer import BatchSizer, run_in_portions, whole_records
from streamer.definition.settings import BatcherSettings

LAST_WAIT = 1.0
"""Seconds of `limits.drain`, a quarter of it at most, that are kept for the last confirmations and acknowledgements."""
LEAST_WAIT = 0.25
"""Seconds for these if `limits.drain` is short."""
LEAVE_WAIT = 15.0
"""Seconds that the sources may take to acknowledge the last positions and close, unless the time to drain is over."""
IDLE_LEAVE_WAIT = 1.0
"""Seconds for these, and for opening, if the service is stopped while nothing is in flight: nothing can be lost."""
LEAST_PORTION = 0.05
"""Seconds that a portion of a batch may take, however short the time to drain is."""


class DrainTime:
    """Deadlines on `time.monotonic`, all of them infinite until `begin` is called."""

    def __init__(self, drain: float) -> None:
        """`drain`: `limits.drain` of the service, in seconds."""
        self.deadline = math.inf
        """When the time to drain is over."""
        self.last_wait = min(LAST_WAIT, max(drain / 4, LEAST_WAIT))
        """Seconds that are kept for the last confirmations and acknowledgements."""
        self.longest_portion = max(drain / 4, LEAST_PORTION)
        """Seconds that a portion of a batch may take at any time, as a call of the pipeline cannot be cut short."""
        self.progress_at = time.monotonic()
        """When the run thread last began a round, or a sink last made it wait."""
        self._drain = drain
        self._ran_at = 0.0

    @property
    def begun(self) -> bool:
        """Whether the service was told to stop."""
        return self.deadline < math.inf

    @property
    def run_until(self) -> float:
        """When running batches ends, so that the rest of the time is left for confirmations."""
        return self.deadline - self.last_wait

    @property
    def confirm_until(self) -> float:
        """When everything has to be confirmed: at least `last_wait` after the pipeline last ran."""
        return max(self.deadline, self._ran_at + self.last_wait)

    def begin(self) -> None:
        """Start the time to drain; a second call changes nothing. From any thread."""
        if not self.begun:
            self.deadline = time.monotonic() + self._drain

    def patience(self) -> float:
        """Seconds left to wait for a sink. Counts as progress of the run thread, which waits for good reason."""
        self.progress_at = time.monotonic()
        return self.deadline - self.progress_at

    def ran(self) -> None:
        """Note that the pipeline has just run a batch, or has no batch left to run."""
        self._ran_at = time.monotonic()


class BatchRuns:
    """Runs as many rows of a batch as take little time, and keeps the others as `rest`."""

    def __init__(self, batch: BatcherSettings, drain: DrainTime, debug: bool | Literal["records"], log: Any) -> None:
        self.rest: DecodedBatch | None = None
        """The rows of the last batch that are still to be run."""
        self.sizer = BatchSizer(batch.max_records)
        self.rounds = RoundSizer() if batch.learns_size else None
        self._executor: Executor
        self._whole = batch.type == "hard"
        """Whether batches are never cut: the model accepts one batch size only."""
        self._drain = drain
        self._debug = debug
        self._log = log

    def open(self, executor: Executor) -> None:
        """Run batches through this pipeline, which is open."""
        self._executor = executor
        self.sizer.any_size = executor.limit(self.sizer.max_records)

    def run(self, decoded: DecodedBatch, before: Callable[[float], None]) -> tuple[DecodedBatch, Result] | None:
        """The rows that were run and their result; `None` if there is no time for one row.

        `before(estimated_seconds)` is called before the rows are run.
        """
        began = time.perf_counter()
        size = decoded.batch.size
        rows = self._portion(size)
        if size and not rows:
            self.rest = decoded
            return None
        rows = whole_records(decoded.batch, 0, rows)
        part = decoded if rows == size else decoded.cut(rows)[0]
        before(self.sizer.takes(rows))
        if self._debug:
            result, done = debugged(self._executor, part, self._debug, self._log), rows
        else:
            until = time.monotonic() + self._drain.longest_portion
            result, done = run_in_portions(
                self._executor.run_batch,
                part.batch,
                self.sizer.in_one_call(rows),
                lambda: time.monotonic() < min(until, self._drain.run_until),
            )
        seconds = time.perf_counter() - began
        self._drain.ran()
        if done < size:
            part, self.rest = decoded.cut(done)
            # The ledger keeps a reference to the whole batch but needs only its records: free the values.
            decoded.batch = NO_ROWS
        if done:
            self.sizer.ran(done, seconds, last=self.rest is None)
            if self.rounds is not None:
                self.rounds.ran(done, seconds)
        return part, result

    def _portion(self, size: int) -> int:
        """How many of `size` rows are run now; 0 if there is no time left for one."""
        left = self._drain.run_until - time.monotonic()
        if self._whole:
            return size if self.sizer.takes(size) < left else 0
        fitting = self.sizer.fitting(min(left, self._drain.longest_portion))
        return min(size, fitting if self._drain.begun else max(1, fitting))
