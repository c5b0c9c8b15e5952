"""Kafka's source and sink keep the connector contract, on a real Apache Kafka."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, cast

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from kafkafixtures import CuttableKafka, Topics

import connectors.kafka.client.properties
from connectors.contract import LoopBus, RoundTripContract, SinkBus, SinkContract, SourceBus, SourceContract
from connectors.contract.delivery import DeliveryContract
from connectors.contract.faults import FaultContract
from connectors.kafka.config import KafkaSinkConfig, KafkaSourceConfig
from connectors.kafka.source import KafkaSource
from connectors.message import Message
from connectors.records import Header
from connectors.sink import Sink
from connectors.source import Source
from streamer.devbroker import Broker, create_topics

pytestmark = [pytest.mark.usefixtures("hot_path"), pytest.mark.slow]

HUGE = 10_000_000
QUICK = {"heartbeat.interval.ms": 200, "session.timeout.ms": 6000}
OVERRIDE = {"override": "a topic keeps every message, not the last one of a key"}

TopicName = Callable[..., str]


class KafkaSourceBus(SourceBus):
    partitions = 3
    held_at_most = 6 * 2**20

    def __init__(self, bootstrap: str, topic: str, assignor: str = "range") -> None:
        self.bootstrap, self.topic, self.assignor = bootstrap, topic, assignor
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "message.max.bytes": HUGE, "linger.ms": 0, "enable.idempotence": True}
        )
        self._other: Other | None = None

    def feed(self, messages: Sequence[Message]) -> None:
        for one in messages:
            self._producer.produce(
                self.topic,
                one.value,
                one.key,
                one.partition or 0,
                headers=list(one.headers) or None,
                timestamp=one.timestamp or 0,
            )
        assert self._producer.flush(self.patience) == 0

    def source(self) -> Source:
        quick = QUICK if self.assignor != "consumer" else {}
        # A third of what may be held: the client may have one fetch on its way and one block read.
        limits = {"queued.max.messages.kbytes": 1024, "fetch.max.bytes": 2**20, "max.partition.fetch.bytes": 256 * 1024}
        return KafkaSourceConfig.model_validate(
            {
                "bootstrap": self.bootstrap,
                "topics": self.topic,
                "group": self.topic,
                "assignor": self.assignor,
                "client": {**quick, **limits},
            }
        ).build()

    def take_away(self, source: Source) -> None:
        self._other = Other(self.bootstrap, self.topic, self.assignor)

    def give_back(self, source: Source) -> None:
        self.stop()

    def stop(self) -> None:
        if self._other is not None:
            self._other.leave()
            self._other = None


class Other:
    """Another member of the group, that only takes part in rebalances."""

    def __init__(self, bootstrap: str, topic: str, assignor: str) -> None:
        how: dict[str, Any] = (
            {"group.protocol": "consumer"}
            if assignor == "consumer"
            else {"partition.assignment.strategy": assignor, **QUICK}
        )
        self._consumer = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": topic, "enable.auto.commit": False, **how}
        )
        self._consumer.subscribe([topic])
        self._left = threading.Event()
        self._thread = threading.Thread(target=self._live)
        self._thread.start()

    def _live(self) -> None:
        while not self._left.is_set():
            self._consumer.poll(0.05)
        self._consumer.close()

    def leave(self) -> None:
        self._left.set()
        self._thread.join()


class KafkaSinkBus(SinkBus):
    in_flight_at_most = 8 * 2**20

    def __init__(
        self, bootstrap: str, topic: str, new_topic: Callable[[], str], broker: CuttableKafka | None = None
    ) -> None:
        self.bootstrap, self.topic, self._new_topic, self._broker = bootstrap, topic, new_topic, broker

    def sink(self) -> Sink:
        return KafkaSinkConfig.model_validate(
            {
                "bootstrap": self.bootstrap,
                "topic": self.topic,
                "max_message": 6_000_000,
                "client": {
                    "queue.buffering.max.kbytes": 8 * 1024,
                    "reconnect.backoff.max.ms": 500,
                    # A topic that a test deletes stays away.
                    "allow.auto.create.topics": False,
                },
            }
        ).build()

    def read_back(self, count: int, topic: str | None = None) -> list[Message]:
        return read(self.bootstrap, topic or self.topic, count, self.patience)

    def too_large(self) -> Message:
        return Message(self.payload(0, 7_000_000), self.key(0))

    def other_topic(self) -> str:
        return self._new_topic()

    def vanish(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        admin.delete_topics([self.topic])[self.topic].result()

    def restore(self) -> None:
        create_topics(self.bootstrap, {self.topic: 1})

    def cut(self) -> None:
        assert self._broker is not None
        self._broker.cut()

    def mend(self) -> None:
        assert self._broker is not None
        self._broker.mend()


class KafkaLoopBus(LoopBus):
    def __init__(self, bootstrap: str, topic: str) -> None:
        self._into = KafkaSinkBus(bootstrap, topic, lambda: topic)
        self._out = KafkaSourceBus(bootstrap, topic)

    def sink(self) -> Sink:
        return self._into.sink()

    def source(self) -> Source:
        return self._out.source()


def read(bootstrap: str, topic: str, count: int, patience: float) -> list[Message]:
    """All of partition 0, as soon as there are `count`."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=patience)[1]
    found: list[Message] = []
    deadline = time.monotonic() + patience
    while len(found) < max(count, end) and time.monotonic() < deadline:
        found += [
            Message(one.value(), one.key(), tuple(cast(list[Header], one.headers() or [])), one.timestamp()[1])
            for one in consumer.consume(1000, 0.2 if len(found) < count else 0.0)
            if one.error() is None
        ]
    consumer.close()
    return found


class TestKafkaSource(SourceContract):
    cannot: ClassVar[dict[str, str]] = {"end": "a topic has no end"}
    assignor = "range"

    @pytest.fixture
    def bus(self, kafka: Broker, topics: Topics, monkeypatch: pytest.MonkeyPatch) -> Iterator[SourceBus]:
        bus = WatchedBus(kafka.bootstrap, topics(3, max_message_bytes=str(HUGE)), self.assignor)
        with bus.watching(monkeypatch):
            yield bus
        bus.stop()


class WatchedBus(KafkaSourceBus):
    """Knows from the client's statistics how many bytes it holds."""

    _held = 0

    @contextmanager
    def watching(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        properties = connectors.kafka.client.properties.source_properties

        def watched(*arguments: Any) -> dict[str, Any]:
            return {**properties(*arguments), "statistics.interval.ms": 20, "stats_cb": self._count}

        with monkeypatch.context() as patch:
            patch.setattr("connectors.kafka.source.source_properties", watched)
            yield

    def held_bytes(self, source: Source) -> int:
        assert isinstance(source, KafkaSource)
        # Statistics are served by the client's poll: paused, it would throw away what is to be measured.
        source._reading.receive(1, 0)
        return self._held + source._reading.held_bytes

    def _count(self, statistics: str) -> None:
        topics = json.loads(statistics)["topics"].values()
        self._held = sum(one["fetchq_size"] for topic in topics for one in topic["partitions"].values())


class TestKafkaSourceOnTheBrokersOwnProtocol(DeliveryContract):
    cannot: ClassVar[dict[str, str]] = {
        "end": "a topic has no end",
        "held": "as above",
        "restart": "as above; and brokers let a member in at their next heartbeat",
    }

    @pytest.fixture
    def bus(self, cuttable_kafka: CuttableKafka, topic_name: TopicName) -> Iterator[SourceBus]:
        topic = topic_name()
        create_topics(cuttable_kafka.bootstrap, {topic: 3})
        bus = KafkaSourceBus(cuttable_kafka.bootstrap, topic, "consumer")
        yield bus
        bus.stop()


class TestKafkaSink(SinkContract):
    cannot: ClassVar[dict[str, str]] = {
        **OVERRIDE,
        "cut": "it needs a broker of its own: in the class below",
        "lose": "brokers lose nothing on command: test_kafka_sink freezes one instead",
    }

    @pytest.fixture
    def bus(self, kafka: Broker, topics: Topics) -> SinkBus:
        topic = topics(1, max_message_bytes=str(HUGE))
        return KafkaSinkBus(kafka.bootstrap, topic, lambda: topics(1, prefix="other"))


class TestKafkaSinkWithoutItsBroker(FaultContract):
    cannot: ClassVar[dict[str, str]] = {
        "limit": "as above",
        "vanish": "as above",
        "lose": "brokers lose nothing on command: test_kafka_sink freezes one instead",
    }

    @pytest.fixture
    def bus(self, cuttable_kafka: CuttableKafka, topic_name: TopicName) -> SinkBus:
        topic = topic_name()
        create_topics(cuttable_kafka.bootstrap, {topic: 1})
        return KafkaSinkBus(cuttable_kafka.bootstrap, topic, topic_name, cuttable_kafka)


class TestKafkaRoundTrip(RoundTripContract):
    @pytest.fixture
    def bus(self, kafka: Broker, topics: Topics) -> LoopBus:
        return KafkaLoopBus(kafka.bootstrap, topics(2, max_message_bytes=str(HUGE)))
