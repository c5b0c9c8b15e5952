"""What can be seen of an executor's work: one `StepRun` for each step and batch, told to an `Observer`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol

import numpy as np

from pipelines.batch import Batch
from pipelines.columns import Rows

NO_ERRORS: Mapping[str, int] = MappingProxyType({})
"""What most runs have."""


@dataclass(slots=True)
class StepRun:
    """A step has run one batch. Worth a look only while it is told: batches are not to be kept."""

    step: str
    """The step's name; that of a step inside a PIPELINE step begins with that one's: `outer/inner`."""
    runner: str
    """The class of what ran it."""
    began: float
    """By `time.perf_counter`."""
    seconds: float
    thread: int
    """The thread that ran it, by the system's number (`threading.get_native_id`)."""
    given: Sequence[Batch]
    """What went in: one batch, or for a step that joins branches one of each."""
    batch: Batch
    """What came out."""
    errors: Mapping[str, int]
    """Records that failed in this very step, by the error's class name."""
    _numbers: Callable[[int], Rows] | None = None

    @property
    def rows(self) -> int:
        """How many rows went in."""
        return max((batch.size for batch in self.given), default=0)

    def records(self, batch: Batch) -> list[list[int]]:
        """The numbers of the records that each row of `batch`, one of this run, came from.

        Not always its own row numbers: inside a graph rows are counted in another way.
        """
        parents = [batch.parents(position).tolist() for position in range(batch.size)]
        numbers = self._numbers
        if numbers is None:
            return parents
        return [[record for row in rows for record in numbers(row).tolist()] for rows in parents]

    def inside(self, numbers: Callable[[int], Rows]) -> None:
        """It was run inside a graph, whose row `row` came from the records `numbers(row)`."""
        inner = self._numbers
        if inner is None:
            self._numbers = numbers
        else:
            within = inner
            self._numbers = lambda row: np.concatenate([np.zeros(0, np.int64), *map(numbers, within(row).tolist())])


class Observer(Protocol):
    """Told of each step and batch by the thread that runs the executor; metrics and traces are built on it."""

    def step(self, run: StepRun) -> None:
        """A step has run one batch."""


class Observers:
    """Several observers as one."""

    def __init__(self, *observers: Observer) -> None:
        self._observers = observers

    def step(self, run: StepRun) -> None:
        """Tell each."""
        for observer in self._observers:
            observer.step(run)


def together(*observers: Observer | None) -> Observer | None:
    """One observer that tells those that there are; `None` if there are none."""
    there = [observer for observer in observers if observer is not None]
    if len(there) < 2:
        return there[0] if there else None
    return Observers(*there)
