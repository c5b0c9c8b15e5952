"""Range check for a schema's 32-bit `float`: larger numbers would become infinite when written."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

LARGEST: Final = 3.4028234663852886e38
"""The largest number of 32 bits, (2 - 2**-23) * 2**127."""
RANGE: Final = f"-{LARGEST:.8g} to {LARGEST:.8g}"


def fits(value: float) -> bool:
    """Whether this number stays finite in 32 bits; infinity itself and NaN fit."""
    return all_fit((value,))


def all_fit(values: Sequence[float]) -> bool:
    """Whether all these numbers fit."""
    try:
        # In the machine's own byte order, without "<", larger ones become infinite.
        struct.pack(f"<{len(values)}f", *values)
    except OverflowError:
        return False
    return True
