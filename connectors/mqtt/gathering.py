"""`Gathering`: how long messages should gather before they are read."""

from __future__ import annotations

import time
from typing import Final

LONGEST: Final = 0.01
"""The longest time that messages gather, in seconds."""
_SHORTEST: Final = 0.001
"""The shortest time worth waiting, in seconds: the resolution of the system's waits."""
_FEWEST: Final = 10
"""The number of messages that have to be expected meanwhile."""
_SPAN: Final = 0.005
"""Seconds over which messages are counted."""


class Gathering:
    """A broker sends messages one by one, and one wake-up costs as much as reading fifty. A poll that goes on waiting
    for more messages in any case therefore reads them some milliseconds later, many at a time.

    No record is delivered later by that, unless the batch becomes full meanwhile: so the pause is the time in which
    half of the missing messages come, at the present rate.
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
        """Seconds to wait, 0 if that is not worth it; `missing` is how many more messages are wanted and may come."""
        if not self._fresh or not self.worth_it:
            return 0.0
        self._fresh = False
        pause = min(LONGEST, missing / 2 / self._rate)
        return pause if pause >= _SHORTEST and pause * self._rate >= _FEWEST else 0.0
