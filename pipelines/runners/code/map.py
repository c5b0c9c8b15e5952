"""Runs MAP: SQL expressions over whole columns."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar, Final

import numpy as np

from pipelines.conditions.condition import condition
from pipelines.conditions.contract import Condition
from pipelines.data.batch import Batch
from pipelines.data.columns import MISSING, Column, Mask, Rows
from pipelines.data.describing import described
from pipelines.data.result import Result
from pipelines.errors import DataError, DefinitionError, RowsFailed, nearest
from pipelines.expressions.evaluation import Evaluated, Evaluation
from pipelines.expressions.expression import Expression
from pipelines.expressions.kinds import Kind
from pipelines.expressions.language import bare_name
from pipelines.expressions.results import column_of
from pipelines.runners.code.alldropped import AllDropped
from pipelines.runners.forms import Forms
from pipelines.runners.runner import OpenContext, Runner
from pipelines.steps.code.map import Map

DROPPED: Final = "where"
"""Reason of a record that `where` left out."""


_log = logging.getLogger("pipelines.map")


class MapRunner(Runner):
    """Leaves out records, fails records and makes values, in this order, each for the records that are left.

    Raises `DefinitionError` for expressions that no kinds of values suit, and `MissingPackageError` without Polars.
    """

    opens_images: ClassVar[bool] = False

    def __init__(self, step: Map, context: OpenContext) -> None:
        self._where = None if step.where is None else _named("where", step.where)
        self._ensure = [(_shown(each), _named("ensure", each)) for each in step.ensure]
        bare = {key: bare_name(text) for key, text in step.select.items()}
        self._renamed = {key: name for key, name in bare.items() if name is not None}
        made = {key: text for key, text in step.select.items() if key not in self._renamed}
        self._made = tuple(made)
        expressions = [_expression(key, text) for key, text in made.items()]
        self._evaluation = Evaluation(expressions) if expressions else None
        conditions = [each for _, each in self._ensure] + ([] if self._where is None else [self._where])
        self._condition_names = frozenset[str]().union(*(each.names for each in conditions))
        self._kinds: dict[str, Kind] = {}
        for read in (*conditions, *expressions):
            self._kinds |= getattr(read, "kinds", {})
        self._selected = tuple(step.select)
        self._all_dropped = AllDropped(_log, context.step or step.type_name, f"where holds for none: {step.where}")
        self._keep = None if step.keep == "all" else step.keep
        self.keeps_keys = self._keep is None  # type: ignore[misc]
        self.keeps_rows = self._where is None  # type: ignore[misc]

    @property
    def reads(self) -> frozenset[str] | None:
        """The names in expressions. Those that only get another key stay undecoded."""
        made = () if self._evaluation is None else self._evaluation.names
        return self._condition_names | frozenset(made)

    @property
    def in_words(self) -> str:
        """The values that expressions read, and the kinds of these."""
        kinds = dict(self._kinds)
        return "" if not kinds else f"reads {', '.join(f'{name} ({kind})' for name, kind in kinds.items())}"

    @property
    def gives(self) -> frozenset[str] | None:
        """The keys of `select`, and those that stay. A record may lack one of them."""
        return frozenset(self._selected) | frozenset(self._keep or ())

    def forms(self, given: Forms) -> Forms:
        """As of any runner; a value that gets another key keeps its form."""
        renamed = {key: given[name] for key, name in self._renamed.items() if name in given}
        return {**super().forms(given), **renamed}

    def misfit(self, given: Forms, possible: Collection[str] | None) -> str | None:
        """That it reads a value which no record has."""
        if possible is None:
            return None
        names = (self.reads or frozenset()) | frozenset(self._renamed.values())
        for name in sorted(names - frozenset(possible)):
            return f'no record has the value "{name}"{nearest(name, possible)}'
        return None

    def limit(self, records: int) -> bool:
        """It works on columns, of any size."""
        return True

    def close(self) -> None:
        """Say so if `where` has let no record through."""
        self._all_dropped.close()

    def run_batch(self, batch: Batch) -> Result:
        """The records that are left, with their new values."""
        result = self._run(batch)
        if self._where is not None:
            self._all_dropped.look(result)
        return result

    def _run(self, batch: Batch) -> Result:
        failed: dict[int, Exception] = {}
        dropped: dict[int, str] = {}
        if self._where is not None:
            chosen, failures = self._where.rows(batch)
            if failures:
                failed |= _by_number(batch, failures)
            if not chosen.all():
                # Of rows that failed, and of records of which other rows are left, the executor forgets it.
                dropped = dict.fromkeys(batch.take(~chosen).rows.tolist(), DROPPED)
                batch = batch.take(chosen)
        for shown, each in self._ensure:
            holds, failures = each.rows(batch)
            if not holds.all():
                wrong = [row for row in np.flatnonzero(~holds).tolist() if row not in failures]
                failures |= {
                    row: DataError(f"ensure: not {shown} ({_values(batch, each.names, row)})") for row in wrong
                }
                batch = _without(batch, failures, failed)
        if self._evaluation is None:
            return Result(self._result(batch, {}), failed, dropped)
        failures = {}
        parts = list(self._evaluation.run(batch, failures))
        if failures:
            batch = _without(batch, failures, failed)
        made = {key: _joined(parts, place) for place, key in enumerate(self._made)} if parts else {}
        return Result(self._result(batch, made), failed, dropped)

    def _result(self, batch: Batch, made: Mapping[str, Column]) -> Batch:
        columns = {
            key: made[key] if key in made else batch.column(self._renamed[key])
            for key in self._selected
            if key in made or self._renamed.get(key) in batch
        }
        gone = [key for key in self._selected if key not in columns]
        if self._keep is None:
            return batch.without(gone).with_columns(columns)
        kept = {key: batch.column(key) for key in self._keep if key in batch and key not in gone}
        return batch.select({**kept, **columns})


def _named(part: str, described: Any) -> Condition:
    try:
        return condition(described)
    except DefinitionError as error:
        raise DefinitionError(f"{part}: {error}") from None


def _expression(key: str, text: str) -> Expression:
    try:
        return Expression(text)
    except DefinitionError as error:
        raise DefinitionError(f"select.{key}: {error}") from None


def _shown(described: Any) -> str:
    return f'"{described}"' if isinstance(described, str) else str(described)


def _values(batch: Batch, names: Collection[str], row: int) -> str:
    return ", ".join(_value(batch, name, row) for name in sorted(names))


def _value(batch: Batch, name: str, row: int) -> str:
    try:
        value = batch.column(name)[row] if name in batch else MISSING
    except RowsFailed:
        return f'"{name}" cannot be read'
    if value is MISSING:
        return f'"{name}" is missing'
    # Texts may be anybody's names: a message tells only how long they are.
    return f"{name} = {value}" if isinstance(value, (bool, int, float)) else f'"{name}" is {described(value)}'


def _by_number(batch: Batch, failures: Mapping[int, Exception]) -> dict[int, Exception]:
    return {number: error for row, error in failures.items() for number in batch.parents(row).tolist()}


def _without(batch: Batch, failures: Mapping[int, Exception], failed: dict[int, Exception]) -> Batch:
    failed |= _by_number(batch, failures)
    stay: Mask = np.ones(batch.size, np.bool_)
    stay[list(failures)] = False
    return batch.take(stay)


def _joined(parts: Sequence[Evaluated], place: int) -> Column:
    """The results of one expression for all rows that have one, in their order."""
    if len(parts) == 1:
        return column_of(parts[0].results[place])
    order: Rows = np.argsort(np.concatenate([part.rows for part in parts if part.rows is not None]))
    return Column.concat([column_of(part.results[place]) for part in parts]).take(order)
