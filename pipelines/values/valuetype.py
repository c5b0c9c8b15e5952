"""The kinds of value that a `Data` holds."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np

from pipelines.errors import WrongTypeError
from pipelines.values.buffer import ByteBuffer
from pipelines.values.geometry import BoundingBox, Point
from pipelines.values.image import Image
from pipelines.values.oddvalue import OddValue


class ValueType(IntEnum):
    """Kind of a value. The number is the `type` of protos/data.proto, as in Konduit Serving's `ValueType`."""

    NDARRAY = 0
    STRING = 1
    BYTES = 2
    IMAGE = 3
    DOUBLE = 4
    INT64 = 5
    BOOLEAN = 6
    BOUNDING_BOX = 7
    DATA = 8
    LIST = 9
    POINT = 10
    BYTEBUFFER = 11
    NONE = 12
    """No type: the element type of an empty list read from JSON, and "untyped" in the PYTHON step's configuration."""


def type_of(value: object) -> ValueType:
    """The type of a value as `Data` keeps it.

    `str int float bool bytes numpy.ndarray list` and our own classes; anything else is a `WrongTypeError`
    (put it into a `Data` first: numpy scalars, tuples and mappings are converted there).
    An `OddValue` is a `WireError`.
    """
    known = _TYPES.get(type(value))
    if known is not None:
        return known
    for base, value_type in _TYPES.items():
        if isinstance(value, base):
            return value_type
    if isinstance(value, OddValue):
        raise value.error()
    raise WrongTypeError(f"a Data cannot hold a value of type {type(value).__name__}")


def python_type(cls: type[Any], value_type: ValueType) -> None:
    """Declare that instances of `cls` are values of `value_type`; for classes that are defined elsewhere."""
    _TYPES[cls] = value_type


# bool before int: a subclass is looked up by the first base that fits.
_TYPES: dict[type[Any], ValueType] = {
    np.ndarray: ValueType.NDARRAY,
    str: ValueType.STRING,
    ByteBuffer: ValueType.BYTEBUFFER,
    bytes: ValueType.BYTES,
    Image: ValueType.IMAGE,
    float: ValueType.DOUBLE,
    bool: ValueType.BOOLEAN,
    int: ValueType.INT64,
    BoundingBox: ValueType.BOUNDING_BOX,
    Point: ValueType.POINT,
    list: ValueType.LIST,
}
