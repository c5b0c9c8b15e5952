"""`LossLog`: logs records that fail and are lost, as there is no dead letter: never thousands of lines, never none."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from pipelines.errors import step_of

_SPAN: Final = 60.0
_LONGEST: Final = 300


class LossLog:
    """Logs the first failure of each step at once, then at most one line a minute, with the number of the others."""

    def __init__(self, log: Any) -> None:
        self.untold = 0
        """How many have not been logged yet."""
        self._log = log
        self._steps: set[str] = set()
        self._newest = ""
        self._next = 0.0

    def add(self, errors: Mapping[int, Exception], place: Callable[[int], str]) -> None:
        """Log the errors of these rows; `place` gives topic, partition and offset of a row's record, as text."""
        logged = 0
        for row, error in errors.items():
            if step_of(error) not in self._steps:
                self._steps.add(step_of(error))
                self._log.warning("a record failed and is lost", at=place(row), error=str(error)[:_LONGEST])
                self._next = time.monotonic() + _SPAN
                logged += 1
        if len(errors) > logged:
            self.untold += len(errors) - logged
            last = max(errors)
            self._newest = f"{place(last)}: {errors[last]}"[:_LONGEST]
        self.tell()

    def tell(self, *, now: bool = False) -> None:
        """Log how many were not logged one by one, if the last line is a minute old, or `now`."""
        if self.untold and (now or time.monotonic() >= self._next):
            self._log.warning("more records failed and are lost", records=self.untold, newest=self._newest)
            self.untold = 0
            self._next = time.monotonic() + _SPAN
