"""`BatchSizer`: how many records are gathered, run in one call, and still run before a service has to end; and
`run_in_portions`, which runs a batch in calls of such a size.

All three sizes follow from measured times per row.

- *Gathered together*: decoding, the ledger, encoding and sending cost more for each batch than a small model does. So
  if records wait already, several batches of them are decoded, sent and confirmed at once, as many as the pipeline runs
  within `LONGEST_TOGETHER`: a result waits for that long at most.
- *Run in one call*: models and functions still get `batch.max_records` rows at a time, or any number if all of them
  limit their calls themselves (`Runner.limit`).
- *In the time left*: a call of a model or a function cannot be cut short. A service that is told to stop keeps to its
  time only if no call takes long: so it runs a batch whose rows take long in portions, from the first batch on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

import numpy as np

from pipelines.data.batch import Batch
from pipelines.data.result import Result
from pipelines.executors.accounting import joined

TOGETHER: Final = 8192
"""Records that are gathered together at most, if that is more than `batch.max_records`."""
TOGETHER_BYTES: Final = 4 * 2**20
"""About how many bytes are gathered together at most, if that is more than `batch.max_records` records have."""
LONGEST_TOGETHER: Final = 0.004
"""Seconds that the pipeline may take for all batches that are gathered together."""
GROWTH: Final = 8
"""A call in the time left has at most this many times the rows of the largest call so far, unless it would be in time
even if each row took this many times as long."""
_LAST: Final = 4
"""How many measurements are kept.

For gathering the fastest of them counts: the others are slower mostly because threads and processes wait for each
other, and smaller batches would make that worse. For the time left the slowest counts, so that a service stops in time.
"""


class BatchSizer:
    """Sizes of batches and portions of one service. The run thread writes it; intake threads ask `to_gather`."""

    def __init__(self, max_records: int) -> None:
        """`max_records`: as in the `batch` field of the service."""
        self.max_records = max_records
        self.any_size = False
        """Whether one call may get any number of rows, because all runners limit their calls themselves."""
        self._together = 1
        self._batches: deque[float] = deque(maxlen=_LAST)
        self._calls: deque[float] = deque(maxlen=_LAST)
        self._most = 0
        self._batch_rows, self._batch_seconds = 0, 0.0

    def forget(self) -> None:
        """Nothing is known about the time of rows any more, as other models run them."""
        self._together = 1
        self._batches.clear()
        self._calls.clear()
        self._most = 0
        self._batch_rows, self._batch_seconds = 0, 0.0

    def ran(self, rows: int, seconds: float, *, last: bool) -> None:
        """Note that these rows took `seconds`. `last`: they are the last of the records that were gathered together."""
        self._calls.append(seconds / rows)
        self._most = max(self._most, rows)
        self._batch_rows += rows
        self._batch_seconds += seconds
        if not last:
            return
        self._batches.append(self._batch_seconds / -(-self._batch_rows // self.max_records))
        self._batch_rows, self._batch_seconds = 0, 0.0
        most = max(1, TOGETHER // self.max_records)
        self._together = max(1, min(most, int(LONGEST_TOGETHER / max(min(self._batches), 1e-9))))

    def to_gather(self, record_bytes: float) -> int:
        """How many records of about this size may be gathered together: `max_records` or a multiple of it."""
        by_size = int(TOGETHER_BYTES / (self.max_records * record_bytes))
        return self.max_records * max(1, min(self._together, by_size))

    def in_one_call(self, rows: int) -> int:
        """How many of these rows the pipeline may get at a time."""
        return rows if self.any_size else self.max_records

    def takes(self, rows: int) -> float:
        """Seconds that these rows will take, by the last measurements; 0 before any were run."""
        return rows * max(self._calls, default=0.0)

    def fitting(self, seconds: float) -> int:
        """How many rows can be run in `seconds`, by the last measurements; 1 before any were run, 0 in no time."""
        if seconds <= 0:
            return 0
        if not self._calls:
            return 1
        fitting = int(seconds / max(self.takes(1), 1e-9))
        return min(fitting, max(GROWTH * self._most, fitting // GROWTH))


def run_in_portions(
    run: Callable[[Batch], Result], batch: Batch, size: int, go_on: Callable[[], bool] = lambda: True
) -> tuple[Result, int]:
    """The joined result of `run` for portions of `batch`, `size` rows at most each, and how many rows were run.

    A record of several rows is never divided: it fails with all of them, so its portion may be larger.
    `go_on` is called between two portions; if it returns `False` the remaining rows are not run.
    """
    if batch.size <= size:
        return run(batch), batch.size
    ranges: list[range] = []
    while not ranges or ranges[-1].stop < batch.size:
        start = ranges[-1].stop if ranges else 0
        ranges.append(range(start, whole_records(batch, start, size)))
    parts = batch.parts(ranges)
    results: list[Result] = []
    done = 0
    for portion in parts:
        if results and not go_on():
            break
        results.append(run(portion))
        done += portion.size
    return joined(results), done


def whole_records(batch: Batch, start: int, size: int) -> int:
    """The position behind the last record of which all rows lie among the `size` rows from `start` on.

    Behind the record at `start` if that one has more rows. Rows of one record stand side by side, with one number.
    """
    stop = min(start + size, batch.size)
    if stop == batch.size or batch.row_range is not None or batch.splits is not None:
        return stop
    begins = start + 1 + np.flatnonzero(batch.rows[start + 1 :] != batch.rows[start:-1])
    before = begins[begins <= stop]
    if len(before):
        return int(before[-1])
    return int(begins[0]) if len(begins) else batch.size
