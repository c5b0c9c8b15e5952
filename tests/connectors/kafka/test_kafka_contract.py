"""Kafka's source and sink keep the connector contract, on a real Apache Kafka."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import pytest
from confluent_kafka.admin import AdminClient
from kafkabus import HUGE, KafkaSourceBus
from kafkatopics import CuttableKafka, Topics, read

import connectors.kafka.client.properties
from connectors.contract import LoopBus, RoundTripContract, SinkBus, SinkContract, SourceBus, SourceContract
from connectors.contract.delivery import DeliveryContract
from connectors.contract.faults import FaultContract
from connectors.kafka.config import KafkaSinkConfig
from connectors.kafka.source import KafkaSource
from connectors.message import Message
from connectors.sink import Sink
from connectors.source import Source
from streamer.devbroker import Broker, create_topics

pytestmark = [pytest.mark.usefixtures("hot_path"), pytest.mark.slow]

OVERRIDE = {"override": "a topic keeps every message, not the last one of a key"}

TopicName = Callable[..., str]


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
        # Until it has heard of it itself, a broker takes messages for the topic, and throws them away with it.
        deadline = time.monotonic() + self.patience
        while self.topic in admin.list_topics(timeout=self.patience).topics:
            assert time.monotonic() < deadline, f"{self.topic} is still there"
            time.sleep(0.05)

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


class TestKafkaSource(SourceContract):
    cannot: ClassVar[dict[str, str]] = {"end": "a topic has no end"}
    assignor = "range"

    @pytest.fixture
    def bus(self, kafka: Broker, topics: Topics, monkeypatch: pytest.MonkeyPatch) -> Iterator[SourceBus]:
        bus = WatchedBus(kafka.bootstrap, topics(3, max_message_bytes=str(HUGE)), self.assignor)
        with bus.watching(monkeypatch):
            yield bus
        bus.close()


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
        # Statistics are served by the client's poll: paused, it would drop the records that are to be measured.
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
        bus.close()


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
