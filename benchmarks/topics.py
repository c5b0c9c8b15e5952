"""Topics of the benchmark: filled, watched, read back and checked, deleted."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec

from benchmarks.messages import Checker
from benchmarks.programs.job import PARTITIONER
from streamer.devbroker import create_topics

PARTITIONS = 4
_TIMEOUT = 60.0


class Fills(Protocol):
    """Messages by their number."""

    def message(self, number: int) -> tuple[bytes, bytes, Iterable[tuple[str, bytes]] | None]:
        """Key, value and headers."""


class Topics:
    """The benchmark's view of the broker."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})

    @contextlib.contextmanager
    def created(self, names: Sequence[str], config: dict[str, str] | None = None) -> Iterator[None]:
        """Topics that exist inside the block only."""
        create_topics(self.bootstrap, dict.fromkeys(names, PARTITIONS), config=config)
        try:
            yield
        finally:
            for future in self._admin.delete_topics(list(names), operation_timeout=10.0).values():
                # Leftover topics do no harm: the broker is deleted, or its owner can delete them.
                with contextlib.suppress(KafkaException):
                    future.result(10.0)

    def fill(self, topic: str, messages: Fills, count: int, already: int = 0) -> None:
        """Send `count` messages, from number `already` on, and wait until the broker has them."""
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "linger.ms": 20,
                "batch.size": 1_000_000,
                "partitioner": PARTITIONER,
            }
        )
        for number in range(already, already + count):
            key, value, headers = messages.message(number)
            while True:
                try:
                    if headers is None:
                        producer.produce(topic, value, key)
                    else:
                        producer.produce(topic, value, key, headers=list(headers))
                    break
                except BufferError:
                    producer.poll(0.05)
            if number % 10_000 == 9_999:
                producer.poll(0)
        if producer.flush(_TIMEOUT) or self.ends([topic])[topic] < already + count:
            raise RuntimeError(f"topic {topic} could not be filled")

    def ends(self, names: Sequence[str]) -> dict[str, int]:
        """How many records each topic holds."""
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        wanted = {TopicPartition(name, partition): latest for name in names for partition in range(4)}
        found = dict.fromkeys(names, 0)
        for partition, future in self._admin.list_offsets(wanted, request_timeout=10.0).items():
            found[partition.topic] += future.result(10.0).offset
        return found

    def committed(self, group: str, topic: str) -> int:
        """How many records of the topic the group is done with."""
        asked = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, number) for number in range(PARTITIONS)])
        try:
            answer = self._admin.list_consumer_group_offsets([asked], require_stable=True, request_timeout=10.0)
            found = answer[group].result(20.0).topic_partitions
        except KafkaException:
            # Positions of a transaction are not known until it is over.
            return 0
        return sum(max(one.offset, 0) for one in found)

    def wait_for_group(self, group: str, members: int, timeout: float) -> None:
        """Wait until the group has so many members and each of them its partitions. Raises `RuntimeError`."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            with contextlib.suppress(KafkaException):
                found = self._admin.describe_consumer_groups([group], request_timeout=10.0)[group].result(10.0)
                shares = [len(member.assignment.topic_partitions) for member in found.members if member.assignment]
                if len(shares) == members and all(shares) and sum(shares) == PARTITIONS:
                    return
            time.sleep(0.1)
        raise RuntimeError(f"the group {group} has not got {members} members after {timeout:.0f} s")

    def check(self, topic: str, checker: Checker, expected: int) -> set[int]:
        """Read `expected` results or all there are; returns whose results they are.

        Raises `ValueError` for a wrong result and for two results of one message.
        """
        seen: set[int] = set()
        deadline = time.monotonic() + _TIMEOUT
        for key, value, headers in self._records(topic, expected):
            number = checker.number(key, value, headers)
            if number in seen:
                raise ValueError(f"message {number} has two results")
            seen.add(number)
            if time.monotonic() > deadline:
                raise ValueError(f"{topic} could not be read back in time")
        return seen

    def _records(self, topic: str, count: int) -> Iterator[tuple[bytes, bytes, list[tuple[str, bytes]] | None]]:
        consumer = Consumer(
            {"bootstrap.servers": self.bootstrap, "group.id": "bench-check", "fetch.queue.backoff.ms": 5}
        )
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in range(PARTITIONS)])
        try:
            while count > 0:
                messages = consumer.consume(10_000, 2.0)
                if not messages:
                    raise ValueError(f"{topic} lacks {count} records")
                count -= len(messages)
                for message in messages:
                    yield message.key() or b"", message.value() or b"", message.headers()  # type: ignore[misc]
        finally:
            consumer.close()
