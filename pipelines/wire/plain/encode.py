"""Columns to messages: each column gives its entries, and the message of a row is its entries joined."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np

from pipelines.data.batch import Batch
from pipelines.data.columns import MISSING, Column, DenseColumn
from pipelines.data.data import Data
from pipelines.data.entries import Entries
from pipelines.data.spans import Spans
from pipelines.data.sparsecolumn import SparseColumn
from pipelines.data.wirecolumn import WireColumn
from pipelines.errors import DataError, MissingPackageError, RowsFailed, WireError, without_traceback
from pipelines.values.ndarray import in_order
from pipelines.values.valuetype import ValueType
from pipelines.wire.columns import EntryDecoder, WrittenColumns
from pipelines.wire.plain.arrays import array_bytes, array_prefix
from pipelines.wire.protobuf import SCALAR_FIELDS, encode, encode_entry
from protos import data_pb2 as pb

_SHORT: Final = 1024
"""Arrays of up to this many bytes are copied once more, which costs less than handling them one by one."""
Failures: TypeAlias = dict[int, Exception]
"""Row to the error of its value. The writer of a column adds the errors of rows that it cannot write."""

LONGEST_KEY: Final = 256
"""Longest key for whose arrays the bytes in front are cached: keys may come from untrusted clients."""


def encode_batch(batch: Batch) -> WrittenColumns:
    """`pipelines.wire.columns.encode_columns` in plain Python."""
    failed: Failures = {}
    common, rare = divided(batch)
    parts: list[Sequence[Any]] = []
    for key, column in common.items():
        kept = undecoded_entries(key, column)
        if kept is None:
            parts.extend(_parts(key, column, failed))
        elif column.mask is None and (both := _side_by_side(parts, kept)) is not None:
            parts[-1] = both
        else:
            parts.append(kept if column.mask is None else [entry or b"" for entry in kept])
    if rare:
        parts.append(rare_entries(rare, batch.size, failed))
    if batch.metadata is not None:
        parts.append(metadata_entries(batch.metadata, failed))
    messages: list[bytes | None] = [b""] * batch.size
    if parts:
        messages = list(map(b"".join, zip(*parts, strict=True)))
    for row in failed:
        messages[row] = None
    return WrittenColumns(messages, failed)


def _side_by_side(parts: Sequence[Sequence[Any]], entries: Entries) -> Spans | None:
    """The last of the parts and these entries in one, if they are neighbours in the messages that came in.

    Keys that pass through often are: a message `x, device_id, ts` has the entry of `ts` right behind that of
    `device_id`, and both are copied as one string.
    """
    last = parts[-1] if parts else None
    if not isinstance(last, Spans) or not isinstance(entries, Spans) or last.buffer is not entries.buffer:
        return None
    if not np.array_equal(last.starts + last.lengths, entries.starts):
        return None
    return Spans(last.buffer, last.starts, last.lengths + entries.lengths)


def divided(batch: Batch) -> tuple[dict[str, Column], dict[str, SparseColumn]]:
    """The columns of keys that many rows have, and those of rare keys, whose entries come last in a message."""
    columns = {key: batch.column(key) for key in batch.columns}
    rare = {key: column for key, column in columns.items() if isinstance(column, SparseColumn)}
    return {key: column for key, column in columns.items() if key not in rare}, rare


def rare_entries(columns: Mapping[str, SparseColumn], size: int, failed: Failures) -> list[bytes]:
    """The entries of all these keys that each of `size` rows has, joined."""
    entries: dict[int, list[bytes]] = {}
    for key, column in columns.items():
        kept = undecoded_entries(key, column.column)
        if kept is not None:
            cells = list(zip(column.rows, kept, strict=True))
        else:
            cells = [(row, _entry(key, value, row, failed)) for row, value in column.cells(failed)]
        for row, entry in cells:
            entries.setdefault(row, []).append(entry or b"")
    return [b"".join(entries[row]) if row in entries else b"" for row in range(size)]


def metadata_entries(metadata: Sequence[Data | None], failed: Failures) -> list[bytes]:
    """The metadata of each row as entries of its message."""
    return [
        b"" if data is None else _written(partial(encode, Data.trusted({}, data)), row, failed)
        for row, data in enumerate(metadata)
    ]


def entries_of(key: str, column: Column, failed: Failures) -> list[bytes]:
    """The entry of each row; `b""` for rows without one."""
    kept = undecoded_entries(key, column)
    if kept is not None:
        return [entry or b"" for entry in kept]
    values = _values(column, failed)
    if column.type in SCALAR_FIELDS:
        return _scalar_entries(key, column.type, values, failed)
    return [_entry(key, value, row, failed) for row, value in enumerate(values)]


def undecoded_entries(key: str, column: Column) -> Entries | None:
    """The entries of a column that was never decoded, to be written as they are; `None` if they are not of this key."""
    if isinstance(column, WireColumn) and isinstance(column.decoder, EntryDecoder) and column.decoder.key == key:
        return column.entries
    return None


def _parts(key: str, column: Column, failed: Failures) -> list[Sequence[Any]]:
    """The entry of each row, in one part or two."""
    if isinstance(column, DenseColumn) and column.type is ValueType.NDARRAY and len(key) <= LONGEST_KEY:
        try:
            return _array_parts(key, column)
        except (WireError, DataError):
            # The array cannot be written: each row fails by itself.
            pass
    return [entries_of(key, column, failed)]


def _array_parts(key: str, column: DenseColumn) -> list[Sequence[Any]]:
    array = column.storage
    count, *shape = array.shape
    prefix = np.frombuffer(array_prefix(key, array.dtype, tuple(shape)), np.uint8)
    memory = in_order(array, "little").reshape(-1).view(np.uint8).reshape(count, array_bytes(array.dtype, tuple(shape)))
    parts: list[list[Any]]
    if memory.shape[1] > _SHORT:
        # The memory of each row's array is copied only when the message is joined.
        parts = [[prefix.tobytes()] * count, list(memory)]
    else:
        entries = np.empty((count, len(prefix) + memory.shape[1]), np.uint8)
        entries[:, : len(prefix)], entries[:, len(prefix) :] = prefix, memory
        # Rows as one element each: numpy gives all of them in one call.
        parts = [entries.view(f"V{entries.shape[1]}").reshape(-1).tolist()]
    if column.mask is not None:
        for row in np.flatnonzero(~column.mask).tolist():
            for part in parts:
                part[row] = b""
    return [*parts]


def _scalar_entries(key: str, type: ValueType, values: Sequence[Any], failed: Failures) -> list[bytes]:
    """The entries of values of a type with a field of its own, written by one protobuf message, which is used again."""
    message = pb.DataMap()
    try:
        scheme = message.mapItems[key]
    except ValueError:
        return [_entry(key, value, row, failed) for row, value in enumerate(values)]
    scheme.type = type  # type: ignore[assignment]
    field = SCALAR_FIELDS[type]
    entries = []
    for row, value in enumerate(values):
        if value is MISSING:
            entries.append(b"")
            continue
        try:
            setattr(scheme, field, value)
        except (TypeError, ValueError):
            # It fails here, too, with an error for the user.
            entries.append(_entry(key, value, row, failed))
        else:
            entries.append(message.SerializeToString(deterministic=True))
    return entries


def _entry(key: str, value: Any, row: int, failed: Failures) -> bytes:
    return b"" if value is MISSING else _written(partial(encode_entry, key, value), row, failed)


def _written(write: Callable[[], bytes], row: int, failed: Failures) -> bytes:
    try:
        return write()
    except MissingPackageError:
        raise
    except (WireError, DataError) as error:
        failed.setdefault(row, without_traceback(error))
        return b""


def _values(column: Column, failed: Failures) -> list[Any]:
    try:
        return column.values()
    except RowsFailed as error:
        failed.update(error.failures)
        return [MISSING if row in error.failures else column[row] for row in range(len(column))]
