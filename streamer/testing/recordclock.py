"""`RecordClock`: a clock that goes by the times of the records that are run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pipelines.data.batch import Batch
from pipelines.runners.state.tickclock import LONGEST_TICK
from streamer.agent.runs.clock import Clock

MOST_TICKS: Final = 100_000
"""How often steps are asked for what is due between two records: longer than a day nothing is silent."""


class RecordClock(Clock):
    """Stands still until a record with a later time is run; then it goes there, and steps are asked on the way.

    They are asked each second, as a running service does it at least: a longer time they take for one in which the
    service could not read.
    """

    def __init__(self, start: float) -> None:
        """`start`: seconds since 1970, of the first record."""
        self._now = start

    def now(self) -> float:
        """The time of the latest record."""
        return self._now

    def monotonic(self) -> float:
        """The same: it never goes back."""
        return self._now

    def caught_up(self, moment: float) -> float:
        """The present: no record is behind, whatever waits to be run."""
        return self._now

    def until(self, batch: Batch) -> Iterator[float]:
        """Each second on the way to the latest time of the batch, and this."""
        end = max(int(batch.timestamps().max(initial=0)) / 1000, self._now)
        for _ in range(MOST_TICKS):
            if end - self._now <= LONGEST_TICK:
                break
            self._now += LONGEST_TICK
            yield self._now
        self._now = end
        yield end
