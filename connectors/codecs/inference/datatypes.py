"""The datatypes of the Open Inference Protocol, and the numpy dtypes of their elements."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from pipelines.errors import WireError, WrongTypeError, nearest
from pipelines.values.ndarray import NDArrayType, array_type, from_buffer

BYTES: Final = "BYTES"
"""The datatype of strings, of any bytes."""

_ELEMENTS: Final[Mapping[str, NDArrayType]] = MappingProxyType(
    {
        "BOOL": NDArrayType.BOOL,
        "UINT8": NDArrayType.UINT8,
        "UINT16": NDArrayType.UINT16,
        "UINT32": NDArrayType.UINT32,
        "UINT64": NDArrayType.UINT64,
        "INT8": NDArrayType.INT8,
        "INT16": NDArrayType.INT16,
        "INT32": NDArrayType.INT32,
        "INT64": NDArrayType.INT64,
        "FP16": NDArrayType.FLOAT16,
        "FP32": NDArrayType.FLOAT,
        "FP64": NDArrayType.DOUBLE,
        "BF16": NDArrayType.BFLOAT16,
    }
)
_DATATYPES: Final = {element: name for name, element in _ELEMENTS.items()}

WIDTHS: Final[Mapping[str, int]] = MappingProxyType(
    {
        "BOOL": 1,
        "UINT8": 1,
        "UINT16": 2,
        "UINT32": 4,
        "UINT64": 8,
        "INT8": 1,
        "INT16": 2,
        "INT32": 4,
        "INT64": 8,
        "FP16": 2,
        "FP32": 4,
        "FP64": 8,
        "BF16": 2,
    }
)
"""Bytes of an element, of all datatypes but BYTES."""

INTEGERS: Final[Mapping[str, np.dtype[Any]]] = MappingProxyType(
    {name: np.dtype(name.lower()) for name in WIDTHS if name.startswith(("INT", "UINT"))}
)
"""The dtypes of whole numbers."""

NAMES: Final = (*WIDTHS, BYTES)


def known_datatype(name: object) -> str:
    """`name`, if it is that of a datatype. Raises `WireError`."""
    if isinstance(name, str) and (name in WIDTHS or name == BYTES):
        return name
    hint = nearest(name, NAMES) if isinstance(name, str) else ""
    raise WireError(f"the datatype {str(name)[:60]!r} is none of {', '.join(NAMES)}{hint}")


def datatype_of(dtype: np.dtype[Any]) -> str:
    """The datatype of arrays of `dtype`; BYTES for arrays of objects and of strings. Raises `WireError`."""
    if dtype.kind in "OUS":
        return BYTES
    try:
        return _DATATYPES[array_type(dtype)]
    except (WrongTypeError, KeyError):
        raise WireError(f"the Open Inference Protocol has no datatype for arrays of {dtype}") from None


def array_of(buffer: bytes | memoryview, datatype: str, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """The array of these elements, little-endian in C order; read-only, over the same memory if that is aligned.

    BF16 gives `ml_dtypes.bfloat16` if that package is there, else float32. Raises `WireError` if elements are missing,
    or no array can have the shape.
    """
    array = from_buffer(buffer, shape, _ELEMENTS[datatype])
    if array.flags.aligned:
        return array
    # Libraries that compute with the memory itself take it to be aligned.
    array = array.copy()
    array.flags.writeable = False
    return array
