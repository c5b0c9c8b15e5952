"""`WaitRule`: how long records may wait for others, where `batch.target_latency` says how long results may take."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import deque
from typing import Final

LAST: Final = 64
"""Batches whose seconds count."""
QUANTILE: Final = 0.9
"""Of the seconds of these batches the quantile that results are expected to take."""
USED: Final = 0.9
"""The part of the target that is used; the rest is for batches that take longer than most."""
LEAST: Final = 8
"""Batches before which nothing is known yet."""
FIRST_WAIT: Final = 0.005
"""Seconds that records wait at most until then; a quarter of the target if that is less."""
TOO_LONG: Final = 60.0
"""Seconds after which batches that take longer than the target are reported."""


class WaitRule:
    """Gives the time that is left of a target to waiting, so that batches become larger and cost less for each record.

    Records wait for what the last batches left of nine tenths of the target after they were run, encoded and sent; not
    at all if they left nothing. Batches are never made smaller than what waits anyway: that would lower the capacity
    when it is needed.

    The run thread calls `handed_over`, intake threads read `max_wait`.
    """

    def __init__(self, target: float) -> None:
        """`target`: seconds from the arrival of a record until its results are handed over to the sinks."""
        self.target = target
        self.expected: float | None = None
        """Seconds from the taking of a batch to its end that most of the last batches did not exceed; `None`: not
        known yet."""
        self._max_wait = first_wait(target)
        self._last: deque[float] = deque(maxlen=LAST)
        self._sorted: list[float] = []
        self._exceeded_since: float | None = None

    @property
    def max_wait(self) -> float:
        """Seconds that the oldest record of a batch may wait for others, from its arrival."""
        return self._max_wait

    def handed_over(self, since: float, now: float) -> None:
        """Note that the results of a batch that was taken from the queue at `since` were handed over to the sinks
        `now` (seconds on `time.monotonic`)."""
        seconds = now - since
        # Kept sorted: to sort all of them for each batch would take several times as long.
        if len(self._last) == LAST:
            del self._sorted[bisect_left(self._sorted, self._last[0])]
        self._last.append(seconds)
        insort(self._sorted, seconds)
        count = len(self._sorted)
        if count < LEAST:
            return
        self.expected = self._sorted[math.ceil(QUANTILE * count) - 1]
        self._max_wait = max(0.0, USED * self.target - self.expected)
        if self.expected <= self.target:
            self._exceeded_since = None
        elif self._exceeded_since is None:
            self._exceeded_since = now

    def is_out_of_reach(self, now: float) -> bool:
        """Whether batches take longer than the target for a minute now, without any wait; `True` once, until they
        are fast enough again."""
        if self._exceeded_since is None or now - self._exceeded_since < TOO_LONG:
            return False
        self._exceeded_since = math.inf
        return True


def first_wait(target: float) -> float:
    """Seconds that records may wait before anything is known about the time that batches take."""
    return min(FIRST_WAIT, target / 4)
