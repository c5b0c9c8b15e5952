"""Arrays and lists of one element, such as a model's output for a record, where a format has room for one value."""

from __future__ import annotations

from typing import Any

from pipelines.data.batch import Batch
from pipelines.data.columns import Column, DenseColumn
from pipelines.values import ValueType


def only_element(value: Any) -> Any:
    """The number, text or boolean in a list, nested or not, that has no other; any other value as it is.

    It is 1.5 for `[[1.5]]`. Arrays are such lists in plain values.
    """
    found = value
    while isinstance(found, list) and len(found) == 1:
        (found,) = found
    return value if isinstance(found, (list, dict)) else found


def with_scalars(batch: Batch, names: frozenset[str]) -> Batch:
    """The batch with numbers in place of arrays of one number, under these keys, where all rows have them."""
    flat = {key: made for key, column in batch.columns.items() if key in names and (made := _scalars(column))}
    return batch.with_columns(flat) if flat else batch


def _scalars(column: Column) -> Column | None:
    if not isinstance(column, DenseColumn) or column.type is not ValueType.NDARRAY:
        return None
    array = column.storage
    of = ValueType.BOOLEAN if array.dtype.kind == "b" else ValueType.DOUBLE if array.dtype.kind == "f" else None
    if array.dtype.kind in "iu" and array.dtype.name != "uint64":
        of = ValueType.INT64
    if of is None or set(array.shape[1:]) - {1}:
        return None
    return DenseColumn(array.reshape(len(array)), of, column.mask)


def told(value: Any) -> str:
    """Describes a plain value, for errors: `the text 'high'`, `a list of 2 numbers`, `a list [2, 3] of numbers`."""
    if isinstance(value, list):
        return _list(value)
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    if value is None:
        return "null"
    text = repr(value)
    text = text if len(text) <= _MOST else f"{text[: _MOST - 3]}..."
    return f"the {_NAMES[type(value)]} {text}" if type(value) in _NAMES else text


def _list(value: list[Any]) -> str:
    shape: list[int] = []
    inner: list[Any] = [value]
    while inner and all(isinstance(one, list) for one in inner):
        sizes = {len(one) for one in inner}
        inner = [other for one in inner for other in one]
        if len(sizes) > 1:
            return f"a list of {len(value)} lists"
        shape += sizes
    kinds = {_PLURALS.get(type(one), "values") for one in inner}
    what = kinds.pop() if len(kinds) == 1 else "values"
    return f"a list of {shape[0]} {what}" if len(shape) == 1 else f"a list {shape} of {what}"


_MOST = 60
_NAMES = {str: "text", int: "integer", float: "number", bool: "boolean"}
_PLURALS = {str: "texts", int: "numbers", float: "numbers", bool: "booleans", dict: "objects"}
