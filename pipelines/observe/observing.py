"""Observing an executor: its `Observer` gets one `StepRun` for each step and batch."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol

import numpy as np

from pipelines.data.batch import Batch
from pipelines.data.columns import Rows

NO_ERRORS: Mapping[str, int] = MappingProxyType({})
"""The errors of a run in which no row failed."""


@dataclass(slots=True)
class StepRun:
    """A step has run one batch. For use during the call of `Observer.step` only: its batches must not be kept."""

    step: str
    """The step's name; that of a step inside a PIPELINE step begins with that one's: `outer/inner`."""
    runner: str
    """Name of the class that ran the step: a runner or a junction."""
    began: float
    """By `time.perf_counter`."""
    seconds: float
    thread: int
    """The thread that ran it, by the system's number (`threading.get_native_id`)."""
    given: Sequence[Batch]
    """The input: one batch, or for a step that joins branches one of each."""
    batch: Batch
    """The output."""
    errors: Mapping[str, int]
    """Records that failed in this very step, by the error's class name."""
    _numbers: Callable[[int], Rows] | None = None

    @property
    def rows(self) -> int:
        """How many rows went in."""
        return max((batch.size for batch in self.given), default=0)

    def records(self, batch: Batch, wanted: Collection[int] | None = None) -> Iterator[tuple[int, list[int]]]:
        """The rows of `batch`, one of this run, that came from wanted records.

        These are not always the row numbers of the batch: inside a graph rows are counted in another way.

        Args:
            batch: An input or a result of the run.
            wanted: Numbers of records; `None`: all.

        Yields:
            The position of a row, and the numbers of the wanted records that it came from.
        """
        numbers = self._numbers
        positions: Sequence[int] = range(batch.size)
        if numbers is None and wanted is not None and batch.splits is None:
            # Few of many rows, usually.
            positions = [position for position, row in enumerate(batch.rows.tolist()) if row in wanted]
        for position in positions:
            rows = batch.parents(position).tolist()
            records = rows if numbers is None else [record for row in rows for record in numbers(row).tolist()]
            chosen = [record for record in dict.fromkeys(records) if wanted is None or record in wanted]
            if chosen:
                yield position, chosen

    def inside(self, numbers: Callable[[int], Rows]) -> None:
        """Note that the step ran inside a graph; row `row` of the graph came from the records `numbers(row)`."""
        inner = self._numbers
        if inner is None:
            self._numbers = numbers
        else:
            within = inner
            self._numbers = lambda row: np.concatenate([np.zeros(0, np.int64), *map(numbers, within(row).tolist())])


class Observer(Protocol):
    """Called for each step and batch, in the thread that runs the executor; metrics and traces are built on it."""

    def step(self, run: StepRun) -> None:
        """Called after a step has run a batch."""


class Observers:
    """Several observers as one."""

    def __init__(self, *observers: Observer) -> None:
        self._observers = observers

    def step(self, run: StepRun) -> None:
        """Pass the run to each observer."""
        for observer in self._observers:
            observer.step(run)


def together(*observers: Observer | None) -> Observer | None:
    """One observer for all that are not `None`; `None` if there are none."""
    there = [observer for observer in observers if observer is not None]
    if len(there) < 2:
        return there[0] if there else None
    return Observers(*there)
