"""Topics of a real Kafka as buses of the connector contract."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any, ClassVar

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from kafkatopics import IN_ORDER, QUICK

from connectors.contract import SourceBus
from connectors.kafka.config import KafkaSourceConfig
from connectors.message import Message
from connectors.source import Source
from streamer.devbroker import create_topics

HUGE = 10_000_000
"""Bytes of a message that topics and clients of these tests take."""
ANSWER = 60.0
"""Seconds that a broker on a busy machine may take for an answer."""


class KafkaSourceBus(SourceBus):
    """Feeds a source that is a member of a group of its own; another member comes and goes."""

    partitions = 3
    held_at_most = 6 * 2**20
    fields: ClassVar[dict[str, Any]] = {}
    """More of the source's configuration."""

    def __init__(self, bootstrap: str, topic: str, assignor: str = "range") -> None:
        self.bootstrap, self.topic, self.assignor = bootstrap, topic, assignor
        self._producer = Producer({"bootstrap.servers": bootstrap, "message.max.bytes": HUGE, **IN_ORDER})
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
        return self.config().build()

    def config(self) -> KafkaSourceConfig:
        """That of the source."""
        quick = QUICK if self.assignor != "consumer" else {}
        # A third of what may be held: the client may have one fetch on its way and one block read.
        limits = {"queued.max.messages.kbytes": 1024, "fetch.max.bytes": 2**20, "max.partition.fetch.bytes": 256 * 1024}
        # After a rewind the client asks for nothing else before brokers have answered what it asked last.
        limits["fetch.wait.max.ms"] = 50
        return KafkaSourceConfig.model_validate(
            {
                "bootstrap": self.bootstrap,
                "topics": self.topic,
                "group": self.topic,
                "assignor": self.assignor,
                "client": {**quick, **limits},
                **self.fields,
            }
        )

    def take_away(self, source: Source) -> None:
        self._other = Other(self.bootstrap, self.topic, self.assignor)

    def give_back(self, source: Source) -> None:
        self.stop()

    def close(self) -> None:
        """Nothing is left that talks to the broker."""
        self.stop()
        self._producer.close()

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


def set_largest_message(bootstrap: str, topic: str, size: int) -> None:
    """Set `max.message.bytes` of a topic; return when its broker keeps to it."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    change = ConfigEntry("max.message.bytes", str(size), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[change])
    for answer in admin.incremental_alter_configs([resource]).values():
        answer.result()
    deadline = time.monotonic() + ANSWER
    while admin.describe_configs([resource])[resource].result()["max.message.bytes"].value != str(size):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def make_anew(bootstrap: str, topic: str) -> None:
    """Delete this topic of one partition, and create it again."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for deleted in admin.delete_topics([topic]).values():
        deleted.result(ANSWER)
    deadline = time.monotonic() + ANSWER
    while topic in admin.list_topics(timeout=ANSWER).topics:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    create_topics(bootstrap, {topic: 1})
