"""`PipelineCalls`: calls of one open pipeline, in portions that take little time each, and what runs at present."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, Protocol

from pipelines.data.batch import Batch
from pipelines.data.result import Result
from pipelines.executors.executor import Executor
from streamer.agent.decodedbatch import DecodedBatch
from streamer.agent.runs.batchrun import BatchRun
from streamer.agent.runs.debugging import debugged
from streamer.batching.sizer import run_in_portions
from streamer.models.choosing import Choosing


class Running(NamedTuple):
    """A call that has begun and not ended."""

    since: float
    """When it began, on `time.monotonic`."""
    batches: Sequence[DecodedBatch]
    """The batches that its rows come from."""
    batch: Batch
    """The rows."""

    @property
    def place(self) -> str:
        """Topic, partition and offset of the first and the last record, as text."""
        if not self.batch.size:
            return "no records"
        first, last = int(self.batch.rows[0]), int(self.batch.rows[-1])
        ends = [_place(self.batches, row) for row in dict.fromkeys((first, last))]
        return " to ".join(ends)


class CallNotes(Protocol):
    """Where each call is noted while it runs, for another process to read if this one dies."""

    def begin(self, running: Running) -> None:
        """Note the records of a call that begins."""

    def end(self) -> None:
        """The call has returned."""


class PipelineCalls:
    """Runs batches through one executor. Used by one thread; `running` may be read by any."""

    def __init__(
        self, executor: Executor, debug: bool | Literal["records"], log: Any, notes: CallNotes | None = None
    ) -> None:
        """`debug`: as the field of the service."""
        self.executor = executor
        self.running: Running | None = None
        """The call that runs at present."""
        self._debug = debug
        self._log = log
        self._notes = notes
        self._choosing = executor if isinstance(executor, Choosing) else None

    def run(self, run: BatchRun, batch: Batch, size: int, go_on: Callable[[], bool]) -> int:
        """Put the result of `batch`, the first rows of the run, into it. Returns how many rows were run, `size` a call.

        `go_on` is called between two calls; if it returns `False` the remaining rows are not run.
        """
        run.began = time.perf_counter()

        def call(portion: Batch) -> Result:
            running = self.running = Running(time.monotonic(), run.batches, portion)
            if self._notes is None:
                return self._result(run, portion)
            self._notes.begin(running)
            try:
                return self._result(run, portion)
            finally:
                self._notes.end()

        try:
            run.result, done = run_in_portions(call, batch, size, go_on)
        finally:
            self.running = None
        if self._choosing is not None:
            run.chosen = self._choosing.take_chosen()
        run.seconds = time.perf_counter() - run.began
        return done

    def _result(self, run: BatchRun, batch: Batch) -> Result:
        if not self._debug:
            return self.executor.run_batch(batch)
        # Batches are not joined in a service that is debugged.
        (decoded,) = run.batches
        return debugged(self.executor, decoded, batch, self._debug, self._log)


def _place(batches: Sequence[DecodedBatch], row: int) -> str:
    decoded = next(each for each in batches if each.first <= row < each.first + len(each.records))
    return decoded.place(row)
