"""`TickClock`: the time in which something could have come, counted in ticks."""

from __future__ import annotations

from typing import Final

LONGEST_TICK: Final = 1.0
"""Seconds that count of the time between two ticks: in a longer one the service stood still or had a backlog, and a key
whose records wait is not silent."""


class TickClock:
    """Seconds from the first tick on, without the time in which a service stood still."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._last: float | None = None

    def tick(self, now: float) -> None:
        """It is `now`, seconds of a monotonic clock."""
        if self._last is not None:
            self.seconds += min(max(now - self._last, 0.0), LONGEST_TICK)
        self._last = now
