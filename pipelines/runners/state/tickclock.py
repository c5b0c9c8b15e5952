"""`TickClock`: the time in which something could have come, counted in ticks."""

from __future__ import annotations

import math
from typing import Final

LONGEST_TICK: Final = 1.0
"""Seconds that count of the time between two ticks: in a longer one the service stood still, and a key whose records
wait is not silent."""


class TickClock:
    """Seconds from the first tick on, without the time in which a service stood still."""

    def __init__(self) -> None:
        self.seconds = 0.0
        """The present."""
        self.caught_up = 0.0
        """The time by which all records had come that were run: for what nothing came since a time before, nothing had
        come at this one."""
        self._last: float | None = None

    def tick(self, now: float, caught_up: float = math.inf) -> None:
        """It is `now`, and all records that had come by `caught_up` were run: seconds of a monotonic clock."""
        if self._last is not None:
            self.seconds += min(max(now - self._last, 0.0), LONGEST_TICK)
        self._last = now
        # This clock never goes faster than the other: so much time at most has passed on it.
        self.caught_up = max(self.caught_up, self.seconds - max(now - caught_up, 0.0))
