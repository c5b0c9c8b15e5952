"""The topic of a row is that of its record, wherever the row came from."""

from __future__ import annotations

from typing import Any

import numpy as np

from connectors.codec import RecordsOrigin
from connectors.message import Message, records_of
from pipelines import Batch, Data, RecordContext, batched
from pipelines.data.columns import Column
from pipelines.definitions.graphbuilder import GraphBuilder
from pipelines.runners.state.timed import timed


def of(*topics: str) -> Batch:
    return Batch.of([Data({"n": 0}, record=RecordContext("bus", topic)) for topic in topics], first=0)


def test_rows_have_the_topics_of_their_records_and_none_without() -> None:
    assert of("a", "b", "a").take([2, 1]).topics() == ["a", "b"]
    assert Batch({}, 2).topics() == [None, None]
    assert Batch({}, 0).topics() == []
    mixed = Batch.of([Data({}, record=RecordContext("bus", "a")), Data({})])
    assert mixed.topics() == ["a", None]


def test_a_row_made_of_several_has_the_topic_of_the_first() -> None:
    origin = of("a", "b", "c").origin
    batch = Batch({}, 2, rows=np.array([2, 0, 1]), splits=np.array([0, 1, 3]), origin=origin)
    assert batch.topics() == ["c", "a"]


def test_records_of_several_blocks_have_each_their_own_topics() -> None:
    blocks = [records_of([Message(b"")] * 2, name) for name in ("first", "second")]
    batches = [
        Batch({}, 2, rows=range(at, at + 2), origin=RecordsOrigin(block, at))
        for block, at in zip(blocks, (0, 2), strict=True)
    ]
    assert Batch.concat(batches).topics() == ["first", "first", "second", "second"]
    assert RecordsOrigin(blocks[0], 5).places(np.array([4, 6, 7])).topics == [None, "first", None]


def test_rows_that_time_makes_have_the_topics_of_the_records_they_belong_to() -> None:
    assert timed({}, [RecordContext("bus", "a"), RecordContext("bus", "b")]).batch.topics() == ["a", "b"]


def test_steps_in_a_graph_know_the_topics_also_of_rows_that_were_multiplied() -> None:
    seen: list[str | None] = []

    def look(batch: Batch) -> Batch:
        seen.extend(batch.topics())
        return batch

    builder = GraphBuilder()
    first = builder.input.then("look", batched(look))
    twice = first.then("twice", lambda data: [data, data.copy()])
    with builder.build(twice.then("again", batched(look))).open() as executor:
        executor.run_batch(of("a", "b"))
    assert seen == ["a", "b", "a", "a", "b", "b"]


def test_a_step_in_a_graph_knows_where_the_records_of_a_block_came_from() -> None:
    block = records_of([Message(b"", key=b"k0"), Message(b"", key=b"k1")], "first")
    seen: list[Any] = []

    def look(batch: Batch) -> Batch:
        seen.append((batch.topics(), batch.lanes(), batch.places(np.array([1, 0])).keys.tolist()))
        return batch

    builder = GraphBuilder()
    with builder.build(builder.input.then("look", batched(look))).open() as executor:
        executor.run_batch(Batch({"n": Column.of([0, 1])}, 2, rows=range(5, 7), origin=RecordsOrigin(block, 5)))
    assert seen == [(["first", "first"], [block.lane_of(0), block.lane_of(1)], [b"k1", b"k0"])]
