"""Inputs of models that take pictures: the settings of IMAGE_TO_NDARRAY that make arrays for them."""

from __future__ import annotations

from typing import Any, Final, Literal, TypeAlias

import numpy as np

from pipelines.runners.forms import Lengths
from pipelines.runners.images.scaling import DTYPES
from pipelines.runners.models.model import Port

_NAMES: Final = {np.dtype(dtype): name for name, dtype in DTYPES.items()}
_LAYOUTS: Final = {1: "GRAYSCALE", 3: "RGB", 4: "RGBA"}
"""The usual layout of so many channels."""
_ChannelOrder: TypeAlias = Literal["CHANNELS_FIRST", "CHANNELS_LAST"]


def for_pictures(port: Port, dtype: np.dtype[Any], shape: Lengths | None) -> str:
    """The end of an error about an array that an input does not take: settings that would make a fitting one.

    `shape` is `None` where it is not known. Empty if the input or the array is not for pictures.
    """
    if port.shape is None or len(port.shape) != 4:
        return ""
    lengths = tuple(length if isinstance(length, int) else None for length in port.shape[1:])
    order = _order(lengths)
    fractions = dtype.kind == "f" and port.dtype.kind in "iu" and port.dtype in _NAMES
    settings = _of_type(port.dtype) if fractions and (order is not None or port.dtype == np.uint8) else {}
    arrived = None if shape is None or len(shape) not in (3, 4) else _order(shape[-3:])
    if settings and order == "CHANNELS_LAST":
        settings["format"] = order
    if order is not None and arrived is not None and shape is not None:
        settings |= _of_shape(lengths, order, shape[-3:], arrived)
    if not settings:
        return ""
    listed = ", ".join(f"{key}: {value}" for key, value in settings.items())
    return f": for pictures, IMAGE_TO_NDARRAY with {listed}"


def _order(lengths: Lengths) -> _ChannelOrder | None:
    """Whether a picture with these axis lengths has its channels first or last; `None` if that is ambiguous."""
    first, last = lengths[0] in _LAYOUTS, lengths[2] in _LAYOUTS
    if first == last:
        return None
    return "CHANNELS_FIRST" if first else "CHANNELS_LAST"


def _of_type(dtype: np.dtype[Any]) -> dict[str, str]:
    # Pixels are 0 to 255; how a model quantised them to signed bytes is not known here.
    how = "as the model was trained" if dtype == np.int8 else "{type: NONE}"
    return {"dataType": _NAMES[dtype], "normalization": how}


def _of_shape(wanted: Lengths, order: _ChannelOrder, there: Lengths, arrived: _ChannelOrder) -> dict[str, str]:
    settings: dict[str, str] = {} if order == arrived else {"format": order}
    needed, given = _by_name(wanted, order), _by_name(there, arrived)
    if needed["channels"] != given["channels"]:
        settings["channelLayout"] = _LAYOUTS[needed["channels"] or 3]
    for side in ("height", "width"):
        if needed[side] is not None and needed[side] != given[side]:
            settings[side] = str(needed[side])
    return settings


def _by_name(lengths: Lengths, order: _ChannelOrder) -> dict[str, int | None]:
    names = ("channels", "height", "width") if order == "CHANNELS_FIRST" else ("height", "width", "channels")
    return dict(zip(names, lengths, strict=True))
