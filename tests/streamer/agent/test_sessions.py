"""Services on a bus that keeps a session, and hands out only so many unacknowledged records."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from waiting import PATIENCE, until

import pipelines
from connectors.memory import MemorySession, MemorySessionSource, MemorySink, MemorySource, MemorySourceConfig
from connectors.message import Message
from pipelines import Data
from streamer.agent.agent import Agent
from streamer.agent.assembly import build
from streamer.agent.summary import Summary
from streamer.definition.service import Service


def same(data: Data) -> Data:
    return data


def numbers(count: int, start: int = 0) -> list[Message]:
    return [Message(Data({"x": x}).to_bytes()) for x in range(start, start + count)]


def values(sink: MemorySink) -> list[int]:
    return [Data.from_bytes(message.value).get_int64("x") for message in sink.messages]


class Running:
    """A service on a session, its sinks, and what it did."""

    def __init__(
        self,
        session: MemorySession,
        *,
        step: Any = same,
        sink: MemorySink | None = None,
        dead: MemorySink | None = None,
        others: dict[str, MemorySource] | None = None,
        **options: Any,
    ) -> None:
        self.session = session
        self.sink = MemorySink(name="out") if sink is None else sink
        self.dead = MemorySink(name="dead_letter") if dead is None else dead
        others = others or {}
        service = Service(
            name="sessions",
            source=[MemorySourceConfig(topic=name, name=name) for name in ("bus", *others)],
            pipeline=pipelines.Sequence([step]),
            sink={"type": "memory", "topic": "out", "name": "out"},
            dead_letter={"type": "memory", "topic": "dead"},
            **options,
        )
        sources = {"bus": MemorySessionSource(session, name="bus"), **others}
        self.agent = Agent(service, assembly=build(service, sources=sources, sinks={"out": self.sink}, dead=self.dead))

    @property
    def closed(self) -> dict[str, int]:
        return dict(self.agent.meters.sources["bus"].closed)

    def to_the_end(self) -> Summary:
        self.session.end()
        self.agent.start()
        return self.join()

    def join(self) -> Summary:
        try:
            return self.agent.join(PATIENCE)
        finally:
            self.agent.stop()


@pytest.mark.parametrize("buffered", [False, True])
@pytest.mark.parametrize("window", [1, 20, 50])
def test_a_bus_with_a_window_gets_its_acknowledgements_at_once(window: int, buffered: bool) -> None:
    session = MemorySession(window=window)
    session.feed(numbers(40 * window))
    running = Running(session, sink=MemorySink(name="out", buffered=buffered), batch={"max_wait": "1m"})
    assert running.to_the_end().ok == 40 * window
    assert values(running.sink) == list(range(40 * window))
    assert session.acknowledged == 40 * window
    # Each window in one batch or two, none of which waited for more.
    assert 40 <= running.closed["window"] + running.closed.get("drain", 0) <= 80
    assert running.closed.keys() <= {"window", "drain"}


def test_a_hard_batch_that_is_larger_than_the_window_does_not_stand_still() -> None:
    session = MemorySession(window=20)
    session.feed(numbers(100))
    running = Running(session, batch={"type": "hard", "max_records": 64})
    assert running.to_the_end().ok == 100
    assert running.closed["window"] == 5


def test_a_window_of_several_batches_is_settled_once_they_are_run() -> None:
    session = MemorySession(window=100)
    session.feed(numbers(1000))
    running = Running(session, sink=MemorySink(name="out", buffered=True), batch={"max_records": 30, "max_wait": "1m"})
    assert running.to_the_end().ok == 1000
    assert session.acknowledged == 1000
    assert 10 <= session.acknowledgements <= 40


def test_a_full_window_does_not_wait_for_a_busy_source_beside_it() -> None:
    session = MemorySession(window=5)
    session.feed(numbers(100))
    done = threading.Event()

    def endless() -> Any:
        while not done.is_set():
            yield Data({"x": -1})

    busy = MemorySource(endless(), name="busy")
    running = Running(
        session, others={"busy": busy}, sink=MemorySink(name="out", buffered=True), batch={"max_records": 8}
    )
    session.end()
    running.agent.start()
    until(lambda: session.acknowledged == 100)
    flowed = running.agent.meters.run.outcomes["busy", "ok"]
    done.set()
    running.join()
    assert flowed > 0


def test_a_session_is_acknowledged_as_results_are_confirmed_and_not_by_the_clock() -> None:
    session = MemorySession()
    running = Running(session)
    running.agent.start()
    for count in range(1, 41):
        session.feed(numbers(1))
        until(lambda: len(running.sink.messages) == count)  # noqa: B023
    until(lambda: session.acknowledged == 40)
    # All of this takes a fraction of the second that other sources have between two acknowledgements.
    assert session.acknowledgements >= 10
    running.agent.stop()
    running.join()


@pytest.mark.parametrize("window", [None, 4])
def test_a_lost_result_has_its_record_come_again(window: int | None) -> None:
    session = MemorySession(window=window)
    session.feed(numbers(12))
    sink = MemorySink(name="out", buffered=True)
    lost: list[Message] = []

    def lose(message: Message) -> bool:
        if not lost and Data.from_bytes(message.value).get_int64("x") == 5:
            lost.append(message)
            return True
        return False

    sink.topic.faults.lose = lose
    running = Running(session, sink=sink, batch={"max_records": 4})
    running.to_the_end()
    assert lost
    assert set(values(sink)) == set(range(12))
    assert running.dead.messages == []
    assert session.acknowledged == 12


def test_counts_of_a_connector_are_among_the_metrics_of_its_service() -> None:
    session = MemorySession()
    session.feed(numbers(3))
    running = Running(session)
    running.to_the_end()
    registry = CollectorRegistry()
    registry.register(running.agent.meters)
    labels = {"service": "sessions", "part": "source bus"}
    assert registry.get_sample_value("streamer_memory_sessions_lost_total", labels) == 0
    assert registry.get_sample_value("streamer_memory_unacknowledged_records", labels) == 0


class Gate:
    """A step that waits until it may go on."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.open = threading.Event()

    def __call__(self, data: Data) -> Data:
        if data.get_int64("x") == 0:
            self.reached.set()
            assert self.open.wait(PATIENCE)
        return data


def test_records_in_hand_when_the_session_is_lost_are_finished_and_not_acknowledged() -> None:
    session, gate = MemorySession(), Gate()
    session.feed(numbers(10))
    running = Running(session, step=gate, batch={"type": "hard", "max_records": 4})
    running.agent.start()
    assert gate.reached.wait(PATIENCE)
    until(lambda: session.waiting == 0)
    # Four are being run, four wait in the queue, two for others to make a batch with.
    session.forget()
    session.feed(numbers(2, start=10))
    until(lambda: session.waiting == 0)
    gate.open.set()
    until(lambda: session.acknowledged == 2)
    running.agent.stop()
    assert running.join().ok == 12
    assert values(running.sink) == list(range(12))
    assert session.acknowledged == 2


def test_a_result_that_is_lost_after_its_session_is_a_dead_letter() -> None:
    session, gate = MemorySession(), Gate()
    session.feed(numbers(4))
    sink = MemorySink(name="out", buffered=True)
    sink.topic.faults.lose = lambda message: Data.from_bytes(message.value).get_int64("x") == 2
    running = Running(session, step=gate, sink=sink)
    running.agent.start()
    assert gate.reached.wait(PATIENCE)
    session.forget()
    session.feed(numbers(1, start=7))
    until(lambda: session.waiting == 0)
    gate.open.set()
    until(lambda: session.acknowledged == 1)
    running.agent.stop()
    running.join()
    assert values(sink) == [0, 1, 3, 7]
    assert [Data.from_bytes(message.value).get_int64("x") for message in running.dead.messages] == [2]
