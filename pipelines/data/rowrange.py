"""Consecutive row numbers as a `range`: two numbers instead of an array.

Nearly every batch holds rows `first`, `first + 1`, ... up to its last. Python's own `range` is compared, sliced and
searched in constant time.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from pipelines.data.columns import Rows

RowRange: TypeAlias = range
"""Row numbers `first`, `first + 1`, ..., `stop - 1`; the step is 1."""
RowNumbers: TypeAlias = RowRange | Rows
"""Row numbers in any order: a range, or `int64 (N,)`."""


def row_range(first: int, count: int) -> RowRange:
    """The row numbers `first`, `first + 1`, ..., `count` of them."""
    return range(first, first + count)


def as_range(rows: RowNumbers) -> RowRange | None:
    """The same numbers as a range; `None` if they are not consecutive. An array's values are compared."""
    if isinstance(rows, range):
        return rows if rows.step == 1 else None
    count = len(rows)
    if not count:
        return range(0)
    first = int(rows[0])
    numbers = range(first, first + count)
    if count == 1:
        return numbers
    if int(rows[-1]) != numbers[-1]:
        return None
    # As bytes: a fifth of the time of comparing arrays.
    return numbers if rows.tobytes() == as_array(numbers).tobytes() else None


def as_array(rows: RowNumbers) -> Rows:
    """The same numbers as `int64 (N,)`."""
    return np.arange(rows.start, rows.stop, rows.step, dtype=np.int64) if isinstance(rows, range) else rows
