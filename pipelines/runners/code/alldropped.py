"""`AllDropped`: a warning if a step drops all records from the first on, which is seldom meant."""

from __future__ import annotations

import logging
from typing import Final

from pipelines.data.result import Result

MANY: Final = 100
"""Records after which it is said."""


class AllDropped:
    """Looks at a step's results until one is emitted or fails, or the warning was given."""

    def __init__(self, log: logging.Logger, name: str, why: str) -> None:
        """`name`: what the warning calls the step; `why`: why its records were dropped, and where to look."""
        self._log = log
        self._name = name
        self._why = why
        self._dropped: int | None = 0
        """Records so far; `None`: nothing is left to be said."""

    def look(self, result: Result) -> None:
        """Count what was dropped; to be called for each batch."""
        if self._dropped is None:
            return
        if result.batch.size:
            self._dropped = None
            return
        self._dropped += len(result.dropped)
        if self._dropped >= MANY:
            self.close()

    def close(self) -> None:
        """Say it, if all records were dropped and it was not said: the step is closed, or has seen many."""
        if self._dropped:
            self._log.warning("%s dropped each of the first %d records: %s", self._name, self._dropped, self._why)
        self._dropped = None
