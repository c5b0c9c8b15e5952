"""Describes the values of a row without their content: types, shapes, sizes, and plain numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from pipelines.data.batch import Batch
from pipelines.data.columns import MISSING, Column
from pipelines.data.data import Data
from pipelines.data.oddcolumn import OddColumn
from pipelines.data.sparsecolumn import SparseColumn
from pipelines.data.wirecolumn import WireColumn
from pipelines.errors import StreamerError
from pipelines.values import Image, ValueType, type_of
from pipelines.values.lists import element_type
from pipelines.values.oddvalue import OddValue

MOST_KEYS = 20
"""Keys of one row that are described at most."""

_PLAIN = (ValueType.INT64, ValueType.DOUBLE, ValueType.BOOLEAN)


def described_row(batch: Batch, position: int) -> str:
    """The keys and kinds of values of one row: `image IMAGE 28x28x1, id INT64 7`. Decodes nothing."""
    parts = []
    for key, column in batch.columns.items():
        text = _described_cell(column, position)
        if text is not None:
            parts.append(f"{key} {text}")
    if len(parts) > MOST_KEYS:
        parts = [*parts[:MOST_KEYS], f"and {len(parts) - MOST_KEYS} more"]
    return ", ".join(parts) or "nothing"


def described(value: Any) -> str:
    """The type of a value, with a number's value, or the size of texts, bytes, arrays and images."""
    kind = type_of(value)
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{list(value.shape)}"
    if kind in _PLAIN:
        return f"{kind.name} {value:.6g}" if isinstance(value, float) else f"{kind.name} {value}"
    if isinstance(value, Image):
        return _picture(value)
    if isinstance(value, str):
        return f"STRING of {len(value)} characters"
    if isinstance(value, list):
        return f"LIST of {len(value)} {element_type(value).name}" if value else "LIST of 0"
    if isinstance(value, Data):
        return f"DATA of {len(value)} keys"
    if isinstance(value, bytes):
        return f"BYTES of {len(value)}"
    return kind.name


def _described_cell(column: Column, position: int) -> str | None:
    if isinstance(column, SparseColumn):
        place = column.place(position)
        return None if place is None else _described_cell(column.column, place)
    if isinstance(column, WireColumn) and not column.is_decoded:
        return None if column.entries[position] is None else "not decoded"
    if isinstance(column, OddColumn):
        value = column.objects[position]
        return "of no type" if isinstance(value, OddValue) else None if value is MISSING else described(value)
    value = column[position]
    return None if value is MISSING else described(value)


def _picture(image: Image) -> str:
    try:
        return f"IMAGE {image.width}x{image.height}x{image.channels}"
    except (StreamerError, ValueError, OSError):
        return "IMAGE"
