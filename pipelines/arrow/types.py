"""Arrow's types for values of records."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

import numpy as np

from pipelines.arrow.library import pa
from pipelines.arrow.plain import plain
from pipelines.arrow.reading import IMAGE, ArrowDecoder
from pipelines.data.columns import Column, DenseColumn, RaggedColumn
from pipelines.data.listscolumn import ListsColumn
from pipelines.data.numberscolumn import NumbersColumn
from pipelines.data.sparsecolumn import SparseColumn
from pipelines.data.wirecolumn import WireColumn
from pipelines.errors import DataError, WrongTypeError
from pipelines.values import ValueType
from pipelines.values.ndarray import array_type

BOX: Final = pa.struct(
    [(name, pa.float64()) for name in ("x1", "y1", "x2", "y2")]
    + [("label", pa.string()), ("probability", pa.float64())]
)
"""A bounding box: its corners."""
POINT: Final = pa.struct([("coords", pa.list_(pa.float64())), ("label", pa.string()), ("probability", pa.float64())])

_BY_TYPE: Final = {
    ValueType.INT64: pa.int64(),
    ValueType.DOUBLE: pa.float64(),
    ValueType.BOOLEAN: pa.bool_(),
    ValueType.STRING: pa.string(),
    ValueType.BYTES: pa.binary(),
    ValueType.BYTEBUFFER: pa.binary(),
    ValueType.IMAGE: pa.binary(),
    ValueType.BOUNDING_BOX: BOX,
    ValueType.POINT: POINT,
}
"""Value types that have one type of Arrow."""


def field_of(key: str, value: ValueType) -> Any | None:
    """The `pyarrow.Field` for values of one type; `None` if that type has several of Arrow."""
    kind = _BY_TYPE.get(value)
    if kind is None:
        return None
    return pa.field(key, kind, metadata={IMAGE: b"true"} if value is ValueType.IMAGE else None)


def array_field(key: str, dtype: np.dtype[Any], shape: tuple[int | None, ...]) -> Any:
    """The `pyarrow.Field` for arrays: lists in lists, of a fixed size for each length that is not `None`."""
    array_type(dtype)
    if dtype.name == "bfloat16":
        raise WrongTypeError(f'the arrays of "{key}" are bfloat16, which Arrow does not have; cast them to float32')
    kind = pa.from_numpy_dtype(dtype.newbyteorder("="))
    for length in reversed(shape):
        kind = pa.list_(kind) if length is None else pa.list_(kind, length)
    return pa.field(key, kind)


def field_for(key: str, column: Column) -> Any | None:
    """The `pyarrow.Field` that fits the values of a column, and others like them; `None` if no row has a value.

    Of arrays the first length may differ from row to row, the others not. Where no type fits all values, such as texts
    beside numbers, it is that of the first that has one. Raises `WrongTypeError` if none has.
    """
    if isinstance(column, SparseColumn):
        column = column.column
    if isinstance(column, WireColumn):
        if isinstance(column.decoder, ArrowDecoder):
            return column.decoder.field.with_name(key)
        column = column.decoded()
    if column.empty:
        return None
    if isinstance(column, NumbersColumn):
        return pa.field(key, pa.float64())
    if isinstance(column, ListsColumn):
        return _nested(key, column.arrays)
    if column.type is ValueType.NDARRAY and isinstance(column, (DenseColumn, RaggedColumn)):
        return _nested(key, column)
    field = None if column.type is None else field_of(key, column.type)
    return _inferred(key, column) if field is None else field


def _nested(key: str, column: Column) -> Any:
    if isinstance(column, RaggedColumn):
        return array_field(key, column.samples.dtype, (None, *column.samples.shape[1:]))
    assert isinstance(column, DenseColumn)
    shape = column.storage.shape[1:]
    return array_field(key, column.storage.dtype, (None, *shape[1:]) if shape else ())


def _inferred(key: str, column: Column) -> Any:
    values = [value for _, value in column.all_cells()]
    if column.type is ValueType.NDARRAY:
        if len({value.ndim for value in values}) == 1:
            return array_field(key, np.result_type(*values), (None,) * values[0].ndim)
        return field_for(key, Column.of(values[:1]))
    try:
        return pa.field(key, pa.array([plain(value) for value in values]).type)
    except (pa.ArrowException, DataError) as error:
        if len(values) == 1:
            raise WrongTypeError(f'no type of Arrow fits the value of "{key}": {error}') from None
    # Those of other types than the first that has one do not fit, as in later batches.
    for value in values[:-1]:
        with suppress(WrongTypeError):
            return field_for(key, Column.of([value]))
    return field_for(key, Column.of(values[-1:]))
