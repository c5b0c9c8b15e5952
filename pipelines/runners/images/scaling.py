"""The arithmetic of IMAGE_TO_NDARRAY: normalisation in float32, and the element type."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from pipelines.errors import DataError
from pipelines.steps.images.imagetondarray import ImageNormalization
from pipelines.values.ndarray import Array, bfloat16

Triple = tuple[float, float, float]

VGG_MEAN: Final[Triple] = (123.68, 116.779, 103.939)
"""Mean red, green and blue of the images that VGG was trained on."""
IMAGE_NET_MEAN: Final[Triple] = (0.485, 0.456, 0.406)
IMAGE_NET_STD: Final[Triple] = (0.229, 0.224, 0.225)

DTYPES: Final[dict[str, Any]] = {
    "DOUBLE": np.float64,
    "FLOAT": np.float32,
    "FLOAT16": np.float16,
    "INT64": np.int64,
    "INT32": np.int32,
    "INT16": np.int16,
    "INT8": np.int8,
    "UINT64": np.uint64,
    "UINT32": np.uint32,
    "UINT16": np.uint16,
    "UINT8": np.uint8,
}
"""The element types by their names in configurations; numpy itself has no BFLOAT16."""


def normalized(values: npt.NDArray[np.float32], how: ImageNormalization, layout: str, axis: int) -> None:
    """Normalise channel values 0 to 255 in place, in float32; `axis` is that of the channels, in the order `layout`.

    The one channel of a gray image has the average of the three means and of the three deviations; alpha has mean 0
    and deviation 1.
    """
    most = np.float32(255.0 if how.max_value is None else how.max_value)
    if how.type == "SCALE":
        values /= most / np.float32(2)
        values -= np.float32(1)
    elif how.type == "SCALE_01":
        values /= most
    elif how.type == "INCEPTION":
        values /= most
        values -= np.float32(0.5)
        values *= np.float32(2)
    elif how.type != "NONE":
        mean, deviation = _statistics(how)
        shape = [1] * values.ndim
        shape[axis] = values.shape[axis]
        means = _ordered(mean, layout, 0.0).reshape(shape)
        deviations = _ordered(deviation, layout, 1.0).reshape(shape)
        if how.type == "IMAGE_NET":
            # Konduit's formula as it stands, and as its own test wants it: no scaling, no parentheses.
            values -= means / deviations
            return
        if axis == -1:
            # The same numbers for a line of pixels: numpy repeats a line far faster than a pixel.
            means, deviations = (np.tile(of_pixel.ravel(), (values.shape[-2], 1)) for of_pixel in (means, deviations))
        values -= means
        if how.type == "STANDARDIZE":
            values /= deviations


def cast(values: Array, data_type: str) -> Array:
    """uint8 or float32 values with another element type.

    Integers lose the fraction and end at the range of 32 bits (64 for INT64 and UINT64); of these the narrower and
    the unsigned types keep the low bits: 255 as INT8 is -1. BFLOAT16 is rounded to the nearest, halves to even.
    Raises `DataError` for a value that a float type cannot hold.
    """
    if data_type == "BFLOAT16":
        return _as_bfloat16(values.astype(np.float32, copy=False))
    dtype = np.dtype(DTYPES[data_type])
    if values.dtype == np.float32 and dtype.kind in "iu":
        return _as_integers(values, dtype)
    try:
        with np.errstate(over="raise"):
            return values.astype(dtype, copy=False)
    except FloatingPointError:
        raise DataError(
            f"a normalised value is beyond the range of {dtype}; use FLOAT, or another normalisation"
        ) from None


def _statistics(how: ImageNormalization) -> tuple[Triple, Triple]:
    no_scaling = (1.0, 1.0, 1.0)
    if how.type == "VGG_SUBTRACT_MEAN":
        return VGG_MEAN, no_scaling
    if how.type == "IMAGE_NET":
        return IMAGE_NET_MEAN, IMAGE_NET_STD
    return how.mean_rgb or (0.0, 0.0, 0.0), how.std_rgb or no_scaling


def _ordered(rgb: Triple, layout: str, alpha: float) -> npt.NDArray[np.float32]:
    if layout == "GRAYSCALE":
        return np.array([sum(rgb) / 3], np.float32)
    channels = list(rgb if layout.startswith("RGB") else reversed(rgb))
    return np.array(channels + [alpha] * layout.endswith("A"), np.float32)


def _as_integers(values: Array, dtype: np.dtype[Any]) -> Array:
    wide = np.int64 if dtype.itemsize == 8 else np.int32
    limits = np.iinfo(wide)
    exact = np.nan_to_num(values.astype(np.float64), copy=False, nan=0.0, posinf=np.inf, neginf=-np.inf)
    low, high = exact <= limits.min, exact >= limits.max
    exact[low | high] = 0
    whole = exact.astype(wide)
    whole[low], whole[high] = limits.min, limits.max
    return whole.astype(dtype, copy=False)


def _as_bfloat16(values: npt.NDArray[np.float32]) -> Array:
    bits = np.ascontiguousarray(values).view(np.uint32)
    # Half of the last place that is kept, less one bit where that place is even: halves go to even.
    rounding = np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    return bfloat16(((bits + rounding) >> np.uint32(16)).astype(np.uint16))
