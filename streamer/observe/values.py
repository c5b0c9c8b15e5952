"""Values as text and as JSON: short, arrays summarised."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from pipelines.data.data import Data
from pipelines.errors import WireError
from pipelines.values import ByteBuffer, Image

FIRST: Final = 6
"""Elements of an array or list that are shown."""
MAX_TEXT: Final = 200
"""Characters of a text that are shown."""


def summary(value: Any) -> Any:
    """The value as plain JSON: short ones as they are, arrays by dtype, shape, range and first elements."""
    if isinstance(value, np.ndarray):
        return _array(value)
    if isinstance(value, Mapping):
        return {key: summary(inner) for key, inner in value.items()}
    if isinstance(value, list):
        if len(value) <= FIRST:
            return [summary(item) for item in value]
        return {"list": len(value), "first": [summary(item) for item in value[:FIRST]]}
    if isinstance(value, (bytes, bytearray, ByteBuffer)):
        content = bytes(value)
        return {"bytes": len(content), "first": content[:16].hex(" ")}
    if isinstance(value, Image):
        return _image(value)
    if isinstance(value, str):
        return value if len(value) <= MAX_TEXT else {"text": len(value), "first": value[:MAX_TEXT]}
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, (bool, int, float)):
        return value
    return repr(value)


def values_of(data: Data) -> dict[str, Any]:
    """The values of a record by their keys; in place of one that cannot be read, the reason as text."""
    values: dict[str, Any] = {}
    for key in data:
        try:
            values[key] = data[key]
        except WireError as error:
            values[key] = str(error)
    return values


def line(value: Any) -> str:
    """The value as one line of text."""
    short = summary(value)
    if isinstance(value, np.ndarray):
        shape = "x".join(map(str, value.shape)) or "scalar"
        spread = f"  {short['min']:.4g} to {short['max']:.4g}, mean {short['mean']:.4g}" if "mean" in short else ""
        more = " ..." if value.size > FIRST else ""
        return f"{short['dtype']} {shape}{spread}  [{' '.join(map(_number, short['first']))}{more}]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {line(inner)}" for key, inner in value.items()) + "}"
    if isinstance(short, dict):
        kind, size = next(iter(short.items()))
        return f"{kind} of {size}: {json.dumps(short['first'], ensure_ascii=False)} ..."
    return short if isinstance(value, Image) else json.dumps(short, ensure_ascii=False)


def _array(value: np.ndarray[Any, Any]) -> dict[str, Any]:
    short: dict[str, Any] = {"dtype": str(value.dtype), "shape": list(value.shape)}
    if value.size and value.dtype.kind in "iufb" and np.isfinite(value).all():
        wide = value.astype(np.float64)
        short |= {"min": float(wide.min()), "mean": float(wide.mean()), "max": float(wide.max())}
    short["first"] = [summary(item) for item in value.reshape(-1)[:FIRST].tolist()]
    return short


def _image(value: Image) -> str:
    try:
        size = f"{value.width}x{value.height}"
    except Exception as error:  # noqa: BLE001 - a broken picture must still be shown as one
        size = f"unreadable ({error})"
    encoded = value.encoded
    content = "pixels" if encoded is None else f"{value.format or 'unknown format'}, {len(encoded):,} bytes"
    return f"image {size}, {content}"


def _number(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
