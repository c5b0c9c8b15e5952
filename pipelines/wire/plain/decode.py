"""Messages to columns: the entries of each key become a column, and protobuf checks a column at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

from pipelines.data.columns import Column, WireColumn
from pipelines.data.data import Data, check_key
from pipelines.data.sparsecolumn import SparseColumn, by_key, divide, in_form
from pipelines.errors import ReservedKeyError, WireError, without_traceback
from pipelines.wire.columns import EntryDecoder, ReadColumns, ReadOptions
from pipelines.wire.plain.records import (
    METADATA,
    PART_BYTES,
    Record,
    all_begin_with,
    checked_record,
    cut,
    key_of,
    metadata_of,
    raw_key,
    rewritten,
)
from pipelines.wire.plain.values import read_values
from protos import data_pb2 as pb


def decode(values: Sequence[Any], wanted: frozenset[str], options: ReadOptions) -> ReadColumns:
    """`pipelines.wire.columns.decode_columns` in plain Python."""
    messages = list(values)
    records, failed = _records(messages, options)
    table = _table(records, wanted, options)
    if table.unsound:
        # None of these is left in the second table: protobuf writes sound entries only.
        for row in table.unsound:
            try:
                records[row] = rewritten(bytes(messages[row]))
            except WireError as error:
                failed[row] = without_traceback(error)
                del records[row]
        table = _table(records, wanted, options)
    metadata: dict[int, Data | None] = {}
    for row in table.with_metadata:
        try:
            metadata[row] = metadata_of(bytes(messages[row]), options)
        except WireError as error:
            table.failed.setdefault(row, without_traceback(error))
    rows = np.array(list(records), np.int64)
    columns = table.columns
    if table.failed:
        kept = np.array([place for place, row in enumerate(records) if row not in table.failed], np.int64)
        rows = rows[kept]
        (taken,) = divide(columns, [kept])
        columns = in_form({key: column for key, column in taken.items() if not column.empty}, len(kept), wanted)
    listed = [metadata.get(row) for row in rows.tolist()] if metadata else None
    return ReadColumns(columns, rows, listed, failed | table.failed)


def _records(messages: Sequence[Any], options: ReadOptions) -> tuple[dict[int, Record], dict[int, WireError]]:
    """The entries of the messages by their positions, and the errors of those that are no messages."""
    records: dict[int, Record] = {}
    failed: dict[int, WireError] = {}
    # A message of fewer bytes cannot exceed a limit.
    short = min(options.safe_bytes, options.limits.max_keys)
    for row, message in enumerate(messages):
        if message is None:
            continue
        record = cut(message) if type(message) is bytes and len(message) <= short else None
        if record is None:
            try:
                record = checked_record(message, options)
            except WireError as error:
                failed[row] = without_traceback(error)
                continue
        records[row] = record
    return records, failed


class _Table(NamedTuple):
    columns: dict[str, Column]
    """Key to its column, with a row for each record."""
    failed: dict[int, WireError]
    """Position to the error of a message with a wrong value or a reserved key."""
    with_metadata: list[int]
    """Positions of the messages with metadata."""
    unsound: set[int]
    """Positions of the messages with an entry that is broken, or of another key than it seems to be."""


def _table(records: dict[int, Record], wanted: frozenset[str], options: ReadOptions) -> _Table:
    table = _Table({}, {}, [], set())
    positions, size = list(records), len(records)
    cells = _by_place(list(records.values()))
    if cells is None:
        keyed = [{raw_key(entry): entry for entry in record} for record in records.values()]
        # Of a key that is twice in a message, protobuf knows which entry counts.
        table.unsound.update(
            row for (row, record), entries in zip(records.items(), keyed, strict=True) if len(entries) < len(record)
        )
        cells = by_key(keyed, None)
    for raw, places, entries in cells:
        having = _having(entries) if places is None else places
        rows = [positions[place] for place in having] if len(having) < size else positions
        if raw == METADATA:
            table.with_metadata.extend(rows)
            continue
        key = key_of(raw)
        if key is None:
            table.unsound.update(rows)
            continue
        if key in wanted:
            every = entries if places is None else _spread(places, entries, size)
            column, failed, unsound = read_values(key, every, options)
            table.failed.update((positions[place], error) for place, error in failed.items())
            table.unsound.update(positions[place] for place in unsound)
        else:
            column = WireColumn(entries, EntryDecoder(key, options))
            if places is not None:
                column = SparseColumn(size, places, column)
            table.unsound.update(_unsound(key, rows, [entry for entry in entries if entry is not None]))
        table.columns[key] = column
        try:
            check_key(key)
        except ReservedKeyError as error:
            table.failed.update((row, WireError(str(error))) for row in rows)
    return table


Cells: TypeAlias = Iterable[tuple[bytes, list[int] | None, list[Any]]]
"""Raw keys with their places and entries, as `pipelines.data.sparsecolumn.by_key` gives them."""


def _by_place(records: Sequence[Record]) -> Cells | None:
    """The entries of each key, if all messages have the keys of the first one, in its order; else `None`."""
    keys = [raw_key(entry) for entry in records[0]] if records else []
    if len(set(keys)) < len(keys):
        return None
    try:
        columns = [list(column) for column in zip(*records, strict=True)]
    except ValueError:
        return None
    if not all(map(all_begin_with, keys, columns)):
        return None
    return [(key, None, column) for key, column in zip(keys, columns, strict=True)]


def _having(entries: Sequence[bytes | None]) -> Sequence[int]:
    """The places that have an entry."""
    if None not in entries:
        return range(len(entries))
    return [place for place, entry in enumerate(entries) if entry is not None]


def _spread(places: Sequence[int], entries: Sequence[bytes], size: int) -> list[bytes | None]:
    """The entries at their places among `size`, `None` at all others."""
    spread: list[bytes | None] = [None] * size
    for place, entry in zip(places, entries, strict=True):
        spread[place] = entry
    return spread


def _unsound(key: str, rows: Sequence[int], entries: Sequence[bytes]) -> Iterator[int]:
    """The rows whose entry is broken or not of this key. Entries are parsed together: most are sound."""
    step = max(1, PART_BYTES // len(entries[0]))
    for start in range(0, len(entries), step):
        yield from _unsound_of_part(key, rows[start : start + step], entries[start : start + step])


def _unsound_of_part(key: str, rows: Sequence[int], entries: Sequence[bytes]) -> Iterator[int]:
    if _is_sound(key, b"".join(entries)):
        return
    if len(rows) == 1:
        yield rows[0]
        return
    # Search by halves: a few unsound entries among many are found without parsing each.
    middle = len(rows) // 2
    yield from _unsound_of_part(key, rows[:middle], entries[:middle])
    yield from _unsound_of_part(key, rows[middle:], entries[middle:])


def _is_sound(key: str, entries: bytes) -> bool:
    """Whether these bytes are well-formed entries, all of this key."""
    try:
        message = pb.DataMap.FromString(entries)
    except DecodeError:
        return False
    # An entry with a field that map entries do not have is an unknown field of the message for protobuf.
    return len(message.mapItems) == 1 and key in message.mapItems and not len(UnknownFieldSet(message))
