"""`record_batch_of`: a `Batch` as an Arrow record batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from pipelines.arrow.buffers import Array
from pipelines.arrow.entries import ArrowEntries
from pipelines.arrow.library import pa
from pipelines.arrow.nesting import is_fixed_list, is_list, is_open_list
from pipelines.arrow.plain import plain
from pipelines.data.batch import Batch
from pipelines.data.columns import MISSING, Column, DenseColumn, Mask, RaggedColumn, Rows
from pipelines.data.listscolumn import ListsColumn
from pipelines.data.numberscolumn import NumbersColumn
from pipelines.data.spanscolumn import SpansColumn
from pipelines.data.sparsecolumn import SparseColumn
from pipelines.data.wirecolumn import WireColumn
from pipelines.errors import DataError, RowsFailed, WrongTypeError
from pipelines.values import ValueType

_NUMBERS: Final = {
    np.dtype(name): pa.from_numpy_dtype(name)
    for name in (*(f"{sign}{size}" for sign in "iu" for size in (1, 2, 4, 8)), "f2", "f4", "f8", "?")
}
_UNFIT: Final = (pa.ArrowException, DataError, OverflowError, TypeError, ValueError)
"""What Arrow and numpy raise about a value that is not of a type."""
_LONGEST: Final = 2**31 - 1
"""Arrow's usual texts and lists count their content by 32 bits."""
_SMALL: Final = {ValueType.STRING: pa.string(), ValueType.BYTES: pa.binary()}
_SMALL_IDS: Final = frozenset(kind.id for kind in _SMALL.values())
_LARGE: Final = {ValueType.STRING: pa.large_string(), ValueType.BYTES: pa.large_binary()}


def record_batch_of(batch: Batch, schema: Any) -> Any:
    """The rows of a batch as a `pyarrow.RecordBatch` of this `pyarrow.Schema`.

    A value that a row lacks is null. A column that came from Arrow and was not read is the same array again; numbers,
    arrays and texts go by their buffers. Keys that the schema does not name are left out.
    Raises `RowsFailed` for the rows whose values are not of the schema's types.
    """
    failed: dict[int, Exception] = {}
    arrays = [array_of(batch, field, failed) for field in schema]
    if failed:
        raise RowsFailed(failed, of=batch)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def array_of(batch: Batch, field: Any, failed: dict[int, Exception]) -> Any:
    """The values of the field's key as a `pyarrow.Array` of its type.

    Errors of rows whose value is not of that type are put into `failed`; then the array means nothing.
    """
    if field.name not in batch:
        return pa.nulls(batch.size, field.type)
    column = batch.column(field.name)
    try:
        return _converted(column, field.type)
    except RowsFailed as error:
        failed.update({row: why for row, why in error.failures.items() if row not in failed})
    except _UNFIT:
        unfit = _unfit(column, field)
        if not unfit:
            raise
        failed.update({row: why for row, why in unfit.items() if row not in failed})
    return pa.nulls(batch.size, field.type)


def _unfit(column: Column, field: Any) -> dict[int, Exception]:
    """The errors of the rows whose value is not of the field's type, found one by one."""
    unfit: dict[int, Exception] = {}
    for row in column.positions():
        try:
            _converted(column.take(np.array([row], np.int64)), field.type)
        except RowsFailed as error:
            unfit[row] = error.failures[0]
        except _UNFIT as error:
            why = str(error).partition("\n")[0]
            unfit[row] = WrongTypeError(f'the value of "{field.name}" is not {field.type}: {why}')
    return unfit


def _converted(column: Column, kind: Any) -> Any:
    if isinstance(column, DenseColumn) and column.mask is None and len(column):
        return _nested(column.storage, kind)
    if isinstance(column, SparseColumn):
        column = column.spread()
    if isinstance(column, WireColumn):
        if isinstance(column.entries, ArrowEntries) and column.entries.array.type == kind:
            return column.entries.array
        column = column.decoded()
    if column.empty:
        return pa.nulls(len(column), kind)
    if isinstance(column, SpansColumn):
        return array_of_spans(column, kind)
    if isinstance(column, ListsColumn):
        column = column.arrays
    if isinstance(column, (DenseColumn, NumbersColumn)):
        return _nested(column.storage, kind, column.mask)
    if isinstance(column, RaggedColumn):
        return _ragged(column, kind)
    values = column.values()
    if column.type is ValueType.NDARRAY:
        there = np.array([value is not MISSING for value in values])
        return _arrays([value for value in values if value is not MISSING], kind).take(_places(there))
    if column.type is not ValueType.STRING or column.mask is not None:
        values = [None if value is MISSING else _suited(plain(value), kind) for value in values]
    return pa.array(values, kind)


def array_of_spans(column: SpansColumn, kind: Any) -> Any:
    """Texts or bytes in one buffer as a `pyarrow.Array` of this type.

    Raises `WrongTypeError` for bytes as text, and for a type of numbers or times: Arrow would read them out of texts.
    """
    # One after the other: their starts are Arrow's offsets.
    spans = column.spans.compact()
    size = len(spans.buffer)
    small = size <= _LONGEST and kind.id in _SMALL_IDS
    offsets = np.empty(len(spans) + 1, np.int32 if small else np.int64)
    offsets[:-1], offsets[-1] = spans.starts, size
    given = _SMALL[column.type] if small else _LARGE[column.type]
    bits = None if column.mask is None else _bits(column.mask)
    array = pa.Array.from_buffers(given, len(spans), [bits, pa.py_buffer(offsets), pa.py_buffer(spans.buffer)])
    if array.type == kind:
        return array
    types, is_bytes = pa.types, column.type is ValueType.BYTES
    if types.is_primitive(kind) or types.is_decimal(kind):
        raise WrongTypeError("it is of bytes" if is_bytes else "it is a text")
    if is_bytes and (types.is_string(kind) or types.is_large_string(kind)):
        raise WrongTypeError("it is of bytes")
    return array.cast(kind)


def _bits(mask: Mask) -> Any:
    return pa.py_buffer(np.packbits(mask, bitorder="little"))


def _numbers(numbers: Array, present: Mask | None, kind: Any) -> Any:
    """Numbers or booleans, `(N,)`, as Arrow's values of this type: of other numbers, or times in milliseconds."""
    types = pa.types
    if not numbers.dtype.isnative or not numbers.flags.c_contiguous:
        numbers = np.ascontiguousarray(numbers, numbers.dtype.newbyteorder("="))
    # The buffers themselves: half the time of `pyarrow.array`.
    bits = None if present is None else _bits(present)
    values = _bits(numbers) if numbers.dtype == np.bool_ else pa.py_buffer(numbers)
    given = _NUMBERS.get(numbers.dtype)
    if given is None:
        raise WrongTypeError(f"it is of {numbers.dtype}, which Arrow does not have")
    array = pa.Array.from_buffers(given, len(numbers), [bits, values])
    if array.type == kind:
        return array
    if types.is_int64(array.type) and types.is_temporal(kind):
        between = pa.timestamp("ms")
        if types.is_duration(kind):
            between = pa.duration("ms")
        elif types.is_time(kind):
            # Times of a day in milliseconds have 32 bits.
            array, between = array.cast(pa.int32()), pa.time32("ms")
        return array.cast(between).cast(kind)
    if types.is_boolean(kind) != types.is_boolean(array.type) or not (
        types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)
    ):
        raise WrongTypeError(f"it is of {numbers.dtype}")
    # Floats are rounded where the type that is asked for is narrower.
    return array.cast(kind, safe=not (types.is_floating(kind) and types.is_floating(array.type)))


def _nested(array: Array, kind: Any, present: Mask | None = None) -> Any:
    """Arrays, `(N, ...)`, as Arrow's values of this type."""
    if isinstance(kind, pa.FixedShapeTensorType):
        order = range(len(kind.shape)) if kind.permutation is None else kind.permutation
        stored = array.transpose(0, *(int(axis) + 1 for axis in np.argsort(list(order)))) if array.ndim > 1 else array
        if list(stored.shape[1:]) != list(kind.shape):
            raise WrongTypeError(f"an array of {list(array.shape[1:])} is no such tensor")
        flat = stored.reshape(len(array), int(np.prod(kind.shape)))
        return pa.ExtensionArray.from_storage(kind, _nested(flat, kind.storage_type, present))
    if is_fixed_list(kind):
        _check_rank(array, kind)
        if array.shape[1] != kind.list_size:
            raise WrongTypeError(f"there are {array.shape[1]} values")
        content = _nested(array.reshape(len(array) * array.shape[1], *array.shape[2:]), kind.value_type)
        bits = None if present is None else _bits(present)
        return pa.Array.from_buffers(kind, len(array), [bits], children=[content])
    if is_open_list(kind):
        _check_rank(array, kind)
        splits = np.arange(len(array) + 1, dtype=np.int64) * array.shape[1]
        content = _nested(array.reshape(len(array) * array.shape[1], *array.shape[2:]), kind.value_type)
        return _of_splits(splits, content, kind, None if present is None else pa.array(~present))
    if array.ndim > 1:
        raise WrongTypeError(f"an array of {list(array.shape[1:])} is no single number")
    return _numbers(array, present, kind)


def _check_rank(array: Array, kind: Any) -> None:
    if array.ndim < 2:
        raise WrongTypeError(f"a number is no {kind}")


def _of_splits(splits: Rows, content: Any, kind: Any, missing: Any = None) -> Any:
    """Lists of which list i is `content[splits[i]:splits[i + 1]]`."""
    types = pa.types
    large = types.is_large_list(kind) or types.is_large_list_view(kind)
    if not large and splits[-1] > _LONGEST:
        raise DataError("the lists are too long together for Arrow's type list: use large_list, or smaller batches")
    offsets = splits if large else splits.astype(np.int32)
    if types.is_list_view(kind) or types.is_large_list_view(kind):
        make = pa.LargeListViewArray if large else pa.ListViewArray
        return make.from_arrays(pa.array(offsets[:-1]), pa.array(np.diff(offsets)), content, type=kind, mask=missing)
    make = pa.LargeListArray if large else pa.ListArray
    return make.from_arrays(pa.array(offsets), content, type=kind, mask=missing)


def _ragged(column: RaggedColumn, kind: Any) -> Any:
    if is_open_list(kind):
        content = _nested(column.samples, kind.value_type)
        return _of_splits(column.splits, content, kind, None if column.mask is None else pa.array(~column.mask))
    counts = np.diff(column.splits)
    if column.mask is not None:
        counts = counts[column.mask]
    if len(counts) and (counts == counts[0]).all():
        # Those that lack the value are put between the others.
        rows = np.arange(len(column)) if column.mask is None else np.flatnonzero(column.mask)
        dense = column.take(rows)
        assert isinstance(dense, DenseColumn)
        array = _nested(dense.storage, kind)
        return array if column.mask is None else array.take(_places(column.mask))
    raise WrongTypeError(f"the arrays have from {counts.min()} to {counts.max()} values")


def _places(present: Mask) -> Any:
    """Of each row its place among those that are there, null for the others."""
    return pa.array(np.cumsum(present) - 1, mask=~present)


def _arrays(arrays: Sequence[Array], kind: Any) -> Any:
    """Arrays of one rank and of any shapes."""
    if len({array.ndim for array in arrays}) > 1:
        raise WrongTypeError("the arrays are of several ranks")
    if len({array.shape for array in arrays}) == 1:
        return _nested(np.stack(arrays), kind)
    if not is_open_list(kind):
        raise WrongTypeError("the arrays are of several shapes")
    splits = np.append(0, np.cumsum([len(array) for array in arrays]))
    if len({array.shape[1:] for array in arrays}) == 1:
        return _of_splits(splits, _nested(np.concatenate(arrays), kind.value_type), kind)
    return _of_splits(splits, _arrays([part for array in arrays for part in array], kind.value_type), kind)


def _suited(value: Any, kind: Any) -> Any:
    """A plain value with maps as Arrow takes them. `WrongTypeError` for keys that a struct lacks: Arrow drops them."""
    types = pa.types
    if isinstance(value, dict):
        if types.is_map(kind):
            return [(key, _suited(inner, kind.item_type)) for key, inner in value.items()]
        if types.is_struct(kind):
            inner = {kind.field(place).name: kind.field(place).type for place in range(kind.num_fields)}
            strange = value.keys() - inner.keys()
            if strange:
                raise WrongTypeError(f'it has no "{min(strange)}"')
            return {key: _suited(each, inner[key]) for key, each in value.items()}
    elif isinstance(value, list) and is_list(kind) and types.is_nested(kind.value_type):
        return [_suited(element, kind.value_type) for element in value]
    return value
