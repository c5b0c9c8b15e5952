"""Narrow floats as floats of 64 bits with the fewest digits that give them back: 0.1, not 0.10000000149011612."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

_FEW: Final = 64
"""Numbers up to which numpy's own way, one by one, is as quick."""
_TENS: Final = 10.0 ** np.arange(16)
_SURELY: Final = 1e-5
"""How far from the middle between two numbers one has to be, in steps, so that no rounding here decides."""


def shortest(array: Any) -> Any:
    """The numbers of a `float16` or `float32` array of any shape as `float64`, each the value of its shortest digits.

    Of two numbers with as few digits it is the nearer one.
    """
    if array.dtype != np.float32 or array.size <= _FEW:
        return _one_by_one(array)
    flat = array.reshape(-1)
    exact = flat.astype(np.float64)
    size = np.abs(exact)
    shortest_values = np.zeros(flat.size)
    odd = np.ones(flat.size, np.bool_)
    # Powers of two are nearer to the number below than to that above; larger and smaller ones take more than is exact.
    places = np.flatnonzero((size >= 1e-5) & (size < 1e9) & (np.frexp(size)[0] != 0.5))
    for digits in range(6, 10):
        numbers = exact[places]
        power = digits - 1 - np.floor(np.log10(size[places])).astype(np.int64)
        up, down = _TENS[np.maximum(power, 0)], _TENS[np.maximum(-power, 0)]
        scaled = numbers * up / down
        whole = np.rint(scaled)
        # Both are exact, and one of the two is 1: the float that is nearest to these digits.
        near = whole / up * down
        missed = np.abs(near - numbers) / np.spacing(np.abs(flat[places]))
        good = (missed < 0.5 - _SURELY) & (np.abs(scaled - whole) < 0.5 - _SURELY)
        shortest_values[places[good]] = near[good]
        odd[places[good]] = False
        places = places[missed > 0.5 + _SURELY]
        if not places.size:
            break
    if odd.any():
        shortest_values[odd] = _one_by_one(flat[odd])
    return shortest_values.reshape(array.shape)


def _one_by_one(array: Any) -> Any:
    # Digits of the narrow type, read as a float: that one is written with the same digits.
    return array.astype("S32").astype(np.float64)
