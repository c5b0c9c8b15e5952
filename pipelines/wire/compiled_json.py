"""Plain JSON in the compiled hot path: the same columns and objects as `pipelines.wire.plainjson`, only faster.

The extension reads a record only if it understands all of it, and leaves all others to Python's parser: broken ones,
those near a limit, with a key twice, with escapes in keys. Columns whose values differ in type, or are objects and
lists of anything but numbers, are decoded by the other path.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from pipelines.data.batch import Batch
from pipelines.data.columns import MISSING, Column, DenseColumn, Mask, ObjectColumn
from pipelines.data.listscolumn import ListsColumn
from pipelines.data.numberscolumn import NumbersColumn
from pipelines.data.spans import Spans
from pipelines.data.spanscolumn import SpansColumn
from pipelines.data.wirecolumn import WireColumn
from pipelines.errors import WireError
from pipelines.values import ValueType
from pipelines.wire.compiled_columns import (
    DENSE,
    MIXED,
    RAGGED,
    FoundColumns,
    Readers,
    joined,
    read_spans,
    together,
)
from pipelines.wire.jsonrecords import JsonOptions
from pipelines.wire.jsontext import INDEX, Pointer
from pipelines.wire.owndigits import in_own_digits
from pipelines.wire.plainjson import (
    JsonDecoder,
    JsonForm,
    JsonWriter,
    ReadJson,
    WrittenJson,
    read_json,
    write_json,
)
from pipelines.wire.plainvalues import note_unreadable
from pipelines.wire.stated.types import Decoders

if TYPE_CHECKING:
    from streamer_native import _native

JSON, TEXTS, ARRAYS = range(3)
"""Forms of columns on their way out: those of native/src/json/writing.rs."""


class CompiledJsonReader:
    """Reads payloads with the extension; keeps a reader for each set of wanted keys."""

    def __init__(self, native: Any, options: JsonOptions) -> None:
        self._native = native
        self._options = options
        make = partial(SpansJsonDecoder, options.limits, native=native)
        self._decoders = Decoders(make, options.stated)
        self._readers = Readers(self._reader)

    def __call__(self, values: Sequence[Any], wanted: frozenset[str]) -> ReadJson:
        """The columns of these payloads, `Spans` or a list; see `pipelines.wire.plainjson.read_json`."""
        spans = values if isinstance(values, Spans) else joined(self._native, values)
        raw, columns, wrong = self._read(spans, wanted)
        failed: dict[int, WireError] = {}
        while wrong:
            # The others are read again without these, whose values are to leave no trace in the form of a column.
            for row, error in wrong.items():
                failed.setdefault(int(raw.rows[row]), error)
            lengths = spans.lengths.copy()
            lengths[list(failed)] = _NOTHING
            raw, columns, wrong = self._read(Spans(spans.buffer, spans.starts, lengths), wanted)
        read = ReadJson(columns, raw.rows, {**failed})
        if not raw.odd:
            return read
        others = read_json([values[position] for position in raw.odd], wanted, self._options, self._decoders)
        return _together(raw, read, others, np.array(raw.odd, np.int64), wanted)

    def _reader(self, keys: list[str]) -> _native.JsonReader:
        limits, options = self._options.limits, self._options
        bounds = (limits.max_bytes, limits.max_depth, limits.max_elements, limits.max_keys)
        reader: _native.JsonReader = self._native.JsonReader(
            keys,
            [(key, _steps(pointer)) for key, pointer in options.fields],
            _steps(options.at),
            [(key, _steps(pointer)) for key, pointer in options.outer],
            options.each,
            False,
            options.read_nan == "missing",
            tuple(min(limit, sys.maxsize) for limit in bounds),
            [(stated.key, stated.kind) for stated in options.stated],
        )
        return reader

    def _read(
        self, spans: Spans, wanted: frozenset[str]
    ) -> tuple[FoundColumns, dict[str, Column], dict[int, WireError]]:
        """The extension's result for these payloads, its columns, and the errors of rows that fail."""
        raw = FoundColumns(*read_spans(self._readers.of(wanted), spans))
        columns: dict[str, Column] = {}
        wrong: dict[int, WireError] = {}
        for part in raw.parts:
            key, form = part[:2]
            if form != MIXED:
                columns[key] = _column(raw, part, self._decoders[key])
                continue
            column, errors = self._decoders[key].read(raw.undecoded(part))
            for row, error in errors.items():
                note_unreadable(wrong, row, key, error)
            if not column.empty:
                columns[key] = column
        return raw, columns, wrong


@dataclass(frozen=True, slots=True)
class SpansJsonDecoder(JsonDecoder):
    """A `JsonDecoder` that leaves `Spans` to the extension. Decoders of equal limits and type are equal."""

    native: Any = field(default=None, compare=False)

    def __call__(self, entries: Sequence[Any]) -> Column:
        """The column of these texts. Raises `RowsFailed` naming the rows whose text is not a value."""
        column = self._column(entries) if isinstance(entries, Spans) else None
        # Not `super()`: slots make a new class, which that does not know.
        return JsonDecoder.__call__(self, entries) if column is None else column

    def _column(self, texts: Spans) -> Column | None:
        """The column of these texts; `None` if it is left to Python: they differ in type, or are not values."""
        types = [] if self.stated is None else [(_VALUE, self.stated.kind)]
        reader: _native.JsonReader = self.native.JsonReader(
            [_VALUE], [(_VALUE, [])], [], [], False, True, False, (sys.maxsize,) * 4, types
        )
        raw = FoundColumns(*read_spans(reader, texts))
        if raw.odd or len(raw.parts) != 1 or raw.parts[0][1] == MIXED:
            return None
        return _column(raw, raw.parts[0], self)


def _column(raw: FoundColumns, part: _native.Part, decoder: JsonDecoder) -> Column:
    column = raw.column(part, decoder)
    return ListsColumn(column, raw.whole(part)) if part[1] in (DENSE, RAGGED) else column


def write_compiled(native: Any, form: JsonForm, batch: Batch) -> WrittenJson:
    """One object for each row of the batch, as `Spans`; see `pipelines.wire.plainjson.write_json`."""
    failed: dict[int, Exception] = {}
    batch, writer = in_own_digits(batch), JsonWriter(form)
    common, rare = batch.common_and_rare()
    columns: list[tuple[Any, ...]] = []
    for key, column in common.items():
        prefix = writer.prefix(key, column, failed)
        if prefix is not None:
            output = _output(prefix, column)
            columns.append(output or _spans(JSON, prefix, writer.texts(key, column, failed)))
    if rare:
        last = writer.rare_members(rare, failed)
        members = [b",".join(last[row]) if row in last else None for row in range(batch.size)]
        columns.append(_spans(JSON, b"", members))
    try:
        block = native.json_encoded(batch.size, columns, sorted(failed))
    except (ValueError, BufferError):
        return write_json(batch, form)
    return WrittenJson(Spans.of_block(block, batch.size), failed)


def _output(prefix: bytes, column: Column) -> tuple[Any, ...] | None:
    """The column as the extension takes it; `None` for one that is left to Python."""
    if isinstance(column, WireColumn):
        if isinstance(column.decoder, JsonDecoder) and isinstance(column.entries, Spans):
            return _of(JSON, prefix, column.entries)
        return None
    if isinstance(column, NumbersColumn):
        return _array(prefix, column.storage, column.mask, column.whole)
    if isinstance(column, ListsColumn) and isinstance(column.arrays, DenseColumn):
        return _array(prefix, column.arrays.storage, column.mask, column.whole)
    if isinstance(column, DenseColumn):
        return _array(prefix, column.storage, column.mask, None)
    if isinstance(column, SpansColumn) and column.type is ValueType.STRING:
        return _of(TEXTS, prefix, column.spans)
    if isinstance(column, ObjectColumn) and column.type is None:
        # Rows that made it a mixed one may be gone.
        formed = Column.of(column.objects)
        return _output(prefix, formed) if formed.type is not None else None
    if isinstance(column, ObjectColumn) and column.type is ValueType.STRING:
        try:
            return _spans(TEXTS, prefix, [None if text is MISSING else text.encode() for text in column.objects])
        except UnicodeEncodeError:
            return None
    return None


def _array(prefix: bytes, array: Any, present: Mask | None, whole: Mask | None) -> tuple[Any, ...] | None:
    name = array.dtype.name
    if name not in _NAMES or not array.dtype.isnative:
        return None
    if array.dtype.kind == "f" and not np.isfinite(array if present is None else array[present]).all():
        return None
    return ARRAYS, prefix, name, array.shape[1:], np.ascontiguousarray(array), present, whole


def _of(form: int, prefix: bytes, spans: Spans) -> tuple[Any, ...]:
    starts, lengths = np.ascontiguousarray(spans.starts), np.ascontiguousarray(spans.lengths)
    return form, prefix, np.ascontiguousarray(spans.buffer), starts, lengths


def _spans(form: int, prefix: bytes, texts: Sequence[Any]) -> tuple[Any, ...]:
    return _of(form, prefix, Spans.of(texts))


def _steps(pointer: Pointer) -> list[tuple[str, int | None]]:
    return [(step, int(step) if INDEX.fullmatch(step) else None) for step in pointer.steps]


def _together(raw: FoundColumns, read: ReadJson, others: ReadJson, odd: Any, wanted: frozenset[str]) -> ReadJson:
    """The rows of both paths, joined in the order of the payloads."""
    failed = {**read.failed, **{int(odd[row]): error for row, error in others.failed.items()}}
    positions = odd[others.rows]
    if not len(positions):
        return read._replace(failed=failed)
    if not len(read.rows):
        return others._replace(rows=positions, failed=failed)
    places = raw.in_order(others.columns, positions)
    columns, rows, _ = together((read.columns, others.columns), (read.rows, positions), places, wanted)
    return ReadJson(columns, rows, failed)


_VALUE: Final = ""
_NOTHING: Final = -1
"""The length of a payload that there is not."""
_NAMES: Final = frozenset(
    {"float64", "float32", "int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8", "bool"}
)
