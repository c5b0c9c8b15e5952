"""`Clock`: the time by which the steps of a service are asked for what is due."""

from __future__ import annotations

import time
from collections.abc import Iterable

from pipelines.data.batch import Batch


class Clock:
    """The time of this computer. Tests put another in its place, which goes by their records."""

    def now(self) -> float:
        """The present in seconds since 1970: what steps take for the time of records that have none."""
        return time.time()

    def monotonic(self) -> float:
        """Seconds that never go back: what steps are given that are asked for what is due (`tick`)."""
        return time.monotonic()

    def caught_up(self, moment: float) -> float:
        """The time, as of `monotonic`, by which all records had come that were run, given it on `time.monotonic`."""
        return moment

    def until(self, batch: Batch) -> Iterable[float]:
        """The times, as of `monotonic`, at which steps are asked for what is due before this batch is run: by these all
        records had come that were run.

        None: time goes on by itself, and they are asked between batches.
        """
        return ()
