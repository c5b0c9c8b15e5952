"""ProtoData messages to columns, many at a time.

What a parser costs is paid once for many messages. Entries of one key are put one after the other, which makes them
one message, and what protobuf says of it holds for each of them. Keys that are wanted are read by layout
(`pipelines.wire.layouts`), a whole column at once. Everything unusual goes through `pipelines.wire.protobuf`, one
message or one entry at a time: that module says what is right, this one is fast.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

from pipelines.data.columns import Column, Entries, Rows, WireColumn
from pipelines.data.data import Data, check_key
from pipelines.data.spans import Spans
from pipelines.data.sparsecolumn import SparseColumn, divide, in_form, is_rare
from pipelines.errors import ReservedKeyError, RowsFailed, WireError
from pipelines.hotpath import HotPath, compiled
from pipelines.wire.entries import (
    Cells,
    FewEntries,
    Frames,
    ReadOptions,
    bare,
    by_key,
    by_place,
    cut,
    entry_rows,
    key_of,
    metadata_of,
    plain,
)
from pipelines.wire.layouts import PART_BYTES
from pipelines.wire.limits import DEFAULT_LIMITS, Limits
from pipelines.wire.protobuf import FloatLists
from pipelines.wire.values_read import read_values
from protos import data_pb2 as pb


class ReadColumns(NamedTuple):
    """What became of N messages."""

    columns: dict[str, Column]
    """Key to its column; each has a row for each of `rows`."""
    rows: Rows
    """Positions of the messages that could be read, `int64`, rising."""
    metadata: list[Data | None] | None
    """The metadata of each of `rows`; `None` if none has any."""
    failed: dict[int, WireError]
    """Position to what is wrong with the message. Positions of `None` are neither here nor in `rows`."""


@dataclass(frozen=True, slots=True)
class EntryDecoder:
    """Decodes a `WireColumn` of one key; two of the same key and options are equal."""

    key: str
    options: ReadOptions

    def __call__(self, entries: Entries) -> Column:
        """The column of these entries. Raises `RowsFailed` naming those that cannot be decoded."""
        if isinstance(entries, Spans):
            found = _column_of_spans(self.key, entries, self.options)
            if found is not None:
                return found
            entries = entries.tolist()
        column, failed, odd = read_values(self.key, entries, self.options)
        if failed or odd:
            refused = {row: WireError(f'key "{self.key}" cannot be read: its entry is broken') for row in odd}
            raise RowsFailed({**failed, **refused})
        return column


ColumnsReader = Callable[[Sequence[Any], frozenset[str]], ReadColumns]
"""Reads messages into columns, of which those of the keys in the set are decoded."""


def columns_reader(
    limits: Limits = DEFAULT_LIMITS, *, float_lists: FloatLists = "exact", hot_path: HotPath = "auto"
) -> ColumnsReader:
    """What `decode_columns` does, with everything but the messages chosen beforehand."""
    return _reader(compiled(hot_path), ReadOptions(limits, float_lists))


def decode_columns(
    values: Sequence[Any],
    wanted: frozenset[str] | None = None,
    limits: Limits = DEFAULT_LIMITS,
    *,
    float_lists: FloatLists = "exact",
    hot_path: HotPath = "auto",
) -> ReadColumns:
    """The columns of many ProtoData messages, each `bytes`, or `None` (a tombstone), which is passed over.

    Keys that are `wanted` are decoded and checked; all others are checked to be well-formed protobuf and stay as they
    are (`WireColumn`). A message fails if `pipelines.wire.protobuf.decode` refuses it, but not for the value of a key
    that is not wanted: that shows when it is decoded, if it ever is. The compiled hot path gives the same columns, but
    for strings, which stay spans (`SpansColumn`) of `values`, as undecoded entries do, if `values` are `Spans`.
    """
    return columns_reader(limits, float_lists=float_lists, hot_path=hot_path)(values, wanted or frozenset())


def decode_in_python(values: Sequence[Any], wanted: frozenset[str], options: ReadOptions) -> ReadColumns:
    """`decode_columns` without the compiled hot path."""
    return _decode(list(values), wanted, options, options.surely)


@lru_cache(maxsize=64)
def _reader(native: Any, options: ReadOptions) -> ColumnsReader:
    if native is None:
        return partial(decode_in_python, options=options)
    # It needs this module for what it leaves to protobuf.
    from pipelines.wire.compiled_read import CompiledReader

    return CompiledReader(native, options)


def _column_of_spans(key: str, entries: Spans, options: ReadOptions) -> Column | None:
    from pipelines.wire.compiled_read import CompiledReader

    reader = _reader(compiled(), options)
    return reader.column(key, entries) if isinstance(reader, CompiledReader) else None


def _decode(values: Sequence[Any], wanted: frozenset[str], options: ReadOptions, longest: int) -> ReadColumns:
    frames = cut(values, longest, options.limits.max_keys)
    mended, failed = _mended(values, frames.odd, options)
    table = None
    if not mended:
        table = _table(frames, wanted, options)
        mended, broken = _mended(values, table.odd, options)
        # What is wrong with a value of an odd message may be wrong with one that does not count.
        failed.update({row: error for row, error in table.failed.items() if row not in mended} | broken)
    if table is None or mended:
        # Whoever is plain now is plain to the end, so this happens twice at most.
        again = [mended.get(row, None if row in failed else payload) for row, payload in enumerate(values)]
        found = _decode(again, wanted, options, sys.maxsize)
        return found._replace(failed=failed | found.failed)
    return _finished(values, frames, table.columns, failed, wanted, options)


class _Table(NamedTuple):
    columns: dict[str, Column]
    odd: list[int]
    failed: dict[int, WireError]


def _table(frames: Frames, wanted: frozenset[str], options: ReadOptions) -> _Table:
    """The columns over all of `frames.rows`, and the positions of the messages that do not belong there."""
    cells = by_place(frames)
    table = None if cells is None else _columns(frames, cells, wanted, options, placed=True)
    if table is not None:
        return table
    cells, odd = by_key(frames)
    table = _columns(frames, cells, wanted, options, placed=False)
    assert table is not None
    table.odd.extend(frames.rows[index] for index in odd)
    return table


def _columns(
    frames: Frames, cells: Cells, wanted: frozenset[str], options: ReadOptions, *, placed: bool
) -> _Table | None:
    """`None` if entries were put into columns by their place and turn out to be of other keys."""
    size = len(frames.rows)
    table = _Table({}, [], {})
    rare: dict[int, dict[str, bytes]] = {}
    for key, entries in cells.items():
        rows = entry_rows(entries)
        if key in wanted:
            column, wrong, odd = read_values(key, _spread(entries, size), options)
            table.failed.update((frames.rows[index], error) for index, error in wrong.items())
        elif is_rare(len(rows), size):
            few = [entries[row] for row in rows]
            column, odd = SparseColumn(size, rows, WireColumn(few, EntryDecoder(key, options))), []
            for index, entry in zip(rows, few, strict=True):
                rare.setdefault(index, {})[key] = entry or b""
        else:
            entries = _spread(entries, size)
            column, odd = WireColumn(entries, EntryDecoder(key, options)), _malformed(key, entries)
        if odd:
            if placed and any(key_of(entries[index] or b"") != key.encode() for index in odd):
                return None
            table.odd.extend(frames.rows[index] for index in odd)
        table.columns[key] = column
        try:
            check_key(key)
        except ReservedKeyError as error:
            table.failed.update((frames.rows[index], WireError(str(error))) for index in rows)
    table.odd.extend(frames.rows[index] for index, entries in rare.items() if not _are_sound(entries))
    return table


def _spread(entries: list[bytes | None] | FewEntries, size: int) -> list[bytes | None]:
    """A place for each of `size` rows."""
    return entries if isinstance(entries, list) else [entries[row] for row in range(size)]


def _are_sound(entries: Mapping[str, bytes]) -> bool:
    """Whether these entries of one message are well-formed, each of its key."""
    try:
        message = pb.DataMap.FromString(b"".join(entries.values()))
    except DecodeError:
        return False
    return message.mapItems.keys() == entries.keys() and not len(UnknownFieldSet(message))


def _malformed(key: str, entries: Sequence[bytes | None]) -> list[int]:
    """The rows whose entry is no well-formed entry of this key."""
    rows = range(len(entries)) if None not in entries else _filled(entries)
    if _sound(key, entries, rows):
        return []
    raw = key.encode()
    strangers = [row for row in rows if key_of(entries[row] or b"") != raw]
    return strangers or list(_unsound(key, entries, rows))


def _unsound(key: str, entries: Sequence[bytes | None], rows: Sequence[int]) -> Iterable[int]:
    """Search by halves: a few broken ones among many are found without parsing each."""
    if _sound(key, entries, rows):
        return
    if len(rows) == 1:
        yield rows[0]
        return
    middle = len(rows) // 2
    yield from _unsound(key, entries, rows[:middle])
    yield from _unsound(key, entries, rows[middle:])


def _sound(key: str, entries: Sequence[bytes | None], rows: Sequence[int]) -> bool:
    """Whether all these rows' entries are well-formed and of this key and no other."""
    some = entries if len(rows) == len(entries) else [entries[row] for row in rows]
    # In parts: a message of megabytes would be parsed into fresh memory, which costs more than the parsing.
    step = max(1, PART_BYTES // max(len(some[0] or b""), 1)) if some else 1
    for start in range(0, len(some), step):
        try:
            message = pb.DataMap.FromString(b"".join(some[start : start + step]))  # type: ignore[arg-type]
        except DecodeError:
            return False
        # An entry with a field that map entries have not got is, to protobuf, no entry but an unknown field.
        if len(message.mapItems) != 1 or key not in message.mapItems or len(UnknownFieldSet(message)):
            return False
    return True


def _filled(entries: Sequence[bytes | None]) -> list[int]:
    return [row for row, entry in enumerate(entries) if entry is not None]


def _mended(
    values: Sequence[Any], rows: Iterable[int], options: ReadOptions
) -> tuple[dict[int, bytes], dict[int, WireError]]:
    """Odd messages as plain ones, and what is wrong with those that are no messages."""
    mended: dict[int, bytes] = {}
    broken: dict[int, WireError] = {}
    for row in rows:
        try:
            mended[row] = plain(values[row], options)
        except WireError as error:
            broken[row] = bare(error)
    return mended, broken


def _finished(
    values: Sequence[Any],
    frames: Frames,
    columns: dict[str, Column],
    failed: dict[int, WireError],
    wanted: frozenset[str],
    options: ReadOptions,
) -> ReadColumns:
    metadata: dict[int, Data | None] = {}
    for row, entries in frames.metadata.items():
        try:
            metadata[row] = metadata_of(entries, values[row], options)
        except WireError as error:
            failed.setdefault(row, bare(error))
    rows = np.array(frames.rows, np.int64)
    kept = [index for index, row in enumerate(frames.rows) if row not in failed] if failed else frames.rows
    if len(kept) < len(frames.rows):
        index = np.array(kept, np.int64)
        rows = rows[index]
        (taken,) = divide(columns, [index])
        # A key that only failed messages had is gone with them.
        columns = in_form({key: column for key, column in taken.items() if not column.empty}, len(kept), wanted)
    listed = [metadata.get(row) for row in rows.tolist()] if metadata else None
    return ReadColumns(columns, rows, listed, failed)
