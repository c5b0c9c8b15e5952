"""Arrays as bytes: the element types of Konduit Serving's NDArray and their numpy dtypes."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from enum import IntEnum
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from pipelines.errors import WireError, WrongTypeError

ByteOrder: TypeAlias = Literal["big", "little"]
"""Order of the bytes of one element in an array's buffer."""

Array: TypeAlias = npt.NDArray[Any]

MAX_RANK = 32
"""Dimensions that every supported numpy can hold."""


class NDArrayType(IntEnum):
    """Element type of an array. The name is that of the JSON form, the number that of protos/data.proto."""

    DOUBLE = 0
    FLOAT = 1
    FLOAT16 = 2
    BFLOAT16 = 3
    INT64 = 4
    INT32 = 5
    INT16 = 6
    INT8 = 7
    UINT64 = 8
    UINT32 = 9
    UINT16 = 10
    UINT8 = 11
    BOOL = 12
    UTF8 = 13


def array_type(dtype: np.dtype[Any]) -> NDArrayType:
    """The element type of arrays of `dtype`, in any byte order. `WrongTypeError` if there is none."""
    value_type = _TYPES.get(dtype)
    if value_type is not None:
        return value_type
    # ml_dtypes.bfloat16 is recognised by name, without importing that package.
    if dtype.name == "bfloat16":
        return NDArrayType.BFLOAT16
    swapped = _TYPES.get(dtype.newbyteorder("="))
    if swapped is not None:
        return swapped
    hint = "a list of strings" if dtype.kind in "USOT" else "float32 or another numeric dtype (astype)"
    raise WrongTypeError(f"a Data cannot hold an array of {dtype}; use {hint}")


def dtype_of(element: NDArrayType) -> np.dtype[Any] | None:
    """The dtype of arrays of this type, in this machine's byte order; `None` if numpy itself has none."""
    return _DTYPES.get(element)


def width(element: NDArrayType) -> int:
    """Bytes of one element. `WireError` for UTF8, whose elements have no fixed width."""
    if element is NDArrayType.UTF8:
        raise WireError("an array of UTF8 strings cannot be exchanged; send a list of strings instead")
    return _WIDTHS[element]


def to_buffer(array: Array, byte_order: ByteOrder = "little") -> bytes:
    """The elements of `array` in C order, without padding: exactly `product(shape) * width` bytes."""
    if array.dtype.isnative and byte_order == sys.byteorder and array.dtype in _TYPES:
        return array.tobytes()
    return in_order(array, byte_order).tobytes()


def in_order(array: Array, byte_order: ByteOrder) -> Array:
    """`array` in C order with elements in `byte_order`, BFLOAT16 as uint16: itself if it is so already, else a copy."""
    if array_type(array.dtype) is NDArrayType.BFLOAT16:
        array = np.asarray(array, order="C").view(np.uint16)
    return np.asarray(array, array.dtype.newbyteorder(byte_order), order="C")


def from_buffer(
    buffer: bytes | memoryview, shape: Sequence[int], element: NDArrayType, byte_order: ByteOrder = "little"
) -> Array:
    """The array of `shape` at the start of `buffer`. It is read-only: copy it to change it.

    Bytes beyond the last element are ignored (Konduit Serving writes up to eight times too many for integers).
    BFLOAT16 gives `ml_dtypes.bfloat16` if that package is there, else float32. Raises `WireError` for a buffer
    that is too short, a shape that no array can have, and UTF8.
    """
    lengths = tuple(shape)
    count = checked_size(len(buffer), lengths, element)
    array = _decode(buffer, count, element, byte_order)
    if len(lengths) != 1:
        try:
            array = array.reshape(lengths)
        except ValueError as error:
            raise WireError(f"no array can have the shape {list(lengths)}: {error}") from None
    if array.flags.writeable:
        array.setflags(write=False)
    return array


def checked_size(buffer_bytes: int, shape: Sequence[int], element: NDArrayType) -> int:
    """The number of elements of `shape`, after checking that `buffer_bytes` hold them. Raises `WireError`."""
    if len(shape) > MAX_RANK:
        raise WireError(f"an array of {len(shape)} dimensions; at most {MAX_RANK} can be read")
    if shape and min(shape) < 0:
        raise WireError(f"an array of the shape {list(shape)}: a length cannot be negative")
    count = math.prod(shape)
    needed = count * (_WIDTHS.get(element) or width(element))
    if buffer_bytes < needed:
        raise WireError(
            f"an array of {element.name} {list(shape)} needs {needed} bytes, but its buffer has {buffer_bytes}"
        )
    return count


def _decode(buffer: bytes | memoryview, count: int, element: NDArrayType, byte_order: ByteOrder) -> Array:
    dtype = _DTYPES.get(element)
    if dtype is None:
        # BFLOAT16, the one type that numpy lacks.
        return bfloat16(np.frombuffer(buffer, np.dtype(np.uint16).newbyteorder(byte_order), count))
    if element is NDArrayType.BOOL:
        # Any byte but 0 is true; numpy's own bool must be 0 or 1.
        return np.frombuffer(buffer, np.uint8, count).astype(np.bool_)
    if byte_order == sys.byteorder:
        return np.frombuffer(buffer, dtype, count)
    swapped: Array = np.frombuffer(buffer, dtype.newbyteorder(byte_order), count)
    return swapped.astype(dtype)


def bfloat16(halves: Array) -> Array:
    """The BFLOAT16 array whose elements are the bits in `halves` (uint16); float32 where `ml_dtypes` is missing."""
    native = halves.astype(np.uint16)
    try:
        import ml_dtypes
    except ImportError:
        # A bfloat16 is the upper half of a float32.
        return (native.astype(np.uint32) << 16).view(np.float32)
    return native.view(ml_dtypes.bfloat16)


_DTYPES: dict[NDArrayType, np.dtype[Any]] = {
    NDArrayType.DOUBLE: np.dtype(np.float64),
    NDArrayType.FLOAT: np.dtype(np.float32),
    NDArrayType.FLOAT16: np.dtype(np.float16),
    NDArrayType.INT64: np.dtype(np.int64),
    NDArrayType.INT32: np.dtype(np.int32),
    NDArrayType.INT16: np.dtype(np.int16),
    NDArrayType.INT8: np.dtype(np.int8),
    NDArrayType.UINT64: np.dtype(np.uint64),
    NDArrayType.UINT32: np.dtype(np.uint32),
    NDArrayType.UINT16: np.dtype(np.uint16),
    NDArrayType.UINT8: np.dtype(np.uint8),
    NDArrayType.BOOL: np.dtype(np.bool_),
}
_TYPES = {dtype: element for element, dtype in _DTYPES.items()}
_WIDTHS = {element: dtype.itemsize for element, dtype in _DTYPES.items()} | {NDArrayType.BFLOAT16: 2}
