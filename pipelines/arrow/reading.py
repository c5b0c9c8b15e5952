"""`batch_of`: an Arrow record batch as a `Batch`, over Arrow's own memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
    return BatchReader(records.schema).read(records, first)


class BatchReader:
    """Reads record batches of one `pyarrow.Schema`. Raises `DataError` if two columns have one name."""

    def __init__(self, schema: Any) -> None:
        names = schema.names
        if len(set(names)) < len(names):
            twice = sorted({name for name in names if names.count(name) > 1})
            raise DataError(f"several columns are named {', '.join(map(repr, twice))}: rename them first")
        self.schema = schema
        self._decoders = [(field.name, ArrowDecoder(field)) for field in schema]

    def read(self, records: Any, first: int = 0) -> Batch:
        """As `batch_of`."""
        size = records.num_rows
        named = zip(self._decoders, records.columns, strict=True)
        columns = {name: _undecoded(decoder, array) for (name, decoder), array in named}
        return Batch(columns, size, rows=row_range(first, size))


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


def _undecoded(decoder: ArrowDecoder, array: Any) -> Column:
    return WireColumn(ArrowEntries(array), decoder, present_of(array))


def column_of(array: Any, field: Any) -> Column:
    """The decoded column of a `pyarrow.Array`; the field says whether its values are images, and those inside.

    Raises `RowsFailed` for the rows whose value is none of a `Data`.
    """
    column, failed = _column(_plain(array), field)
    if failed:
        raise RowsFailed(failed)
    return column


def milliseconds_of(array: Any) -> Array:
    """The values of an Arrow array of dates or times in milliseconds, `int64 (N,)`; those of nulls mean nothing."""
    types, kind = pa.types, array.type
    if types.is_date32(kind):
        return integers_of(array, 32).astype(np.int64) * _DAY
    if types.is_date64(kind):
        return integers_of(array, 64)
    numbers = integers_of(array, 32 if types.is_time32(kind) else 64).astype(np.int64, copy=False)
    times, parts = _PARTS[kind.unit]
    return numbers * times if times > 1 else numbers // parts if parts > 1 else numbers


def _holds_images(field: Any) -> bool:
    if field.metadata is not None and IMAGE in field.metadata:
        return True
    kind = field.type
    return any(_holds_images(kind.field(place)) for place in range(kind.num_fields))


def _plain(array: Any) -> Any:
    """The array in another form, if its form is one that only packs the values otherwise."""
    while (unpacked := _UNPACKED.get(array.type.id)) is not None and not isinstance(
        array.type, pa.FixedShapeTensorType
    ):
        array = unpacked(array)
    return array


_Read = tuple[Column, dict[int, Exception]]
_FINE: Final[dict[int, Exception]] = {}


def _column(array: Any, field: Any) -> _Read:
    if not len(array):
        return Column.absent(0), _FINE
    read = _READERS.get(array.type.id)
    if read is None:
        return _none(array, present_of(array), f"values of Arrow's type {array.type} are none of a Data")
    return read(array, field)


def _none(array: Any, present: Mask | None, why: str) -> _Read:
    """No values, as those that are there are none of a `Data`."""
    there = range(len(array)) if present is None else np.flatnonzero(present).tolist()
    return Column.absent(len(array)), {row: WireError(why) for row in there}


def _nothing(array: Any, field: Any) -> _Read:
    return Column.absent(len(array)), _FINE


def _booleans(array: Any, field: Any) -> _Read:
    return DenseColumn(numbers_of(array), ValueType.BOOLEAN, present_of(array)), _FINE


def _doubles(array: Any, field: Any) -> _Read:
    numbers = numbers_of(array)
    return DenseColumn(numbers, ValueType.DOUBLE, present_of(array)).with_digits(digits_of(numbers)), _FINE


def _decimals(array: Any, field: Any) -> _Read:
    return _doubles(array.cast(pa.float64()), field)


def _times(array: Any, field: Any) -> _Read:
    return DenseColumn(milliseconds_of(array), ValueType.INT64, present_of(array)), _FINE


def _in_lists(array: Any) -> Array | None:
    """The numbers in lists: of any type that arrays have, and times in milliseconds. `None` for anything else."""
    array = _plain(array)
    read = _READERS.get(array.type.id)
    if read is _times:
        return milliseconds_of(array)
    if read is _decimals:
        return numbers_of(array.cast(pa.float64()))
    return numbers_of(array) if read in (_booleans, _doubles, _integers) else None


def _integers(array: Any, field: Any) -> _Read:
    numbers, present, failed = numbers_of(array), present_of(array), _FINE
    if numbers.dtype == np.uint64:
        large = numbers > np.uint64(np.iinfo(np.int64).max)
        failed = {
            row: WireError(f"the integer {numbers[row]} does not fit in 64 bits with a sign")
            for row in np.flatnonzero(large if present is None else large & present).tolist()
        }
        numbers = np.where(large, 0, numbers)
    return DenseColumn(numbers.astype(np.int64, copy=False), ValueType.INT64, present), failed


def _texts(array: Any, field: Any) -> _Read:
    spans = spans_of(array, present_of(array))
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


def _bytes(array: Any, field: Any) -> _Read:
    if pa.types.is_fixed_size_binary(array.type):
        array = array.cast(pa.large_binary())
    present = present_of(array)
    spans = spans_of(array, present)
    column = SpansColumn(spans, ValueType.BYTES, present)
    if field.metadata is None or IMAGE not in field.metadata:
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
    def of_others(content: Any) -> Column:
        inner = field
        while is_list(inner.type):
            inner = inner.type.field(0)
        return column_of(content, inner)

    try:
        column, nulls = lists_column(array, _in_lists, of_others)
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


def _structs(array: Any, field: Any) -> _Read:
    present = present_of(array)
    there = np.ones(len(array), np.bool_) if present is None else present
    rows: list[dict[str, Any]] = [{} for _ in range(len(array))]
    failed: dict[int, Exception] = {}
    for place in range(array.type.num_fields):
        inner = array.type.field(place)
        try:
            check_key(inner.name)
        except DataError as error:
            return _none(array, present, str(error))
        wrong: dict[int, Exception] = {}
        for row, value in _undecoded(ArrowDecoder(inner), array.field(place)).cells(wrong):
            rows[row][inner.name] = value
        for row, why in wrong.items():
            if there[row]:
                failed.setdefault(row, WireError.within(inner.name, why))
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
            contents = _undecoded(ArrowDecoder(items), cell.field(1))
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


def _by_type(readers: Mapping[Callable[..., Any], Sequence[Any]]) -> dict[int, Callable[..., Any]]:
    """Each of these by the number of the types that it is for, of which there are examples."""
    return {kind.id: read for read, kinds in readers.items() for kind in kinds}


_NUMBER: Final = pa.int64()
_READERS: Final[dict[int, Callable[[Any, Any], _Read]]] = _by_type(
    {
        _nothing: [pa.null()],
        _booleans: [pa.bool_()],
        _integers: [getattr(pa, f"{sign}int{bits}")() for sign in ("", "u") for bits in (8, 16, 32, 64)],
        _doubles: [pa.float16(), pa.float32(), pa.float64()],
        _decimals: [pa.decimal32(5), pa.decimal64(5), pa.decimal128(5), pa.decimal256(5)],
        _times: [pa.timestamp("s"), pa.date32(), pa.date64(), pa.time32("s"), pa.time64("us"), pa.duration("s")],
        _texts: [pa.string(), pa.large_string()],
        _bytes: [pa.binary(), pa.large_binary(), pa.binary(1)],
        _tensors: [pa.fixed_shape_tensor(_NUMBER, [1])],
        _lists: [
            *(pa.list_(_NUMBER), pa.large_list(_NUMBER), pa.list_(_NUMBER, 1)),
            *(pa.list_view(_NUMBER), pa.large_list_view(_NUMBER)),
        ],
        _structs: [pa.struct([])],
        _maps: [pa.map_(pa.string(), _NUMBER)],
    }
)
_UNPACKED: Final[dict[int, Callable[[Any], Any]]] = _by_type(
    {
        lambda array: array.dictionary_decode(): [pa.dictionary(pa.int8(), pa.string())],
        lambda array: pa.compute.run_end_decode(array): [pa.run_end_encoded(pa.int16(), pa.string())],
        lambda array: array.cast(pa.large_string()): [pa.string_view()],
        lambda array: array.cast(pa.large_binary()): [pa.binary_view()],
        # All types of extensions have one number.
        lambda array: array.storage: [pa.fixed_shape_tensor(_NUMBER, [1])],
    }
)
