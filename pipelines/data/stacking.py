"""Makes one array of the values of several rows, with a given value for rows that have none. Nothing is rounded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from pipelines.errors import DataError, WrongTypeError
from pipelines.values import ValueType, list_to_array, type_of
from pipelines.values.ndarray import array_type

Array: TypeAlias = npt.NDArray[Any]

SCALARS: Final[Mapping[ValueType, np.dtype[Any]]] = MappingProxyType(
    {
        ValueType.INT64: np.dtype(np.int64),
        ValueType.DOUBLE: np.dtype(np.float64),
        ValueType.BOOLEAN: np.dtype(np.bool_),
    }
)
"""Value types whose rows fit one array of plain numbers, with that array's dtype."""


def stacked(values: Sequence[Any], what: str) -> Array:
    """The values of all rows as one array, `(N, ...)`.

    Arrays of one dtype and shape, lists of numbers of one shape, or INT64, DOUBLE or BOOLEAN; INT64 beside DOUBLE is
    float64. Raises `WrongTypeError` for anything else, also for integers beside floats that float64 would round; `what`
    is in its message.
    """
    if not values:
        return np.empty(0)
    kinds = {type_of(value) for value in {value.__class__: value for value in values}.values()}
    if kinds == {ValueType.NDARRAY}:
        return _stacked_arrays(values, what)
    if kinds == {ValueType.LIST} and (arrays := _arrays_of(values)) is not None:
        if len({array.dtype for array in arrays}) > 1:
            arrays = [_as_type(array, np.dtype(np.float64), what) for array in arrays]
        return _stacked_arrays(arrays, what)
    if len(kinds) == 1 and (scalar := SCALARS.get(next(iter(kinds)))) is not None:
        return np.array(values, scalar)
    if kinds == {ValueType.INT64, ValueType.DOUBLE}:
        return _doubles(values, what)
    names = " and ".join(sorted(kind.name for kind in kinds))
    raise WrongTypeError(f"{what} are {names} and make no array; values() gives them one by one")


def filled(array: Array, present: npt.NDArray[np.bool_] | None, value: Any, what: str) -> Array:
    """`array`, which has the values of the rows that are `present`, with `value` for the other rows.

    `value` is a number, or an array of the shape of a row. The dtype is that of both together, whether a row lacks a
    value or not. Raises `WrongTypeError` if `value` does not fit the shape, or one of the two the dtype.
    """
    fill = np.asarray(value)
    array_type(fill.dtype)
    if present is not None and not present.any():
        return np.repeat(fill[np.newaxis], len(present), axis=0)
    # Python's numbers take the type of the array where they fit it.
    value = value if isinstance(value, (bool, int, float)) else fill
    numbers = _as_type(array, np.result_type(array.dtype, value), what)
    if present is None:
        return numbers
    whole = np.empty((len(present), *array.shape[1:]), numbers.dtype)
    whole[present] = numbers
    try:
        with np.errstate(over="raise"):
            whole[~present] = value
    except (ValueError, OverflowError, FloatingPointError) as error:
        raise WrongTypeError(
            f"{what} are {numbers.dtype}{list(array.shape[1:])}, for which {value!r} cannot stand: {error}"
        ) from None
    return whole


def as_scalars(array: Array, kind: ValueType) -> Array:
    """`array` as the rows of a column of `kind`, INT64, DOUBLE or BOOLEAN: `(N,)` of its dtype.

    Raises `WrongTypeError` for another shape, and for numbers that would change.
    """
    dtype = SCALARS[kind]
    if array.ndim != 1:
        raise WrongTypeError(f"a column of {kind.name} has one number a row: an array (N,), not {list(array.shape)}")
    if array.dtype == dtype:
        return array
    if array.dtype.kind not in ("iuf" if kind is ValueType.DOUBLE else "iu") or kind is ValueType.BOOLEAN:
        raise WrongTypeError(f"a column of {kind.name} is an array of {dtype}, not of {array.dtype}; convert it before")
    return _as_type(array, dtype, f"the values of this {kind.name} column")


def is_double(value: Any) -> bool:
    """Whether a value counts as a DOUBLE beside others: a DOUBLE, or an INT64 that float64 does not round."""
    return value.__class__ is float or (value.__class__ is int and float(value) == value)


def list_as_array(value: list[Any]) -> Array | None:
    """A list of numbers, nested or not, as an int64 or float64 array; `None` for any other. An empty one is float64."""
    if not value:
        return np.zeros(0)
    try:
        return list_to_array(value, "", exact=True)
    except DataError:
        return None


def _arrays_of(lists: Sequence[list[Any]]) -> list[Array] | None:
    arrays: list[Array] = []
    for value in lists:
        array = list_as_array(value)
        if array is None:
            return None
        arrays.append(array)
    return arrays


def _stacked_arrays(arrays: Sequence[Array], what: str) -> Array:
    first = arrays[0]
    if any(array.dtype != first.dtype or array.shape != first.shape for array in arrays):
        other = next(array for array in arrays if array.dtype != first.dtype or array.shape != first.shape)
        raise unequal(what, *(f"{array.dtype}{list(array.shape)}" for array in (first, other)))
    return np.stack(arrays)


def unequal(what: str, a: str, b: str) -> WrongTypeError:
    """The error of arrays that make no one array, such as `a` and `b`."""
    return WrongTypeError(f"{what} are arrays of several kinds, {a} and {b}; batch.groups([key]) gives those of each")


def _doubles(values: Sequence[Any], what: str) -> Array:
    lost = next((value for value in values if not is_double(value)), None)
    if lost is not None:
        raise _loses(what, lost)
    return np.array(values, np.float64)


def _as_type(array: Array, dtype: np.dtype[Any], what: str) -> Array:
    if array.dtype == dtype:
        return array
    with np.errstate(invalid="ignore"):
        converted = array.astype(dtype)
    if np.can_cast(array.dtype, dtype, "safe") and array.dtype.itemsize < 8:
        return converted
    # Integers of 64 bits: numpy counts the cast to float64 as safe, though it rounds.
    with np.errstate(invalid="ignore"):
        changed = (converted.astype(array.dtype) != array) | ((converted < 0) != (array < 0))
    if changed.any():
        raise _loses(what, array[changed].flat[0])
    return converted


def _loses(what: str, value: Any) -> WrongTypeError:
    return WrongTypeError(f"{what} make no array: {value} would lose digits among the others; values() has all of them")
