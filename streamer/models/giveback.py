"""Freed memory goes back to the system: the allocator would keep what models of other sizes cannot use."""

from __future__ import annotations

import gc
import sys


def trim() -> None:
    """Give freed memory back (Linux with glibc; elsewhere the system's allocator decides)."""
    if sys.platform != "linux":
        return
    import ctypes

    give = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if give is not None:
        give(0)


def give_back() -> None:
    """The same, also for objects that only refer to each other.

    It holds up all threads for some milliseconds.
    """
    gc.collect()
    trim()
