"""`WindowResults`: the results of WINDOW, a row for each window that has ended."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pipelines.data.batch import Batch
from pipelines.data.columns import Column, DenseColumn
from pipelines.data.record import RecordContext
from pipelines.data.result import Gathered, Result
from pipelines.runners.keyed.keyedrunner import by_number
from pipelines.runners.state.timed import timed
from pipelines.steps.keyed.window import ADDED
from pipelines.values import ValueType


class Closed(NamedTuple):
    """A result: what a window has when it ends, or after a record."""

    key: tuple[Any, ...]
    """The values of `by`."""
    values: tuple[Any, ...]
    """The numbers about its records, in the order of their names."""
    start: int
    """Milliseconds since 1970, as `end`."""
    end: int
    length: int
    """How many records it has; with samples, how many of these, without those of padding."""
    samples: npt.NDArray[Any] | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What becomes of the records of a batch. All rows are their positions in it."""

    rows: list[int] = field(default_factory=list)
    """The record that each of `closed` belongs to."""
    closed: list[Closed] = field(default_factory=list)
    failed: dict[int, Exception] = field(default_factory=dict)
    dropped: dict[int, str] = field(default_factory=dict)
    """Why records were dropped."""


class WindowResults:
    """Makes results of windows, with the columns that a step gives."""

    def __init__(self, by: Sequence[str], output_name: str | None, numbers: Iterable[str] = ()) -> None:
        """`output_name`: of the samples; `numbers`: the names of `Closed.values`."""
        self._by = by
        self._output_name = output_name
        self._numbers = list(numbers)

    def of(self, batch: Batch, outcome: Outcome) -> Result:
        """The results that records of a batch make. Those that made none, and were not lost, are held."""
        rows = np.array(outcome.rows, np.int64)
        order = np.argsort(rows, kind="stable")
        numbers, splits = batch.numbers(rows[order])
        columns = self._columns([outcome.closed[at] for at in order.tolist()])
        made = Batch(columns, len(rows), rows=numbers, splits=splits, origin=batch.origin)
        held = np.ones(batch.size, np.bool_)
        held[[*outcome.rows, *outcome.failed, *outcome.dropped]] = False
        return Result(
            made,
            by_number(batch, outcome.failed),
            by_number(batch, outcome.dropped),
            batch.numbers(np.flatnonzero(held))[0],
            gathered=(Gathered(made, _bytes_of(outcome.closed)),) if len(rows) else (),
        )

    def timed(self, closed: Sequence[Closed], records: Sequence[RecordContext]) -> Result:
        """The results of windows that no record ended, each with the last record of its key."""
        return timed(self._columns(closed), records, _bytes_of(closed))

    def _columns(self, closed: Sequence[Closed]) -> dict[str, Column]:
        if not closed:
            return {}
        columns = {name: Column.of([each.key[at] for each in closed]) for at, name in enumerate(self._by)}
        if self._output_name is not None:
            columns[self._output_name] = Column.of([each.samples for each in closed])
        columns |= {name: Column.of([each.values[at] for each in closed]) for at, name in enumerate(self._numbers)}
        bounds = np.array([(each.start, each.end, each.length) for each in closed], np.int64)
        for at, name in enumerate(ADDED):
            columns[name] = DenseColumn(bounds[:, at], ValueType.INT64)
        return columns


def _bytes_of(closed: Iterable[Closed]) -> int:
    return sum(0 if each.samples is None else each.samples.nbytes for each in closed)
