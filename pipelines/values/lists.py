"""List values: their element type, and nested lists of numbers as an array."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from pipelines.errors import DataError, WrongTypeError
from pipelines.values.valuetype import ValueType, type_of


class TypedList(list[Any]):
    """A list that knows its element type even when it is empty: `TypedList(ValueType.STRING)`.

    Protobuf carries the element type of an empty list, JSON does not. Once it has elements they decide.
    """

    __slots__ = ("element_type",)

    def __init__(self, element_type: ValueType, elements: Iterable[Any] = ()) -> None:
        super().__init__(elements)
        self.element_type = element_type

    def __reduce__(self) -> tuple[type[TypedList], tuple[ValueType, list[Any]]]:
        return TypedList, (self.element_type, list(self))


def element_type(values: list[Any]) -> ValueType:
    """The type of the elements: that of the first. An empty list has its declared type, or `NONE`."""
    if values:
        return type_of(values[0])
    return values.element_type if isinstance(values, TypedList) else ValueType.NONE


def list_to_array(values: list[Any], key: str, *, exact: bool = False) -> npt.NDArray[Any]:
    """Nested lists of numbers as a float32 array, as Konduit Serving takes them for an NDARRAY.

    Args:
        values: Lists of the same length at each level.
        key: The key that errors name.
        exact: Return the int64 or float64 array that has all digits of the numbers.

    Raises:
        WrongTypeError: Elements are not numbers.
        DataError: The list is empty or ragged, or float32 does not reach a number.
    """
    depth: Any = values
    while isinstance(depth, list) and depth:
        depth = depth[0]
    if isinstance(depth, list):
        raise DataError(f'Empty or zero sized arrays are not accepted! Key "{key}" holds an empty list')
    _check_numbers(values, key)
    try:
        with np.errstate(over="raise"):
            return np.array(values, None if exact else np.float32)
    except FloatingPointError:
        raise DataError(
            f'The list of key "{key}" has a number that float32 cannot hold (beyond 3.4e38); '
            "send an array of DOUBLE instead of a list"
        ) from None
    except ValueError:
        raise DataError(f'The lists of key "{key}" have different lengths and make no array') from None


def _check_numbers(values: list[Any], key: str) -> None:
    for kind in set(map(type, values)):
        if kind is list or issubclass(kind, list):
            for inner in values:
                if isinstance(inner, list):
                    _check_numbers(inner, key)
        elif kind is not float and kind is not int:
            name = type_of(next(value for value in values if type(value) is kind)).name
            raise WrongTypeError(f'Can\'t convert type {name} to an NDArray (key "{key}"): a list of numbers is needed')
