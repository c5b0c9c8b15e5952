"""Arrow's batches of Kafka's records as `Records`, and `Messages` as rows for Spark's writer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, Literal

import numpy as np
import pyarrow as pa

from connectors.blockcolumns import lengths
from connectors.headers import Headers
from connectors.records import Ints, Lane, Messages, Records, Span, no_headers
from pipelines.arrow.buffers import present_of, spans_of
from pipelines.arrow.reading import milliseconds_of
from pipelines.arrow.writing import array_of_spans
from pipelines.data.batch import NO_TIMESTAMP
from pipelines.data.spans import Spans
from pipelines.data.spanscolumn import SpansColumn
from pipelines.values import ValueType

READ: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "headers")
"""The columns that `records_of` reads, of those that Spark's reader for Kafka has; `headers` may lack."""
HEADERS: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
COLUMNS: Final = {"topic": pa.string(), "key": pa.binary(), "value": pa.binary(), "headers": HEADERS}
"""The columns that `rows_of` makes, which are those that Spark's writer for Kafka knows."""
_MOST_BYTES: Final = 1 << 30
"""Bytes of one column of a batch at most: Arrow's offsets of 32 bits end at twice that."""


def records_of(batch: pa.RecordBatch, source: str, epoch: int) -> Records:
    """The records of a batch as Spark's reader gives them, payloads in Arrow's own buffers.

    Rows are put together by topic and partition, in the order of their offsets. Lanes get this epoch.
    """
    offsets = batch.column("offset").to_numpy(zero_copy_only=False)
    topics = batch.column("topic").dictionary_encode()
    names = topics.dictionary.to_pylist()
    partitions = batch.column("partition").to_numpy(zero_copy_only=False)
    codes = topics.indices.to_numpy(zero_copy_only=False)
    order = np.lexsort((offsets, partitions, codes))
    if not (np.diff(order) == 1).all():
        return records_of(batch.take(pa.array(order)), source, epoch)
    changes = 1 + np.flatnonzero((np.diff(codes) != 0) | (np.diff(partitions) != 0))
    starts = [0, *changes.tolist()] if len(offsets) else []
    stops = [*starts[1:], len(offsets)]
    places = [(names[codes[start]], int(partitions[start])) for start in starts]
    values, keys = _strings(batch.column("value")), batch.column("key")
    read_keys = None if keys.null_count == len(keys) else _strings(keys)
    stamps = batch.column("timestamp")
    headers = batch.column("headers") if "headers" in batch.schema.names else None
    return Records(
        source,
        values,
        read_keys,
        offsets.astype(np.int64),
        [
            Span(Lane(source, f"{topic}-{partition}", epoch), start, stop)
            for (topic, partition), start, stop in zip(places, starts, stops, strict=True)
        ],
        [topic for topic, _ in places],
        [partition for _, partition in places],
        values.byte_count + (0 if read_keys is None else read_keys.byte_count),
        headers=no_headers if headers is None or headers.null_count == len(headers) else lambda: headers_of(headers),
        timestamps=lambda: _milliseconds(stamps),
    )


def rows_of(topics: Sequence[str], messages: Messages) -> Iterator[list[pa.Array]]:
    """Topic, key, value and headers of messages as columns, in parts if they are larger than Arrow's batches can be."""
    count = len(messages)
    size = int(lengths(messages.values).sum())
    if size > _MOST_BYTES and count > 1:
        for part in (np.arange(count // 2), np.arange(count // 2, count)):
            yield from rows_of([topics[at] for at in part.tolist()], messages.take(part))
        return
    keys = messages.keys
    yield [
        pa.array(topics, pa.string()),
        pa.nulls(count, pa.binary()) if keys is None else _array(keys),
        _array(messages.values),
        pa.nulls(count, HEADERS) if messages.headers is None else _header_rows(Headers.of(messages.headers)),
    ]


def headers_of(column: Any) -> Headers:
    """A column of lists of `(key, value)`."""
    entries = column.flatten()
    counts: Ints = column.value_lengths().fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    names, values = entries.flatten()
    return Headers(_strings(names), _strings(values), np.cumsum(counts) - counts, counts)


def _strings(column: Any) -> Spans:
    return spans_of(column, present_of(column))


def _header_rows(headers: Headers) -> Any:
    places, _ = headers.entries()
    names = _array(headers.names.take(places), ValueType.STRING)
    values = _array(headers.values.take(places))
    entries = pa.StructArray.from_arrays([names, values], fields=list(_fields()))
    edges = pa.array(np.concatenate([[0], np.cumsum(headers.counts)]).astype(np.int32))
    return pa.ListArray.from_arrays(edges, entries, type=HEADERS)


def _array(strings: Sequence[bytes | None], type: Literal[ValueType.STRING, ValueType.BYTES] = ValueType.BYTES) -> Any:
    spans = Spans.of(strings)
    there = None if not spans.null.any() else ~spans.null
    return array_of_spans(SpansColumn(spans, type, there), pa.string() if type is ValueType.STRING else pa.binary())


def _fields() -> Iterator[Any]:
    of_entry = HEADERS.value_type
    return (of_entry.field(at) for at in range(of_entry.num_fields))


def _milliseconds(stamps: Any) -> Ints:
    present, times = present_of(stamps), milliseconds_of(stamps)
    return times if present is None else np.where(present, times, NO_TIMESTAMP)
