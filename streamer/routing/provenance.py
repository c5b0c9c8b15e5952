"""The metadata of the records that the rows of a batch came from, column by column.

A row made of several records (a window) has the metadata of the first, as in `Batch.row`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from connectors.blockcolumns import take_rows
from connectors.codec import RecordsOrigin
from connectors.recordnames import RECORD_NAMES
from connectors.records import Header, Ints, Records
from pipelines.data.batch import Batch, listed_timestamps
from pipelines.data.columns import MISSING, Column, DenseColumn, ObjectColumn
from pipelines.data.data import RecordContext
from pipelines.data.rowrange import as_range
from pipelines.data.spans import Spans
from pipelines.data.spanscolumn import SpansColumn
from pipelines.values import ValueType


def record_keys(batch: Batch) -> Sequence[bytes | None] | None:
    """The rows' record keys, N of them; `None` where no row has one."""
    block = _block(batch)
    if block is None:
        return _none_if_empty([None if context is None else context.key for context in _contexts(batch)])
    records, index = block
    return None if records.keys is None else _picked(records.keys, index)


def record_headers(batch: Batch) -> Sequence[Sequence[Header] | None] | None:
    """The rows' record headers, N of them; `None` where no row has any."""
    block = _block(batch)
    if block is None:
        return _none_if_empty([None if context is None else context.headers or None for context in _contexts(batch)])
    records, index = block
    headers = records.header_column()
    return None if headers is None else _picked(headers, index)


def record_timestamps(batch: Batch) -> Ints:
    """The rows' record timestamps, `int64 (N,)` milliseconds since 1970, -1 where unknown."""
    block = _block(batch)
    if block is None:
        return listed_timestamps(_contexts(batch))
    records, index = block
    stamps_of_all = records.timestamp_column()
    return stamps_of_all if index is None else stamps_of_all[index]


def record_positions(batch: Batch) -> Ints:
    """The positions of the rows' records, `int64 (N,)`, -1 where there is no record."""
    block = _block(batch)
    if block is None:
        return np.array([-1 if context is None else context.offset for context in _contexts(batch)], np.int64)
    records, index = block
    return records.positions if index is None else records.positions[index]


def record_column(batch: Batch, name: str) -> Column:
    """The metadata `name` of the rows' records, as a column, for `into` and `{record.NAME}`.

    key, headers.NAME: the text if the bytes are UTF-8, else the bytes; a repeated header counts with its last value.
    topic, source: text. partition, offset, timestamp (milliseconds since 1970): integers. Any other name is one that
    the source declares (`Records.extras`). A row lacks the value if its record does, or if it came from no record.
    """
    if name == "key":
        return _texts(record_keys(batch), batch.size)
    if name == "timestamp":
        stamps = record_timestamps(batch)
        known = stamps >= 0
        return DenseColumn(stamps, ValueType.INT64, None if known.all() else known)
    if name.startswith("headers."):
        return _texts(header_values(record_headers(batch), name.removeprefix("headers.")), batch.size)
    block = _block(batch)
    if block is None:
        contexts = _contexts(batch)
        return Column.of([MISSING if context is None else _of_context(context, name) for context in contexts])
    return _of_block(*block, name)


def _of_block(records: Records, index: Ints | None, name: str) -> Column:
    if name == "offset":
        return _integers(records.positions, index)
    if name == "source":
        count = len(records) if index is None else len(index)
        return ObjectColumn([records.source] * count, ValueType.STRING)
    if name == "partition":
        counts = [span.stop - span.start for span in records.spans]
        return _integers(np.repeat(np.array(records.partitions, np.int64), counts), index)
    if name == "topic":
        return ObjectColumn(records.topics_of(index), ValueType.STRING)
    extra = records.extra_column(name)
    return extra if index is None else extra.take(index)


def _block(batch: Batch) -> tuple[Records, Ints | None] | None:
    """The one block that all rows came from and each row's place in it; no places if they are the block's, in order."""
    origin = batch.origin
    if not isinstance(origin, RecordsOrigin):
        return None
    known = batch.row_range
    if known is not None and known.start == origin.first and len(known) == len(origin.records):
        return origin.records, None
    if batch.splits is not None and not np.diff(batch.splits).all():
        return None
    rows = batch.rows if batch.splits is None else batch.rows[batch.splits[:-1]]
    count = len(origin.records)
    if len(rows) == 0:
        return origin.records, rows
    if batch.splits is not None and as_range(rows) == origin.rows:
        return origin.records, None
    index = rows - origin.first
    # A row kept from an earlier batch is not of this block.
    return (origin.records, index) if index.min() >= 0 and index.max() < count else None


def _contexts(batch: Batch) -> list[RecordContext | None]:
    origin = batch.origin
    if origin is None:
        return [None] * batch.size
    firsts = (batch.parents(position)[:1].tolist() for position in range(batch.size))
    return [origin.record(first[0]) if first else None for first in firsts]


def _of_context(context: RecordContext, name: str) -> Any:
    return getattr(context, name) if name in RECORD_NAMES else context.extras.get(name, MISSING)


def header_values(column: Sequence[Sequence[Header] | None] | None, name: str) -> list[bytes | None] | None:
    """The last value of the header of this name in each of these rows of headers; `None` where no row has any."""
    if column is None:
        return None
    return [next((value for key, value in reversed(headers or ()) if key == name), None) for headers in column]


def _texts(column: Sequence[bytes | None] | None, count: int) -> Column:
    if column is None:
        return Column.absent(count)
    texts = SpansColumn.of_texts(column) if isinstance(column, Spans) else None
    if texts is not None:
        return texts
    try:
        return ObjectColumn([MISSING if entry is None else entry.decode() for entry in column], ValueType.STRING)
    except UnicodeDecodeError:
        return Column.of([MISSING if entry is None else _text(entry) for entry in column])


def _text(value: bytes) -> str | bytes:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value


def _integers(values: npt.NDArray[np.int64], index: Ints | None) -> DenseColumn:
    chosen = values if index is None else values[index]
    return DenseColumn(chosen.astype(np.int64, copy=False), ValueType.INT64)


def _picked(column: Sequence[Any], index: Ints | None) -> Sequence[Any]:
    return column if index is None else take_rows(column, index)


def _none_if_empty(column: list[Any]) -> list[Any] | None:
    return column if any(entry is not None for entry in column) else None
