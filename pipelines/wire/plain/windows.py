"""The bytes at many places of one buffer, taken, put or compared at once.

A window is a fixed number of bytes. numpy shows a buffer as the array of its windows, one beginning at each byte, which
overlap and cost no copy: those of three bytes in b"abcde" are b"abc", b"bcd", b"cde". Taking the windows at some places
is one call of numpy, however many they are.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from pipelines.data.spans import Bytes, Ints


def windows(buffer: bytes | Bytes, starts: Ints, width: int) -> Bytes:
    """A copy of the `width` bytes from each of these places on, `uint8 (N, width)`. All lie inside the buffer."""
    if not width or not len(starts):
        return np.empty((len(starts), width), np.uint8)
    return _all(buffer, f"V{width}")[starts].view(np.uint8).reshape(-1, width)


def put_windows(buffer: Bytes, starts: Ints, rows: Bytes) -> None:
    """Put each of these rows, `uint8 (N, width)`, into the buffer from its place on. None of them overlaps another."""
    if rows.size:
        width = rows.shape[1]
        _all(buffer, f"V{width}")[starts] = rows.view(f"V{width}").reshape(-1)


def begin_with(buffer: bytes | Bytes, starts: Ints, stops: Ints, prefix: bytes) -> npt.NDArray[np.bool_]:
    """Which of the strings between these places begin with `prefix`, which is not empty."""
    if len(buffer) < len(prefix):
        return np.zeros(len(starts), np.bool_)
    # numpy's byte strings (`S`) end before their trailing zeros. Those of equal width are equal all the same only if
    # all their bytes are.
    every = _all(buffer, f"S{len(prefix)}")
    same: npt.NDArray[np.bool_] = every[np.minimum(starts, len(every) - 1)] == prefix
    return same & (starts + len(prefix) <= stops)


def _all(buffer: bytes | Bytes, dtype: str) -> npt.NDArray[Any]:
    width = int(dtype[1:])
    return np.ndarray(len(buffer) - width + 1, dtype, buffer, strides=(1,))
