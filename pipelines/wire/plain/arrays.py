"""Where an array stands in its map entry: at the end, behind bytes that depend on its key, dtype and shape only."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np

from pipelines.wire.protobuf import encode_entry


@lru_cache(maxsize=1024)
def array_prefix(key: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    """The bytes in front of the array's own in an entry with an array of this dtype and shape.

    Raises `WrongTypeError` or `WireError` for arrays that cannot be written.
    """
    # protobuf writes fields by their numbers: of an NDArray its `array` is the last, and so is the NDArray of the
    # value, as its type is 0, which is not written.
    entry = encode_entry(key, np.zeros(shape, dtype))
    return entry[: len(entry) - array_bytes(dtype, shape)]


def array_bytes(dtype: np.dtype[Any], shape: tuple[int, ...]) -> int:
    """Bytes of such an array, in memory as in a message."""
    return math.prod(shape) * dtype.itemsize
