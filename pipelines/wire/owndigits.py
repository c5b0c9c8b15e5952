"""The digits of narrow floats, for text: a value is a DOUBLE, but a model gave it as float32, 0.1."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from pipelines.data.batch import Batch
from pipelines.data.columns import Column, DenseColumn
from pipelines.wire.shortest import shortest

_NARROW: Final = (np.dtype(np.float32), np.dtype(np.float16))


def digits_of(array: np.ndarray[Any, Any]) -> np.dtype[Any] | None:
    """The `digits` (`pipelines.data.columns.Column`) of a column of DOUBLEs that are made of these numbers."""
    return array.dtype if array.dtype in _NARROW else None


def in_own_digits(batch: Batch) -> Batch:
    """The batch for text: DOUBLEs that were narrow floats are the value of the shortest digits that they had there."""
    rewritten = {key: _rewritten(column, column.digits) for key, column in batch.columns.items() if column.digits}
    return batch.with_columns(rewritten) if rewritten else batch


def in_digits_of_float32(numbers: dict[str, Any]) -> dict[str, Any]:
    """These values, where each float that is one of float32 is the value of its shortest digits there."""
    names = [name for name, value in numbers.items() if isinstance(value, float)]
    wide = np.array([numbers[name] for name in names])
    with np.errstate(over="ignore"):
        narrow = wide.astype(np.float32)
    short = np.where(narrow.astype(np.float64) == wide, shortest(narrow), wide)
    return {**numbers, **dict(zip(names, short.tolist(), strict=True))}


def _rewritten(column: Column, digits: np.dtype[Any]) -> Column:
    if isinstance(column, DenseColumn):
        assert column.type is not None
        return DenseColumn(shortest(column.storage.astype(digits)), column.type, column.mask)
    return Column.of([_value(value, digits) for value in column.values()])


def _value(value: Any, digits: np.dtype[Any]) -> Any:
    if isinstance(value, float):
        return shortest(np.array([value], digits)).item()
    if isinstance(value, np.ndarray):
        return shortest(value.astype(digits))
    # An empty list knows the type of its values.
    return [_value(element, digits) for element in value] if isinstance(value, list) and value else value
