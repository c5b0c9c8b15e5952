"""`BatchRuns`: runs batches through the pipeline, portion by portion, so that no call takes long."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Literal

from pipelines.data.result import Result
from pipelines.executors.accounting import NO_ROWS
from pipelines.executors.executor import Executor
from streamer.agent.debugging import debugged
from streamer.agent.decodedbatch import DecodedBatch
from streamer.agent.draintime import DrainTime
from streamer.batching.portions import run_in_portions, whole_records
from streamer.batching.roundsizer import RoundSizer
from streamer.batching.sizer import BatchSizer
from streamer.definition.settings import BatchSettings


class BatchRuns:
    """Runs as many rows of a batch as take little time, and keeps the others as `rest`."""

    def __init__(self, batch: BatchSettings, drain: DrainTime, debug: bool | Literal["records"], log: Any) -> None:
        self.rest: DecodedBatch | None = None
        """The rows of the last batch that are still to be run."""
        self.sizer = BatchSizer(batch.max_records)
        self.rounds = RoundSizer() if batch.learns_size else None
        self._whole = batch.type == "hard"
        """Whether a batch is run whole or not at all, as the model accepts no other number of rows."""
        self._drain = drain
        self._debug = debug
        self._log = log

    def run(
        self, executor: Executor, decoded: DecodedBatch, before: Callable[[float], None]
    ) -> tuple[DecodedBatch, Result] | None:
        """The rows that were run and their result; `None` if there is no time for one row.

        `before` is called first, with about the seconds that running them will take.
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
            result, done = debugged(executor, part, self._debug, self._log), rows
        else:
            until = time.monotonic() + self._drain.longest_portion
            result, done = run_in_portions(
                executor.run_batch,
                part.batch,
                self.sizer.in_one_call(rows),
                lambda: time.monotonic() < min(until, self._drain.run_until),
            )
        seconds = time.perf_counter() - began
        self._drain.ran()
        if done < size:
            part, self.rest = decoded.cut(done)
            # The ledger refers to the whole batch, of which only the records may still be needed.
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
