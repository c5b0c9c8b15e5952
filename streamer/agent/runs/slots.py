"""`Slots`: threads that each run batches through a pipeline of their own, for `limits.parallel` above 1."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from queue import SimpleQueue
from typing import Final, NamedTuple

from pipelines.executors.executor import Executor
from pipelines.observe.observing import StepRun
from pipelines.observe.profiler import Profiler
from streamer.agent.runs.batchrun import BatchRun
from streamer.agent.runs.batchruns import BatchRuns, DrainTime
from streamer.agent.runs.pipelinecalls import PipelineCalls, Running
from streamer.observe.metrics import RunMeters

UNDELIVERED: Final = 4
"""Runs for each slot that may be under way or wait for an earlier one: results leave in the order of the batches."""
END_WAIT: Final = 1.0
"""Seconds that the threads may take to end, before the pipelines of those that do not are left open."""


class _StepCount(NamedTuple):
    step: str
    began: float
    seconds: float
    errors: Mapping[str, int]


class _SlotRun:
    """A run and what a slot has done with it. The slot writes it until `finished` is true."""

    __slots__ = ("done", "error", "finished", "run", "steps")

    def __init__(self, run: BatchRun) -> None:
        self.run = run
        self.done = 0
        """How many rows were run: fewer than the run has if the time to drain was over."""
        self.steps: list[_StepCount] = []
        self.error: BaseException | None = None
        self.finished = False


class _Steps:
    """Observes the executor of one slot, for the run thread, which counts the runs of steps later."""

    def __init__(self, profiler: Profiler | None) -> None:
        self.counts: list[_StepCount] = []
        self._profiler = profiler

    def step(self, run: StepRun) -> None:
        if self._profiler is not None:
            self._profiler.step(run)
        self.counts.append(_StepCount(run.step, run.began, run.seconds, run.errors))


class Slots:
    """K threads with one open pipeline each. All take from one queue, so that a fast one takes more.

    Owned by the run thread, which starts runs and takes them off, in the same order.
    """

    def __init__(
        self,
        calls: Sequence[PipelineCalls],
        sizes: BatchRuns,
        drain: DrainTime,
        wake: Callable[[], None],
        profiler: Profiler | None,
    ) -> None:
        """`sizes` says how many rows a call gets; `wake` is called, from a slot's thread, when a run has finished."""
        self._calls = calls
        self._sizes = sizes
        self._drain = drain
        self._wake = wake
        self._ends = False
        self.cut_short = False
        """Whether rows were not run, as the time to drain was over: nothing that comes after them is taken off."""
        self._runs: deque[_SlotRun] = deque()
        self._queue: SimpleQueue[_SlotRun | None] = SimpleQueue()
        self._threads = [
            threading.Thread(target=self._work, args=(each, profiler), name=f"slot {number}", daemon=True)
            for number, each in enumerate(calls)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def runs(self) -> int:
        """How many runs were started and not taken off."""
        return len(self._runs)

    @property
    def has_room(self) -> bool:
        """Whether a slot is free for another run, and not too many wait for an earlier one.

        Before the first rows were measured, one run is enough: it says how many rows the next may have.
        """
        if not self._sizes.has_measured:
            return not self._runs
        count = len(self._calls)
        return len(self._runs) < UNDELIVERED * count and sum(not each.finished for each in self._runs) < count

    @property
    def running(self) -> Running | None:
        """The call that has been running for longest. From any thread."""
        calls = [running for each in self._calls if (running := each.running) is not None]
        return min(calls, key=lambda running: running.since, default=None)

    def start(self, run: BatchRun) -> None:
        """Have the next free slot run it."""
        each = _SlotRun(run)
        self._runs.append(each)
        self._queue.put(each)

    def finished(self, meters: RunMeters) -> BatchRun | None:
        """The first run, once it has finished, taken off; `None` before. Its steps are counted in `meters`.

        Raises the error of the pipeline. Rows that were not run, as there was no time left, are not in it.
        """
        if self.cut_short or not self._runs or not self._runs[0].finished:
            return None
        each = self._runs.popleft()
        if each.error is not None:
            raise each.error
        for step in each.steps:
            meters.step_ran(*step)
        self._drain.ran()
        self._sizes.ran(each.run, each.done, last=not each.run.is_cut)
        if each.done == each.run.batch.size:
            return each.run
        self.cut_short = True
        return each.run.cut(each.done)[0] if each.done else None

    def end(self) -> list[Executor]:
        """Have the threads end, without waiting for calls that run. Returns the pipelines of those that do not end."""
        self._ends = True
        for _ in self._threads:
            self._queue.put(None)
        deadline = time.monotonic() + END_WAIT
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        ends = zip(self._threads, self._calls, strict=True)
        return [calls.executor for thread, calls in ends if thread.is_alive()]

    def _work(self, calls: PipelineCalls, profiler: Profiler | None) -> None:
        steps = _Steps(profiler)
        calls.executor.observer = steps
        while (each := self._queue.get()) is not None:
            steps.counts = each.steps
            self._run(each, calls)
            each.finished = True
            # Or this thread would keep the records alive until its next run.
            del each
            self._wake()

    def _run(self, each: _SlotRun, calls: PipelineCalls) -> None:
        batch = each.run.batch
        if not self._goes_on():
            return
        try:
            each.done = calls.run(each.run, batch, self._sizes.sizer.in_one_call(batch.size), self._goes_on)
        except BaseException as error:  # noqa: BLE001 - raised in the run thread, in its turn
            each.error = error

    def _goes_on(self) -> bool:
        return not self._ends and time.monotonic() < self._drain.run_until
