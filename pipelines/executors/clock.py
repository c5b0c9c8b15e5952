"""`Clock`: the time that triggers use, which tests can replace."""

from __future__ import annotations

import threading
import time


class Clock:
    """The real time; another clock derives from it."""

    def monotonic(self) -> float:
        """Seconds that never go back, from no particular beginning."""
        return time.monotonic()

    def time(self) -> float:
        """Seconds since 1970-01-01 UTC, by the system's clock, which may be set."""
        return time.time()

    def wait(self, condition: threading.Condition, seconds: float) -> None:
        """Sleep with `condition`, which the caller holds, until it is notified or the time is over."""
        condition.wait(seconds)
