"""The source and sink inside a Faust app keep the connector contract.

The source is fed by a stand-in for Faust's consumer, whose events are Faust's own: an app that is started takes seconds
to join its group. `tests/faults/test_faust.py` has the source in whole workers, on a real Kafka.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import faust
import pytest
from confluent_kafka.admin import AdminClient
from faustloop import FaustLoop
from kafkatopics import CuttableKafka, Topics, read

from connectors.contract import Reader, SinkBus, SinkContract, SourceBus, SourceContract
from connectors.contract.faults import FaultContract
from connectors.message import Message
from connectors.sink import Sink
from connectors.source import Settle, Source
from streamer.devbroker import Broker, create_topics
from streamer.faust.sink import FaustSink
from streamer.faust.source import FaustSource

pytestmark = pytest.mark.slow

HUGE = 10_000_000
TOPIC = "records"


class StandIn(FaustSource):
    """A source beside a consumer: while it is open, it gets the bus's messages from the committed position on."""

    def __init__(self, bus: FaustSourceBus) -> None:
        super().__init__(bus.loop.app, name="kafka", most_held=bus.held_at_most - 2**16, commit=self.commit)
        self.bus = bus
        self.assigned: set[int] = set()
        self.next: dict[int, int] = {}
        self.given: dict[int, list[faust.Event]] = {}
        self.feeding: asyncio.Task[None] | None = None

    def open(self, settle: Settle | None = None, *, commits: bool = True) -> None:
        super().open(settle, commits=commits)
        self.bus.loop.run(self.take(range(self.bus.partitions)))

    def close(self) -> None:
        super().close()
        self.bus.loop.run(self.stop())

    async def take(self, partitions: Sequence[int]) -> None:
        """An assignment: these partitions, in a generation of its own."""
        self.bus.loop.app.consumer_generation_id += 1
        self.assigned = set(partitions)
        self.next = {number: self.bus.committed[number] for number in partitions}
        self.given = {number: [] for number in partitions}
        self.assign({faust.types.TP(TOPIC, number) for number in partitions})
        self.feeding = asyncio.ensure_future(self.give())

    async def give(self) -> None:
        while True:
            for number in sorted(self.assigned):
                for message in self.bus.log[number][self.next[number] :][:100]:
                    event = self.bus.event(message, number, self.next[number])
                    self.next[number] += 1
                    self.given[number].append(event)
                    await self.feed([event])
            await asyncio.sleep(0.005)

    async def stop(self) -> None:
        if self.feeding is not None:
            self.feeding.cancel()
            await asyncio.wait([self.feeding])
        await self.commit()

    async def lose(self, keep: Sequence[int]) -> None:
        """A rebalance after which it has these partitions."""
        if self.feeding is not None:
            self.feeding.cancel()
        await self.revoke({faust.types.TP(TOPIC, number) for number in self.assigned}, 30)
        await self.commit()
        await self.take(keep)

    async def commit(self) -> None:
        for number, events in self.given.items():
            for event in events:
                if not event.message.acked:
                    break
                self.bus.committed[number] = max(self.bus.committed[number], event.message.offset + 1)


class FaustSourceBus(SourceBus):
    partitions = 3
    held_at_most = 2 * 2**20

    def __init__(self, loop: FaustLoop) -> None:
        self.loop = loop
        self.log: list[list[Message]] = [[] for _ in range(self.partitions)]
        self.committed = [0] * self.partitions

    def feed(self, messages: Sequence[Message]) -> None:
        for one in messages:
            self.log[one.partition or 0].append(one)

    def event(self, message: Message, partition: int, offset: int) -> faust.Event:
        stamp = 1.7e9 if message.timestamp is None else message.timestamp / 1000.0
        own = faust.types.Message(
            TOPIC,
            partition,
            offset,
            stamp,
            0,
            list(message.headers),  # type: ignore[arg-type]
            message.key,
            message.value,
            None,
            generation_id=self.loop.app.consumer_generation_id,
        )
        return faust.Event(self.loop.app, message.key, message.value, None, own)

    def source(self) -> Source:
        async def made() -> StandIn:
            return StandIn(self)

        return self.loop.run(made())

    def take_away(self, source: Source) -> None:
        assert isinstance(source, StandIn)
        asyncio.run_coroutine_threadsafe(source.lose(range(1)), self.loop.loop)

    def give_back(self, source: Source) -> None:
        assert isinstance(source, StandIn)
        asyncio.run_coroutine_threadsafe(source.lose(range(self.partitions)), self.loop.loop)

    def held_bytes(self, source: Source) -> int:
        assert isinstance(source, StandIn)
        return source.held


class FaustSinkBus(SinkBus):
    in_flight_at_most = 8 * 2**20

    def __init__(self, loop: FaustLoop, bootstrap: str, topic: str, topics: Any, broker: Any = None) -> None:
        self._loop, self._bootstrap, self._topic, self._topics, self._broker = loop, bootstrap, topic, topics, broker

    def sink(self) -> Sink:
        async def made() -> FaustSink:
            return FaustSink(self._loop.app, self._topic, most_in_flight=self.in_flight_at_most)

        return self._loop.run(made())

    def read_back(self, count: int, topic: str | None = None) -> list[Message]:
        return read(self._bootstrap, topic or self._topic, count, self.patience)

    def too_large(self) -> Message:
        return Message(self.payload(0, 7_000_000), self.key(0))

    def other_topic(self) -> str:
        name: str = self._topics(1, prefix="other")
        return name

    def vanish(self) -> None:
        admin = AdminClient({"bootstrap.servers": self._bootstrap})
        admin.delete_topics([self._topic])[self._topic].result()

    def restore(self) -> None:
        create_topics(self._bootstrap, {self._topic: 1})

    def cut(self) -> None:
        self._broker.cut()

    def mend(self) -> None:
        self._broker.mend()


class TestFaustSource(SourceContract):
    cannot: ClassVar[dict[str, str]] = {
        "end": "a topic has no end",
        "backlog": "Faust fetches for itself, while nobody polls",
    }

    @pytest.fixture
    def bus(self) -> Iterator[SourceBus]:
        with FaustLoop() as loop:
            yield FaustSourceBus(loop)


class TestFaustSink(SinkContract):
    cannot: ClassVar[dict[str, str]] = {
        "override": "a topic keeps every message, not the last one of a key",
        "cut": "it needs a broker of its own: in the class below",
        "lose": "brokers lose nothing on command",
    }

    @pytest.fixture
    def bus(self, kafka: Broker, topics: Topics) -> Iterator[SinkBus]:
        topic = topics(1, max_message_bytes=str(HUGE))
        with FaustLoop(kafka.bootstrap, producer_max_request_size=6_000_000) as loop:
            yield FaustSinkBus(loop, kafka.bootstrap, topic, topics)


class TestFaustSinkWithoutItsBroker(FaultContract):
    cannot: ClassVar[dict[str, str]] = {"limit": "as above", "vanish": "as above", "lose": "as above"}

    @pytest.fixture
    def bus(self, cuttable_kafka: CuttableKafka, topic_name: Any) -> Iterator[SinkBus]:
        topic = topic_name()
        create_topics(cuttable_kafka.bootstrap, {topic: 1})
        with FaustLoop(cuttable_kafka.bootstrap) as loop:
            yield FaustSinkBus(loop, cuttable_kafka.bootstrap, topic, topic_name, cuttable_kafka)


def test_an_event_that_is_late_for_its_assignment_hides_none_of_the_next_one() -> None:
    """Taken from Faust's queue before the partition was revoked, and fed after that: the next assignment begins before
    it, and what it covers has to be delivered and acknowledged again."""
    with FaustLoop() as loop:
        bus = FaustSourceBus(loop)
        bus.feed([Message(bus.payload(number), partition=0) for number in range(10)])
        with Reader(bus.source(), bus.patience) as reader:
            source = reader.source
            assert isinstance(source, StandIn)
            reader.acknowledge(reader.take(10)[:4])

            async def late() -> None:
                event = bus.event(bus.log[0][7], 0, 7)
                assert source.feeding is not None
                source.feeding.cancel()
                await source.revoke({faust.types.TP(TOPIC, 0)}, 30)
                await source.commit()
                await source.feed([event])
                await source.take(range(1))

            ended = asyncio.run_coroutine_threadsafe(late(), loop.loop)
            again = reader.until(lambda r: ended.done())
            ended.result()
            deadline = time.monotonic() + bus.patience
            while {one.position for one in again if one.lane in reader.lanes} != set(range(4, 10)):
                assert time.monotonic() < deadline, [(one.lane.epoch, one.position) for one in again]
                again += reader.poll()
            assert [one.position for one in again] == list(range(4, 10)), "what is late overtook what comes again"
            reader.acknowledge(again)
        assert bus.committed[0] == 10
