"""Arrays of one or two dimensions as matrices of samples by columns, for steps that read a model's output."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from pipelines.data.columns import Column, DenseColumn, ObjectColumn, RaggedColumn, Rows
from pipelines.errors import DataError, RowsFailed, WrongTypeError
from pipelines.runners.models.arrays import array_named
from pipelines.values import TypedList, ValueType, list_to_array, type_of

Array: TypeAlias = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Matrix:
    """Samples of rows with equally many columns, of one element type.

    A row that is `[C]` or `[1, C]` has one sample, one that is `[k, C]` has k.
    """

    samples: Array
    """`(total, C)`."""
    splits: Rows | None
    """`(rows + 1,)`: row i has the samples from `splits[i]` to `splits[i + 1]`; `None`: each row has one."""
    positions: Rows | None
    """Positions of the rows in their column; `None`: all, in order."""

    def position(self, sample: int) -> int:
        """The position, in the column, of the row that a sample belongs to."""
        row = sample if self.splits is None else int(np.searchsorted(self.splits, sample, side="right")) - 1
        return row if self.positions is None else int(self.positions[row])


def matrices(column: Column, key: str | None) -> list[Matrix]:
    """The rows of a decoded column by their number of columns and element type: one matrix if all agree.

    `key` is that of the column, `None` for the only array of each record. Rows are arrays, or lists of numbers
    (float32, as in Konduit Serving). Raises `RowsFailed` for rows that are neither, or that have not one or two
    dimensions, or no columns.
    """
    if isinstance(column, DenseColumn) and column.type is ValueType.NDARRAY:
        return [_of_dense(column.array, key)]
    if isinstance(column, RaggedColumn) and column.samples.ndim == 2:
        _check_shape(column.samples.shape, key)
        return [Matrix(column.samples, column.splits, None)]
    return _of_rows(column, key)


def put_together(
    parts: list[Matrix], size: int, columns_of: Callable[[Matrix], dict[str, Column]]
) -> dict[str, Column]:
    """The columns that `columns_of` makes of each part, put together as columns of `size` rows."""
    if len(parts) == 1 and parts[0].positions is None:
        return columns_of(parts[0])
    values: dict[str, list[Any]] = {}
    digits: dict[str, set[np.dtype[Any] | None]] = {}
    for part in parts:
        for key, column in columns_of(part).items():
            digits.setdefault(key, set()).add(column.digits)
            listed = values.setdefault(key, [None] * size)
            rows = range(size) if part.positions is None else part.positions.tolist()
            for row, value in zip(rows, column.values(), strict=True):
                listed[row] = value
    return {
        key: Column.of(listed).with_digits(digits[key].pop() if len(digits[key]) == 1 else None)
        for key, listed in values.items()
    }


def by_row(part: Matrix, values: list[Any], elements: ValueType, single: Callable[[Any], Any] | None = None) -> Column:
    """One value a sample as one value a row: a row of one sample has the value (through `single`), others a list."""
    if part.splits is None:
        return Column.of(values) if single is None else ObjectColumn([single(value) for value in values])
    rows: list[Any] = []
    for start, end in itertools.pairwise(part.splits.tolist()):
        if end - start == 1:
            rows.append(values[start] if single is None else single(values[start]))
        else:
            rows.append(values[start:end] if end > start else TypedList(elements))
    return Column.of(rows)


def _of_dense(array: Array, key: str | None) -> Matrix:
    try:
        _check_shape(array.shape[1:], key)
    except WrongTypeError as error:
        raise RowsFailed(dict.fromkeys(range(len(array)), error)) from None
    if array.ndim == 2:
        return Matrix(array, None, None)
    rows, count, width = array.shape
    samples = array.reshape(rows * count, width)
    return Matrix(samples, None if count == 1 else np.arange(rows + 1, dtype=np.int64) * count, None)


def _of_rows(column: Column, key: str | None) -> list[Matrix]:
    failures: dict[int, Exception] = {}
    groups: dict[tuple[int, np.dtype[Any]], tuple[list[int], list[Array]]] = {}
    for position, value in enumerate(column.values()):
        try:
            array = _as_array(value, key or "")
            _check_shape(array.shape, key)
        except DataError as error:
            failures[position] = error
            continue
        # Put together, a float32 beside a float64 would become one, and have other digits.
        positions, arrays = groups.setdefault((array.shape[-1], array.dtype), ([], []))
        positions.append(position)
        arrays.append(array if array.ndim == 2 else array[np.newaxis])
    if failures:
        raise RowsFailed(failures)
    return [_joined(positions, arrays) for positions, arrays in groups.values()]


def _joined(positions: list[int], arrays: list[Array]) -> Matrix:
    splits = np.zeros(len(arrays) + 1, np.int64)
    np.cumsum([len(array) for array in arrays], out=splits[1:])
    return Matrix(np.concatenate(arrays), splits, np.array(positions, np.int64))


def _as_array(value: Any, key: str) -> Array:
    if isinstance(value, np.ndarray):
        return value
    if isinstance(value, list):
        return list_to_array(value, key)
    raise WrongTypeError(
        f'Value has wrong type for key "{key}": requested type NDARRAY, actual type {type_of(value).name}'
    )


def _check_shape(shape: tuple[int, ...], key: str | None) -> None:
    if len(shape) not in (1, 2):
        raise WrongTypeError(f"{array_named(key)} has the shape {list(shape)}; [C], [1, C] or [N, C] is needed")
    if shape[-1] == 0:
        raise WrongTypeError(f"{array_named(key)} has the shape {list(shape)}: there is nothing to choose from")
