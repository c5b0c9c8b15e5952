"""Flat Avro records in the compiled hot path: the same bytes as fastavro writes, only faster.

The extension writes batches of numbers, booleans, texts, bytes and lists of numbers, each of the type that the schema
has for it or in a union of that with null, and fields that are written with the type that they were read with. Any
other batch is left to fastavro, as is one with a row that cannot be written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np

from connectors.codecs.schemas import avrotypes
from connectors.codecs.schemas.avroleaves import DAY
from connectors.codecs.schemas.avroschema import AvroSchema
from connectors.codecs.schemas.avrotypes import AvroType, avro_types
from connectors.codecs.schemas.compiledavro import AvroEntries
from pipelines.data.batch import Batch
from pipelines.data.columns import Column, DenseColumn, Mask, ObjectColumn, RaggedColumn
from pipelines.data.listscolumn import ListsColumn
from pipelines.data.numberscolumn import NumbersColumn
from pipelines.data.spans import Spans
from pipelines.data.spanscolumn import SpansColumn
from pipelines.data.wirecolumn import WireColumn
from pipelines.errors import RowsFailed
from pipelines.values import ValueType
from pipelines.wire.plainvalues import PlainDecoder

NUMBERS, LISTS, RAGGED, STRINGS, WRITTEN, NOTHING = range(6)
"""Forms of columns on their way out: those of native/src/avro/writing.rs."""


class _CompiledType(NamedTuple):
    """The type of a field's values, null aside."""

    kind: int
    number: int
    list: bool = False
    limit: str | None = None
    """A logical type that does not hold all values of the type."""


@dataclass(frozen=True, slots=True)
class _CompiledField:
    type: _CompiledType
    before: bytes
    """The bytes before a value: the index of its type in a union."""
    absent: bytes | None
    """The bytes that are written for a missing value; `None`: a row without the value cannot be written."""


class CompiledAvroWriter:
    """Writes batches by one schema. It keeps nothing of them."""

    def __init__(self, native: Any, schema: AvroSchema, prefix: bytes) -> None:
        """`prefix` stands before each record."""
        self._native = native
        self._prefix = prefix
        self._fields = _fields(schema)

    def written(self, batch: Batch) -> Spans | None:
        """The payload of each row; `None` for a batch that is left to fastavro."""
        fields = self._fields
        if fields is None or not batch.columns.keys() <= fields.keys():
            return None
        columns: list[tuple[Any, ...]] = []
        for name, field in fields.items():
            column = batch.columns.get(name)
            output = (NOTHING, None) if column is None else _output(column, field.type)
            if output is None:
                return None
            form, present, *rest = output
            columns.append((form, field.type.kind, field.type.number, field.before, field.absent, present, *rest))
        try:
            block = self._native.avro_encoded(batch.size, self._prefix, columns)
        except (ValueError, BufferError):
            return None
        return None if block is None else Spans.of_block(block, batch.size)


def _fields(schema: AvroSchema) -> dict[str, _CompiledField] | None:
    """The fields of a record; `None` if there is one that is not written here."""
    made = avro_types(schema, None)
    if made is None:
        return None
    fields: dict[str, _CompiledField] = {}
    _, _, inner, names, _ = made.types[-1]
    for place, name, field in zip(inner, names, schema.prepared["fields"], strict=True):
        assert name is not None
        compiled_field = _field(made.types, place, field)
        if compiled_field is None:
            return None
        fields[name] = compiled_field
    return fields


def _field(types: Sequence[AvroType], place: int, field: Mapping[str, Any]) -> _CompiledField | None:
    kind, _, inner, _, _ = types[place]
    if kind != avrotypes.UNION:
        value_type = _type(types, place)
        # A default stands for a value that a row lacks.
        return None if value_type is None or "default" in field else _CompiledField(value_type, b"", None)
    nulls = [index for index, branch in enumerate(inner) if types[branch][0] == avrotypes.NULL]
    if len(inner) != 2 or len(nulls) != 1 or field.get("default") is not None:
        return None
    value_type = _type(types, inner[1 - nulls[0]])
    return None if value_type is None else _CompiledField(value_type, bytes([2 - 2 * nulls[0]]), bytes([2 * nulls[0]]))


def _type(types: Sequence[AvroType], place: int) -> _CompiledType | None:
    is_list = types[place][0] == avrotypes.ARRAY
    kind, number, _, _, more = types[types[place][2][0] if is_list else place]
    if kind in _NUMBERS or (kind in _STRINGS and not is_list and (more is None or more in avrotypes.LIMITED)):
        return _CompiledType(kind, number, is_list, more)
    return None


def _output(column: Column, of: _CompiledType) -> tuple[Any, ...] | None:
    """(form, present, ...) of a column that is written as values of this type; `None` if that is left to fastavro."""
    if isinstance(column, WireColumn):
        return _as_it_came(column, of) or _read(column, of)
    if isinstance(column, DenseColumn):
        return _numbers(column.storage, column.mask, of)
    if isinstance(column, NumbersColumn):
        return _numbers(column.storage, column.mask, of) if of.kind in _FLOATS else None
    if isinstance(column, ListsColumn):
        if column.whole is not None and of.kind not in _FLOATS:
            return None
        return _output(column.arrays, of)
    if isinstance(column, RaggedColumn):
        if not of.list or column.samples.ndim != 1:
            return None
        samples = _words(column.samples, None, of)
        return None if samples is None else (RAGGED, column.mask, samples, np.ascontiguousarray(column.splits))
    wanted = _STRINGS.get(of.kind)
    if wanted is None or column.type is not wanted or of.list:
        return None
    if isinstance(column, SpansColumn):
        return _texts(column.spans, of)
    if isinstance(column, ObjectColumn) and column.mask is None:
        try:
            texts = column.objects if wanted is ValueType.BYTES else [text.encode() for text in column.objects]
        except UnicodeEncodeError:
            return None
        return _texts(Spans.of(texts), of)
    return None


def _texts(spans: Spans, of: _CompiledType) -> tuple[Any, ...] | None:
    return None if of.limit is not None and not _all_uuids(spans) else _spans(STRINGS, spans)


def _as_it_came(column: WireColumn, of: _CompiledType) -> tuple[Any, ...] | None:
    entries = column.entries
    if not isinstance(entries, AvroEntries) or of.list or of.limit or of.kind not in _AS_THEY_ARE:
        return None
    entry_field, begin = entries.field
    if entry_field is None or entry_field[:2] != (of.kind, of.number):
        return None
    spans = entries.spans
    if begin:
        spans = Spans(spans.buffer, spans.starts + begin, np.where(spans.null, _NULL, spans.lengths - begin))
    return _spans(WRITTEN, spans)


def _read(column: WireColumn, of: _CompiledType) -> tuple[Any, ...] | None:
    """As `_output` of the values, if they are plain ones."""
    if not isinstance(column.decoder, PlainDecoder):
        return None
    try:
        return _output(column.decoded(), of)
    except RowsFailed:
        # fastavro may be able to write values that a column cannot hold.
        return None


def _numbers(array: Any, present: Mask | None, of: _CompiledType) -> tuple[Any, ...] | None:
    if not of.list and array.size == len(array):
        # An array of one number is written as that number.
        array = array.reshape(-1)
    if array.ndim != 1 + of.list:
        return None
    words = _words(array, present, of)
    if words is None:
        return None
    return (LISTS, present, words, array.shape[1]) if of.list else (NUMBERS, present, words)


def _words(array: Any, present: Mask | None, of: _CompiledType) -> Any | None:
    """The numbers as int64 or float64; `None` if they are not of the type, or outside its limits."""
    if array.dtype.name not in _DTYPES.get(of.kind, _NO_NUMBERS):
        return None
    words = np.ascontiguousarray(array, np.float64 if of.kind in _FLOATS else np.int64)
    if of.limit is not None:
        there = words if present is None else words[present]
        if there.size and not (there.min() >= 0 and there.max() < DAY):
            return None
    return words


def _all_uuids(spans: Spans) -> bool:
    there = ~spans.null
    if not (spans.lengths[there] == len(_UUID_FORM)).all():
        return False
    starts = spans.starts[there]
    if not len(starts):
        return True
    texts = spans.buffer[starts[:, None] + np.arange(len(_UUID_FORM))]
    return bool((_UUID_BYTES[texts] == _UUID_FORM).all())


def _spans(form: int, spans: Spans) -> tuple[Any, ...]:
    starts, lengths = np.ascontiguousarray(spans.starts), np.ascontiguousarray(spans.lengths)
    return form, None, np.ascontiguousarray(spans.buffer), starts, lengths


_NULL: Final = -1
_UUID_FORM: Final = np.array([2 if at in (8, 13, 18, 23) else 1 for at in range(36)], np.uint8)
"""Of each character of a UUID, whether it is a hexadecimal digit, 1, or a dash, 2."""
_UUID_BYTES: Final = np.zeros(256, np.uint8)
_UUID_BYTES[list(b"0123456789abcdefABCDEF")] = 1
_UUID_BYTES[ord("-")] = 2
_FLOATS: Final = frozenset({avrotypes.FLOAT, avrotypes.DOUBLE})
_NUMBERS: Final = frozenset(
    {avrotypes.BOOLEAN, avrotypes.INT, avrotypes.LONG, avrotypes.DAYS, avrotypes.PARTS, *_FLOATS}
)
_STRINGS: Final = {avrotypes.TEXT: ValueType.STRING, avrotypes.BYTES: ValueType.BYTES}
_AS_THEY_ARE: Final = frozenset({*_NUMBERS, *_STRINGS}) - {avrotypes.PARTS}
"""Types whose bytes may be copied from payload to payload. Times may not: reading them drops fractions of a
millisecond."""
_INTEGERS: Final = frozenset({"int64", "int32", "int16", "int8", "uint32", "uint16", "uint8"})
_NO_NUMBERS: Final[frozenset[str]] = frozenset()
_DTYPES: Final = {
    avrotypes.BOOLEAN: frozenset({"bool"}),
    **dict.fromkeys((avrotypes.INT, avrotypes.LONG, avrotypes.DAYS, avrotypes.PARTS), _INTEGERS),
    avrotypes.FLOAT: _INTEGERS | {"float64", "float32"},
    avrotypes.DOUBLE: _INTEGERS | {"float64", "float32"},
}
