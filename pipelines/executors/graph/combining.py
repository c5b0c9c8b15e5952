"""COMBINE: one row made of the rows that several branches have for a record."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeGuard

import numpy as np
import numpy.typing as npt

from pipelines.data.batch import Batch
from pipelines.data.columns import MISSING, Column, DenseColumn
from pipelines.data.data import Data
from pipelines.data.result import Result
from pipelines.data.sparsecolumn import SparseColumn
from pipelines.errors import RAISED, DataError, RowsFailed, ValueNotFoundError, WrongTypeError, blamed
from pipelines.executors.graph.aligning import aligned
from pipelines.executors.graph.joining import flow_of
from pipelines.executors.graph.junction import Combiner, Flow, Junction, searched
from pipelines.executors.graph.lineage import Lineage
from pipelines.runners.runner import ContractError, OpenContext, rebuilt
from pipelines.steps.flow.combine import AlignedCombine, ArgMax, Ensemble, FunctionCombine
from pipelines.values import ValueType, type_of

Array = npt.NDArray[Any]

_log = logging.getLogger(__name__)


class CombineJunction(Junction):
    """Aligns the rows and calls the combiner.

    A row that cannot be combined fails alone; a row that the combiner leaves out is dropped.
    """

    def __init__(self, name: str, inputs: tuple[str, ...], combiner: Combiner) -> None:
        super().__init__(name, inputs)
        self._combiner = combiner

    @classmethod
    def of(cls, step: AlignedCombine, name: str, inputs: tuple[str, ...], context: OpenContext) -> CombineJunction:
        return cls(name, inputs, step.combiner(replace(context, step=context.named(name))))

    @property
    def opens_images(self) -> bool:
        return isinstance(self._combiner, FunctionCombiner)

    def run(self, flows: Sequence[Flow], lineage: Lineage) -> Flow:
        alignment = aligned([flow.batch for flow in flows], lineage)
        errors = dict(alignment.torn)
        left_out: set[int] = set()

        def combined(parts: Sequence[Batch]) -> Batch:
            result = self._combiner(parts)
            if not isinstance(result, Result):
                result = Result(result)
            batch = self._checked(result.batch, parts[0])
            errors.update(result.failed)
            left_out.update(set(parts[0].rows.tolist()) - set(batch.rows.tolist()) - result.failed.keys())
            return lineage.adopted(self.name, batch)

        batches = searched(alignment.batches, combined, errors) if alignment.batches[0].size else []
        flow = flow_of(self, batches, alignment, errors, flows, lineage)
        gone = dict.fromkeys(sorted(lineage.all_roots(left_out)), f"{self.name}: dropped")
        return Flow(flow.batch, flow.failed, {**gone, **flow.dropped})

    def _checked(self, batch: object, given: Batch) -> Batch:
        if not isinstance(batch, Batch):
            raise ContractError(f"{self.name}: the combine function returned {type(batch).__name__}, not a Batch")
        if batch.self_numbered:
            if batch.size != given.size:
                raise ContractError(
                    f"{self.name}: the combine function was given {given.size} rows and returned {batch.size} without "
                    "saying which they are; build the returned batch with `take`, or pass its `rows`"
                )
            return batch.numbered(given.row_numbers, given.origin)
        if not set(batch.rows.tolist()) <= set(given.rows.tolist()):
            raise ContractError(f"{self.name}: the combine function returned rows that it was not given")
        return batch


class EnsembleCombiner:
    """Weighted averages. Without `fieldNames`, numbers that an input lacks stay as they are: a warning is logged."""

    def __init__(self, function: Ensemble, context: OpenContext) -> None:
        self._weights = function.weights
        self._keys = function.field_names
        self._name = context.step
        self._warned: set[str] = set()

    def __call__(self, inputs: Sequence[Batch]) -> Batch:
        weights = self._weights or (1.0,) * len(inputs)
        first = inputs[0]
        averaged: dict[str, Column] = {}
        failures: dict[int, Exception] = {}
        keys = self._keys or self._common(inputs)
        for key in keys:
            for batch in inputs:
                if key not in batch:
                    raise ValueNotFoundError(f'Value not found for key "{key}" in every input')
            column = first.column(key)
            if isinstance(column, SparseColumn) and self._keys is None:
                averaged[key] = _rare_average(key, column, inputs, weights, failures, self._left)
                continue
            columns = [batch[key] for batch in inputs]
            averaged[key] = _average(key, columns, weights, failures, None if self._keys is not None else self._left)
        if failures:
            raise RowsFailed(failures)
        return first.with_columns(averaged)

    def _common(self, inputs: Sequence[Batch]) -> list[str]:
        """The keys that all inputs have."""
        keys = []
        for key in dict.fromkeys(key for batch in inputs for key in batch.columns):
            there = [batch for batch in inputs if key in batch]
            if len(there) == len(inputs):
                keys.append(key)
            elif any(_holds_averaged(batch.column(key)) for batch in there):
                self._left(key)
        return keys

    def _left(self, key: str) -> None:
        """Warn once for each key that its numbers are not averaged."""
        if key in self._warned:
            return
        self._warned.add(key)
        _log.warning(
            '%s: "%s" is not averaged where an input lacks it or has no number there: results have what the first '
            "input has; name the keys to average in fieldNames, and such a record fails",
            self._name,
            key,
        )


class ArgMaxCombiner:
    """The input with the highest score."""

    def __init__(self, function: ArgMax, context: OpenContext) -> None:
        self._key = function.field_name

    def __call__(self, inputs: Sequence[Batch]) -> Batch:
        failures: dict[int, Exception] = {}
        scores = np.stack([self._scores(batch, failures) for batch in inputs])
        for row in np.flatnonzero(np.isnan(scores).all(axis=0)).tolist():
            failures.setdefault(row, DataError(f'every "{self._key}" is NaN'))
        if failures:
            raise RowsFailed(failures)
        best = np.argmax(np.where(np.isnan(scores), -np.inf, scores), axis=0)
        parts = [batch.take(best == place) for place, batch in enumerate(inputs) if (best == place).any()]
        return Batch.concat(parts)

    def _scores(self, batch: Batch, failures: dict[int, Exception]) -> npt.NDArray[np.float64]:
        scores = np.full(batch.size, np.nan)
        values = batch[self._key].values() if self._key in batch else [MISSING] * batch.size
        for row, value in enumerate(values):
            try:
                scores[row] = _score(self._key, value)
            except DataError as error:
                failures.setdefault(row, error)
        return scores


class FunctionCombiner:
    """Calls `f(list[Data]) -> Data | None`, row by row."""

    def __init__(self, function: FunctionCombine, context: OpenContext) -> None:
        self._label = function.label
        self._function = function.resolved(allowed=context.allow_code)

    def __call__(self, inputs: Sequence[Batch]) -> Result:
        made: list[Data] = []
        positions: list[int] = []
        failures: dict[int, Exception] = {}
        for row, datas in enumerate(zip(*(batch.to_list() for batch in inputs), strict=True)):
            try:
                data = self._checked(self._function(list(datas)))
            except RAISED as error:  # any exception belongs to that record
                failures[int(inputs[0].rows[row])] = blamed(error)
                continue
            if data is not None:
                made.append(data)
                positions.append(row)
        return Result(rebuilt(made, positions, inputs[0]), failures)

    def _checked(self, value: object) -> Data | None:
        if value is None or isinstance(value, Data):
            return value
        raise WrongTypeError(f"{self._label} returned {type(value).__name__}; return a Data, or None (drop)")


def _rare_average(
    key: str,
    column: SparseColumn,
    inputs: Sequence[Batch],
    weights: Sequence[float],
    failures: dict[int, Exception],
    left: Callable[[str], None],
) -> Column:
    # Rows in which the first input has no value get none.
    rows = np.array(column.rows, np.int64)
    wrong: dict[int, Exception] = {}
    columns = [batch.column(key).take(rows).decoded() for batch in inputs]
    averages = _average(key, columns, weights, wrong, left)
    failures.update({column.rows[place]: error for place, error in wrong.items()})
    return SparseColumn(len(column), column.rows, averages)


def _average(
    key: str,
    columns: Sequence[Column],
    weights: Sequence[float],
    failures: dict[int, Exception],
    left: Callable[[str], None] | None,
) -> Column:
    """The averages of each row. A row without one keeps its first value and `left(key)` is called; `None`: it fails."""
    first = columns[0]
    arrays = [column.array for column in columns if _averages_whole(column, first)]
    if len(arrays) == len(columns):
        kind = first.type if first.type is ValueType.NDARRAY else ValueType.DOUBLE
        return DenseColumn(_weighted(arrays, weights), kind or ValueType.NDARRAY)
    values: list[Any] = []
    for row, given in enumerate(zip(*(column.values() for column in columns), strict=True)):
        try:
            values.append(_average_of(key, given, weights, left))
        except DataError as error:
            failures.setdefault(row, error)
            values.append(MISSING)
    return Column.of(values)


def _holds_averaged(column: Column) -> bool:
    if isinstance(column, DenseColumn) and column.type is ValueType.NDARRAY:
        return column.storage.dtype.kind in "iuf"
    return column.type in (ValueType.DOUBLE, ValueType.NDARRAY)


def _averages_whole(column: Column, first: Column) -> TypeGuard[DenseColumn]:
    return (
        isinstance(column, DenseColumn)
        and isinstance(first, DenseColumn)
        and column.mask is None
        and column.type is first.type
        and column.type in (ValueType.NDARRAY, ValueType.DOUBLE)
        and column.array.dtype.kind in "iuf"
        and column.array.shape == first.array.shape
    )


def _average_of(key: str, given: Sequence[Any], weights: Sequence[float], left: Callable[[str], None] | None) -> Any:
    chosen = left is None
    # An INT64 may be a class index, which has no average: it is averaged if its key is named, or beside a DOUBLE.
    integers = chosen or float in {value.__class__ for value in given}
    for value in given:
        if value is MISSING and chosen:
            raise ValueNotFoundError(f'Value not found for key "{key}" in every input')
        if value is MISSING or not _averages(value, integers=integers):
            if left is not None:
                if any(other is not MISSING and _averages(other, integers=False) for other in given):
                    left(key)
                return given[0]
            kind = value.dtype if isinstance(value, np.ndarray) else type_of(value).name
            raise WrongTypeError(f'"{key}" is {kind}; numbers and arrays of numbers can be averaged')
    arrays = [np.asarray(value) for value in given]
    if len({array.shape for array in arrays}) > 1:
        shapes = " and ".join(str(list(array.shape)) for array in arrays)
        raise DataError(f'the arrays of "{key}" have the shapes {shapes}; equal ones can be averaged')
    average = _weighted(arrays, weights)
    return average if any(isinstance(value, np.ndarray) for value in given) else average.item()


def _averages(value: Any, *, integers: bool) -> bool:
    if isinstance(value, np.ndarray):
        return value.dtype.kind in "iuf"
    return type_of(value) is ValueType.DOUBLE or (integers and type_of(value) is ValueType.INT64)


def _weighted(arrays: Sequence[Array], weights: Sequence[float]) -> Array:
    # float32 stays float32; integers become float64.
    dtype = np.result_type(*(array.dtype for array in arrays), np.float16)
    dtype = dtype if dtype.kind == "f" else np.dtype(np.float64)
    total = np.zeros(arrays[0].shape, np.result_type(dtype, np.float32))
    for array, weight in zip(arrays, weights, strict=True):
        total += array.astype(total.dtype, copy=False) * total.dtype.type(weight / sum(weights))
    return total.astype(dtype, copy=False)


def _score(key: str, value: Any) -> float:
    if value is MISSING:
        raise ValueNotFoundError(f'Value not found for key "{key}" in every input')
    kind = type_of(value)
    if kind in (ValueType.DOUBLE, ValueType.INT64):
        return float(value)
    if kind is ValueType.NDARRAY and value.size and value.dtype.kind in "iuf":
        return float(np.max(value))
    raise WrongTypeError(f'"{key}" is {kind.name}; a score is a number, or an array of numbers')
