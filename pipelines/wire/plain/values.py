"""The entries of one key to a column of values."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from google.protobuf.message import DecodeError

from pipelines.data.columns import MISSING, Column, DenseColumn
from pipelines.errors import DataError, RowsFailed, WireError
from pipelines.values.ndarray import MAX_RANK, Array, array_type, from_buffer
from pipelines.wire.columns import ReadOptions
from pipelines.wire.plain.arrays import array_bytes, array_prefix
from pipelines.wire.plain.records import PART_BYTES
from pipelines.wire.protobuf import UNKNOWN, value_of
from protos import data_pb2 as pb

Entries = Sequence[bytes | None]
"""The entries of one key, as `pipelines.wire.plain.records` cuts them; `None` for a row that lacks the key."""


class ReadValues(NamedTuple):
    """The result of reading N entries of one key."""

    column: Column
    """N rows; the key is missing where there was no entry, or none that could be read."""
    failed: dict[int, WireError]
    """Row to the error of its value."""
    unsound: list[int]
    """Rows whose entry is broken, or of another key than it seems to be."""


def decoded(key: str, entries: Entries, options: ReadOptions) -> Column:
    """The column of these entries. Raises `RowsFailed` naming the rows that cannot be decoded."""
    column, failed, unsound = read_values(key, entries, options)
    if failed or unsound:
        broken = {row: WireError(f'key "{key}" cannot be read: its entry is broken') for row in unsound}
        raise RowsFailed({**failed, **broken})
    return column


def read_values(key: str, entries: Entries, options: ReadOptions) -> ReadValues:
    """The column of these entries: dense or ragged where the values allow it (see `pipelines.data.columns`).

    Values of a type that this version does not know are missing, as in `pipelines.wire.protobuf.decode`.
    """
    values: list[Any] = [MISSING] * len(entries)
    failed: dict[int, WireError] = {}
    unsound = []
    for rows in _by_length(entries):
        alike = _arrays_alike(key, entries, rows, options) if len(rows) > 1 else None
        if alike is not None:
            if len(alike.rows) == len(entries):
                return ReadValues(DenseColumn(alike.arrays), {}, [])
            for place, row in enumerate(alike.rows):
                values[row] = alike.arrays[place, ...]
        for row in rows if alike is None else sorted(set(rows).difference(alike.rows)):
            try:
                values[row] = _value(key, entries[row] or b"", options)
            except DecodeError:
                unsound.append(row)
            except (WireError, DataError) as error:
                failed[row] = WireError(f'key "{key}" cannot be read: {error}')
    return ReadValues(Column.of(values), failed, unsound)


def _by_length(entries: Entries) -> Iterable[Sequence[int]]:
    """The rows of entries of equal length."""
    if None not in entries and len(set(map(len, entries))) == 1:  # type: ignore[arg-type]
        return [range(len(entries))]
    rows: dict[int, list[int]] = defaultdict(list)
    for row, entry in enumerate(entries):
        if entry is not None:
            rows[len(entry)].append(row)
    return rows.values()


class _Alike(NamedTuple):
    rows: list[int]
    arrays: Array
    """The arrays of these rows, `(len(rows), ...)`."""


def _arrays_alike(key: str, entries: Sequence[Any], rows: Sequence[int], options: ReadOptions) -> _Alike | None:
    """Of these rows, whose entries are equally long, those with an array of the dtype and shape of the first one's.

    `None` if there are none, or the first entry is no array as protobuf itself writes it.
    """
    try:
        first = _value(key, entries[rows[0]], options)
    except (DecodeError, WireError, DataError):
        return None
    if not isinstance(first, np.ndarray) or first.ndim >= MAX_RANK:
        return None
    prefix = array_prefix(key, first.dtype, first.shape)
    if len(entries[rows[0]]) != len(prefix) + array_bytes(first.dtype, first.shape):
        return None
    # The prefix says how long the entry is and all that is in it: equal length and an equal prefix are all the proof.
    alike = [row for row in rows if entries[row].startswith(prefix)]
    if not alike:
        return None
    length, start = len(entries[alike[0]]), len(prefix)
    memory = np.empty((len(alike), length - start), np.uint8)
    step = max(1, PART_BYTES // length)
    for first_row in range(0, len(alike), step):
        some = alike[first_row : first_row + step]
        joined = np.frombuffer(b"".join([entries[row] for row in some]), np.uint8)
        memory[first_row : first_row + step] = joined.reshape(-1, length)[:, start:]
    return _Alike(alike, from_buffer(memory.reshape(-1).data, (len(alike), *first.shape), array_type(first.dtype)))


def _value(key: str, entry: bytes, options: ReadOptions) -> Any:
    """The value of an entry as protobuf reads it. Raises `DecodeError` if it is broken or of another key."""
    scheme = pb.DataMap.FromString(entry).mapItems.get(key)
    if scheme is None:
        raise DecodeError("it is no entry of this key")
    value = value_of(scheme, options.limits, float_lists=options.float_lists)
    return MISSING if value is UNKNOWN else value
