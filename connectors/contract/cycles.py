"""Checks that records make no reference cycles.

`streamer run` lets Python's garbage collector run seldom, so what only the collector frees stays in memory for long.
"""

from __future__ import annotations

import gc
from collections.abc import Callable

FEW, MANY = 20, 80
"""Records of the two rounds that are compared."""


def check_no_cycles(work: Callable[[int], object]) -> None:
    """Check that handling records leaves no objects that only the garbage collector frees.

    Args:
        work: `work(n)` handles n records, each in a call of its own, and keeps none of them.

    Raises:
        AssertionError: More records leave more such objects.
    """
    work(FEW)
    was_on = gc.isenabled()
    gc.disable()
    try:
        left = {count: _left_by(work, count) for count in (FEW, MANY)}
    finally:
        if was_on:
            gc.enable()
    # A cycle has two objects at least. What does not depend on records, such as closing a connection, does not count.
    assert left[MANY] - left[FEW] < MANY - FEW, f"records make reference cycles: objects of so many records: {left}"


def _left_by(work: Callable[[int], object], count: int) -> int:
    gc.collect()
    work(count)
    return gc.collect()
