"""Plain JSON in the compiled hot path: the same columns and objects as `pipelines.wire.plainjson`, only faster.

The extension reads records that it understands to the last byte, and leaves all others to Python's parser: broken ones,
those near a limit, a key twice, escapes in keys. Columns whose values differ in type, or are objects and lists of
anything but numbers, are decoded by the other path.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from pipelines.data.batch import Batch
from pipelines.data.columns import Column, DenseColumn, Mask, ObjectColumn, RaggedColumn, WireColumn
from pipelines.data.listscolumn import ListsColumn
from pipelines.data.numberscolumn import NumbersColumn
from pipelines.data.spans import Spans
from pipelines.data.spanscolumn import SpansColumn
from pipelines.data.sparsecolumn import SparseColumn, concat, divide, in_form
from pipelines.errors import WireError
from pipelines.values import ValueType
from pipelines.wire.compiled_read import joined
from pipelines.wire.jsontext import INDEX
from pipelines.wire.plainjson import (
    JsonDecoder,
    JsonForm,
    JsonOptions,
    JsonWriter,
    ReadJson,
    WrittenJson,
    rare_last,
    read_json,
    without_rows,
    write_json,
)

if TYPE_CHECKING:
    from streamer_native import _native

(
    WIRE, MIXED, TEXT, COPIED, INTEGER, DOUBLE, NUMBERS, BOOLEAN,
    DENSE_INTEGERS, DENSE_DOUBLES, RAGGED_INTEGERS, RAGGED_DOUBLES, RARE,
) = range(13)  # fmt: skip
"""Forms of columns: those of native/src/json/core/columns.rs, in its order."""
JSON, TEXTS, ARRAYS = range(3)
"""Forms of columns on their way out: those of native/src/json/writing.rs."""


class CompiledJsonReader:
    """Reads payloads with the extension. What it was told about a set of wanted keys it keeps."""

    def __init__(self, native: Any, options: JsonOptions) -> None:
        self._native = native
        self._options = options
        self._decoder = JsonDecoder(options.limits)
        self._readers: dict[frozenset[str], _native.JsonReader] = {}

    def __call__(self, values: Sequence[Any], wanted: frozenset[str]) -> ReadJson:
        """The columns of these payloads, `Spans` or a list; see `pipelines.wire.plainjson.read_json`."""
        spans = values if isinstance(values, Spans) else joined(self._native, values)
        reader = self._readers.get(wanted) or self._reader(wanted)
        try:
            raw = reader.read(spans.buffer, spans.starts, spans.lengths)
        except (BufferError, ValueError):
            # Arrays that are not contiguous.
            spans = Spans.of(list(spans))
            raw = reader.read(spans.buffer, spans.starts, spans.lengths)
        found, odd, order = self._found(wanted, spans, *raw)
        if not odd:
            return found
        others = read_json([values[position] for position in odd], wanted, self._options)
        return _together(found, others, np.array(odd, np.int64), wanted, order)

    def _reader(self, wanted: frozenset[str]) -> _native.JsonReader:
        # Sets of keys come from pipelines; there is one, as a rule.
        if len(self._readers) >= _SETS:
            self._readers.clear()
        limits, options = self._options.limits, self._options
        bounds = (limits.max_bytes, limits.max_depth, limits.max_elements, limits.max_keys)
        reader: _native.JsonReader = self._native.JsonReader(
            [key for key in wanted if key.isascii() or key.encode(errors="ignore").decode() == key],
            [(key, [(step, _index(step)) for step in pointer.steps]) for key, pointer in options.fields],
            options.each,
            False,
            tuple(min(limit, sys.maxsize) for limit in bounds),
        )
        self._readers[wanted] = reader
        return reader

    def _found(
        self,
        wanted: frozenset[str],
        spans: Spans,
        block: Any,
        count: int,
        lines: int,
        rare: tuple[int, int],
        odd: list[int] | None,
        parts: list[_native.JsonPart],
    ) -> tuple[ReadJson, list[int], dict[str, tuple[int, int]]]:
        table: Any = np.ndarray((lines, count), np.int64, block)
        columns: dict[str, Column] = {}
        wrong: dict[int, WireError] = {}
        rare_table: Any = np.ndarray((3, rare[1]), np.int64, block, rare[0]) if rare[1] else None
        for part in parts:
            key, form, line = part[:3]
            if form == RARE:
                own = rare_table[:, part[8] : part[8] + part[7]]
                entries = WireColumn(Spans(spans.buffer, own[1], own[2]), self._decoder)
                columns[key] = SparseColumn(count, own[0].tolist(), entries)
            elif form == MIXED:
                texts = Spans(spans.buffer, table[line], table[line + 1])
                column, errors = self._decoder.read(texts)
                for row, error in errors.items():
                    wrong.setdefault(row, WireError(f'key "{key}" cannot be read: {error}'))
                if not column.empty:
                    columns[key] = column
            else:
                columns[key] = self._column(spans, block, table, part)
        found = without_rows(ReadJson(columns, table[0], {}), wrong, wanted)
        return found, odd or [], {part[0]: (part[5], place) for place, part in enumerate(parts)}

    def _column(self, spans: Spans, block: Any, table: Any, part: _native.JsonPart) -> Column:
        return _column(spans, block, table, part, self._decoder)


def compiled_values(native: Any, entries: Spans, decoder: JsonDecoder) -> Column | None:
    """The column of these texts of values; `None` if it is left to Python: they differ in type, or are no values."""
    reader = native.JsonReader([_VALUE], [(_VALUE, [])], False, True, (sys.maxsize,) * 4)
    spans = entries if entries.extension() is not None else Spans.of(list(entries))
    block, count, lines, _, odd, parts = reader.read(spans.buffer, spans.starts, spans.lengths)
    if odd or len(parts) != 1 or parts[0][1] == MIXED:
        return None
    return _column(spans, block, np.ndarray((lines, count), np.int64, block), parts[0], decoder)


def _column(spans: Spans, block: Any, table: Any, part: _native.JsonPart, decoder: JsonDecoder) -> Column:
    _, form, line, mask, whole_at, _, length, total, offset, splits = part
    count = table.shape[1]
    present: Mask | None = None if mask < 0 else np.ndarray(count, np.bool_, block, mask)
    whole: Mask | None = None if whole_at < 0 else np.ndarray(count, np.bool_, block, whole_at)
    if form == WIRE:
        return WireColumn(Spans(spans.buffer, table[line], table[line + 1]), decoder, present)
    if form == TEXT:
        return SpansColumn(Spans(spans.buffer, table[line], table[line + 1]), ValueType.STRING, present)
    if form == COPIED:
        texts: Any = np.ndarray(total, np.uint8, block, offset)
        return SpansColumn(Spans(texts, table[line], table[line + 1]), ValueType.STRING, present)
    if form == INTEGER:
        return DenseColumn(table[line], ValueType.INT64, present)
    if form == DOUBLE:
        return DenseColumn(table[line].view(np.float64), ValueType.DOUBLE, present)
    if form == NUMBERS:
        assert whole is not None
        return NumbersColumn(table[line].view(np.float64), whole, present)
    if form == BOOLEAN:
        return DenseColumn(np.ndarray(count, np.bool_, block, offset), ValueType.BOOLEAN, present)
    dtype = np.int64 if form in (DENSE_INTEGERS, RAGGED_INTEGERS) else np.float64
    if form in (DENSE_INTEGERS, DENSE_DOUBLES):
        return ListsColumn(DenseColumn(np.ndarray((count, length), dtype, block, offset), present=present), whole)
    samples: Any = np.ndarray(total, dtype, block, offset)
    return ListsColumn(RaggedColumn(samples, np.ndarray(count + 1, np.int64, block, splits), present), whole)


def write_compiled(native: Any, form: JsonForm, batch: Batch) -> WrittenJson:
    """One object for each row of the batch, as `Spans`; see `pipelines.wire.plainjson.write_json`."""
    failed: dict[int, Exception] = {}
    writer = JsonWriter(form)
    columns: list[tuple[Any, ...]] = []
    rare: list[list[bytes]] = []
    for key, column in rare_last(batch):
        prefix = writer.prefix(key, column, failed)
        if prefix is None:
            continue
        if isinstance(column, SparseColumn):
            rare = rare or [[] for _ in range(batch.size)]
            for row, text in writer.cells(key, column, failed):
                rare[row].append(_bytes(prefix + text, row, failed))
            continue
        raw = prefix.encode()
        columns.append(_output(raw, column) or _others(raw, writer.cells(key, column, failed), batch.size, failed))
    if rare:
        columns.append(_spans(JSON, b"", [b",".join(own) if own else None for own in rare]))
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
    if isinstance(column, ObjectColumn) and column.type is ValueType.STRING and column.mask is None:
        try:
            return _spans(TEXTS, prefix, [text.encode() for text in column.objects])
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


def _spans(form: int, prefix: bytes, texts: list[bytes | None]) -> tuple[Any, ...]:
    return _of(form, prefix, Spans.of(texts))


def _others(
    prefix: bytes, cells: Iterator[tuple[int, str]], size: int, failed: dict[int, Exception]
) -> tuple[Any, ...]:
    texts: list[bytes | None] = [None] * size
    for row, text in cells:
        texts[row] = _bytes(text, row, failed)
    return _spans(JSON, prefix, texts)


def _bytes(text: str, row: int, failed: dict[int, Exception]) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        failed[row] = WireError(f"half of a surrogate pair at character {error.start} is no text")
        return b""


def _index(step: str) -> int | None:
    return int(step) if INDEX.fullmatch(step) else None


def _together(
    found: ReadJson, others: ReadJson, odd: Any, wanted: frozenset[str], order: dict[str, tuple[int, int]]
) -> ReadJson:
    """What either path read, in the order of the payloads."""
    failed = {**found.failed, **{int(odd[row]): error for row, error in others.failed.items()}}
    if not len(others.rows):
        return ReadJson(found.columns, found.rows, failed)
    if not len(found.rows):
        return ReadJson(others.columns, odd[others.rows], failed)
    places = dict(order)
    for place, (key, column) in enumerate(others.columns.items()):
        first = int(odd[others.rows[next(iter(column.positions()), 0)]])
        places[key] = min(places.get(key, (sys.maxsize, 0)), (first, place))
    rows = np.concatenate([found.rows, odd[others.rows]])
    sorted_rows = np.argsort(rows, kind="stable")
    together = concat([found.columns, others.columns], [len(found.rows), len(others.rows)])
    (taken,) = divide({key: together[key] for key in sorted(together, key=places.__getitem__)}, [sorted_rows])
    return ReadJson(in_form(taken, len(rows), wanted), rows[sorted_rows], failed)


_VALUE: Final = ""
_NAMES: Final = frozenset(
    {"float64", "float32", "int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8", "bool"}
)
_SETS: Final = 64
