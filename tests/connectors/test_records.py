"""Blocks whose rows have a topic each, and columns of their source's own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from connectors.codec import RecordsOrigin
from connectors.coded import Coded
from connectors.message import messages_of_records
from connectors.records import Lane, Records, Span
from pipelines.data.batch import Batch
from pipelines.data.columns import MISSING, Column
from pipelines.data.record import RecordPlaces, listed_places

TOPICS = ["line/1/press", "line/2/press", "line/1/press", "line/3/oven", "line/2/press"]
NOT_READ: list[str] = []


def column(name: str, values: list[Any]) -> Any:
    def read() -> Column:
        NOT_READ.remove(name)
        return Column.of(values)

    NOT_READ.append(name)
    return read


@pytest.fixture
def block() -> Records:
    NOT_READ.clear()
    return Records(
        "bus",
        [b"a", b"b", b"c", b"d", b"e"],
        None,
        np.arange(5, dtype=np.int64),
        [Span(Lane("bus", "0", 0), 0, 2), Span(Lane("bus", "0", 1), 2, 5)],
        Coded.of(TOPICS),
        [0, 7],
        5,
        extras={
            "qos": column("qos", [0, 1, 2, 1, 0]),
            "correlation": column("correlation", [MISSING, b"\xff", b"", b"x", MISSING]),
        },
    )


def facts(records: Records) -> list[Any]:
    contexts = map(records.context, range(len(records)))
    return [(one.topic, one.partition, one.offset, dict(one.extras)) for one in contexts]


ALL = [
    ("line/1/press", 0, 0, {"qos": 0}),
    ("line/2/press", 0, 1, {"qos": 1, "correlation": b"\xff"}),
    ("line/1/press", 7, 2, {"qos": 2, "correlation": b""}),
    ("line/3/oven", 7, 3, {"qos": 1, "correlation": b"x"}),
    ("line/2/press", 7, 4, {"qos": 0}),
]


def test_each_row_has_the_topic_and_the_columns_of_its_own_record(block: Records) -> None:
    assert facts(block) == ALL
    assert block.topics_of() == TOPICS
    assert block.places() == {(topic, partition) for topic, partition, _, _ in ALL}


@pytest.mark.parametrize("rows", [[0, 1, 2, 3, 4], [1, 4], [3], []])
def test_rows_that_are_taken_keep_what_their_records_say(block: Records, rows: list[int]) -> None:
    assert facts(block.take(np.array(rows, np.int64))) == [ALL[row] for row in rows]
    assert facts(block.part(1, 4)) == ALL[1:4]
    assert facts(block.of_spans([1])) == ALL[2:]


def test_columns_are_read_when_asked_for_and_once(block: Records) -> None:
    part = Records.concat([block.part(0, 2), block.take(np.array([3, 4]))])
    assert sorted(NOT_READ) == ["correlation", "qos"]
    assert part.extra_column("qos").values() == [0, 1, 1, 0]
    assert block.extra_column("qos").values() == [0, 1, 2, 1, 0]
    assert NOT_READ == ["correlation"]
    assert part.extra_column("none").values() == [MISSING] * 4


def test_blocks_of_different_forms_are_joined(block: Records) -> None:
    lane = Lane("bus", "1", 0)
    plain = Records("bus", [b"f", b"g"], None, np.arange(2, dtype=np.int64), [Span(lane, 0, 2)], ["t"], [1], 2)
    other = Records(
        "bus",
        [b"h"],
        None,
        np.arange(1, dtype=np.int64),
        [Span(lane, 0, 1)],
        Coded(["x", "line/3/oven"], np.array([1], np.int32)),
        [1],
        1,
        extras={"retained": lambda: Column.of([True])},
    )
    found = facts(Records.concat([block, plain, other, block.part(0, 0)]))
    assert found == [*ALL, ("t", 1, 0, {}), ("t", 1, 1, {}), ("line/3/oven", 1, 0, {"retained": True})]


def test_joining_blocks_of_one_table_of_topics_walks_through_no_topics(block: Records) -> None:
    table = [f"device/{number}" for number in range(100)]
    parts = [Coded(table, np.array(codes, np.int32)) for codes in ([99, 3], [], [3, 98])]
    table.append("device/later")
    whole = Coded.concat(parts)
    assert whole.names is table
    assert whole.texts() == ["device/99", "device/3", "device/3", "device/98"]
    assert list(whole[1:3]) == ["device/3", "device/3"]
    assert whole.distinct() == {3: "device/3", 98: "device/98", 99: "device/99"}
    assert whole.column({99: "a", 98: 5}).values() == ["a", MISSING, MISSING, 5]


def test_messages_say_what_their_records_said(block: Records) -> None:
    found = messages_of_records(block)
    assert [one.topic for one in found] == TOPICS
    assert dict(found[1].extras) == {"qos": 1, "correlation": b"\xff"}


def test_faults_stay_with_their_rows(block: Records) -> None:
    wrong = {0: ValueError("first"), 3: ValueError("fourth")}
    faulty = replace(block, faults=wrong)
    assert faulty.take(np.array([1, 3, 4])).faults == {1: wrong[3]}
    assert not faulty.part(1, 3).faults
    assert Records.concat([block, faulty, block, faulty]).faults == {
        5: wrong[0],
        8: wrong[3],
        15: wrong[0],
        18: wrong[3],
    }
    assert not Records.concat([block, block]).faults


@pytest.mark.parametrize("rows", [[0, 1], [4, 2, 0, 2], [3], []])
@pytest.mark.parametrize("coded", [True, False])
@pytest.mark.parametrize("keys", [None, [b"k", None, b"", b"m", b"n"]])
def test_places_in_columns_are_those_of_the_records_one_by_one(
    block: Records, rows: list[int], coded: bool, keys: list[bytes | None] | None
) -> None:
    block = replace(block, keys=keys, topics=block.topics if coded else ["one", "two"])
    origin = RecordsOrigin(block, 100)
    batch = Batch({"x": Column.of(list(range(5)))}, 5, rows=range(100, 105), origin=origin)
    listed = listed_places([block.context(row) for row in rows])
    assert _plain(batch.places(np.array(rows, np.int64))) == _plain(listed)
    assert batch.lanes() == [block.lane_of(row) for row in range(5)]


def test_a_row_of_another_block_has_no_place_in_this_one(block: Records) -> None:
    known = RecordsOrigin(block, 100).places(np.array([99, 101]))
    assert known.lanes == [None, block.lane_of(1)]
    assert known.topics == [None, "line/2/press"]
    assert RecordsOrigin(block, 100).places(np.array([105])).lanes == [None]


def _plain(places: RecordPlaces) -> list[tuple[Any, ...]]:
    of_rows = [places.places[number] for number in places.numbers.tolist()]
    return list(zip(of_rows, places.offsets.tolist(), places.keys.tolist(), places.lanes, strict=True))
