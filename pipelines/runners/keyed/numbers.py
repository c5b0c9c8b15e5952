"""Numbers of a column, integers and floats apart, so that sums of integers stay exact."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from pipelines.data.columns import MISSING, Column, DenseColumn, Mask
from pipelines.data.numberscolumn import NumbersColumn
from pipelines.errors import DataError
from pipelines.values import ValueType
from pipelines.values.native import INT64_MAX

_KINDS: Final = "iuf"


class Numbers(NamedTuple):
    """The numbers of N rows; rows that have none are in `failed`, and have 0."""

    floats: npt.NDArray[np.float64]
    """Each number as a float."""
    integers: npt.NDArray[np.int64]
    """Each integer, exactly; 0 where the number is none."""
    whole: Mask
    """Which numbers are integers."""
    failed: dict[int, Exception]
    """Why rows have no number: it is missing, of another type, or not finite."""

    def take(self, rows: npt.NDArray[np.int64]) -> Numbers:
        """The rows at these positions."""
        return Numbers(self.floats[rows], self.integers[rows], self.whole[rows], {})


def numbers_of(column: Column, name: str) -> Numbers:
    """The numbers of a decoded column, whose key is `name`. An array with one element is a number, too."""
    if isinstance(column, DenseColumn) and column.mask is None and len(column):
        array = column.storage
        single = column.type is ValueType.NDARRAY and array.dtype.kind in _KINDS and array[0].size == 1
        if single or column.type in (ValueType.INT64, ValueType.DOUBLE):
            flat = array.reshape(len(array))
            if flat.dtype.kind != "u" or flat.max() <= INT64_MAX:
                return _of_array(flat, np.full(len(flat), flat.dtype.kind != "f"), name)
    if isinstance(column, NumbersColumn) and column.mask is None:
        return _of_array(column.storage, column.whole, name)
    return _of_values(column.values(), name)


def only(value: Any) -> Any:
    """The value, or the number or boolean that it is an array of."""
    if isinstance(value, np.ndarray) and value.size == 1 and value.dtype.kind in "iufb":
        return value.item()
    return value


def _of_array(array: npt.NDArray[Any], whole: Mask, name: str) -> Numbers:
    floats = array.astype(np.float64)
    failed: dict[int, Exception] = {}
    finite = np.isfinite(floats)
    if not finite.all():
        for row in np.flatnonzero(~finite).tolist():
            failed[row] = _not_finite(name, floats[row])
        floats = np.where(finite, floats, 0.0)
    integers = np.where(whole, array if array.dtype.kind != "f" else floats, 0).astype(np.int64)
    return Numbers(floats, integers, whole, failed)


def _of_values(values: list[Any], name: str) -> Numbers:
    count = len(values)
    floats, integers, whole = np.zeros(count), np.zeros(count, np.int64), np.zeros(count, np.bool_)
    failed: dict[int, Exception] = {}
    for row, value in enumerate(values):
        value = only(value)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            failed[row] = _none(name, value)
        elif not np.isfinite(float(value)):
            failed[row] = _not_finite(name, value)
        elif isinstance(value, int) and -INT64_MAX <= value + 1 <= INT64_MAX + 1:
            floats[row], integers[row], whole[row] = value, value, True
        else:
            floats[row] = value
    return Numbers(floats, integers, whole, failed)


def _none(name: str, value: Any) -> Exception:
    if value is MISSING or value is None:
        return DataError(f'there is no value "{name}", which has to be a number')
    return DataError(f'"{name}" is a {type(value).__name__}; it has to be a number')


def _not_finite(name: str, value: float) -> Exception:
    return DataError(f'"{name}" is {value}; it has to be a finite number')
