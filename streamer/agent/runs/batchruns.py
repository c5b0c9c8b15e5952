"""`BatchRuns`: runs batches through the pipeline, portion by portion, so that no call takes long; and `DrainTime`, the
deadlines that it keeps once the service was told to stop.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable

from streamer.agent.runs.batchrun import BatchRun
from streamer.agent.runs.pipelinecalls import PipelineCalls, Running
from streamer.batching.roundsizer import RoundSizer
from streamer.batching.sizer import BatchSizer, whole_records
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


WORTH_JOINING = 0.0003
"""Seconds that running a batch takes at least if several are run together: joining them and dividing the result takes a
part of that."""


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
    """Runs as many rows of batches as take little time, in the run thread, and keeps the others as `rest`."""

    def __init__(self, batch: BatcherSettings, drain: DrainTime) -> None:
        self.rest: BatchRun | None = None
        """The rows of the last batches that are still to be run."""
        self.sizer = BatchSizer(batch.max_records)
        self.rounds = RoundSizer() if batch.learns_size else None
        self._calls: PipelineCalls
        self._last: deque[float] = deque(maxlen=4)
        """Seconds of the last runs."""
        self._whole = batch.type == "hard"
        """Whether batches are never cut: the model accepts one batch size only."""
        self._drain = drain

    def forget_times(self) -> None:
        """Other models run from now on: what was learned of the last ones does not count."""
        self._last.clear()
        self.sizer.forget()
        if self.rounds is not None:
            self.rounds.forget()

    def open(self, calls: PipelineCalls) -> None:
        """Run batches by these calls of the pipeline, which is open."""
        self._calls = calls
        self.sizer.any_size = calls.executor.limit(self.sizer.max_records)

    @property
    def running(self) -> Running | None:
        """The call that runs at present. From any thread."""
        return self._calls.running

    def run(self, run: BatchRun, before: Callable[[float], None]) -> BatchRun | None:
        """The rows that were run, with their result; `None` if there is no time for one row.

        `before(estimated_seconds)` is called before the rows are run.
        """
        size = run.batch.size
        rows = self._fitting(run, before)
        if rows is None:
            return None
        until = time.monotonic() + self._drain.longest_portion
        done = self._calls.run(
            run,
            run.batch if rows == size else run.batch.part(0, rows),
            self.sizer.in_one_call(rows),
            lambda: time.monotonic() < min(until, self._drain.run_until),
        )
        self._drain.ran()
        if done < size:
            run, self.rest = run.cut(done)
        self.ran(run, done, last=self.rest is None)
        return run

    def ran(self, run: BatchRun, rows: int, *, last: bool = True) -> None:
        """Learn from the time that so many rows took. `last`: none of the records gathered with them are left."""
        if rows:
            self._last.append(run.seconds)
            self.sizer.ran(rows, run.seconds, last=last)
            if self.rounds is not None:
                self.rounds.ran(rows, run.seconds)

    def begin(self, run: BatchRun, before: Callable[[float], None]) -> BatchRun | None:
        """The rows of `run` that are to be run in one go, somewhere else; otherwise as `run`."""
        rows = self._fitting(run, before)
        if rows is None:
            return None
        if rows < run.batch.size:
            run, self.rest = run.cut(rows)
        return run

    @property
    def joining_pays(self) -> bool:
        """Whether running a batch takes so long that it is worth while to join those that wait."""
        return min(self._last, default=0.0) > WORTH_JOINING

    @property
    def has_measured(self) -> bool:
        """Whether it is known how long rows take."""
        return self.sizer.takes(1) > 0

    def _fitting(self, run: BatchRun, before: Callable[[float], None]) -> int | None:
        """How many rows of `run` are run now, once `before` knows; `None`: there is no time, and the run is kept."""
        rows = self._portion(run)
        if run.batch.size and not rows:
            self.rest = run
            return None
        before(self.sizer.takes(rows))
        return rows

    def _portion(self, run: BatchRun) -> int:
        """How many rows of `run` are run now; 0 if there is no time left for one."""
        size = run.batch.size
        left = self._drain.run_until - time.monotonic()
        if self._whole:
            return size if self.sizer.takes(size) < left else 0
        fitting = self.sizer.fitting(min(left, self._drain.longest_portion))
        rows = min(size, fitting if self._drain.begun else max(1, fitting))
        return whole_records(run.batch, 0, rows) if rows else 0
