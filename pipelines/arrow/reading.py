"""`batch_of`: an Arrow record batch as a `Batch`, over Arrow's own memory."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

import numpy as np

from pipelines.arrow.buffers import Array, integers_of, numbers_of, present_of, spans_of
from pipelines.arrow.entries import ArrowEntries
from pipelines.arrow.library import pa
from pipelines.arrow.nesting import is_list, lists_column
from pipelines.data.batch import Batch
from pipelines.data.columns import MISSING, Column, DenseColumn, Mask, ObjectColumn
from pipelines.data.data import Data, check_key
from pipelines.data.entries import Entries
from pipelines.data.rowrange import row_range
from pipelines.data.spanscolumn import SpansColumn
from pipelines.data.wirecolumn import WireColumn
from pipelines.errors import DataError, RowsFailed, WireError
from pipelines.values import Image, ValueType
from pipelines.wire.owndigits import digits_of

IMAGE: Final = b"image"
"""A key of a field's metadata: its binary values are the files of images."""

_DAY: Final = 86_400_000
_PARTS: Final = {"s": (1000, 1), "ms": (1, 1), "us": (1, 1000), "ns": (1, 1_000_000)}
"""By Arrow's unit of time: what its numbers are multiplied and divided by to be milliseconds."""


def batch_of(records: Any, first: int = 0) -> Batch:
    """The rows of a `pyarrow.RecordBatch`, numbered from `first`.

    Columns keep Arrow's arrays and are decoded when a step asks for them: numbers, booleans, texts, binary and lists
    over Arrow's own buffers. A null is a value that the record lacks. By Arrow's type a value is

    - INT64: integers; dates, times and timestamps, which are milliseconds (since 1970)
    - DOUBLE: floats, decimals
    - BOOLEAN, STRING
    - BYTES: binary; or IMAGE, if the field's metadata has the key `image`
    - NDARRAY: lists of numbers or booleans, nested or not, and fixed-shape tensors
    - LIST: lists of anything else
    - DATA: structs, and maps with texts for keys

    Dictionaries are decoded. A value that is none of these fails its row if a step asks for it, as does a null inside
    of a list. Raises `DataError` if two columns have one name.
    """
    schema = records.schema
    if len(set(schema.names)) < len(schema.names):
        twice = sorted({name for name in schema.names if schema.names.count(name) > 1})
        raise DataError(f"several columns are named {', '.join(map(repr, twice))}: rename them first")
    columns = {field.name: _undecoded(field, records.column(place)) for place, field in enumerate(schema)}
    return Batch(columns, records.num_rows, rows=row_range(first, records.num_rows))


@dataclass(frozen=True, slots=True)
class ArrowDecoder:
    """Decodes a `WireColumn` whose entries are `ArrowEntries`. Raises `RowsFailed`."""

    field: Any
    """The `pyarrow.Field` of the values."""

    @property
    def may_give_images(self) -> bool:
        """Whether values are images, or hold some."""
        return _holds_images(self.field)

    def __call__(self, entries: Entries) -> Column:
        if isinstance(entries, ArrowEntries):
            return column_of(entries.array, self.field)
        if all(entry is None for entry in entries):
            return Column.absent(len(entries))
        arrays = [pa.nulls(1, self.field.type) if entry is None else entry for entry in entries]
        # Of one type each: `take` and `concat` may have brought rows of several record batches together.
        parts = [pa.concat_arrays(list(part)) for _, part in groupby(arrays, key=lambda array: array.type)]
        return Column.concat([column_of(part, self.field) for part in parts])


def _undecoded(field: Any, array: Any) -> Column:
    return WireColumn(ArrowEntries(array), ArrowDecoder(field), present_of(array))


def column_of(array: Any, field: Any) -> Column:
    """The decoded column of a `pyarrow.Array`; the field says whether its values are images, and those inside.

    Raises `RowsFailed` for the rows whose value is none of a `Data`.
    """
    column, failed = _column(_plain(array), field)
    if failed:
        raise RowsFailed(failed)
    return column


def _holds_images(field: Any) -> bool:
    if field.metadata is not None and IMAGE in field.metadata:
        return True
    kind = field.type
    return any(_holds_images(kind.field(place)) for place in range(kind.num_fields))


def _plain(array: Any) -> Any:
    """The array in another form, if its form is one that only packs the values otherwise."""
    types = pa.types
    while True:
        kind = array.type
        if types.is_dictionary(kind):
            array = array.dictionary_decode()
        elif types.is_run_end_encoded(kind):
            array = pa.compute.run_end_decode(array)
        elif types.is_string_view(kind):
            array = array.cast(pa.large_string())
        elif types.is_binary_view(kind):
            array = array.cast(pa.large_binary())
        elif isinstance(kind, pa.BaseExtensionType) and not isinstance(kind, pa.FixedShapeTensorType):
            array = array.storage
        else:
            return array


_Read = tuple[Column, dict[int, Exception]]
_FINE: Final[dict[int, Exception]] = {}


def _column(array: Any, field: Any) -> _Read:
    types, kind = pa.types, array.type
    if types.is_null(kind) or not len(array):
        return Column.absent(len(array)), _FINE
    if isinstance(kind, pa.FixedShapeTensorType):
        return _tensors(array, field)
    if is_list(kind):
        return _lists(array, field)
    if types.is_struct(kind):
        return _structs(array)
    if types.is_map(kind):
        return _maps(array, field)
    present = present_of(array)
    if types.is_boolean(kind):
        return DenseColumn(numbers_of(array), ValueType.BOOLEAN, present), _FINE
    if types.is_floating(kind):
        numbers = numbers_of(array)
        return DenseColumn(numbers, ValueType.DOUBLE, present).with_digits(digits_of(numbers)), _FINE
    if types.is_decimal(kind):
        return DenseColumn(numbers_of(array.cast(pa.float64())), ValueType.DOUBLE, present), _FINE
    if types.is_integer(kind) or _is_time(kind):
        return _integers(array, present)
    if types.is_string(kind) or types.is_large_string(kind):
        return _texts(array, present)
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind):
        if types.is_fixed_size_binary(kind):
            array = array.cast(pa.large_binary())
        return _bytes(array, present, image=field.metadata is not None and IMAGE in field.metadata)
    return _none(array, present, f"values of Arrow's type {kind} are none of a Data")


def _none(array: Any, present: Mask | None, why: str) -> _Read:
    """No values, as those that are there are none of a `Data`."""
    there = range(len(array)) if present is None else np.flatnonzero(present).tolist()
    return Column.absent(len(array)), {row: WireError(why) for row in there}


def _is_time(kind: Any) -> bool:
    types = pa.types
    return bool(types.is_timestamp(kind) or types.is_date(kind) or types.is_time(kind) or types.is_duration(kind))


def _numbers(array: Any) -> Array | None:
    """The numbers in lists: of any type that arrays have, and times in milliseconds. `None` for anything else."""
    array, types = _plain(array), pa.types
    if types.is_boolean(array.type) or types.is_integer(array.type) or types.is_floating(array.type):
        return numbers_of(array)
    if types.is_decimal(array.type):
        return numbers_of(array.cast(pa.float64()))
    return _milliseconds(array) if _is_time(array.type) else None


def _milliseconds(array: Any) -> Array:
    types, kind = pa.types, array.type
    if types.is_date32(kind):
        return integers_of(array, 32).astype(np.int64) * _DAY
    if types.is_date64(kind):
        return integers_of(array, 64)
    numbers = integers_of(array, 32 if types.is_time32(kind) else 64).astype(np.int64, copy=False)
    times, parts = _PARTS[kind.unit]
    return numbers * times if times > 1 else numbers // parts if parts > 1 else numbers


def _integers(array: Any, present: Mask | None) -> _Read:
    numbers = _milliseconds(array) if _is_time(array.type) else numbers_of(array)
    failed = _FINE
    if numbers.dtype == np.uint64:
        large = numbers > np.uint64(np.iinfo(np.int64).max)
        large = large if present is None else large & present
        failed = {
            row: WireError(f"the integer {numbers[row]} does not fit in 64 bits with a sign")
            for row in np.flatnonzero(large).tolist()
        }
        if failed:
            numbers = np.where(large, 0, numbers)
        if present is not None:
            numbers = np.where(present, numbers, 0)
    return DenseColumn(numbers.astype(np.int64, copy=False), ValueType.INT64, present), failed


def _texts(array: Any, present: Mask | None) -> _Read:
    spans = spans_of(array, present, large=pa.types.is_large_string(array.type))
    column = SpansColumn.of_texts(spans)
    if column is not None:
        return column, _FINE
    values: list[Any] = [MISSING] * len(spans)
    failed: dict[int, Exception] = {}
    for row, raw in enumerate(spans):
        if raw is not None:
            try:
                values[row] = raw.decode()
            except UnicodeDecodeError as error:
                failed[row] = WireError(f"the text is not UTF-8: {error}")
    return ObjectColumn(values, ValueType.STRING), failed


def _bytes(array: Any, present: Mask | None, *, image: bool) -> _Read:
    column = SpansColumn(spans_of(array, present, large=pa.types.is_large_binary(array.type)), ValueType.BYTES, present)
    if not image:
        return column, _FINE
    pictures = [MISSING if raw is MISSING else Image(raw) for raw in column.values()]
    return ObjectColumn(pictures, ValueType.IMAGE, present), _FINE


def _tensors(array: Any, field: Any) -> _Read:
    kind = array.type
    column, failed = _lists(array.storage, field)
    if failed or not isinstance(column, DenseColumn):
        return column, failed
    stored = column.storage.reshape(len(column), *kind.shape)
    order = range(len(kind.shape)) if kind.permutation is None else kind.permutation
    return DenseColumn(stored.transpose(0, *(axis + 1 for axis in order)), present=column.mask), failed


def _lists(array: Any, field: Any) -> _Read:
    inner = field
    while is_list(inner.type):
        inner = inner.type.field(0)

    def of_others(content: Any) -> Column:
        return column_of(content, inner)

    try:
        column, nulls = lists_column(array, _numbers, of_others)
    except RowsFailed as error:
        why = next(iter(error.failures.values()))
        return _each(array, field) if len(array) > 1 else _none(array, None, str(why))
    if nulls is None:
        return column, _FINE
    return column, {row: WireError("the list has a null inside") for row in np.flatnonzero(nulls).tolist()}


def _each(array: Any, field: Any) -> _Read:
    """The rows one by one, where some hold what cannot be read."""
    values: list[Any] = [MISSING] * len(array)
    failed: dict[int, Exception] = {}
    for row in range(len(array)):
        if not array[row].is_valid:
            continue
        column, wrong = _lists(array.slice(row, 1), field)
        if wrong:
            failed[row] = wrong[0]
        else:
            values[row] = column[0]
    return Column.of(values), failed


def _structs(array: Any) -> _Read:
    present = present_of(array)
    there = np.ones(len(array), np.bool_) if present is None else present
    rows: list[dict[str, Any]] = [{} for _ in range(len(array))]
    failed: dict[int, Exception] = {}
    for place in range(array.type.num_fields):
        field = array.type.field(place)
        try:
            check_key(field.name)
        except DataError as error:
            return _none(array, present, str(error))
        wrong: dict[int, Exception] = {}
        for row, value in _undecoded(field, array.field(place)).cells(wrong):
            rows[row][field.name] = value
        for row, why in wrong.items():
            if there[row]:
                failed.setdefault(row, WireError.within(field.name, why))
    values = [Data.trusted(row) if has else MISSING for row, has in zip(rows, there.tolist(), strict=True)]
    return ObjectColumn(values, ValueType.DATA, present), failed


def _maps(array: Any, field: Any) -> _Read:
    present = present_of(array)
    values: list[Any] = [MISSING] * len(array)
    failed: dict[int, Exception] = {}
    items = field.type.item_field
    for row in range(len(array)):
        if present is not None and not present[row]:
            continue
        cell = array[row].values
        data = Data()
        try:
            contents = _undecoded(items, cell.field(1))
            contents.decoded()
            for key, value in zip(cell.field(0).to_pylist(), contents.values(), strict=True):
                if value is not MISSING:
                    data[key] = value
            values[row] = data
        except RowsFailed as error:
            failed[row] = WireError(str(next(iter(error.failures.values()))))
        except DataError as error:
            failed[row] = WireError(str(error))
    return Column.of(values), failed
