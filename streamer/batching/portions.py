"""How many rows the pipeline gets at a time: no more than a model wants, and no more than it is soon done with."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from pipelines.data.batch import Batch
from pipelines.data.result import Result
from pipelines.executors.settling import is_settled, joined

GROWTH: Final = 8
"""How many times as many rows as ever before a portion has at most, unless they would be in time were each to take so
many times as long."""
_LAST: Final = 4
"""Portions that are looked at. The slowest of them counts: a service that stops must not promise too much."""


class Portions:
    """How long rows take, learnt from those that were run.

    A call of a model or a function cannot be cut short. A service that is told to stop can keep to its time only if
    none of them takes long: so it runs a batch whose rows take long in portions, from the first one on.
    """

    def __init__(self) -> None:
        self._last: deque[float] = deque(maxlen=_LAST)
        self._most = 0

    def ran(self, rows: int, seconds: float) -> None:
        """So many rows took so long."""
        self._last.append(seconds / rows)
        self._most = max(self._most, rows)

    def takes(self, rows: int) -> float:
        """Seconds that so many rows take, as far as known; 0 before any were run."""
        return rows * max(self._last, default=0.0)

    def fitting(self, seconds: float) -> int:
        """How many rows are done in so many seconds, as far as known; one before any were run, none in no time."""
        if seconds <= 0:
            return 0
        if not self._last:
            return 1
        fitting = int(seconds / max(self.takes(1), 1e-9))
        return min(fitting, max(GROWTH * self._most, fitting // GROWTH))


def run_in_portions(
    run: Callable[[Batch], Result], batch: Batch, size: int, go_on: Callable[[], bool] = lambda: True
) -> tuple[Result, int]:
    """What `run` makes of the rows of `batch`, given at most `size` of them at a time, and how many rows it was given.

    That is not all of them where `go_on`, asked between two portions, says no.
    """
    if batch.size <= size:
        return run(batch), batch.size
    parts = batch.parts([range(batch.size)[start : start + size] for start in range(0, batch.size, size)])
    portions: list[Batch] = []
    results: list[Result] = []
    done = 0
    for portion in parts:
        if results and not go_on():
            break
        portions.append(portion)
        results.append(run(portion))
        done += portion.size
    result = joined(results)
    if done == batch.size and all(map(is_settled, results, portions)) and batch.splits is None:
        # By this very array of row numbers others know that all rows are there, in their order.
        result.batch = result.batch.numbered(batch.rows, batch.origin)
    return result, done
