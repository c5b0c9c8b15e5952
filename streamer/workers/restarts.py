"""When a worker that died is started again, and when no more."""

from __future__ import annotations

from collections import deque
from typing import Final

FIRST_WAIT: Final = 0.5
LONGEST_WAIT: Final = 30.0
WELL_AFTER: Final = 60.0
"""Seconds of life after which a worker counts as well, and waits are short again."""
MOST_DEATHS: Final = 10
WITHIN: Final = 600.0


class Backoff:
    """The waits before restarts of a worker: doubled each time, short again after a minute of life."""

    def __init__(self) -> None:
        self._wait = FIRST_WAIT

    def after(self, lived: float) -> float:
        """Seconds to wait, for a worker that lived for `lived` seconds."""
        if lived >= WELL_AFTER:
            self._wait = FIRST_WAIT
        wait, self._wait = self._wait, min(2 * self._wait, LONGEST_WAIT)
        return wait


class DeathCount:
    """Counts deaths for which no record can be blamed: ten within ten minutes are enough to give up."""

    def __init__(self) -> None:
        self._deaths: deque[tuple[float, str]] = deque()

    def add(self, now: float, reason: str) -> None:
        """Note a death."""
        self._deaths.append((now, reason))

    def why_give_up(self, now: float) -> str | None:
        """The last reasons, if there were too many deaths; else `None`."""
        while self._deaths and now - self._deaths[0][0] > WITHIN:
            self._deaths.popleft()
        if len(self._deaths) < MOST_DEATHS:
            return None
        return ", ".join(reason for _, reason in list(self._deaths)[-3:])
