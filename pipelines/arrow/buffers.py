"""The buffers of Arrow arrays as numpy arrays, without copies but of bits."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from pipelines.arrow.library import pa
from pipelines.data.columns import Mask, Rows
from pipelines.data.spans import Spans
from pipelines.errors import DataError

Array = npt.NDArray[Any]

_LARGE: Final = frozenset(kind.id for kind in (pa.large_string(), pa.large_binary(), pa.large_list(pa.int64())))
"""The types whose offsets have 64 bits."""


def present_of(array: Any) -> Mask | None:
    """Which values of the Arrow array are not null, `bool (N,)`; `None` if all are there."""
    if not array.null_count:
        return None
    bits = array.buffers()[0]
    # Some types have nulls and no such bits.
    return ~_bits(array.is_null(), 1) if bits is None else _bits(array, 0)


def numbers_of(array: Any) -> Array:
    """The values of an Arrow array of numbers or booleans, `(N,)`; those of nulls mean nothing."""
    dtype = np.dtype(array.type.to_pandas_dtype())
    if dtype == np.bool_:
        return _bits(array, 1)
    return _values(array.buffers()[1], dtype, array.offset, len(array))


def integers_of(array: Any, bits: int, place: int = 1) -> Array:
    """The integers of so many bits in the buffer at `place` of an Arrow array of dates, times or views, `(N,)`."""
    return _values(array.buffers()[place], np.dtype(f"i{bits // 8}"), array.offset, len(array))


def splits_of(array: Any) -> Rows:
    """Where each list or text of the array begins and ends in what they are parts of, `int64 (N + 1,)`.

    Raises `DataError` for offsets that fall, or are below 0.
    """
    if not len(array):
        return np.zeros(1, np.int64)
    dtype = np.dtype("i8" if array.type.id in _LARGE else "i4")
    offsets = _values(array.buffers()[1], dtype, array.offset, len(array) + 1)
    splits = offsets.astype(np.int64, copy=False)
    if splits[0] < 0 or (np.diff(splits) < 0).any():
        raise DataError("the Arrow array is damaged: its offsets fall")
    return splits


def spans_of(array: Any, present: Mask | None) -> Spans:
    """The texts or bytes of the array as spans of its own buffer, null where they are not `present`.

    Raises `DataError` if they lie outside of the buffer.
    """
    splits = splits_of(array)
    content = array.buffers()[2]
    buffer = np.zeros(0, np.uint8) if content is None else np.frombuffer(content, np.uint8)
    if splits[-1] > len(buffer):
        raise DataError("the Arrow array is damaged: its offsets lie outside of its buffer")
    lengths = np.diff(splits)
    if present is not None:
        lengths[~present] = -1
    return Spans(buffer, splits[:-1], lengths)


def _bits(array: Any, place: int) -> Mask:
    # Only the bytes in which the array's own bits lie.
    first = array.offset // 8
    count = array.offset - 8 * first + len(array)
    content = array.buffers()[place]
    if content is None or not len(array):
        return np.zeros(len(array), np.bool_)
    packed = _values(content, np.dtype(np.uint8), first, -(-count // 8))
    return np.unpackbits(packed, count=count, bitorder="little")[count - len(array) :].view(np.bool_)


def _values(buffer: Any, dtype: np.dtype[Any], first: int, count: int) -> Array:
    if not count or buffer is None:
        return np.zeros(count, dtype)
    values: Array = np.frombuffer(buffer, dtype, count, first * dtype.itemsize)
    return values
