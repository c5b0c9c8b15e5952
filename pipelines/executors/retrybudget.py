"""`RetryBudget`: how many rows of a step may be run again, so that an outage is no storm of calls."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final

SPAN: Final = 60
"""Seconds of rows that count."""
SHARE: Final = 0.1
"""The part of the rows of the last `SPAN` seconds that may be run again."""
LEAST: Final = 100
"""Rows of `SPAN` seconds that may be run again, however few there were."""


class RetryBudget:
    """At most a tenth of the rows of the last minute are run again, or 100 of them if that is more.

    A row counts each time it is run again.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._seconds: deque[list[int]] = deque()
        """For each second with rows: the second, its rows, and the rows that were run again in it."""
        self._rows = 0
        self._again = 0

    def ran(self, rows: int) -> None:
        """Count rows that were run for the first time."""
        with self._lock:
            self._now()[1] += rows
            self._rows += rows

    def take(self, rows: int, *, whole: bool = False) -> int:
        """How many of these rows may be run again, which counts them as such; with `whole` all or none."""
        with self._lock:
            now = self._now()
            left = max(int(max(SHARE * self._rows, LEAST)) - self._again, 0)
            granted = rows if rows <= left else 0 if whole else left
            now[2] += granted
            self._again += granted
            return granted

    def _now(self) -> list[int]:
        second = int(self._clock())
        seconds = self._seconds
        while seconds and seconds[0][0] <= second - SPAN:
            _, rows, again = seconds.popleft()
            self._rows -= rows
            self._again -= again
        if not seconds or seconds[-1][0] != second:
            seconds.append([second, 0, 0])
        return seconds[-1]


class RetryBudgets:
    """The budget of each step, for all executors that run it at the same time."""

    def __init__(self) -> None:
        self._budgets: dict[str, RetryBudget] = {}

    def of(self, step: str) -> RetryBudget:
        """The budget of the step of this name, the same at each call."""
        # In one piece, as executors may be opened by several threads.
        return self._budgets.setdefault(step, RetryBudget())
