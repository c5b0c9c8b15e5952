"""`LetterLog`: logs dead letters, thousands of them in one line."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any, Final

BURST: Final = 10
"""Dead letters of one second that are logged one by one; of the others their number is."""
_SPAN = 1.0
_LONGEST = 300


class LetterLog:
    """Logs a line for each of the first dead letters of a second, and one line for all others.

    A line of the log costs more than all other work for a dead letter.
    """

    def __init__(self, log: Any, event: str) -> None:
        """`event` is the text of each line, such as "dead letter"."""
        self.untold = 0
        """How many have not been logged yet."""
        self._log = log
        self._event = event
        self._left = 0
        self._until = 0.0

    def add(self, errors: Mapping[int, Exception], place: Callable[[int], str]) -> None:
        """Log the errors of these rows; `place` gives topic, partition and offset of a row's record, as text."""
        self._begin()
        for row, error in islice(errors.items(), self._left):
            self._log.warning(self._event, at=place(row), error=str(error)[:_LONGEST])
        logged = min(self._left, len(errors))
        self._left -= logged
        self.untold += len(errors) - logged

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
