"""`Gathering`: how long messages had better gather before they are read."""

from __future__ import annotations

import time
from typing import Final

LONGEST: Final = 0.01
"""Seconds that messages gather at most."""
_SHORTEST: Final = 0.001
"""Seconds below which it is not worth it; the system waits in steps of this."""
_FEWEST: Final = 10
"""Messages that have to be expected meanwhile."""
_SPAN: Final = 0.005
"""Seconds over which messages are counted."""


class Gathering:
    """A broker sends messages one by one, and to be woken for each costs as much as to read fifty. A poll that goes on
    waiting for more in any case therefore reads them some milliseconds later, many at a time.

    So nothing is handed over later, except a batch that would have become full meanwhile: half as many as are missing
    may come, at the rate of late.
    """

    def __init__(self) -> None:
        self._since = time.monotonic()
        self._count = 0
        self._rate = 0.0
        self._fresh = False

    def came(self, count: int) -> None:
        """Note that this many messages came just now."""
        self._fresh = True
        self._count += count
        now = time.monotonic()
        if now - self._since >= _SPAN:
            self._rate = self._count / (now - self._since)
            self._since, self._count = now, 0

    @property
    def worth_it(self) -> bool:
        """Whether messages come so often that some would gather."""
        return self._rate * LONGEST >= _FEWEST

    def pause(self, missing: float) -> float:
        """Seconds, 0 if they had better be waited for one by one; `missing` are those that are wanted and may come."""
        if not self._fresh or not self.worth_it:
            return 0.0
        self._fresh = False
        pause = min(LONGEST, missing / 2 / self._rate)
        return pause if pause >= _SHORTEST and pause * self._rate >= _FEWEST else 0.0
