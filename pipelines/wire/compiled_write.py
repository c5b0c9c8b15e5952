"""Columns to ProtoData messages in the compiled hot path: the same bytes as `pipelines.wire.protodata` makes.

The extension writes arrays, numbers, strings and bytes, and copies entries that were never decoded; the entries of
other columns come from the other path.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from pipelines.data.batch import Batch
from pipelines.data.columns import MISSING, Column, DenseColumn, ObjectColumn
from pipelines.data.spans import Spans
from pipelines.data.spanscolumn import SpansColumn
from pipelines.data.wirecolumn import WireColumn
from pipelines.values.valuetype import ValueType
from pipelines.wire.protodata import (
    WrittenColumns,
    entries_of,
    frame_of,
    metadata_entries,
    rare_entries,
    undecoded_entries,
    write_messages,
)

FIXED: Final = 0
INTEGERS: Final = 1
SPANS: Final = 2
LOOSE: Final = 3
WIRE: Final = 4
ENTRIES: Final = 5


def write_columns(native: Any, batch: Batch) -> WrittenColumns:
    """One message for each row of the batch, as `Spans`; see `pipelines.wire.columns.encode_columns`."""
    failed: dict[int, Exception] = {}
    size = batch.size
    common, rare = batch.common_and_rare()
    columns = [_column(key, column, failed) for key, column in common.items()]
    if rare:
        columns.append((ENTRIES, rare_entries(rare, size, failed)))
    if batch.metadata is not None:
        columns.append((ENTRIES, metadata_entries(batch.metadata, failed)))
    try:
        block = native.encoded(size, columns, list(failed))
    except (ValueError, TypeError, BufferError, OverflowError):
        # A value that is no string, or a column in an odd shape: the simple way finds the row that is wrong.
        return write_messages(batch)
    return WrittenColumns(Spans.of_block(block, size), failed)


def _column(key: str, column: Column, failed: dict[int, Exception]) -> tuple[Any, ...]:
    if isinstance(column, DenseColumn):
        dense = _integers(key, column) if column.type is ValueType.INT64 else _dense(key, column)
        if dense is not None:
            return dense
    elif isinstance(column, WireColumn):
        entries = undecoded_entries(key, column)
        if isinstance(entries, Spans):
            return (WIRE, entries.buffer, entries.starts, entries.lengths)
        if entries is not None:
            return (ENTRIES, entries)
    elif isinstance(column, SpansColumn):
        raw, spans = _encoded(key), column.spans
        if raw is not None:
            return (SPANS, raw, column.type is ValueType.BYTES, spans.buffer, spans.starts, spans.lengths)
    elif isinstance(column, ObjectColumn) and column.type in (ValueType.STRING, ValueType.BYTES):
        raw, objects = _encoded(key), column.objects
        if raw is not None:
            if column.mask is not None:
                objects = [None if value is MISSING else value for value in objects]
            return (LOOSE, raw, column.type is ValueType.BYTES, objects)
    return (ENTRIES, entries_of(key, column, failed))


def _dense(key: str, column: DenseColumn) -> tuple[Any, ...] | None:
    frame = frame_of(key, column)
    if frame is None:
        return None
    array = column.storage
    array = array if array.flags.c_contiguous else np.ascontiguousarray(array)
    return (FIXED, *frame, array, column.mask)


def _integers(key: str, column: DenseColumn) -> tuple[Any, ...] | None:
    raw, array = _encoded(key), column.storage
    if raw is None or array.dtype != np.int64:
        return None
    return (INTEGERS, raw, array if array.flags.c_contiguous else np.ascontiguousarray(array), column.mask)


def _encoded(key: str) -> bytes | None:
    try:
        return key.encode()
    except UnicodeEncodeError:
        return None
