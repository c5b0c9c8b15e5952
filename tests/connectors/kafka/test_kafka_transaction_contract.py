"""The contract of transactional sinks on a real Kafka, for both hot paths and two ways of assigning partitions."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kafkabus import KafkaSourceBus, read
from kafkafixtures import Topics

from connectors.contract import TransactionBus, TransactionContract
from connectors.kafka.config import KafkaSinkConfig
from connectors.kafka.transactionalsink import KafkaTransactionalSink
from connectors.message import Message
from streamer.devbroker import Broker

pytestmark = [pytest.mark.usefixtures("hot_path"), pytest.mark.slow]


class KafkaTransactionBus(KafkaSourceBus, TransactionBus):
    """Its sink is that of one process: a later one fences an earlier one."""

    partitions = 2
    timeout = 15.0

    def __init__(self, bootstrap: str, topic: str, results: str, assignor: str) -> None:
        super().__init__(bootstrap, topic, assignor)
        self.results = results

    def sink(self) -> KafkaTransactionalSink:
        sink = KafkaSinkConfig.model_validate({"bootstrap": self.bootstrap, "topic": self.results})
        return sink.build_transactional(self.config(), self.timeout)

    def read_back(self, count: int, topic: str | None = None) -> list[Message]:
        return read(self.bootstrap, topic or self.results, count, self.patience)


@pytest.mark.parametrize("assignor", ["range", "consumer"])
class TestKafkaTransactions(TransactionContract):
    @pytest.fixture
    def bus(self, kafka: Broker, topics: Topics, assignor: str) -> Iterator[TransactionBus]:
        bus = KafkaTransactionBus(kafka.bootstrap, topics(2), topics(1, prefix="results"), assignor)
        yield bus
        bus.stop()
