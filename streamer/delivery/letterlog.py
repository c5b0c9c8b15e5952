"""`LetterLog`: logs dead letters, thousands of them in one line."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any, Final, NamedTuple

BURST: Final = 10
"""Dead letters of one second that are logged one by one; of the others their number is."""
KEPT: Final = 20
"""The last ones that are kept."""
_SPAN = 1.0
_LONGEST = 300


class Logged(NamedTuple):
    """A dead letter that was logged."""

    time: float
    """When, in seconds since 1970."""
    at: str
    """Topic, partition and offset of the record."""
    error: str


class LetterLog:
    """Logs a line for each of the first dead letters of a second, and one line for all others.

    A line of the log costs more than all other work for a dead letter.
    """

    def __init__(self, log: Any, event: str) -> None:
        """`event` is the text of each line, such as "dead letter"."""
        self.untold = 0
        """How many have not been logged yet."""
        self.last: deque[Logged] = deque(maxlen=KEPT)
        """The last that were logged one by one. Read by any thread."""
        self._log = log
        self._event = event
        self._left = 0
        self._until = 0.0

    def add(self, errors: Mapping[int, Exception], place: Callable[[int], str]) -> None:
        """Log the errors of these rows; `place` gives topic, partition and offset of a row's record, as text."""
        self._begin()
        for row, error in islice(errors.items(), self._left):
            logged = Logged(time.time(), place(row), str(error)[:_LONGEST])
            self.last.append(logged)
            self._log.warning(self._event, at=logged.at, error=logged.error)
        count = min(self._left, len(errors))
        self._left -= count
        self.untold += len(errors) - count

    def tell(self, *, now: bool = False) -> None:
        """Log how many were not logged one by one, if their second is over, or `now`."""
        if now:
            self._tell()
        self._begin()

    def _begin(self) -> None:
        clock = time.monotonic()
        if clock >= self._until:
            self._tell()
            self._until, self._left = clock + _SPAN, BURST

    def _tell(self) -> None:
        if self.untold:
            self._log.warning(f"more {self._event}s", records=self.untold)
            self.untold = 0
