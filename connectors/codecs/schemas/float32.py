"""Which numbers a schema's 32-bit `float` can hold; others would become infinite when they are written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

LARGEST: Final = 3.4028234663852886e38
"""The largest number of 32 bits, (2 - 2**-23) * 2**127."""
RANGE: Final = f"-{LARGEST:.8g} to {LARGEST:.8g}"

_BEYOND: Final = 3.4028235677973366e38
"""The smallest number that rounds to infinity: half a step above `LARGEST`."""


def fits(value: float) -> bool:
    """Whether this number stays finite in 32 bits; infinity itself and NaN fit."""
    return -_BEYOND < value < _BEYOND or value - value != 0


def all_fit(values: Sequence[Any]) -> bool:
    """Whether all these numbers fit. `None` among them does."""
    try:
        array = np.abs(np.array(values, np.float64))
    except (TypeError, ValueError, OverflowError):
        # Something else is among them.
        return all(fits(value) for value in values if isinstance(value, (int, float)))
    return not ((array >= _BEYOND) & (array < np.inf)).any()
