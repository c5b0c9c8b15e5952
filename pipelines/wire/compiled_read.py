"""ProtoData messages to columns in the compiled hot path: the same as `pipelines.wire.protodata`, only faster.

The extension reads a message only if it understands all of it. Others (messages that are framed in an unusual way,
broken ones, wrong values) are left to protobuf, message by message; so are columns whose values are no plain
numbers, arrays or strings, or of several types.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from pipelines.data.columns import Column, Rows
from pipelines.data.data import Data, check_key
from pipelines.data.entries import Entries
from pipelines.data.spans import Spans
from pipelines.data.sparsecolumn import divide, in_form
from pipelines.errors import ReservedKeyError, WireError, without_traceback
from pipelines.wire.compiled_columns import MIXED, FoundColumns, Readers, joined, read_spans, together
from pipelines.wire.protobuf import metadata_of, parsed_message
from pipelines.wire.protodata import EntryDecoder, ReadColumns, ReadOptions, read_entries, read_messages

if TYPE_CHECKING:
    from streamer_native import _native


class CompiledReader:
    """Reads messages with the extension; keeps a reader for each set of wanted keys."""

    def __init__(self, native: Any, options: ReadOptions) -> None:
        self._native = native
        self._options = options
        self._readers = Readers(self._reader)
        self._decoders: dict[str, SpansDecoder] = {}

    def __call__(self, values: Sequence[Any], wanted: frozenset[str]) -> ReadColumns:
        """The columns of these messages, `Spans` or a list; see `pipelines.wire.columns.decode_columns`."""
        spans = values if isinstance(values, Spans) else joined(self._native, values)
        raw, read = self._read(spans, wanted)
        if read is None:
            # An entry has another form than it seemed to have.
            return read_messages(values, wanted, self._options, self._decoder)
        left: Sequence[int] = raw.odd
        if len(left) <= _FEW:
            left = [position for position in left if not self._refused(values[position], position, read.failed)]
        if not left:
            return read
        others = read_messages([values[position] for position in left], wanted, self._options, self._decoder)
        return _together(raw, read, others, np.array(left, np.int64), wanted)

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
        raw, read = self._read(messages, frozenset((key,)))
        if read is None or raw.odd or read.failed or set(read.columns) != {key}:
            return None
        return read.columns[key]

    def _reader(self, keys: list[str]) -> _native.Reader:
        most = (self._options.safe_bytes, self._options.limits.max_keys)
        return self._native.Reader(keys, *(min(limit, sys.maxsize) for limit in most))  # type: ignore[no-any-return]

    def _read(self, spans: Spans, wanted: frozenset[str]) -> tuple[FoundColumns, ReadColumns | None]:
        """The extension's result and its columns; no columns if all messages are left to protobuf."""
        spans, (block, entries) = read_spans(self._readers.of(wanted), spans)
        raw = FoundColumns(spans, block)
        columns: dict[str, Column] = {}
        failed: dict[int, WireError] = {}
        for part in raw.parts:
            key, form = part[:2]
            if form == MIXED:
                columns[key], wrong, strange = read_entries(key, raw.undecoded(part), self._options)
                failed.update((int(raw.rows[row]), error) for row, error in wrong.items())
                if strange:
                    return raw, None
            else:
                columns[key] = raw.column(part, self._decoder(key, self._options))
            if key[:1] == "@":
                _refuse(key, raw.rows[raw.filled(part)], failed)
        metadata = None if entries is None else self._metadata(spans, raw.rows, entries, failed)
        read = ReadColumns(columns, raw.rows, metadata, failed)
        return raw, _kept(read, wanted) if failed or metadata is not None else read

    def _metadata(
        self, spans: Spans, rows: Rows, entries: list[tuple[int, int, int]], failed: dict[int, WireError]
    ) -> list[Data | None]:
        listed: list[Data | None] = [None] * len(rows)
        for row in {row for row, _, _ in entries}:
            try:
                message = parsed_message(spans[int(rows[row])] or b"")
                listed[row] = metadata_of(message, self._options.limits, float_lists=self._options.float_lists)
            except WireError as error:
                failed.setdefault(int(rows[row]), without_traceback(error))
        return listed

    def _decoder(self, key: str, options: ReadOptions) -> SpansDecoder:
        decoder = self._decoders.get(key)
        if decoder is None:
            # Keys may come from strangers.
            if len(self._decoders) >= _KEYS:
                self._decoders.clear()
            decoder = self._decoders[key] = SpansDecoder(key, options, self)
        return decoder


@dataclass(frozen=True, slots=True)
class SpansDecoder(EntryDecoder):
    """An `EntryDecoder` that leaves `Spans` to the extension. Decoders of readers of equal options are equal."""

    reader: CompiledReader = field(compare=False)

    def __call__(self, entries: Entries) -> Column:
        """The column of these entries. Raises `RowsFailed` naming the rows that cannot be decoded."""
        column = self.reader.column(self.key, entries) if isinstance(entries, Spans) else None
        # Not `super()`: slots make a new class, which that does not know.
        return EntryDecoder.__call__(self, entries) if column is None else column


def _refuse(key: str, rows: Rows, failed: dict[int, WireError]) -> None:
    try:
        check_key(key)
    except ReservedKeyError as error:
        failed.update((row, WireError(str(error))) for row in rows.tolist())


def _kept(read: ReadColumns, wanted: frozenset[str]) -> ReadColumns:
    """Without the rows that failed, and the keys that only they had."""
    columns, rows, metadata, failed = read
    if failed:
        index = np.flatnonzero([row not in failed for row in rows.tolist()])
        (kept,) = divide(columns, [index])
        columns = in_form({key: column for key, column in kept.items() if not column.empty}, len(index), wanted)
        rows = rows[index]
        metadata = None if metadata is None else [metadata[row] for row in index.tolist()]
    if metadata is not None and all(data is None for data in metadata):
        metadata = None
    return ReadColumns(columns, rows, metadata, failed)


def _together(
    raw: FoundColumns, read: ReadColumns, others: ReadColumns, odd: Rows, wanted: frozenset[str]
) -> ReadColumns:
    """The columns of both paths, joined in the order of the messages."""
    failed = {**read.failed, **{int(odd[row]): error for row, error in others.failed.items()}}
    positions = odd[others.rows]
    if not len(positions):
        return read._replace(failed=failed)
    if not len(read.rows):
        return others._replace(rows=positions, failed=failed)
    places = raw.in_order(others.columns, positions)
    columns, rows, order = together((read.columns, others.columns), (read.rows, positions), places, wanted)
    metadata = None
    if read.metadata is not None or others.metadata is not None:
        listed = (read.metadata or [None] * len(read.rows)) + (others.metadata or [None] * len(positions))
        metadata = [listed[row] for row in order.tolist()]
    return ReadColumns(columns, rows, metadata, failed)


_FEW = 16
_KEYS = 4096
