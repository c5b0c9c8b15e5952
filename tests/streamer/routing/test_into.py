"""What `into` makes of records: metadata becomes values, keys and headers by the types that the source says."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest

from connectors.codec import Decoded, RecordsOrigin
from connectors.records import Lane, Records, Span
from pipelines.data.batch import Batch
from pipelines.data.columns import MISSING, Column
from pipelines.data.spans import Spans
from streamer.routing.into import Into

pytestmark = pytest.mark.usefixtures("rarity")

FIRST = 1 << 48


def long(number: int) -> bytes:
    return struct.pack(">q", number)


def block(**changes: Any) -> Records:
    a, b = Lane("bus", "a-0", 1), Lane("bus", "b-4", 1)
    fields: dict[str, Any] = {
        "source": "bus",
        "values": [b"0", b"1", b"2"],
        "keys": [b"k0", None, b"\xff"],
        "positions": np.array([10, 11, 7], np.int64),
        "spans": [Span(a, 0, 2), Span(b, 2, 3)],
        "topics": ["a", "b"],
        "partitions": [0, 4],
        "byte_count": 3,
        "headers": lambda: [[("h", b"x"), ("n", None)], None, [("h", b"y"), ("h", b"z")]],
        "timestamps": lambda: np.array([1000, -1, 3000], np.int64),
        "extras": {"levels.line": lambda: Column.of(["3", MISSING, "4"])},
    }
    return Records(**{**fields, **changes})


def put(into: Into, records: Records, rows: list[int] | None = None, **columns: Column) -> Decoded:
    """What `into` makes of these rows of a block, which a codec has decoded."""
    whole = rows is None
    numbers: Any = range(FIRST, FIRST + len(records)) if whole else np.array(rows, np.int64) + FIRST
    batch = Batch(columns, len(numbers), rows=numbers, origin=RecordsOrigin(records, FIRST))
    samples = np.arange(len(numbers), dtype=np.int64)
    return into.put(Decoded(batch, {}, samples), records, FIRST)


NAMES = ("key", "timestamp", "topic", "partition", "offset", "source", "headers.h", "headers.n", "levels.line", "qos")


def test_metadata_of_a_record_becomes_values() -> None:
    batch = put(Into({name: name for name in NAMES}), block()).batch
    assert {key: batch.column(key).values() for key in batch.keys()} == {  # noqa: SIM118
        "key": ["k0", MISSING, b"\xff"],
        "timestamp": [1000, MISSING, 3000],
        "topic": ["a", "a", "b"],
        "partition": [0, 0, 4],
        "offset": [10, 11, 7],
        "source": ["bus", "bus", "bus"],
        "headers.h": ["x", MISSING, "z"],
        "headers.n": [MISSING, MISSING, MISSING],
        "levels.line": ["3", MISSING, "4"],
        "qos": [MISSING, MISSING, MISSING],
    }


def test_metadata_replaces_a_value_of_the_payload() -> None:
    device = Column.of(["from", "the", "payload"])
    assert put(Into({"topic": "device"}), block(), device=device).batch.column("device").values() == ["a", "a", "b"]
    assert not Into({})


@pytest.mark.parametrize("form", [list, Spans.of])
def test_keys_have_the_type_that_the_source_says(form: Any) -> None:
    records = block(keys=form([long(7), None, long(-1)]))
    decoded = put(Into({"key": "id", "topic": "topic"}, "long"), records)
    assert decoded.batch.column("id").values() == [7, MISSING, -1]
    assert list(decoded.batch.columns) == ["id", "topic"]
    assert not decoded.failed


@pytest.mark.parametrize("rows", [None, [0, 1, 2]])
def test_a_record_whose_key_cannot_be_read_fails_alone(rows: list[int] | None) -> None:
    records = block(keys=[long(7), b"seven", long(9)])
    decoded = put(Into({"key": "id"}, "long"), records, rows, temp=Column.of([1.5, 2.5, 3.5]))
    assert decoded.batch.column("id").values() == [7, 9]
    assert decoded.batch.column("temp").values() == [1.5, 3.5]
    assert decoded.batch.rows.tolist() == [FIRST, FIRST + 2]
    assert decoded.samples is not None
    assert decoded.samples.tolist() == [0, 2]
    assert {row: str(error) for row, error in decoded.failed.items()} == {
        FIRST + 1: "the key is no long (8 bytes, the first one the highest): it has 5 bytes, 'seven'"
    }


def test_only_records_that_were_decoded_fail_for_their_keys() -> None:
    # The first is a tombstone, or has failed in the codec.
    decoded = put(Into({"key": "id"}, "long"), block(keys=[b"seven", b"8", long(9)]), [1, 2])
    assert [*decoded.failed] == [FIRST + 1]
    assert decoded.batch.column("id").values() == [9]


def test_all_rows_of_a_record_have_its_key_or_fail_with_it() -> None:
    records = block(keys=[long(7), b"", long(9)])
    decoded = put(Into({"key": "id"}, "long"), records, [0, 0, 1, 1, 2])
    assert decoded.batch.column("id").values() == [7, 7, 9]
    assert decoded.batch.rows.tolist() == [FIRST, FIRST, FIRST + 2]
    assert [*decoded.failed] == [FIRST + 1]


def test_headers_have_types_of_their_own() -> None:
    headers = [[("seq", long(1)), ("h", b"x")], [("seq", b"text"), ("seq", long(2))], None]
    records = block(keys=None, headers=lambda: headers)
    into = Into({"headers.seq": "seq", "headers.h": "h", "key": "id"}, "uuid", {"seq": "long"})
    decoded = put(into, records)
    assert decoded.batch.column("seq").values() == [1, 2, MISSING]
    assert decoded.batch.column("h").values() == ["x", MISSING, MISSING]
    assert decoded.batch.column("id").values() == [MISSING] * 3


def test_the_first_metadata_that_cannot_be_read_is_the_error_of_a_record() -> None:
    headers = [[("seq", b"1")], None, None]
    into = Into({"headers.seq": "seq", "key": "id"}, "int", {"seq": "int"})
    decoded = put(into, block(keys=[b"1", b"2", None], headers=lambda: headers))
    assert [str(error)[:16] for error in decoded.failed.values()] == ['the header "seq"', "the key is no in"]
    assert decoded.batch.rows.tolist() == [FIRST + 2]
