"""Freed memory goes back to the system: the allocator would keep what models of other sizes cannot use."""

from __future__ import annotations

import gc
import sys


def give_back() -> None:
    """Free what nothing refers to, and give it back (Linux with glibc; elsewhere the system's allocator decides)."""
    gc.collect()
    if sys.platform != "linux":
        return
    import ctypes

    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
