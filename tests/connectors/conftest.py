"""For the tests of Kafka connectors: sources, writers, and a real Kafka that can be cut off in an instant."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from cuttable import Proxy
from kafkafixtures import Committed, MakeSource, Polled, Write

from connectors.contract import Reader, Received
from connectors.kafka.config import KafkaSourceConfig
from connectors.kafka.source import KafkaSource
from pipelines import hotpath
from pipelines.errors import MissingPackageError
from streamer.devbroker import BrokerError, LocalKafka, MockKafka
from streamer.devbroker.settings import SLOW_LOSS

QUICK = {"heartbeat.interval.ms": 200, "session.timeout.ms": 6000}


class CuttableKafka:
    """A real broker whose clients come through a proxy, as it tells them to.

    `cut` closes their connections and refuses new ones until `mend`; `broker` can be frozen. It tells members of the
    new group protocol soon which partitions to give up, and does not wait long for one whose LeaveGroup was lost.
    """

    def __init__(self) -> None:
        self._proxy = Proxy()
        intervals = {"heartbeat.interval": "300", "session.timeout": "6000"}
        quick = {
            f"group.consumer.{least}{name}.ms": value for name, value in intervals.items() for least in ("", "min.")
        }
        here = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{self._proxy.port}"}
        self.broker = LocalKafka(settings=SLOW_LOSS | quick | here)
        self.bootstrap = f"127.0.0.1:{self._proxy.port}"

    def start(self) -> None:
        # The broker is asked through its proxy already while it starts.
        self._proxy.open(lambda: int(self.broker.bootstrap.rpartition(":")[2]))
        self.broker.start()

    def cut(self) -> None:
        self._proxy.close()

    def mend(self) -> None:
        self._proxy.listen()

    def stop(self) -> None:
        self._proxy.end()
        self.broker.stop()


@pytest.fixture(scope="session")
def _own_kafka() -> Iterator[CuttableKafka]:
    kafka = CuttableKafka()
    try:
        kafka.start()
    except (BrokerError, MissingPackageError) as error:
        kafka.stop()
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))
    yield kafka
    kafka.stop()


@pytest.fixture
def cuttable_kafka(_own_kafka: CuttableKafka) -> Iterator[CuttableKafka]:
    """A real Kafka, started once for each worker, that a test may cut off or freeze; it is whole again afterwards."""
    yield _own_kafka
    _own_kafka.broker.thaw()
    _own_kafka.cut()
    _own_kafka.mend()


def _source(bootstrap: str, topics: str | Sequence[str], group: str, **fields: Any) -> KafkaSource:
    quick = QUICK if fields.get("assignor") != "consumer" else {}
    client = {**quick, **fields.pop("client", {})}
    config = {"bootstrap": bootstrap, "topics": topics, "group": group, "client": client, **fields}
    return KafkaSource(KafkaSourceConfig.model_validate(config))


def _write(bootstrap: str, topic: str, values: Iterable[bytes | None], partition: int = 0, **more: Any) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "enable.idempotence": True})
    for value in values:
        producer.produce(topic, value, partition=partition, **more)
    assert producer.flush(60) == 0


def _committed(bootstrap: str, group: str, topic: str, partition: int = 0) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    (found,) = consumer.committed([TopicPartition(topic, partition)], timeout=60)
    consumer.close()
    return -1 if found.offset is None else found.offset


@contextmanager
def _polled(reader: Reader) -> Iterator[list[Received]]:
    """Polls a second member beside the first."""
    done = threading.Event()
    received: list[Received] = []

    def poll() -> None:
        with reader:
            while not done.is_set():
                received.extend(reader.poll(timeout=0.05))

    thread = threading.Thread(target=poll)
    thread.start()
    try:
        yield received
    finally:
        done.set()
        thread.join()


@pytest.fixture
def source() -> MakeSource:
    """A factory of Kafka sources that rebalance quickly: `source(bootstrap, topics, group, **fields)`."""
    return _source


@pytest.fixture
def mock_kafka(mock_kafka: MockKafka, monkeypatch: pytest.MonkeyPatch) -> MockKafka:
    """The mock cluster never says which ids topics have: sources ask for them when partitions come, and wait."""
    monkeypatch.setattr("connectors.kafka.client.queries._ATTEMPT", 0.5)
    return mock_kafka


@pytest.fixture
def write() -> Write:
    """`write(bootstrap, topic, values, partition)` returns when they are there."""
    return _write


@pytest.fixture
def committed() -> Committed:
    """`committed(bootstrap, group, topic, partition)`: the position the brokers have; negative for none."""
    return _committed


@pytest.fixture
def polled() -> Polled:
    """`with polled(reader) as received:` polls a second member beside the first."""
    return _polled


@pytest.fixture
def native(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The compiled extension, where it was built; nothing is chosen by the environment."""
    monkeypatch.delenv(hotpath.VARIABLE, raising=False)
    if reason := hotpath.why_not():
        pytest.skip(f"the compiled hot path: {reason}")
    extension = hotpath.choose().native
    assert extension is not None
    return extension
