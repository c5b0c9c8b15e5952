"""The entries of one key to a column of values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from google.protobuf.message import DecodeError

from pipelines.data.columns import MISSING, Column, DenseColumn, RaggedColumn
from pipelines.data.spans import Bytes, Ints, Spans
from pipelines.errors import DataError, RowsFailed, WireError
from pipelines.values.ndarray import MAX_RANK, Array, array_type, from_buffer
from pipelines.wire.columns import ReadOptions
from pipelines.wire.plain.arrays import array_bytes, array_prefix
from pipelines.wire.plain.windows import begin_with, put_windows, windows
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
        broken = {row: WireError.unreadable(key, "its entry is broken") for row in unsound}
        raise RowsFailed({**failed, **broken})
    return column


def read_values(key: str, entries: Spans, options: ReadOptions) -> ReadValues:
    """The column of the entries of one key, null for a row that lacks it.

    It is dense or ragged where the values allow it (see `pipelines.data.columns`). Values of a type that this version
    does not know are missing, as in `pipelines.wire.protobuf.decode`.
    """
    groups: list[_Alike] = []
    left: list[Ints] = []
    for rows in sorted(by_length(entries.lengths), key=len, reverse=True):
        # A single row is looked at twice only where others have arrays.
        alike = _arrays_alike(key, entries, rows, options) if groups or len(rows) > 1 else None
        if alike is not None:
            groups.append(alike)
            rows = np.setdiff1d(rows, alike.rows) if len(alike.rows) < len(rows) else rows[:0]
        if len(rows):
            left.append(rows)
    if groups and sum(len(alike.rows) for alike in groups) == len(entries):
        column = _of_arrays(entries.buffer, groups)
        if column is not None:
            return ReadValues(column, {}, [])
    values: list[Any] = [MISSING] * len(entries)
    failed: dict[int, WireError] = {}
    unsound = []
    for alike in groups:
        for row, array in zip(alike.rows.tolist(), DenseColumn(alike.arrays(entries.buffer)).values(), strict=True):
            values[row] = array
    others = np.concatenate([entries.lengths[:0], *left])
    for row, entry in zip(others.tolist(), entries.take(others).tolist(), strict=True):
        try:
            values[row] = _value(key, entry or b"", options)
        except DecodeError:
            unsound.append(row)
        except (WireError, DataError) as error:
            failed[row] = WireError.unreadable(key, error)
    return ReadValues(Column.of(values), failed, unsound)


def by_length(lengths: Ints) -> Iterator[Ints]:
    """The rows of entries of equal length, without those that have none."""
    for length in set(lengths.tolist()) - {-1}:
        yield (lengths == length).nonzero()[0]


class _Alike(NamedTuple):
    """Rows with arrays of one dtype and shape."""

    rows: Ints
    starts: Ints
    """Where the bytes of each array begin in the buffer of the entries."""
    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    def arrays(self, buffer: Bytes) -> Array:
        """The arrays of all rows, `(len(rows), ...)`."""
        memory = windows(buffer, self.starts, array_bytes(self.dtype, self.shape))
        return from_buffer(memory.reshape(-1).data, (len(memory), *self.shape), array_type(self.dtype))


def _of_arrays(buffer: Bytes, groups: list[_Alike]) -> Column | None:
    """The column of these arrays; `None` if they agree neither in their shapes nor in all axes but the first."""
    if len(groups) == 1:
        return DenseColumn(groups[0].arrays(buffer))
    dtype, shape = groups[0].dtype, groups[0].shape
    if not all(alike.shape and (alike.dtype, alike.shape[1:]) == (dtype, shape[1:]) for alike in groups):
        return None
    lengths = np.empty(sum(len(alike.rows) for alike in groups), np.int64)
    for alike in groups:
        lengths[alike.rows] = alike.shape[0]
    splits = np.concatenate([[0], lengths.cumsum()])
    width = array_bytes(dtype, shape[1:])
    memory = np.empty(int(splits[-1]) * width, np.uint8)
    for alike in groups:
        put_windows(memory, splits[alike.rows] * width, windows(buffer, alike.starts, alike.shape[0] * width))
    samples = from_buffer(memory.data, (int(splits[-1]), *shape[1:]), array_type(dtype))
    return RaggedColumn(samples, splits)


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
    prefix = array_prefix(key, first.dtype, first.shape)
    if len(entry) != len(prefix) + array_bytes(first.dtype, first.shape) or not entry.startswith(prefix):
        return None
    # The prefix says how long the entry is and all that is in it: equal length and an equal prefix are all the proof.
    starts = entries.starts[rows]
    alike = begin_with(entries.buffer, starts, starts + len(entry), prefix)
    return _Alike(rows[alike], starts[alike] + len(prefix), first.dtype, first.shape)


def _value(key: str, entry: bytes, options: ReadOptions) -> Any:
    """The value of an entry as protobuf reads it. Raises `DecodeError` if it is broken or of another key."""
    scheme = pb.DataMap.FromString(entry).mapItems.get(key)
    if scheme is None:
        raise DecodeError("it is no entry of this key")
    value = value_of(scheme, options.limits, float_lists=options.float_lists)
    return MISSING if value is UNKNOWN else value
