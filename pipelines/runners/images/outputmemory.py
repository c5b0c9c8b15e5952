"""Memory of large arrays that is used again once no array in it is referenced.

The C library gives memory of 32 MiB and more back to the system at once, and the system clears every page of it for the
next array: at 640 x 640 that takes longer than filling the array.
"""

from __future__ import annotations

import math
import weakref
from collections import deque
from typing import Any, Final

import numpy as np
import numpy.typing as npt

LARGE: Final = 32 << 20
"""Bytes from which memory is kept: below, the C library keeps it."""
KEPT: Final = 2
"""Blocks of memory that wait for an array at most: a batch is made while another one runs."""

Memory = npt.NDArray[np.uint8]


class OutputMemory:
    """Gives uninitialised arrays, and takes their memory back when the last array and view of it is gone."""

    def __init__(self) -> None:
        # Finalizers of arrays run in any thread; a deque is safe to append to and to take from.
        self._free: deque[Memory] = deque(maxlen=KEPT)

    def empty(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """An array like that of `numpy.empty`."""
        wanted = np.dtype(dtype)
        size = math.prod(shape) * wanted.itemsize
        if size < LARGE:
            return np.empty(shape, wanted)
        lease = _MemoryOwner(self._memory(size), shape, wanted)
        weakref.finalize(lease, self._free.append, lease.memory).atexit = False
        return np.asarray(lease)

    def _memory(self, size: int) -> Memory:
        for _ in range(KEPT):
            try:
                memory = self._free.popleft()
            except IndexError:
                break
            # Batches are not all of one size; one that is far too large is let go.
            if size <= memory.nbytes <= 2 * size:
                return memory
        return np.empty(size, np.uint8)


class _MemoryOwner:
    """Owner of the bytes of an array in `memory` and of its views, by numpy's array interface."""

    def __init__(self, memory: Memory, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.memory = memory
        self.__array_interface__ = {
            "version": 3,
            "shape": shape,
            "typestr": dtype.str,
            "data": (memory.ctypes.data, False),
        }
