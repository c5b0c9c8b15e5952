"""`BatchSizer`: how many records are gathered, run in one call, and still run before a service has to end.

All of it follows from how long rows take, which is learnt from those that were run.

- *Gathered together*: decoding, the ledger, encoding and sending cost more for each batch than a small model does. So
  where records wait already, several batches' worth of them are decoded, sent and confirmed at once, as many as the
  pipeline runs within `LONGEST_TOGETHER`: a result waits for that long at most.
- *Run in one call*: models and functions get `batch.max_records` rows at a time all the same, or any number where all
  of them limit their calls themselves (`Runner.limit`).
- *In the time left*: a call of a model or a function cannot be cut short. A service that is told to stop keeps to its
  time only if no call takes long: so it runs a batch whose rows take long in portions, from the first batch on.
"""

from __future__ import annotations

from collections import deque
from typing import Final

TOGETHER: Final = 8192
"""Records that are gathered together at most, where that is more than `batch.max_records`."""
TOGETHER_BYTES: Final = 4 * 2**20
"""Bytes of them, about."""
LONGEST_TOGETHER: Final = 0.004
"""Seconds that the pipeline may take for all batches that are gathered together."""
GROWTH: Final = 8
"""How many times as many rows as ever before are run in the time left at most, unless they would be in time were each
to take so many times as long."""
_LAST: Final = 4
"""Measurements that are looked at.

For gathering the quickest of them counts: what others took longer is as a rule the machine's doing, where threads and
processes wait for each other, and smaller batches would only make it worse. For the time left the slowest counts: a
service that stops must not promise too much.
"""


class BatchSizer:
    """Sizes of batches and portions of one service. The run thread writes it; intake threads ask `to_gather`."""

    def __init__(self, max_records: int) -> None:
        """`max_records`: as in the `batch` field of the service."""
        self.max_records = max_records
        self.any_size = False
        """Whether one call may get any number of rows, as all runners limit their calls themselves."""
        self._together = 1
        self._batches: deque[float] = deque(maxlen=_LAST)
        self._calls: deque[float] = deque(maxlen=_LAST)
        self._most = 0
        self._batch_rows, self._batch_seconds = 0, 0.0

    def ran(self, rows: int, seconds: float, *, last: bool) -> None:
        """These rows took so long. `last`: with them everything that was gathered together has been run."""
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
        """How many records of about this size may be gathered together: `max_records`, or several times as many."""
        by_size = int(TOGETHER_BYTES / (self.max_records * record_bytes))
        return self.max_records * max(1, min(self._together, by_size))

    def in_one_call(self, rows: int) -> int:
        """How many of these rows the pipeline may get at a time."""
        return rows if self.any_size else self.max_records

    def takes(self, rows: int) -> float:
        """Seconds that these rows take, as far as known; 0 before any were run."""
        return rows * max(self._calls, default=0.0)

    def fitting(self, seconds: float) -> int:
        """How many rows are run in so many seconds, as far as known; one before any were run, none in no time."""
        if seconds <= 0:
            return 0
        if not self._calls:
            return 1
        fitting = int(seconds / max(self.takes(1), 1e-9))
        return min(fitting, max(GROWTH * self._most, fitting // GROWTH))
