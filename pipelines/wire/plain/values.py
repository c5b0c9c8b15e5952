"""The entries of one key to a column of values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from google.protobuf.message import DecodeError

from pipelines.data.columns import MISSING, Column, DenseColumn
from pipelines.data.spans import Ints, Spans
from pipelines.errors import DataError, RowsFailed, WireError
from pipelines.values.ndarray import MAX_RANK, Array, array_type, from_buffer
from pipelines.wire.columns import ReadOptions
from pipelines.wire.plain.arrays import array_bytes, array_prefix
from pipelines.wire.plain.windows import begin_with, windows
from pipelines.wire.protobuf import UNKNOWN, value_of
from protos import data_pb2 as pb


class ReadValues(NamedTuple):
    """The result of reading N entries of one key."""

    column: Column
    """N rows; the key is missing where there was no entry, or none that could be read."""
    failed: dict[int, WireError]
    """Row to the error of its value."""
    unsound: list[int]
    """Rows whose entry is broken, or of another key than it seems to be."""


def decoded(key: str, entries: Spans, options: ReadOptions) -> Column:
    """The column of these entries. Raises `RowsFailed` naming the rows that cannot be decoded."""
    column, failed, unsound = read_values(key, entries, options)
    if failed or unsound:
        broken = {row: WireError(f'key "{key}" cannot be read: its entry is broken') for row in unsound}
        raise RowsFailed({**failed, **broken})
    return column


def read_values(key: str, entries: Spans, options: ReadOptions) -> ReadValues:
    """The column of the entries of one key, null for a row that lacks it.

    It is dense or ragged where the values allow it (see `pipelines.data.columns`). Values of a type that this version
    does not know are missing, as in `pipelines.wire.protobuf.decode`.
    """
    values: list[Any] = [MISSING] * len(entries)
    failed: dict[int, WireError] = {}
    unsound = []
    for rows in by_length(entries.lengths):
        alike = _arrays_alike(key, entries, rows, options) if len(rows) > 1 else None
        if alike is not None:
            if len(alike.rows) == len(entries):
                return ReadValues(DenseColumn(alike.arrays), {}, [])
            for place, row in enumerate(alike.rows.tolist()):
                values[row] = alike.arrays[place, ...]
            rows = np.setdiff1d(rows, alike.rows)
        for row, entry in zip(rows.tolist(), entries.take(rows).tolist(), strict=True):
            try:
                values[row] = _value(key, entry or b"", options)
            except DecodeError:
                unsound.append(row)
            except (WireError, DataError) as error:
                failed[row] = WireError(f'key "{key}" cannot be read: {error}')
    return ReadValues(Column.of(values), failed, unsound)


def by_length(lengths: Ints) -> Iterator[Ints]:
    """The rows of entries of equal length, without those that have none."""
    for length in set(lengths.tolist()) - {-1}:
        yield (lengths == length).nonzero()[0]


class _Alike(NamedTuple):
    rows: Ints
    arrays: Array
    """The arrays of these rows, `(len(rows), ...)`."""


def _arrays_alike(key: str, entries: Spans, rows: Ints, options: ReadOptions) -> _Alike | None:
    """Of these rows, whose entries are equally long, those with an array of the dtype and shape of the first one's.

    `None` if the first entry is no array as protobuf itself writes it.
    """
    entry = entries[int(rows[0])] or b""
    try:
        first = _value(key, entry, options)
    except (DecodeError, WireError, DataError):
        return None
    if not isinstance(first, np.ndarray) or first.ndim >= MAX_RANK:
        return None
    prefix, width = array_prefix(key, first.dtype, first.shape), array_bytes(first.dtype, first.shape)
    if len(entry) != len(prefix) + width or not entry.startswith(prefix):
        return None
    # The prefix says how long the entry is and all that is in it: equal length and an equal prefix are all the proof.
    starts = entries.starts[rows]
    alike = begin_with(entries.buffer, starts, starts + len(entry), prefix)
    memory = windows(entries.buffer, starts[alike] + len(prefix), width)
    shape = (len(memory), *first.shape)
    return _Alike(rows[alike], from_buffer(memory.reshape(-1).data, shape, array_type(first.dtype)))


def _value(key: str, entry: bytes, options: ReadOptions) -> Any:
    """The value of an entry as protobuf reads it. Raises `DecodeError` if it is broken or of another key."""
    scheme = pb.DataMap.FromString(entry).mapItems.get(key)
    if scheme is None:
        raise DecodeError("it is no entry of this key")
    value = value_of(scheme, options.limits, float_lists=options.float_lists)
    return MISSING if value is UNKNOWN else value
