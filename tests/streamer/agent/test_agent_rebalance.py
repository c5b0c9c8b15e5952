"""Lanes that are taken away while records of them are everywhere: in the pipeline, in the queue, in hand, gathered."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from connectors.memory import MemorySource
from connectors.message import Message
from pipelines import Data


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """Steps wait for it; it opens at the end."""
    event = threading.Event()
    yield event
    event.set()


def gated(gate: threading.Event) -> Any:
    def step(data: Data) -> Data:
        gate.wait(60)
        return Data({"y": data["x"]})

    return step


def feed(source: MemorySource, partition: int, *numbers: int) -> None:
    source.feed(*[Message(Data({"x": number}).to_bytes(), partition=partition) for number in numbers])


def polled(source: MemorySource, seconds: float) -> list[int]:
    """What another member of the group gets."""
    found: list[int] = []
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found += [Data.from_bytes(value)["x"] for value in source.poll(100, 10**6, 0.05).values]
    return found


def test_while_the_pipeline_is_busy_nobody_polls(define: Any, serve: Any, eventually: Any, gate: Any) -> None:
    serving = serve(define(gated(gate), batch={"max_records": 10}))
    serving.feed(*range(1000))
    meters = serving.agent.meters.sources["memory"]
    eventually(lambda: meters.polled_rows >= 40)
    time.sleep(0.5)
    assert meters.polled_rows <= 40, "one batch runs, two wait in the queue, one is in hand"
    gate.set()
    eventually(lambda: len(serving.results()) == 1000)


def test_records_in_the_queue_and_in_hand_go_to_the_next_owner(
    define: Any, serve: Any, eventually: Any, gate: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("connectors.memory.source.SETTLE_SECONDS", 0.5)
    first = MemorySource(name="memory", partitions=2)
    serving = serve(define(gated(gate), batch={"max_records": 1}), {"memory": first})
    feed(first, 1, 10, 11, 12, 13, 14, 15)
    eventually(lambda: serving.agent.meters.sources["memory"].polled_rows == 4)
    second = MemorySource(topic=first.topic, name="second")
    second.open()
    eventually(lambda: len(second.poll(1, 0, 0.05)) == 0 and len(second.group.owned(second)) == 1)
    gate.set()
    feed(first, 0, 1, 2)
    eventually(lambda: first.acknowledged[0] == 2)
    assert serving.results() == [10, 1, 2], "only what was in the pipeline came out"
    assert first.acknowledged[1] == 0, "too late"
    assert polled(second, 0.3) == [10, 11, 12, 13, 14, 15]
    second.close()


def test_records_in_flight_are_finished_before_partitions_go_as_far_as_time_allows(
    define: Any, serve: Any, eventually: Any, gate: Any
) -> None:
    first = MemorySource(name="memory", partitions=2)
    serving = serve(define(gated(gate), batch={"max_records": 1}), {"memory": first})
    feed(first, 1, 10, 11, 12, 13, 14, 15)
    eventually(lambda: serving.agent.meters.sources["memory"].polled_rows == 4)
    second = MemorySource(topic=first.topic, name="second")
    second.open()
    threading.Timer(1.5, gate.set).start()
    eventually(lambda: len(second.poll(1, 0, 0.05)) == 0 and len(second.group.owned(second)) == 1)
    # Three were with the run thread, the fourth was in hand.
    assert first.acknowledged[1] == 3
    assert serving.results() == [10, 11, 12]
    assert polled(second, 0.3) == [13, 14, 15]
    second.close()


def test_records_that_a_hard_batch_gathers_go_to_the_next_owner(define: Any, serve: Any, eventually: Any) -> None:
    first = MemorySource(name="memory", partitions=2)
    serving = serve(define(batch={"type": "hard", "max_records": 4}), {"memory": first})
    feed(first, 1, 10, 11, 12)
    eventually(lambda: len(first.lag()) == 2 and first._next.get(1) == 3)
    second = MemorySource(topic=first.topic, name="second")
    second.open()
    eventually(lambda: len(second.poll(1, 0, 0.05)) == 0 and len(second.group.owned(second)) == 1)
    feed(first, 0, 1, 2, 3)
    time.sleep(0.3)
    assert serving.results() == [], "three records are no batch of four"
    feed(first, 0, 4)
    eventually(lambda: serving.results() == [2, 4, 6, 8])
    assert polled(second, 0.3) == [10, 11, 12]
    second.close()


def test_a_partition_that_comes_back_is_read_from_where_it_was_acknowledged(
    define: Any, serve: Any, eventually: Any, gate: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("connectors.memory.source.SETTLE_SECONDS", 0.5)
    first = MemorySource(name="memory", partitions=2)
    serving = serve(define(gated(gate), batch={"max_records": 1}), {"memory": first})
    feed(first, 1, 10, 11, 12, 13)
    eventually(lambda: serving.agent.meters.sources["memory"].polled_rows == 4)
    second = MemorySource(topic=first.topic, name="second")
    second.open()
    eventually(lambda: len(second.poll(1, 0, 0.05)) == 0 and len(second.group.owned(second)) == 1)
    second.close()
    eventually(lambda: first.group.owned(first) == {0, 1})
    # The old lane's records are in the pipeline and in the queue, those of the new one come behind them.
    gate.set()
    eventually(lambda: first.acknowledged == [0, 4])
    assert serving.results() == [10, 10, 11, 12, 13]


def test_a_member_that_was_thrown_out_acknowledges_nothing(define: Any, serve: Any, eventually: Any, gate: Any) -> None:
    first = MemorySource(name="memory")
    serving = serve(define(gated(gate), batch={"max_records": 1}), {"memory": first})
    feed(first, 0, 1, 2)
    eventually(lambda: serving.agent.meters.sources["memory"].polled_rows == 2)
    second = MemorySource(topic=first.topic, name="second")
    with first.topic.changed:
        first.group.expel(first)
    second.open()
    # Only now does the first find out, and joins again behind the second.
    eventually(lambda: 0 in second.group.owned(second) or len(second.poll(1, 0, 0.05)) == 1)
    gate.set()
    time.sleep(0.5)
    assert first.acknowledged == [0]
    assert set(polled(second, 0.3)) <= {1, 2}
    second.close()
