"""ProtoData messages to columns in the compiled hot path: the same as `pipelines.wire.plain`, only faster.

The extension reads what it understands to the last byte. What it does not (messages that are framed in an unusual way,
broken ones, wrong values) is left to the other path, message by message; of columns it leaves those whose values are
no plain numbers, arrays or strings, or of several types.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pipelines.data.columns import Column, DenseColumn, Mask, RaggedColumn, Rows, WireColumn
from pipelines.data.data import Data, check_key
from pipelines.data.spans import Spans
from pipelines.data.spanscolumn import SpansColumn
from pipelines.data.sparsecolumn import SparseColumn, concat, divide, in_form
from pipelines.errors import ReservedKeyError, WireError, without_traceback
from pipelines.values.ndarray import NDArrayType, dtype_of
from pipelines.values.valuetype import ValueType
from pipelines.wire.columns import EntryDecoder, ReadColumns, ReadOptions
from pipelines.wire.plain.decode import decode
from pipelines.wire.plain.records import metadata_of, parsed_message
from pipelines.wire.plain.values import read_values

if TYPE_CHECKING:
    from streamer_native import _native

WIRE, MIXED, TEXT, BYTES, INTEGER, DOUBLE, BOOLEAN, DENSE, RAGGED, RARE = range(10)
"""Forms of columns: those of native/src/protodata/core/columns.rs, in its order."""


class CompiledReader:
    """Reads messages with the extension. What it has learned about a set of wanted keys it keeps."""

    def __init__(self, native: Any, options: ReadOptions) -> None:
        self._native = native
        self._options = options
        self._readers: dict[frozenset[str], _native.Reader] = {}
        self._decoders: dict[str, EntryDecoder] = {}

    def __call__(self, values: Sequence[Any], wanted: frozenset[str]) -> ReadColumns:
        """The columns of these messages, `Spans` or a list; see `pipelines.wire.columns.decode_columns`."""
        spans = values if isinstance(values, Spans) else joined(self._native, values)
        found = self._read(spans, wanted)
        if found is None:
            # An entry is not what it seemed to be.
            return decode(list(values), wanted, self._options)
        left: Sequence[int] = found.odd or ()
        if len(left) <= _FEW:
            left = [position for position in left if not self._refused(values[position], position, found.failed)]
        if not left:
            return ReadColumns(found.columns, found.rows, found.metadata, found.failed)
        others = decode([values[position] for position in left], wanted, self._options)
        return _together(found, others, np.array(left, np.int64), wanted)

    def _refused(self, payload: Any, position: int, failed: dict[int, WireError]) -> bool:
        # Few unusual messages are broken ones as a rule, and a parser finds that out for less than reading them in
        # columns would cost.
        if type(payload) is not bytes or len(payload) > self._options.safe_bytes:
            return False
        try:
            self._options.limits.check_fields(payload)
            parsed_message(payload)
        except WireError as error:
            failed[position] = without_traceback(error)
            return True
        return False

    def column(self, key: str, entries: Spans) -> Column | None:
        """The values of these entries of one key, which are messages each; `None` if they are left to protobuf."""
        # A null is a message without entries: a gap.
        messages = Spans(entries.buffer, entries.starts, np.maximum(entries.lengths, 0))
        found = self._read(messages, frozenset((key,)))
        if found is None or found.odd is not None or found.failed or set(found.columns) != {key}:
            return None
        return found.columns[key]

    def _read(self, spans: Spans, wanted: frozenset[str]) -> _Found | None:
        reader = self._readers.get(wanted)
        if reader is None:
            reader = self._reader(wanted)
        try:
            raw = reader.read(spans.buffer, spans.starts, spans.lengths)
        except (BufferError, ValueError):
            contiguous = Spans(*map(np.ascontiguousarray, (spans.buffer, spans.starts, spans.lengths)))
            if all(getattr(contiguous, part) is getattr(spans, part) for part in Spans.__slots__):
                raise
            return self._read(contiguous, wanted)
        return self._found(spans, wanted, *raw)

    def _reader(self, wanted: frozenset[str]) -> _native.Reader:
        # Sets of keys come from pipelines; there is one, as a rule.
        if len(self._readers) >= _SETS:
            self._readers.clear()
        # What is no UTF-8 is nobody's key.
        keys = [key for key in wanted if key.isascii() or key.encode(errors="ignore").decode() == key]
        options = self._options
        reader: _native.Reader = self._native.Reader(
            keys, min(options.safe_bytes, sys.maxsize), min(options.limits.max_keys, sys.maxsize)
        )
        self._readers[wanted] = reader
        return reader

    def _found(
        self,
        spans: Spans,
        wanted: frozenset[str],
        block: Any,
        count: int,
        lines: int,
        rare: tuple[int, int],
        odd: list[int] | None,
        metadata: list[tuple[int, int, int]] | None,
        parts: list[_native.Part],
    ) -> _Found | None:
        table: Any = np.ndarray((lines, count), np.int64, block)
        columns: dict[str, Column] = {}
        failed: dict[int, WireError] = {}
        rows: Rows = table[0]
        rare_rows, rare_entries = _rare(spans, block, *rare)
        for part in parts:
            key, form, line, at = part[:4]
            filled: Sequence[int] | None = None
            if form == RARE:
                place = slice(part[8], part[8] + part[7])
                filled = rare_rows[place]
                columns[key] = SparseColumn(count, filled, WireColumn(rare_entries[place], self._decoder(key)))
            elif form == MIXED:
                entries = Spans(spans.buffer, table[line], table[line + 1])
                columns[key], wrong, strange = read_values(key, entries, self._options)
                failed.update((int(rows[row]), error) for row, error in wrong.items())
                if strange:
                    return None
            else:
                columns[key] = self._column(spans, block, table, part)
            if key[:1] == "@":
                if filled is None:
                    filled = range(count) if at < 0 else np.flatnonzero(np.ndarray(count, np.bool_, block, at)).tolist()
                _refuse(key, rows[list(filled)], failed)
        found = _Found(columns, rows, None, failed, odd, parts)
        if metadata is not None:
            found = found._replace(metadata=self._metadata(spans, rows, metadata, failed))
        return _kept(found, wanted) if failed or metadata is not None else found

    def _column(self, spans: Spans, block: Any, table: Any, part: _native.Part) -> Column:
        key, form, line, at, _, element, shape, total, offset, splits = part
        count = table.shape[1]
        present: Mask | None = None if at < 0 else np.ndarray(count, np.bool_, block, at)
        if form == WIRE:
            return WireColumn(Spans(spans.buffer, table[line], table[line + 1]), self._decoder(key), present)
        if form == DENSE:
            return DenseColumn(np.ndarray((count, *shape), _DTYPES[element], block, offset), _ARRAY, present)
        if form == TEXT:
            return SpansColumn(Spans(spans.buffer, table[line], table[line + 1]), ValueType.STRING, present)
        if form == BYTES:
            return SpansColumn(Spans(spans.buffer, table[line], table[line + 1]), ValueType.BYTES, present)
        if form == INTEGER:
            return DenseColumn(table[line], ValueType.INT64, present)
        if form == DOUBLE:
            return DenseColumn(table[line].view(np.float64), ValueType.DOUBLE, present)
        if form == BOOLEAN:
            return DenseColumn(np.ndarray(count, np.bool_, block, offset), ValueType.BOOLEAN, present)
        samples: Any = np.ndarray((total, *shape), _DTYPES[element], block, offset)
        return RaggedColumn(samples, np.ndarray(count + 1, np.int64, block, splits), present)

    def _metadata(
        self, spans: Spans, rows: Rows, entries: list[tuple[int, int, int]], failed: dict[int, WireError]
    ) -> list[Data | None]:
        listed: list[Data | None] = [None] * len(rows)
        for row in {row for row, _, _ in entries}:
            try:
                listed[row] = metadata_of(spans[int(rows[row])] or b"", self._options)
            except WireError as error:
                failed.setdefault(int(rows[row]), without_traceback(error))
        return listed

    def _decoder(self, key: str) -> EntryDecoder:
        decoder = self._decoders.get(key)
        if decoder is None:
            # Keys may come from strangers.
            if len(self._decoders) >= _KEYS:
                self._decoders.clear()
            decoder = self._decoders[key] = EntryDecoder(key, self._options)
        return decoder


def joined(native: Any, values: Sequence[Any]) -> Spans:
    """`bytes` in one buffer; of length -1 where there is `None`, -2 where there is anything else."""
    return Spans.of_block(native.join(values if type(values) is list else list(values)), len(values))


class _Found(NamedTuple):
    columns: dict[str, Column]
    rows: Rows
    metadata: list[Data | None] | None
    failed: dict[int, WireError]
    odd: list[int] | None
    parts: list[_native.Part]


def _rare(spans: Spans, block: Any, at: int, count: int) -> tuple[list[int], list[Any]]:
    """Rows and entries of all rare keys, key by key."""
    if not count:
        return [], []
    table: Any = np.ndarray((3, count), np.int64, block, at)
    return table[0].tolist(), Spans(spans.buffer, table[1], table[2]).tolist()


def _refuse(key: str, rows: Rows, failed: dict[int, WireError]) -> None:
    try:
        check_key(key)
    except ReservedKeyError as error:
        failed.update((row, WireError(str(error))) for row in rows.tolist())


def _kept(found: _Found, wanted: frozenset[str]) -> _Found:
    """Without the rows that failed, and the keys that only they had."""
    metadata = found.metadata
    if found.failed:
        index = np.flatnonzero([row not in found.failed for row in found.rows.tolist()])
        (taken,) = divide(found.columns, [index])
        columns = in_form({key: column for key, column in taken.items() if not column.empty}, len(index), wanted)
        listed = None if metadata is None else [metadata[row] for row in index.tolist()]
        found = found._replace(columns=columns, rows=found.rows[index], metadata=listed)
    if found.metadata is not None and not any(one is not None for one in found.metadata):
        return found._replace(metadata=None)
    return found


def _together(found: _Found, others: ReadColumns, odd: Rows, wanted: frozenset[str]) -> ReadColumns:
    """What either path read, in the order of the messages."""
    failed = {**found.failed, **{int(odd[row]): error for row, error in others.failed.items()}}
    if not len(others.rows):
        return ReadColumns(found.columns, found.rows, found.metadata, failed)
    if not len(found.rows):
        return ReadColumns(others.columns, odd[others.rows], others.metadata, failed)
    rows = np.concatenate([found.rows, odd[others.rows]])
    order = np.argsort(rows)
    together = concat([found.columns, others.columns], [len(found.rows), len(others.rows)])
    (taken,) = divide({key: together[key] for key in _in_order(found, others, odd)}, [order])
    metadata = None
    if found.metadata is not None or others.metadata is not None:
        listed = (found.metadata or [None] * len(found.rows)) + (others.metadata or [None] * len(others.rows))
        metadata = [listed[row] for row in order.tolist()]
    return ReadColumns(in_form(taken, len(order), wanted), rows[order], metadata, failed)


def _in_order(found: _Found, others: ReadColumns, odd: Rows) -> list[str]:
    """All keys in the order in which the messages bring them."""
    places = {key: (first, place) for place, (key, _, _, _, first, *_) in enumerate(found.parts)}
    for place, (key, column) in enumerate(others.columns.items()):
        position = int(odd[others.rows[next(iter(column.positions()), 0)]])
        places[key] = min(places.get(key, (sys.maxsize, 0)), (position, place))
    keys = {**found.columns, **others.columns}
    return sorted(keys, key=places.__getitem__)


_ARRAY = ValueType.NDARRAY
_DTYPES = {int(element): dtype for element in NDArrayType if (dtype := dtype_of(element)) is not None}
_FEW = 16
_SETS = 64
_KEYS = 4096
