"""The numbers, booleans and texts of a tensor's `data` in JSON: flat, or nested as the shape is."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from connectors.codecs.inference.datatypes import BYTES, INTEGERS
from connectors.codecs.inference.tensors import Tensor
from pipelines.errors import WireError
from pipelines.values.ndarray import bfloat16, in_order

Array: TypeAlias = npt.NDArray[Any]

MOST_DEPTH: Final = 100
"""How deep lists may be nested."""

_FLOATS: Final[Mapping[str, np.dtype[Any]]] = {
    "FP16": np.dtype(np.float16),
    "FP32": np.dtype(np.float32),
    "FP64": np.dtype(np.float64),
}
_KINDS: Final = {"BOOL": (bool,), BYTES: (str,)} | dict.fromkeys(INTEGERS, (int,))
_NUMBERS: Final = (int, float)
_WORDS: Final = {
    str: "a text",
    float: "a number with a fraction",
    int: "an integer",
    bool: "a boolean",
    dict: "an object",
}


def array_from(tensor: Tensor) -> Array:
    """The `data` of a tensor of any datatype but BYTES, as an array of its shape. Raises `WireError`."""
    flat = _flat(tensor)
    if tensor.datatype in _FLOATS:
        array = _floats(tensor, flat, _FLOATS[tensor.datatype])
    elif tensor.datatype == "BF16":
        # The upper half of a float32, to the nearest, halves to even.
        bits = _floats(tensor, flat, _FLOATS["FP32"]).view(np.uint32).astype(np.uint64)
        halves = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
        if ((halves & 0x7F80) == 0x7F80).any():
            raise _beyond(tensor)
        array = bfloat16(halves)
    elif tensor.datatype == "BOOL":
        array = np.array(flat, np.bool_)
    else:
        array = _integers(tensor, flat, INTEGERS[tensor.datatype])
    array = array.reshape(tensor.shape)
    array.flags.writeable = False
    return array


def buffer_from(tensor: Tensor) -> memoryview:
    """The `data` of a tensor of any datatype but BYTES, as a binary part has them. Raises `WireError`."""
    return in_order(array_from(tensor).reshape(-1), "little").view(np.uint8).data


def texts_from(tensor: Tensor) -> list[str]:
    """The `data` of a BYTES tensor. Raises `WireError`."""
    return _flat(tensor)


def _flat(tensor: Tensor) -> list[Any]:
    level, depth = tensor.data or [], 1
    while level and list in (kinds := set(map(type, level))):
        depth += 1
        if depth > MOST_DEPTH:
            raise WireError(f"{tensor.named}: its data are nested more than {MOST_DEPTH} levels deep")
        if len(kinds) > 1 or len(set(map(len, level))) > 1:
            raise WireError(f"{tensor.named}: its data are lists of different lengths or depths")
        level = list(chain.from_iterable(level))
    if len(level) != tensor.count:
        raise WireError(
            f"{tensor.named} has {tensor.count} values by its shape {list(tensor.shape)}, "
            f"and its data hold {len(level)}"
        )
    for kind in set(map(type, level)).difference(_KINDS.get(tensor.datatype, _NUMBERS)):
        raise WireError(f"{tensor.named} is {tensor.datatype}, and its data hold {_WORDS.get(kind, 'null')}")
    return level


def _floats(tensor: Tensor, flat: list[Any], dtype: np.dtype[Any]) -> Array:
    try:
        with np.errstate(over="ignore"):
            array = np.array(flat, dtype)
    except OverflowError:
        raise _beyond(tensor) from None
    # JSON has no infinite numbers, so that one was too large.
    if not np.isfinite(array).all():
        raise _beyond(tensor)
    return array


def _integers(tensor: Tensor, flat: list[Any], dtype: np.dtype[Any]) -> Array:
    if flat:
        limits = np.iinfo(dtype)
        if min(flat) < int(limits.min) or max(flat) > int(limits.max):
            raise _beyond(tensor)
    return np.array(flat, dtype)


def _beyond(tensor: Tensor) -> WireError:
    return WireError(f"{tensor.named} is {tensor.datatype}, and its data hold a number beyond that range")
