"""Topics of a real Kafka that tests write, and read as members of a group that rebalances quickly."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, cast

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from connectors.contract import Reader, Received
from connectors.kafka.config import KafkaSourceConfig
from connectors.kafka.source import KafkaSource
from connectors.message import Message
from connectors.records import Header
from streamer.devbroker import LocalKafka

Topics = Callable[..., str]
Name = Callable[..., str]
QUICK = {"heartbeat.interval.ms": 200, "session.timeout.ms": 6000}
"""Properties of a member whose group learns soon that it is gone."""
QUICK_GROUPS = {
    f"group.consumer.{least}{name}.ms": value
    for name, value in {"heartbeat.interval": "300", "session.timeout": "6000"}.items()
    for least in ("", "min.")
}
"""Settings of a broker that tells members of its own group protocol soon which partitions to take or to give up, which
is every five seconds by default, and does not wait long for one that is gone."""
IN_ORDER = {"linger.ms": 0, "max.in.flight.requests.per.connection": 1}
"""Properties of a producer whose records keep their order, on brokers that stay: an idempotent one would first wait for
half a second or a whole one, for its number."""


class CuttableKafka(Protocol):
    """The fixture of `tests/connectors/conftest.py`."""

    bootstrap: str
    broker: LocalKafka

    def cut(self) -> None: ...
    def mend(self) -> None: ...


@dataclass(frozen=True)
class ReadTopic:
    """A topic, and a group of the same name that reads it."""

    bootstrap: str
    name: str

    def write(self, values: Iterable[bytes | None], partition: int = 0, **more: Any) -> None:
        """Write records with these payloads; returns when they are there."""
        write(self.bootstrap, self.name, values, partition, **more)

    def config(self, **fields: Any) -> KafkaSourceConfig:
        """A member of the group, not built yet. It reads this topic, unless `topics` are given."""
        return config(self.bootstrap, fields.pop("topics", self.name), self.name, **fields)

    def source(self, **fields: Any) -> KafkaSource:
        """A member of the group."""
        return KafkaSource(self.config(**fields))

    def reader(self, *, settle: Any = None, **fields: Any) -> Reader:
        """A member of the group, read by a test."""
        return Reader(self.source(**fields), settle=settle)

    def committed(self, partition: int = 0) -> int:
        """The position of the group that the brokers have; negative for none."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": self.name})
        (answer,) = consumer.committed([TopicPartition(self.name, partition)], timeout=60)
        consumer.close()
        return int(answer.offset)


class At(Protocol):
    """Brokers."""

    @property
    def bootstrap(self) -> str: ...


class MakeTopic(Protocol):
    """`read_topic(3)` creates a topic of three partitions; `on` another broker than that of the run, if it is given."""

    def __call__(
        self, partitions: int = 1, prefix: str = "test", *, on: At | None = None, **settings: str
    ) -> ReadTopic: ...


def config(bootstrap: str, topics: str | Sequence[str], group: str, **fields: Any) -> KafkaSourceConfig:
    """The configuration of a source that rebalances quickly."""
    quick = QUICK if fields.get("assignor") != "consumer" else {}
    client = {**quick, **fields.pop("client", {})}
    return KafkaSourceConfig.model_validate(
        {"bootstrap": bootstrap, "topics": topics, "group": group, "client": client, **fields}
    )


def source(bootstrap: str, topics: str | Sequence[str], group: str, **fields: Any) -> KafkaSource:
    """A source that rebalances quickly."""
    return KafkaSource(config(bootstrap, topics, group, **fields))


def write(bootstrap: str, topic: str, values: Iterable[bytes | None], partition: int = 0, **more: Any) -> None:
    """Write records with these payloads; returns when they are there."""
    producer = Producer({"bootstrap.servers": bootstrap, **IN_ORDER})
    for value in values:
        producer.produce(topic, value, partition=partition, **more)
    assert producer.flush(60) == 0


def read(bootstrap: str, topic: str, least: int = 0, patience: float = 60.0) -> list[Message]:
    """All that is committed in a topic, in the order of each partition, as soon as there is at least so much."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.message.max.bytes": 10_000_000,
            # Else brokers wait half a second for more before they tell of the end.
            "fetch.wait.max.ms": 10,
        }
    )
    partitions = list(consumer.list_topics(topic, patience).topics[topic].partitions)
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in partitions])
    messages: list[Message] = []
    deadline = time.monotonic() + patience
    # The end tells more than a count: markers of transactions have offsets, too.
    before_the_end = set(partitions)
    while (len(messages) < least or before_the_end) and time.monotonic() < deadline:
        for one in consumer.consume(1000, 0.2):
            error = one.error()
            if error is None:
                headers = tuple(cast(list[Header], one.headers() or []))
                messages.append(Message(one.value(), one.key(), headers, one.timestamp()[1], one.partition()))
            elif error.code() == KafkaError._PARTITION_EOF:
                before_the_end.discard(one.partition() or 0)
    consumer.close()
    return messages


@contextmanager
def polled(reader: Reader) -> Iterator[list[Received]]:
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


def numbers(start: int, stop: int) -> list[bytes]:
    """Payloads of records that tell their order."""
    return [b"%d" % number for number in range(start, stop)]


def values(received: Iterable[Received]) -> list[bytes]:
    """The payloads of what was received."""
    return [one.message.value for one in received]


def forbid(bootstrap: str, kind: ResourceType, name: str, operation: AclOperation) -> None:
    """Deny all users an operation, on brokers with access rules."""

    def rule(what: AclOperation, permission: AclPermissionType) -> AclBinding:
        return AclBinding(kind, name, ResourcePatternType.LITERAL, "User:ANONYMOUS", "*", what, permission)

    # A resource with a rule is forbidden except for the allowed operations.
    rules = [rule(AclOperation.ALL, AclPermissionType.ALLOW), rule(operation, AclPermissionType.DENY)]
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for answer in admin.create_acls(rules).values():
        answer.result()
    # Brokers learn of it a moment later.
    time.sleep(1)


def facts(messages: Iterable[Message]) -> list[Any]:
    """All of messages, in order, but partitions and the times at which they were made."""
    return sorted(
        (message.key, message.value, [header for header in message.headers if header[0] != "streamer-time"])
        for message in messages
    )
