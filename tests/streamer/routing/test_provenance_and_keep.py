"""What travels around the pipeline: record metadata into values, input values back into results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from connectors.codec import RecordsOrigin
from connectors.coded import Coded
from connectors.records import Lane, Records, Span
from pipelines.data.batch import Batch
from pipelines.data.columns import MISSING, Column, DenseColumn, ObjectColumn
from pipelines.data.record import RecordContext, RecordPlaces
from pipelines.data.wirecolumn import WireColumn
from pipelines.executors.keep import kept
from pipelines.wire.plainjson import JsonDecoder, JsonForm, write_json
from streamer.routing.provenance import record_column, record_headers, record_keys, record_timestamps

pytestmark = pytest.mark.usefixtures("rarity")

FIRST = 1 << 48


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


def decoded(records: Records, rows: list[int] | None = None, **columns: Column) -> Batch:
    rows = list(range(len(records))) if rows is None else rows
    numbers = np.array(rows, np.int64) + FIRST
    return Batch(columns, len(rows), rows=numbers, origin=RecordsOrigin(records, FIRST))


NAMES = ("key", "timestamp", "topic", "partition", "offset", "source", "headers.h", "headers.n", "levels.line", "qos")


@pytest.mark.slow
@pytest.mark.parametrize("rows", [[0, 1, 2], [0, 2], [2, 0, 0], []])
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("topics", [["a", "b"], Coded.of(["x", "y", "x"])])
def test_columns_say_what_the_rows_own_records_say(topics: Sequence[str], rows: list[int], name: str) -> None:
    records = block(topics=topics)
    batch = decoded(records, rows)
    contexts = [records.context(row) for row in rows]
    assert record_column(batch, name).values() == [said(context, name) for context in contexts]
    # The same through an origin that only knows one record at a time.
    listed = Batch({}, len(rows), rows=batch.rows, origin=OneByOne(records))
    assert record_column(listed, name).values() == [said(context, name) for context in contexts]


def test_keys_headers_and_timestamps_come_as_the_block_has_them() -> None:
    records = block()
    batch = decoded(records)
    assert record_keys(batch) is records.keys
    assert record_headers(batch) is records.header_column()
    assert record_timestamps(batch) is records.timestamp_column()
    assert record_keys(decoded(records, [2, 1])) == [b"\xff", None]


def test_rows_without_records_say_nothing() -> None:
    batch = Batch({"x": Column.of([1, 2])}, 2)
    assert record_keys(batch) is None
    assert record_headers(batch) is None
    assert record_timestamps(batch).tolist() == [-1, -1]
    assert record_column(batch, "topic").values() == [MISSING, MISSING]


def test_a_row_kept_from_an_earlier_block_is_no_row_of_this_one() -> None:
    batch = Batch({}, 2, rows=np.array([FIRST - 1, FIRST], np.int64), origin=RecordsOrigin(block(), FIRST))
    assert record_column(batch, "topic").values() == [MISSING, "a"]


# keep


def given() -> Batch:
    return decoded(block(), id=Column.of([7, 8, 9]), name=Column.of(["a", "b", "c"]))


def result_of(rows: list[int], splits: list[int] | None = None, **columns: Column) -> Batch:
    size = len(rows) if splits is None else len(splits) - 1
    edges = None if splits is None else np.array(splits, np.int64)
    return Batch(columns, size, rows=np.array(rows, np.int64) + FIRST, splits=edges)


def test_values_that_the_pipeline_dropped_are_put_back() -> None:
    result = kept(result_of([2, 0], y=Column.of([0.2, 0.0])), given(), ["id"])
    assert result.keys() == ["y", "id"]
    assert result.column("id").values() == [9, 7]


def test_all_input_values_can_be_kept() -> None:
    assert kept(result_of([0, 1, 2]), given(), "all").keys() == ["id", "name"]


def test_unchanged_rows_share_the_columns_of_the_input() -> None:
    source = given()
    same = source.select({"y": Column.of([0.0, 0.1, 0.2])})
    for result in (same, result_of([0, 1, 2], y=Column.of([0.0, 0.1, 0.2]))):
        assert kept(result, source, ["id", "name"]).column("name") is source.column("name")


def test_nothing_to_keep_changes_nothing() -> None:
    result = result_of([0, 1, 2], id=Column.of([1, 2, 3]))
    assert kept(result, given(), None) is result
    assert kept(result, given(), []) is result
    assert kept(result, given(), ["id", "none"]) is result


def test_a_value_that_the_pipeline_made_stays() -> None:
    result = kept(result_of([0, 1, 2], id=Column.of([1, MISSING, 3])), given(), ["id"])
    assert result.column("id").values() == [1, 8, 3]


def test_a_record_with_several_results_gives_its_values_to_each() -> None:
    assert kept(result_of([1, 1, 2]), given(), ["id"]).column("id").values() == [8, 8, 9]


def test_a_window_takes_the_values_of_its_last_record() -> None:
    assert kept(result_of([0, 1, 1, 2], [0, 2, 4]), given(), ["id"]).column("id").values() == [8, 9]


def test_a_row_whose_record_is_not_in_the_input_lacks_the_value() -> None:
    result = kept(result_of([-5, 1]), given(), ["id", "name"])
    assert result.column("id").values() == [MISSING, 8]
    assert result.column("name").values() == [MISSING, "b"]
    empty = kept(result_of([1]), decoded(block(), [], id=ObjectColumn([])), ["id"])
    assert empty.column("id").values() == [MISSING]


def test_undecoded_values_stay_undecoded() -> None:
    def never(entries: Sequence[bytes | None]) -> Column:
        raise AssertionError("decoded")

    source = decoded(block(), image=WireColumn([b"0", b"1", b"2"], never))
    column = kept(result_of([2, 0]), source, ["image"]).column("image")
    assert isinstance(column, WireColumn)
    assert column.entries == [b"2", b"0"]


def test_undecoded_values_stay_undecoded_next_to_rows_that_have_none() -> None:
    def never(entries: Sequence[bytes | None]) -> Column:
        raise AssertionError("decoded")

    source = decoded(block(), image=WireColumn([b"0", b"1", b"2"], never))
    column = kept(result_of([-5, 1]), source, ["image"]).column("image")
    assert isinstance(column, WireColumn)
    assert column.entries == [None, b"1"]


def test_a_result_without_any_record_lacks_what_is_kept() -> None:
    result = kept(result_of([0], [0, 0, 1]), given(), ["id"])
    assert result.column("id").values() == [MISSING, 7]
    assert kept(result_of([], [0, 0]), given(), ["id"]).column("id").values() == [MISSING]


def test_a_value_that_cannot_be_decoded_is_put_back_as_it_came_next_to_values_of_the_pipeline() -> None:
    source = decoded(block(), id=WireColumn([b"0", b'[1, "a"]', b"2"], JsonDecoder()))
    result = kept(result_of([0, 1, 2], id=Column.of([5, MISSING, 7])), source, ["id"])
    assert write_json(result, JsonForm()).texts == [b'{"id":5}', b'{"id":[1, "a"]}', b'{"id":7}']


def test_arrays_are_taken_as_one() -> None:
    source = decoded(block(), x=DenseColumn(np.arange(6.0).reshape(3, 2)))
    column = kept(result_of([2, 0]), source, ["x"]).column("x")
    assert isinstance(column, DenseColumn)
    assert column.array.tolist() == [[4.0, 5.0], [0.0, 1.0]]


class OneByOne:
    def __init__(self, records: Records) -> None:
        self.records = records

    def record(self, row: int) -> RecordContext | None:
        return self.records.context(row - FIRST)

    def places(self, rows: npt.NDArray[np.int64], *, keys: bool = True) -> RecordPlaces:
        return self.records.record_places(rows - FIRST, keys=keys)

    def timestamps(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        return self.records.timestamp_column()[rows - FIRST]


def said(context: RecordContext, name: str) -> Any:
    if name.startswith("headers."):
        found: Any = dict(context.headers).get(name.removeprefix("headers."))
    else:
        found = getattr(context, name) if hasattr(context, name) else context.extras.get(name)
    if isinstance(found, bytes):
        try:
            return found.decode()
        except UnicodeDecodeError:
            return found
    return MISSING if found is None else found
