"""Which arrays fit a tensor of another element type, and how they are converted."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]
Mask: TypeAlias = npt.NDArray[np.bool_]


def castable(source: np.dtype[Any], target: np.dtype[Any], *, freely: bool = False) -> bool:
    """Whether arrays of `source` may be used where `target` is needed.

    Yes if nothing can be lost (numpy's "safe": widening, integers of up to 32 bits to float64, bool to numbers, another
    byte order), between integer types and between float types (values are checked by `cast`), and from integers
    to floats. `freely`: between all numbers and bool. Never between numbers and strings.
    """
    if source == target:
        return True
    if source.name == "bfloat16":
        # bfloat16 counts as a float here; to numpy it is an unknown type.
        return target.kind == "f" or freely
    if source.kind not in "biuf" or target.kind not in "biuf":
        return False
    if freely or np.can_cast(source, target, "safe"):
        return True
    return (target.kind == "f" and source.kind in "iuf") or (target.kind in "iu" and source.kind in "iu")


def cast(array: Array, target: np.dtype[Any]) -> tuple[Array, Mask | None]:
    """`array` as `target`, which `castable` allows, and where along the first axis a value does not fit.

    A value does not fit if an integer type cannot hold it, or if it is finite and would become infinite. Floats lose
    digits, and fractions where integers are asked for.
    """
    if target.kind in "iu" and not np.can_cast(array.dtype, target, "safe"):
        fits = _within(array, int(np.iinfo(target).min), int(np.iinfo(target).max))
        with np.errstate(invalid="ignore"):
            return array.astype(target), _misfits(~fits)
    if array.dtype.name == "bfloat16":
        # Its own conversions do not say when they overflow.
        array = array.astype(np.float32)
    try:
        with np.errstate(over="raise"):
            return array.astype(target), None
    except FloatingPointError:
        with np.errstate(over="ignore"):
            converted = array.astype(target)
        return converted, _misfits(np.isinf(converted) & np.isfinite(array))


def _within(array: Array, least: int, most: int) -> Mask:
    if array.dtype.kind in "iu":
        return np.asarray((array >= least) & (array <= most))
    wide = array.astype(np.float64)
    # The largest 64-bit integer has no exact float: it is rounded up by one.
    below = wide <= most if int(float(most)) == most else wide < float(most)
    return np.asarray((wide >= least) & below)


def _misfits(mask: Mask) -> Mask | None:
    if not mask.any():
        return None
    rows: Mask = np.any(mask.reshape(len(mask) if mask.ndim else 1, -1), axis=1)
    return rows
