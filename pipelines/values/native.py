"""The Python values that a `Data` takes, and the types that they become."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from pipelines.errors import DataError, WrongTypeError
from pipelines.values.buffer import ByteBuffer
from pipelines.values.conversion.adopt import adopt
from pipelines.values.geometry import BoundingBox, Point
from pipelines.values.image import Image
from pipelines.values.lists import TypedList
from pipelines.values.ndarray import array_type
from pipelines.values.oddvalue import OddValue
from pipelines.values.valuetype import ValueType, python_type, type_of

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1


def native(value: object) -> Any:
    """`value` as a `Data` keeps it.

    Kept as they are: `str`, `int` within 64 bits, `float`, `bool`, `bytes`, `numpy.ndarray` of a type that the wire
    has, `Image`, `BoundingBox`, `Point`, `Data`, `ByteBuffer` and lists of one of these.
    Converted: numpy scalars, subclasses of the plain types (an enum's value), `bytearray` and `memoryview` (to
    `ByteBuffer`), tuples (to lists), mappings (to `Data`), integers in a list with floats (to floats), and objects
    of other libraries (`pipelines.values.conversion.adopt`): tensors and the like to arrays, pictures to `Image`.
    Raises `WrongTypeError` for anything else, `DataError` for an integer that is too large.
    """
    convert = _BY_CLASS.get(type(value))
    if convert is None:
        return _by_base(value)
    return convert(value)


def as_held(value: Any) -> Any:
    """`value` as a `Data` keeps it (`native`), or an `OddValue` if no type of `Data` can hold it.

    An `OddValue` is of plain numbers, texts, lists and dictionaries. Raises as `native` does for anything else.
    """
    try:
        return native(value)
    except DataError as error:
        if value is None or not _is_plain(value):
            raise
        return OddValue(copy.deepcopy(value), _AS_IT_IS, str(error))


def settled(value: OddValue) -> Any:
    """The value that was lent, if its user has not changed it; else the changed one, as `as_held` keeps it."""
    source = value.source
    if source is None:
        return value
    # As texts, for which 1, 1.0 and True differ.
    return source if repr(value.handed_out) == repr(source.plain()) else as_held(value.handed_out)


def native_class(
    cls: type[Any], value_type: ValueType, convert: Callable[[Any], Any], *, base: type[Any] | None = None
) -> None:
    """Declare a class of values that is defined elsewhere; `convert` makes one of anything that is a `base`."""
    python_type(cls, value_type)
    _BY_CLASS[cls] = _same
    _BY_BASE.append((base or cls, convert))


def _same(value: Any) -> Any:
    return value


def _int(value: int) -> int:
    if INT64_MIN <= value <= INT64_MAX:
        return value
    raise DataError(f"the integer {value} does not fit in 64 bits; put it as a float or a string")


def _array(value: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    array_type(value.dtype)
    return value


def _list(values: list[Any]) -> list[Any]:
    kinds = set(map(type, values))
    if len(kinds) == 1:
        (kind,) = kinds
        if kind in _UNCHANGED:
            return values
        if kind is int:
            _int(min(values))
            _int(max(values))
            return values
    converted = [native(value) for value in values]
    types = {type_of(value) for value in converted}
    if types == {ValueType.INT64, ValueType.DOUBLE}:
        return [float(value) for value in converted]
    if len(types) > 1:
        names = ", ".join(sorted(value_type.name for value_type in types))
        raise WrongTypeError(f"a list in a Data has elements of one type, not of {names}")
    # Whether a list is copied does not depend on its element type: only if something had to be converted.
    return values if all(map(_is, converted, values)) else converted


def _is(a: object, b: object) -> bool:
    return a is b


def _tuple(values: tuple[Any, ...]) -> list[Any]:
    return _list(list(values))


def _by_base(value: object) -> Any:
    for base, convert in _BY_BASE:
        if isinstance(value, base):
            return convert(value)
    if value is None:
        raise WrongTypeError("Trying to put data of not supported type: there is no null; leave the key out")
    adopted = _adopted(value)
    if adopted is not None:
        return adopted
    raise WrongTypeError(
        f"Trying to put data of not supported type: {type(value).__name__}; "
        "a Data holds str, int, float, bool, bytes, numpy arrays, Image, BoundingBox, Point, Data and lists of these"
    )


def _adopted(value: object) -> Any:
    adopted = adopt(value)
    return None if adopted is None else native(adopted)


class _AsItIs:
    """The "decoder" of values that did not come in as bytes."""

    def plain(self, entry: Any) -> Any:
        return copy.deepcopy(entry)


_AS_IT_IS: Final = _AsItIs()
_PLAIN: Final = (str, int, float, bytes, type(None))


def _is_plain(value: Any) -> bool:
    if isinstance(value, list):
        return all(map(_is_plain, value))
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_plain(item) for key, item in value.items())
    # Numbers of numpy, which are subclasses, are written by few formats.
    return type(value) is bool or type(value) in _PLAIN


# Classes whose every instance is a value as it is: a list of them need not be checked one by one.
_UNCHANGED = frozenset({str, float, bool, bytes, ByteBuffer, Image, BoundingBox, Point})

_BY_CLASS: dict[type[Any], Callable[[Any], Any]] = {
    **dict.fromkeys(_UNCHANGED, _same),
    int: _int,
    np.ndarray: _array,
    list: _list,
    TypedList: _list,
    tuple: _tuple,
}

# For subclasses, in this order: numpy.float64 is a float, numpy.str_ a str, an IntEnum an int.
_BY_BASE: list[tuple[type[Any], Callable[[Any], Any]]] = [
    (np.bool_, bool),
    (np.integer, lambda value: _int(int(value))),
    (np.floating, float),
    (np.ndarray, _array),
    (str, str.__str__),
    (float, float),
    (int, lambda value: _int(int(value))),
    (bytes, bytes),
    (bytearray, ByteBuffer),
    (memoryview, ByteBuffer),
    (Image, _same),
    (BoundingBox, _same),
    (Point, _same),
    (list, _list),
    (tuple, _tuple),
]
