"""Messages to columns: the entries of each key become a column, and protobuf checks a column at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import compress
from typing import Any, Final, NamedTuple

import numpy as np
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

from pipelines.data.columns import Column
from pipelines.data.data import Data, check_key
from pipelines.data.spans import Ints, Spans
from pipelines.data.sparsecolumn import SparseColumn, divide, in_form, is_rare
from pipelines.data.wirecolumn import WireColumn
from pipelines.errors import ReservedKeyError, WireError, without_traceback
from pipelines.wire.columns import EntryDecoder, ReadColumns, ReadOptions
from pipelines.wire.plain.records import Cut, checked_message, cut, key_of, metadata_of, rewritten
from pipelines.wire.plain.values import by_length, read_values
from pipelines.wire.plain.windows import windows
from protos import data_pb2 as pb

PART_BYTES: Final = 1 << 16
"""Bytes of entries to parse at a time. More costs more: the system hands out large memory page by page."""


def decode(values: Sequence[Any], wanted: frozenset[str], options: ReadOptions) -> ReadColumns:
    """`pipelines.wire.columns.decode_columns` in plain Python."""
    messages = _Messages(values, options)
    table = _table(messages.cut(), len(messages.left), wanted, options)
    if table.unsound:
        # None of these is left in the second table: protobuf writes sound entries only.
        messages.rewrite(table.unsound)
        table = _table(messages.cut(), len(messages.left), wanted, options)
    positions = np.array(messages.positions, np.int64)
    metadata: dict[int, Data | None] = {}
    for row in table.with_metadata:
        try:
            metadata[row] = metadata_of(messages.left[row], options)
        except WireError as error:
            table.failed.setdefault(row, without_traceback(error))
    kept: Sequence[int] = range(len(positions))
    columns, failed = table.columns, messages.failed
    if table.failed:
        failed = failed | {messages.positions[row]: error for row, error in table.failed.items()}
        kept = [row for row in kept if row not in table.failed]
        (taken,) = divide(columns, [np.array(kept, np.int64)])
        columns = in_form({key: column for key, column in taken.items() if not column.empty}, len(kept), wanted)
        positions = positions[kept]
    listed = [metadata.get(row) for row in kept] if metadata else None
    return ReadColumns(columns, positions, listed, failed)


class _Messages:
    """The messages that are left when those that are none have failed."""

    def __init__(self, values: Sequence[Any], options: ReadOptions) -> None:
        self.left = list(values)
        self.positions = list(range(len(values)))
        """Where among the values each of these was."""
        self.failed: dict[int, WireError] = {}
        """Position to the error of a message that protobuf cannot read, or that exceeds a limit."""
        # A message of fewer bytes cannot exceed a limit.
        short = min(options.safe_bytes, options.limits.max_keys)
        if not set(map(type, self.left)) <= {bytes} or max(map(len, self.left), default=0) > short:
            self.positions = [position for position, value in enumerate(values) if value is not None]
            self.left = [values[position] for position in self.positions]
            self._replace(range(len(self.left)), lambda value: checked_message(value, options))

    def cut(self) -> Cut:
        """These messages in entries."""
        size, found = len(self.left), cut(self.left)
        if not found.odd:
            return found
        broken = self.rewrite(found.odd)
        # Mostly these are broken; where protobuf has written others anew, they have to be cut again.
        return found.without(broken, size) if broken == found.odd else cut(self.left)

    def rewrite(self, rows: set[int]) -> set[int]:
        """Let protobuf write these messages anew. Those that it finds to be none are left out, and returned."""
        return self._replace(rows, rewritten)

    def _replace(self, rows: Iterable[int], replaced: Callable[[Any], bytes]) -> set[int]:
        """Put another message into each of these rows. Those for which that raises `WireError` are left out, and
        returned."""
        broken: set[int] = set()
        for row in rows:
            try:
                self.left[row] = replaced(self.left[row])
            except WireError as error:
                self.failed[self.positions[row]] = without_traceback(error)
                broken.add(row)
        if broken:
            kept = [row not in broken for row in range(len(self.left))]
            self.left, self.positions = [*compress(self.left, kept)], [*compress(self.positions, kept)]
        return broken


class _Table(NamedTuple):
    columns: dict[str, Column]
    """Key to its column, with a row for each message."""
    failed: dict[int, WireError]
    """Row to the error of a message with a wrong value or a reserved key."""
    with_metadata: list[int]
    """Rows of the messages with metadata."""
    unsound: set[int]
    """Rows of the messages with an entry that is broken, or of another key than it seems to be."""


def _table(messages: Cut, size: int, wanted: frozenset[str], options: ReadOptions) -> _Table:
    table = _Table({}, {}, messages.with_metadata, set())
    for raw, (rows, cells) in messages.entries.items():
        key = key_of(raw)
        if key is None:
            table.unsound.update(rows.tolist())
            continue
        whole = len(rows) == size
        if key in wanted:
            every = Spans.of(cells) if whole else _spread(cells, rows, size)
            table.columns[key], failed, unsound = read_values(key, every, options)
            table.failed.update(failed)
            table.unsound.update(unsound)
        else:
            decoder = EntryDecoder(key, options)
            if is_rare(len(rows), size):
                table.columns[key] = SparseColumn(size, rows.tolist(), WireColumn(cells, decoder))
            elif whole:
                table.columns[key] = WireColumn(cells, decoder)
            else:
                every = _spread(cells, rows, size)
                table.columns[key] = WireColumn(every, decoder, ~every.null)
            table.unsound.update(int(rows[place]) for place in _unsound(key, cells))
        try:
            check_key(key)
        except ReservedKeyError as error:
            table.failed.update((row, WireError(str(error))) for row in rows.tolist())
    return table


def _spread(cells: Sequence[bytes | None], rows: Ints, size: int) -> Spans:
    """These entries at the places `rows` among `size`, null at all others."""
    entries = Spans.of(cells)
    starts, lengths = np.zeros(size, np.int64), np.full(size, -1, np.int64)
    starts[rows], lengths[rows] = entries.starts, entries.lengths
    return Spans(entries.buffer, starts, lengths)


def _unsound(key: str, entries: Spans | list[bytes]) -> Iterator[int]:
    """The places of the entries that are broken or not of this key. Entries are parsed together: most are sound."""
    if isinstance(entries, Spans) and all(_is_sound(key, part) for part in _parts(entries)):
        return
    yield from _searched(key, range(len(entries)), list(entries))  # type: ignore[arg-type]


def _parts(entries: Spans) -> Iterator[bytes]:
    """These entries, joined in parts of about `PART_BYTES`, and in another order: those of equal length together."""
    for places in by_length(entries.lengths):
        width = int(entries.lengths[places[0]])
        step = max(1, PART_BYTES // width)
        for start in range(0, len(places), step):
            yield windows(entries.buffer, entries.starts[places[start : start + step]], width).tobytes()


def _searched(key: str, places: range, entries: list[bytes]) -> Iterator[int]:
    if _is_sound(key, b"".join(entries[places.start : places.stop])):
        return
    if len(places) == 1:
        yield places[0]
        return
    # Search by halves: a few unsound entries among many are found without parsing each.
    middle = len(places) // 2
    yield from _searched(key, places[:middle], entries)
    yield from _searched(key, places[middle:], entries)


def _is_sound(key: str, entries: bytes) -> bool:
    """Whether these bytes are well-formed entries, all of this key."""
    try:
        message = pb.DataMap.FromString(entries)
    except DecodeError:
        return False
    # An entry with a field that map entries do not have is an unknown field of the message for protobuf.
    return len(message.mapItems) == 1 and key in message.mapItems and not len(UnknownFieldSet(message))
