"""Samples of records as arrays: numbers of several values as the columns of one, or arrays with a sample a row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from pipelines.data.batch import Batch
from pipelines.data.columns import MISSING, Column, DenseColumn, Mask, RaggedColumn, Rows
from pipelines.data.describing import described
from pipelines.data.listscolumn import ListsColumn
from pipelines.data.numberscolumn import NumbersColumn
from pipelines.data.stacking import list_as_array
from pipelines.errors import DataError, RowsFailed
from pipelines.values import ValueType

Array = npt.NDArray[Any]
_NUMBERS: Final = (ValueType.INT64, ValueType.DOUBLE, ValueType.BOOLEAN)
_FLOAT: Final = np.dtype(np.float32)


class SampleForm(NamedTuple):
    """What the samples of a key have in common."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    """The shape of one sample: `(3,)`."""

    def __str__(self) -> str:
        return f"{self.dtype}{list(self.shape)}"


class Samples(NamedTuple):
    """The samples of those rows of a batch that have samples of one form."""

    form: SampleForm
    rows: Rows
    """The positions of the rows, rising, `int64 (N,)`."""
    array: Array
    """The samples of all rows, one after the other, `(total, ...)`."""
    counts: Rows | None
    """How many samples each row has, `int64 (N,)`; `None`: each has one."""

    def of(self, rows: Rows) -> tuple[Array, Rows | None]:
        """The samples of the rows at these positions, in their order, and how many each has (`None`: one each)."""
        at = np.searchsorted(self.rows, rows)
        if self.counts is None:
            return self.array[at], None
        begins = np.cumsum(self.counts) - self.counts
        return self.array[spread(begins[at], self.counts[at])], self.counts[at]


def samples_of(batch: Batch, keys: Sequence[str], failed: dict[int, Exception]) -> list[Samples]:
    """The samples of all rows, by their form; rows that have none are put into `failed`, by position.

    Numbers of several keys, and a single number, are one sample each, float32 `(keys,)`. A single array `(k, ...)` is
    k samples of its dtype; a list of numbers is one of float32. A row fails that lacks a value, has one of another
    type, or a number that is NaN or not finite.
    """
    if len(keys) > 1:
        return _listed(_rows_of_numbers([_numbers(batch, key, failed) for key in keys], keys, failed))
    (key,) = keys
    column = _decoded(batch, key)
    if isinstance(column, NumbersColumn) or (isinstance(column, DenseColumn) and column.type in _NUMBERS):
        return _listed(_rows_of_numbers([_plain(column, key, failed)], keys, failed))
    if isinstance(column, ListsColumn) and not isinstance(column.arrays, ListsColumn):
        return _listed(_rows_of_arrays(column.arrays, key, failed, _FLOAT))
    if isinstance(column, (DenseColumn, RaggedColumn)):
        return _listed(_rows_of_arrays(column, key, failed, None))
    return _of_objects(batch, key, failed)


def spread(begins: Rows, counts: Rows) -> Rows:
    """`begins[i]`, `begins[i] + 1`, ..., so many for each i."""
    skipped = np.cumsum(counts) - counts
    every: Rows = np.repeat(begins - skipped, counts) + np.arange(int(counts.sum()))
    return every


def padded(samples: Array, size: int) -> Array:
    """So many samples: these, and zeros behind them."""
    return np.concatenate([samples, np.zeros((size - len(samples), *samples.shape[1:]), samples.dtype)])


def unlike(known: SampleForm, form: SampleForm, key: str) -> DataError:
    """The error of a record whose samples have another form than those of its key, the JSON text `key`, had so far."""
    return DataError(
        f"its samples are {form}, and those of {key} were {known} so far; all samples of a key are of one "
        "type and shape"
    )


def _listed(samples: Samples) -> list[Samples]:
    return [samples] if len(samples.rows) else []


def _decoded(batch: Batch, key: str) -> Column | None:
    """The column, if all of its rows can be decoded."""
    try:
        return batch.get(key)
    except RowsFailed:
        return None


def _numbers(batch: Batch, key: str, failed: dict[int, Exception]) -> Array:
    column = _decoded(batch, key)
    if isinstance(column, NumbersColumn) or (isinstance(column, DenseColumn) and column.type in _NUMBERS):
        return _plain(column, key, failed)
    numbers = np.zeros(batch.size)
    for row, value in enumerate(_cells(batch, key, failed)):
        if isinstance(value, (bool, int, float)):
            numbers[row] = value
        elif row not in failed:
            failed[row] = _missing(key) if value is MISSING else _no_sample(key, value, "a number")
    return numbers


def _plain(column: DenseColumn | NumbersColumn, key: str, failed: dict[int, Exception]) -> Array:
    _without_missing(column.mask, key, failed)
    return column.storage


def _rows_of_numbers(columns: Sequence[Array], keys: Sequence[str], failed: dict[int, Exception]) -> Samples:
    array = np.empty((len(columns[0]), len(columns)), _FLOAT)
    with np.errstate(over="ignore", invalid="ignore"):
        for at, column in enumerate(columns):
            array[:, at] = column
    finite = np.isfinite(array)
    if not finite.all():
        for row in np.flatnonzero(~finite.all(axis=1)).tolist():
            at = int(np.flatnonzero(~finite[row])[0])
            failed.setdefault(row, _not_finite(keys[at], columns[at][row]))
    form = SampleForm(_FLOAT, (len(columns),))
    if not failed:
        return Samples(form, np.arange(len(array), dtype=np.int64), array, None)
    rows = _others(len(array), failed)
    return Samples(form, rows, array[rows], None)


def _rows_of_arrays(column: Column, key: str, failed: dict[int, Exception], dtype: np.dtype[Any] | None) -> Samples:
    """The rows of arrays that agree in all but how many samples they have."""
    assert isinstance(column, (DenseColumn, RaggedColumn))
    _without_missing(column.mask, key, failed)
    if isinstance(column, DenseColumn):
        size, inner = len(column), column.storage.shape[2:]
        if column.storage.ndim < 2:
            return _refused(size, failed, DataError(f'"{key}" is a single number as an array; {_ARRAYS}'))
        counts = np.full(size, column.storage.shape[1], np.int64)
        array = column.storage.reshape((-1, *inner)) if column.storage.size else np.zeros((0, *inner))
    else:
        array, inner = column.samples[column.splits[0] : column.splits[-1]], column.samples.shape[1:]
        counts = np.diff(column.splits)
    if array.dtype.kind not in "biuf":
        return _refused(len(counts), failed, DataError(f'"{key}" is an array of {array.dtype}; samples are numbers'))
    if not counts.all() or 0 in inner:
        for row in np.flatnonzero((counts == 0) | (0 in inner)).tolist():
            failed.setdefault(row, DataError(f'"{key}" has no samples: it is empty'))
    with np.errstate(over="ignore", invalid="ignore"):
        array = np.asarray(array, dtype or array.dtype.newbyteorder("="))
    form = SampleForm(array.dtype, inner)
    if len(failed) < len(counts) and array.dtype.kind == "f":
        _check_finite(array, counts, key, failed)
    rows = _others(len(counts), failed)
    if len(rows) < len(counts):
        good = np.zeros(len(counts), np.bool_)
        good[rows] = True
        if array.size:
            array = array[np.repeat(good, counts)]
        counts = counts[rows]
    return Samples(form, rows, array, None if (counts == 1).all() else counts)


def _check_finite(array: Array, counts: Rows, key: str, failed: dict[int, Exception]) -> None:
    finite = np.isfinite(array)
    if finite.all():
        return
    bad = np.flatnonzero(~finite.reshape(len(array), -1).all(axis=1))
    for row, sample in zip(np.searchsorted(np.cumsum(counts), bad, "right").tolist(), bad.tolist(), strict=True):
        failed.setdefault(row, _not_finite(key, array[sample][~finite[sample]][0]))


def _of_objects(batch: Batch, key: str, failed: dict[int, Exception]) -> list[Samples]:
    """Row by row: values of several types and shapes."""
    made: dict[SampleForm, tuple[list[int], list[Array]]] = {}
    for row, value in enumerate(_cells(batch, key, failed)):
        if row in failed:
            continue
        array = _array(value)
        if array is None:
            failed[row] = _missing(key) if value is MISSING else _no_sample(key, value, _ARRAYS)
            continue
        if not array.size:
            failed[row] = DataError(f'"{key}" has no samples: it is empty')
        elif not np.isfinite(array).all():
            failed[row] = _not_finite(key, array[~np.isfinite(array)][0])
        else:
            rows, arrays = made.setdefault(SampleForm(array.dtype, array.shape[1:]), ([], []))
            rows.append(row)
            arrays.append(array)
    return [
        Samples(form, np.array(rows, np.int64), np.concatenate(arrays), np.array([len(each) for each in arrays]))
        for form, (rows, arrays) in made.items()
    ]


def _array(value: Any) -> Array | None:
    with np.errstate(over="ignore", invalid="ignore"):
        if isinstance(value, np.ndarray):
            usable = value.ndim > 0 and value.dtype.kind in "biuf"
            return np.asarray(value, value.dtype.newbyteorder("=")) if usable else None
        if isinstance(value, (bool, int, float)):
            return np.array([[value]], np.float64).astype(_FLOAT)
        listed = list_as_array(value) if isinstance(value, list) else None
        return None if listed is None else listed.astype(_FLOAT)


def _cells(batch: Batch, key: str, failed: dict[int, Exception]) -> list[Any]:
    cells: list[Any] = [MISSING] * batch.size
    if key in batch:
        for row, value in batch.column(key).cells(failed):
            cells[row] = value
    return cells


def _without_missing(mask: Mask | None, key: str, failed: dict[int, Exception]) -> None:
    if mask is not None:
        for row in np.flatnonzero(~mask).tolist():
            failed.setdefault(row, _missing(key))


def _others(size: int, failed: dict[int, Exception]) -> Rows:
    good = np.ones(size, np.bool_)
    good[list(failed)] = False
    return np.flatnonzero(good)


def _refused(size: int, failed: dict[int, Exception], error: Exception) -> Samples:
    for row in range(size):
        failed.setdefault(row, error)
    return Samples(SampleForm(_FLOAT, ()), np.zeros(0, np.int64), np.zeros(0, _FLOAT), None)


_ARRAYS: Final = "a number, an array with a sample in each row, or a list of numbers"


def _missing(key: str) -> DataError:
    return DataError(f'there is no value "{key}", which is a sample of the window')


def _no_sample(key: str, value: Any, needed: str) -> DataError:
    return DataError(f'"{key}" is {described(value)}; a sample is {needed}')


def _not_finite(key: str, number: Any) -> DataError:
    return DataError(f'"{key}" is {number}; a sample has to be a finite number of its type')
