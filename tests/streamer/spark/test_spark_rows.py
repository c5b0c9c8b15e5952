"""Kafka's records in Arrow's batches, as Spark reads them, and messages as rows, as Spark writes them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from connectors.headers import Headers
from connectors.records import Messages
from pipelines.data.spans import Spans
from streamer.spark.arrowrows import HEADERS, headers_of, records_of, rows_of


def batch(rows: list[tuple[Any, ...]], *, large: bool = False) -> pa.RecordBatch:
    """Rows of (topic, partition, offset, key, value, headers)."""
    topics, partitions, offsets, keys, values, headers = zip(*rows, strict=True) if rows else ([],) * 6
    of_bytes = pa.large_binary() if large else pa.binary()
    return pa.RecordBatch.from_pydict(
        {
            "key": pa.array(keys, of_bytes),
            "value": pa.array(values, of_bytes),
            "topic": pa.array(topics, pa.large_string() if large else pa.string()),
            "partition": pa.array(partitions, pa.int32()),
            "offset": pa.array(offsets, pa.int64()),
            "timestamp": pa.array([offset * 1000 + 999 for offset in offsets], pa.timestamp("us", "UTC")),
            "headers": pa.array(headers, HEADERS),
        }
    )


ROWS: list[tuple[Any, ...]] = [
    ("b", 0, 7, b"k", b"seven", None),
    ("a", 1, 5, None, None, [("h", b"1"), ("h", None)]),
    ("b", 0, 6, b"", b"", []),
    ("a", 0, 9, b"k", b"nine", [("x", b"")]),
]


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("offset", [0, 2])
def test_records_of_several_partitions_are_put_together_in_the_order_of_their_offsets(large: bool, offset: int) -> None:
    """Also of a batch that is a part of another."""
    given = batch([("z", 3, 1, b"no", b"no", [("no", b"no")])] * offset + ROWS, large=large).slice(offset)
    records = records_of(given, "kafka", 4)
    places = [
        (
            records.topics[at],
            records.partitions[at],
            records.positions[span.start : span.stop].tolist(),
            span.lane.epoch,
        )
        for at, span in enumerate(records.spans)
    ]
    assert sorted(places) == [("a", 0, [9], 4), ("a", 1, [5], 4), ("b", 0, [6, 7], 4)]
    headers = records.header_column()
    assert headers is not None
    assert records.keys is not None
    by_offset = {
        int(position): (records.keys[at], records.values[at], headers[at])
        for at, position in enumerate(records.positions)
    }
    assert by_offset == {
        7: (b"k", b"seven", None),
        5: (None, None, [("h", b"1"), ("h", None)]),
        6: (b"", b"", None),
        9: (b"k", b"nine", [("x", b"")]),
    }
    assert records.timestamp_column().tolist() == records.positions.tolist()
    assert records.byte_count == len(b"kseven" + b"knine")


def test_payloads_stay_in_arrows_buffers() -> None:
    given = batch([("a", 0, number, b"k", b"x" * 1000, None) for number in range(10)])
    values = records_of(given, "kafka", 0).values
    assert isinstance(values, Spans)
    assert values.buffer.__array_interface__["data"][0] == given.column("value").buffers()[2].address


def test_records_without_keys_and_headers_have_none() -> None:
    records = records_of(batch([("a", 0, 1, None, b"x", None)]), "kafka", 0)
    assert records.keys is None
    assert records.header_column() is None
    without = batch([("a", 0, 1, None, b"x", None)]).drop_columns(["headers"])
    assert records_of(without, "kafka", 0).header_column() is None


def test_a_time_that_kafka_does_not_know_is_unknown() -> None:
    given = batch([("a", 0, 1, None, b"x", None), ("a", 0, 2, None, b"x", None)])
    stamps = pa.array([-1000, None], pa.timestamp("us", "UTC"))
    given = given.set_column(given.schema.get_field_index("timestamp"), "timestamp", stamps)
    assert records_of(given, "kafka", 0).timestamp_column().tolist() == [-1, -1]


@pytest.mark.parametrize("kind", ["list", "spans", "gaps"])
def test_messages_become_rows_with_their_headers(kind: str) -> None:
    values: list[bytes | None] = [b"one", None, b"", b"four"]
    column: Any = values
    if kind == "spans":
        column = Spans.of(values)
    if kind == "gaps":
        # In another order in the buffer, with bytes between them that are nobody's.
        column = Spans.of([b"gap", b"four", b"", b"-", b"one", None]).take(np.array([4, 5, 2, 1]))
    headers = [[("a", b"1"), ("b", None)], None, [], [("ä", b"")]]
    (columns,) = rows_of(["t", "u", "t", "t"], Messages(np.arange(4), column, [b"k", None, b"", b"k"], headers))
    assert [array.to_pylist() for array in columns] == [
        ["t", "u", "t", "t"],
        [b"k", None, b"", b"k"],
        values,
        [
            [{"key": "a", "value": b"1"}, {"key": "b", "value": None}],
            [],
            [],
            [{"key": "ä", "value": b""}],
        ],
    ]
    for array in columns:
        array.validate(full=True)


def test_messages_that_no_batch_of_arrow_could_hold_are_several_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamer.spark.arrowrows._MOST_BYTES", 10)
    parts = list(rows_of(["t"] * 5, Messages(np.arange(5), [b"12345678", b"1", b"1", b"x" * 50, b"2"])))
    assert [value for part in parts for value in part[2].to_pylist()] == [b"12345678", b"1", b"1", b"x" * 50, b"2"]
    assert len(parts) > 1
    assert [len(part[0]) for part in parts] == [len(part[3]) for part in parts]


def test_headers_come_back_as_they_went() -> None:
    headers = Headers.of([[("a", b"1")], None, [("b", None), ("c", b"")]])
    (columns,) = rows_of(["t"] * 3, Messages(np.arange(3), [b""] * 3, None, headers))
    assert list(headers_of(columns[3])) == list(headers)
    assert list(headers_of(columns[3].slice(1))) == list(headers)[1:]
