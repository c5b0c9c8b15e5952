"""The contract of transactional sinks on a real Kafka, for both hot paths and two ways of assigning partitions."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from kafkabus import KafkaSourceBus, set_largest_message
from kafkatopics import CuttableKafka, Name, read

from connectors.contract import TransactionBus, TransactionContract
from connectors.kafka.config import KafkaSinkConfig
from connectors.message import Message
from connectors.sink import TransactionalSink
from pipelines.hotpath import HotPath
from streamer.devbroker import create_topics

pytestmark = pytest.mark.slow


class KafkaTransactionBus(KafkaSourceBus, TransactionBus):
    """Its sinks are those of one instance: a later one fences an earlier one."""

    partitions = 2

    def __init__(self, broker: CuttableKafka, topic: str, assignor: str) -> None:
        super().__init__(broker.bootstrap, topic, assignor)
        self.results, self.others = f"{topic}-results", f"{topic}-others"
        self._broker = broker
        create_topics(broker.bootstrap, {topic: self.partitions, self.results: 1, self.others: 1})

    def sink(self) -> TransactionalSink:
        one = self.config().model_copy(update={"instance": "one"})
        return self._sink_to(self.results).build_transactional(one, 15.0)

    def sibling(self, sink: TransactionalSink) -> TransactionalSink:
        return sink.sibling(self._sink_to(self.others))

    def read_back(self, count: int, topic: str | None = None) -> list[Message]:
        return read(self.bootstrap, topic or self.results, count, self.patience)

    def other_topic(self) -> str:
        return self.others

    def refused_late(self) -> Message:
        set_largest_message(self.bootstrap, self.results, 2000)
        return Message(os.urandom(5000))

    def fence(self, sink: TransactionalSink) -> None:
        thief = self.sink()
        thief.open()
        thief.close()

    def cut(self) -> None:
        self._broker.cut()

    def mend(self) -> None:
        self._broker.mend()

    def _sink_to(self, topic: str) -> KafkaSinkConfig:
        client = {"reconnect.backoff.max.ms": 500}
        return KafkaSinkConfig.model_validate({"bootstrap": self.bootstrap, "topic": topic, "client": client})


class TestKafkaTransactions(TransactionContract):
    @pytest.fixture
    def bus(self, cuttable_kafka: CuttableKafka, topic_name: Name, hot_path: HotPath) -> Iterator[TransactionBus]:
        # The assignor concerns the consumer, and the hot path how messages are sent: one of each is enough.
        bus = KafkaTransactionBus(cuttable_kafka, topic_name(), "range" if hot_path == "native" else "consumer")
        yield bus
        bus.close()
