"""Memory connectors: the connector contract, and their own features."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
from memorybuses import MemorySinkBus, MemorySourceBus

from connectors.contract import (
    LoopBus,
    Reader,
    RoundTripContract,
    SessionBus,
    SessionContract,
    SinkBus,
    SinkContract,
    SourceBus,
    SourceContract,
    TransactionBus,
    TransactionContract,
)
from connectors.memory import (
    MemorySession,
    MemorySessionSource,
    MemorySink,
    MemorySinkConfig,
    MemorySource,
    MemorySourceConfig,
    MemoryTopic,
    MemoryTransactionalSink,
    MemoryTransactions,
    Message,
    forget_memory_topic,
    memory_topic,
)
from connectors.message import block_of
from connectors.records import Lane
from connectors.registry import SINKS, SOURCES
from connectors.sink import Sink, TransactionalSink
from connectors.source import LaneBegan, LaneEnded, Source, SourceEnded
from pipelines import Data
from pipelines.errors import ConnectorError


class MemorySessionBus(SessionBus):
    patience = 10.0
    quiet = 0.1

    def __init__(self, window: int | None = None) -> None:
        self.window = window
        self.session = MemorySession(window=window)

    def feed(self, messages: Sequence[Message]) -> None:
        self.session.feed(messages)

    def source(self) -> Source:
        return MemorySessionSource(self.session, name="one")

    def end(self) -> None:
        self.session.end()

    def drop(self, source: Source) -> None:
        self.session.connect()

    def forget(self, source: Source) -> None:
        self.session.forget()


HOLDS_NOTHING = {"held": "a memory source reads from its topic and holds nothing itself"}
KEEPS_ALL = {"override": "a topic keeps every message", "vanish": "a topic stays as long as it is used"}


class TestMemorySource(SourceContract):
    cannot = HOLDS_NOTHING

    @pytest.fixture
    def bus(self) -> SourceBus:
        return MemorySourceBus()


@dataclass(frozen=True, order=True)
class Picture:
    """An object as a payload, as a frame of a camera is one."""

    number: int
    nbytes: int = 0

    def payload(self) -> bytes:
        return b"picture %d" % self.number


class TestMemorySourceOfObjects(SourceContract):
    cannot = HOLDS_NOTHING | {"empty": "an object is never empty", "huge": "an object is handed on by reference"}

    @pytest.fixture
    def bus(self) -> SourceBus:
        return ObjectBus()


class ObjectBus(MemorySourceBus):
    def payload(self, number: int, size: int = 0) -> Picture:
        return Picture(number, size)


class TestMemorySinkOfObjects(SinkContract):
    cannot = KEEPS_ALL | {
        "bytes": "the payloads of these tests are objects",
        "empty": "an object is never empty",
        "huge": "an object is handed on by reference",
        "lose": "the fault is that of one payload of bytes",
        "limit": "as above",
    }

    @pytest.fixture
    def bus(self) -> SinkBus:
        return ObjectSinkBus()


class ObjectSinkBus(MemorySinkBus):
    def payload(self, number: int, size: int = 0) -> Picture:
        return Picture(number, size)


class TestMemorySourceOfOnePartition(SourceContract):
    cannot = HOLDS_NOTHING | {"partitions": "it has one", "revoke": "the one partition stays with its first reader"}

    @pytest.fixture
    def bus(self) -> SourceBus:
        return MemorySourceBus(partitions=1)


class TestMemorySessionSource(SourceContract):
    cannot = HOLDS_NOTHING | {
        "partitions": "there is one lane",
        "revoke": "a session has one client",
        "positions": "they are numbers of arrival",
    }

    @pytest.fixture
    def bus(self) -> SourceBus:
        return MemorySessionBus()


@pytest.mark.slow
@pytest.mark.parametrize("window", [1, 20, 50])
def test_a_session_with_a_window_keeps_to_it_and_says_so(window: int) -> None:
    SourceContract().test_a_starved_source_goes_on_when_something_is_acknowledged(MemorySessionBus(window))


class TestMemorySession(SessionContract):
    @pytest.fixture
    def bus(self) -> SessionBus:
        return MemorySessionBus(window=20)


class TestMemorySink(SinkContract):
    cannot = KEEPS_ALL

    @pytest.fixture
    def bus(self) -> SinkBus:
        return MemorySinkBus()


class BufferedBus(MemorySinkBus):
    def sink(self) -> Sink:
        return MemorySink(self.topic, buffered=True)


class TestBufferedMemorySink(SinkContract):
    cannot = KEEPS_ALL | {"cut": "it is never full: it holds sent messages until a barrier"}

    @pytest.fixture
    def bus(self) -> SinkBus:
        return BufferedBus()


class MemoryLoop(LoopBus):
    patience = 10.0
    quiet = 0.1

    def __init__(self) -> None:
        self.topic = MemoryTopic("loop", partitions=2)

    def source(self) -> Source:
        return MemorySource(topic=self.topic)

    def sink(self) -> Sink:
        return MemorySink(self.topic)


class TestMemoryRoundTrip(RoundTripContract):
    @pytest.fixture
    def bus(self) -> LoopBus:
        return MemoryLoop()


class MemoryTransactionBus(MemorySourceBus, TransactionBus):
    def __init__(self) -> None:
        super().__init__(partitions=2)
        self.results = MemoryTopic("results")
        self.others = MemoryTopic("others")
        self.results.faults.refuse_late = lambda message: "it is poison" if message.value == b"poison" else None
        self._identity = f"contract-{next(_numbers)}"

    def sink(self) -> MemoryTransactionalSink:
        transactions = MemoryTransactions(self.results.faults, self._identity)
        return MemoryTransactionalSink(self.results, transactions=transactions)

    def sibling(self, sink: TransactionalSink) -> MemoryTransactionalSink:
        return MemoryTransactionalSink(self.others, transactions=cast(MemoryTransactionalSink, sink).transactions)

    def read_back(self, count: int, topic: str | None = None) -> list[Message]:
        return (self.others if topic == "others" else self.results).messages()

    def other_topic(self) -> str:
        return "others"

    def refused_late(self) -> Message:
        return Message(b"poison")

    def fence(self, sink: TransactionalSink) -> None:
        self.sink().open()

    def cut(self) -> None:
        self.results.faults.cut()

    def mend(self) -> None:
        self.results.faults.mend()


_numbers = itertools.count()


class TestMemoryTransactions(TransactionContract):
    @pytest.fixture
    def bus(self) -> TransactionBus:
        return MemoryTransactionBus()


def test_a_list_of_payloads_messages_and_data_is_delivered_and_ends() -> None:
    data = Data({"x": 1})
    source = MemorySource([b"raw", Message(b"full", b"key", (("h", b"v"),), 5), data, None])
    with Reader(source) as reader:
        received = reader.until(lambda r: any(isinstance(event, SourceEnded) for event in r.seen))
    assert [one.message.value for one in received] == [b"raw", b"full", data.to_bytes(), None]
    assert received[1].message[:4] == (b"full", b"key", (("h", b"v"),), 5)


def test_an_endless_iterable_is_taken_only_as_far_as_it_is_polled() -> None:
    taken = itertools.count()
    source = MemorySource(b"%d" % next(taken) for _ in itertools.count())
    with Reader(source) as reader:
        reader.take(20)
    assert next(taken) <= 22


def test_an_endless_iterable_waits_for_acknowledgements_when_its_topic_is_full() -> None:
    source = MemorySource((bytes(1000) for _ in itertools.count()), topic=MemoryTopic("small", max_bytes=10_000))
    with Reader(source) as reader:
        first = reader.listen(0.2)
        assert len(first) == 10
        reader.acknowledge(first)
        assert len(reader.take(10)) == 10


def test_values_may_be_any_object() -> None:
    frame = np.zeros((480, 640, 3), np.uint8)
    with Reader(MemorySource([frame])) as reader:
        assert reader.take(1)[0].message.value is frame


def test_a_source_can_be_fed_and_ended_while_it_runs() -> None:
    source = MemorySource(partitions=2)

    def feed() -> None:
        source.feed(b"a", b"b")
        source.end()

    feeder = threading.Timer(0.1, feed)
    with Reader(source) as reader:
        feeder.start()
        received = reader.until(lambda r: any(isinstance(event, SourceEnded) for event in r.seen))
        reader.acknowledge(received)
    assert [one.message.value for one in received] == [b"a", b"b"]
    assert source.acknowledged == [1, 1]


def test_a_rewound_source_ends_again_after_the_rest() -> None:
    with Reader(MemorySource([b"a", b"b"])) as reader:
        received = reader.until(lambda r: any(isinstance(event, SourceEnded) for event in r.seen))
        reader.source.rewind([received[0].lane])
        assert len(reader.take(2)) == 2
        reader.listen(0.1)
        assert sum(isinstance(event, SourceEnded) for event in reader.seen) == 2


def test_two_sources_of_a_group_share_the_partitions_and_two_groups_do_not() -> None:
    topic = MemoryTopic(partitions=4)
    topic.extend(Message(b"%d" % n, partition=n % 4) for n in range(8))
    with (
        Reader(MemorySource(topic=topic, group="one")) as first,
        Reader(MemorySource(topic=topic, group="one")) as second,
        Reader(MemorySource(topic=topic, group="two")) as all_of_it,
    ):
        halves = first.listen(0.1) + second.listen(0.1)
        assert {lane.partition for lane in first.lanes} == {"0", "2"}
        assert {lane.partition for lane in second.lanes} == {"1", "3"}
        assert sorted(one.message.value for one in halves) == [b"%d" % n for n in range(8)]
        assert len(all_of_it.take(8)) == 8


def test_an_expelled_source_loses_its_lanes_unsettled_and_joins_again() -> None:
    source = MemorySource()
    source.feed(b"a", b"b")
    settled: list[object] = []

    def settle(lanes: Iterable[Lane], deadline: float) -> Mapping[Lane, int]:
        settled.append(lanes)
        return {}

    with Reader(source, settle=settle) as reader:
        received = reader.take(2)
        source.group.expel(source)
        reader.acknowledge(received)
        again = reader.take(2)
    assert source.acknowledged == [0]
    assert [one.message.value for one in again] == [b"a", b"b"]
    assert settled == []
    assert [type(event) for event in reader.seen] == [LaneBegan, LaneEnded, LaneBegan]


def test_a_group_that_begins_at_the_latest_gets_only_what_comes_then() -> None:
    topic = MemoryTopic()
    topic.extend([Message(b"old")])
    with Reader(MemorySource(topic=topic, start="latest")) as reader:
        reader.poll()
        topic.extend([Message(b"new")])
        assert [one.message.value for one in reader.take(1)] == [b"new"]


def test_a_full_topic_holds_its_sender_back_until_somebody_acknowledges() -> None:
    topic = MemoryTopic("small", max_bytes=1000)
    sink = MemorySink(topic, max_in_flight=0)
    sink.open()
    refused = sink.send(block_of([Message(bytes(400)) for _ in range(4)]), time.monotonic() + 0.1)
    assert sorted(refused) == [3]
    assert refused[3].retriable
    assert "acknowledge" in str(refused[3]) or "max_bytes" in str(refused[3])
    with Reader(MemorySource(topic=topic)) as reader:
        reader.acknowledge(reader.take(2))
        assert sink.barrier(time.monotonic() + 30) == {}
        assert len(reader.take(1)) == 1


def test_a_message_that_fits_does_not_overtake_one_that_does_not() -> None:
    sink = MemorySink(max_in_flight=100)
    sink.open()
    sink.topic.faults.cut()
    refused = sink.send(block_of([Message(bytes(60)), Message(bytes(60)), Message(bytes(1))]), time.monotonic())
    assert sorted(refused) == [1, 2]
    assert all(error.retriable for error in refused.values())


def test_a_sink_writes_to_the_topics_that_its_messages_name() -> None:
    name = "test_memory.named"
    try:
        sink = MemorySink()
        sink.open()
        sink.send(block_of([Message(b"a", topic=name), Message(b"b")]), time.monotonic() + 30)
        assert [m.value for m in memory_topic(name).messages()] == [b"a"]
        assert [m.value for m in sink.messages] == [b"b"]
    finally:
        forget_memory_topic(name)


def test_without_a_barrier_a_buffered_sink_loses_what_it_was_sent() -> None:
    sink = MemorySink(buffered=True)
    sink.open()
    sink.send(block_of([Message(b"a")]), time.monotonic() + 30)
    assert sink.confirmed() == []
    sink.close()
    assert sink.messages == []


def test_a_slow_sink_takes_its_time() -> None:
    sink = MemorySink()
    sink.topic.faults.delay = 0.1
    sink.open()
    began = time.monotonic()
    sink.send(block_of([Message(b"a")]), time.monotonic() + 30)
    assert time.monotonic() - began >= 0.1


def test_a_commit_without_an_answer_is_made_once_and_cannot_be_aborted() -> None:
    source, sink = MemorySource([b"a"]), MemoryTransactionalSink()
    sink.open()
    with Reader(source, commits=False) as reader:
        (one,) = reader.take(1)
        sink.begin(time.monotonic() + 30)
        sink.send(block_of([Message(b"result")]), time.monotonic() + 30)
        sink.topic.faults.silent = 1
        token = source.transaction_token()
        with pytest.raises(ConnectorError) as raised:
            sink.commit({one.lane: 1}, token, time.monotonic() + 30)
        assert raised.value.retriable
        with pytest.raises(ConnectorError) as raised:
            sink.abort(time.monotonic() + 30)
        assert raised.value.retriable
        sink.commit({one.lane: 1}, token, time.monotonic() + 30)
    assert [m.value for m in sink.messages] == [b"result"]
    assert source.acknowledged == [1]


def test_a_transactional_sink_says_which_sources_it_cannot_serve() -> None:
    sink = MemoryTransactionalSink()
    assert sink.accepts(MemorySource()) is None
    assert sink.accepts(cast(Source, SimpleNamespace(name="camera"))) == "camera is not a memory source"


def test_a_topic_name_connects_a_sink_and_a_source_of_service_files() -> None:
    name = "test_memory.connects"
    try:
        sink = SINKS.get("memory").model_validate({"type": "memory", "topic": name}).build()
        source = SOURCES.get("memory").model_validate({"type": "memory", "topic": name, "name": "in"}).build()
        sink.open()
        sink.send(block_of([Message(b"a")]), time.monotonic() + 30)
        with Reader(source) as reader:
            (one,) = reader.take(1)
        assert (one.lane.source, one.message.value, one.message.topic) == ("in", b"a", name)
        with pytest.raises(ConnectorError, match="has 1 partitions already"):
            MemorySourceConfig(topic=name, partitions=2).build()
        transactional = MemorySinkConfig(topic=name).build_transactional(MemorySourceConfig(topic=name), 15.0)
        assert isinstance(transactional, MemoryTransactionalSink)
    finally:
        forget_memory_topic(name)
    assert memory_topic(name).messages() == []
    forget_memory_topic(name)


def test_using_a_connector_that_is_not_open_is_an_error() -> None:
    with pytest.raises(ConnectorError, match="not open"):
        MemorySource([b"a"]).poll(1, 1, 0)
    with pytest.raises(ConnectorError, match="not open"):
        MemorySink().send(block_of([Message(b"a")]), 0)


def test_a_partition_that_is_not_there_is_an_error() -> None:
    with pytest.raises(ConnectorError, match="no partition 3"):
        MemoryTopic().append(Message(b"a", partition=3))
