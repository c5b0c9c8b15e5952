"""In which order a block's messages reach librdkafka: by partition where that is cheaper, and never out of order."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from connectors.kafka import bridge
from connectors.kafka.config import KafkaSinkConfig
from connectors.kafka.secrets import Scrubber
from connectors.message import Message, block_of
from pipelines.hotpath import HotPath
from pipelines.spans import Spans
from streamer.broker import Broker

Topics = Callable[..., str]
PATIENCE = 60.0
PARTITIONS = 6
COUNT = 600
PARTITIONERS = ("murmur2_random", "murmur2", "consistent_random", "consistent", "fnv1a_random", "fnv1a", "random")


def key(number: int) -> bytes | None:
    """Of many devices; some messages have none, or an empty one."""
    return None if number % 50 == 7 else b"" if number % 50 == 8 else b"device-%d" % (number * 7919 % 83)


def read(bootstrap: str, topic: str, count: int) -> dict[int, list[tuple[bytes | None, int]]]:
    """Key and number of so many messages, in the order of each partition."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    found: dict[int, list[tuple[bytes | None, int]]] = defaultdict(list)
    deadline = time.monotonic() + PATIENCE
    while sum(map(len, found.values())) < count and time.monotonic() < deadline:
        for one in consumer.consume(count, 0.5):
            assert one.error() is None
            found[one.partition() or 0].append((one.key(), int(one.value() or b"")))
    consumer.close()
    return found


@contextmanager
def writing(bootstrap: str, **properties: Any) -> Iterator[tuple[Any, Producer]]:
    made = bridge.join(
        Producer,
        lambda extension: extension.KafkaWriter(),
        {"bootstrap.servers": bootstrap, "linger.ms": 0, "partitioner": "murmur2_random", **properties},
        "native",
        "test",
        Scrubber({}),
        producer=True,
    )
    yield made.handle, made.client
    made.client.close()


def goes_anywhere(key: bytes | None, partitioner: str) -> bool:
    """Whether librdkafka sends messages with this key to any partition, for some time to the same."""
    return partitioner == "random" or key is None or (key == b"" and partitioner == "consistent_random")


@pytest.mark.parametrize("headers", [False, True], ids=["plain", "headers"])
@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_each_partition_gets_its_keys_in_their_order_whatever_the_lane(
    kafka: Broker, topics: Topics, hot_path: HotPath, partitioner: Any, headers: bool
) -> None:
    topic = topics(PARTITIONS)
    some = (("trace", b"1"),) if headers else ()
    sink = KafkaSinkConfig(bootstrap=kafka.bootstrap, topic=topic, partitioner=partitioner, hot_path=hot_path).build()
    sink.open()
    for start in range(0, COUNT, COUNT // 2):
        block = block_of([Message(b"%d" % n, key(n), some) for n in range(start, start + COUNT // 2)])
        assert sink.send(block, time.monotonic() + PATIENCE) == {}
    assert sink.barrier(time.monotonic() + PATIENCE) == {}
    sink.close()
    found = read(kafka.bootstrap, topic, COUNT)
    assert sorted(number for rows in found.values() for _, number in rows) == list(range(COUNT))
    # librdkafka decides where a key goes: asked without us, it decides the same.
    expected = topics(PARTITIONS)
    plain = Producer({"bootstrap.servers": kafka.bootstrap, "partitioner": partitioner})
    for n in range(COUNT):
        plain.produce(expected, b"%d" % n, key(n))
    assert plain.flush(PATIENCE) == 0
    plain.close()
    places = {n: partition for partition, rows in read(kafka.bootstrap, expected, COUNT).items() for _, n in rows}
    for partition, rows in found.items():
        chosen = [n for name, n in rows if not goes_anywhere(name, partitioner)]
        assert chosen == sorted(chosen)
        assert {places[n] for n in chosen} <= {partition}


@pytest.mark.parametrize("stamped", [False, True], ids=["in bulk", "one by one"])
@pytest.mark.parametrize("foreseen", [PARTITIONS, PARTITIONS - 1], ids=["right", "wrong"])
def test_where_the_queue_was_full_it_goes_on_partition_by_partition(
    kafka: Broker, topics: Topics, native: ModuleType, stamped: bool, foreseen: int
) -> None:
    topic = topics(PARTITIONS)
    values, keys = Spans.of([b"%d" % n for n in range(COUNT)]), Spans.of([key(n) for n in range(COUNT)])
    stamps = np.full(COUNT, 1_700_000_000_000, np.int64) if stamped else None
    with writing(kafka.bootstrap, **{"queue.buffering.max.messages": 100}) as (writer, producer):
        writer.foresee(topic, foreseen, "murmur2_random")
        left, marks = None, []
        while left is None or left:
            left, refused, mark = writer.write([topic], values, keys, None, stamps, rows=left)
            assert refused == []
            marks += [mark] if mark else []
            if len(left) == COUNT - 100:
                rest = left
            assert producer.flush(PATIENCE) == 0
        assert writer.finished() == (marks, [])
    found = read(kafka.bootstrap, topic, COUNT)
    assert sorted(number for rows in found.values() for _, number in rows) == list(range(COUNT))
    for rows in found.values():
        for name in {name for name, _ in rows} - {None}:
            kept = [n for other, n in rows if other == name]
            assert kept == sorted(kept)
    if foreseen == PARTITIONS:
        for rows in found.values():
            kept = [n for name, n in rows if name is not None]
            assert kept == sorted(kept)
        places = {n: partition for partition, rows in found.items() for name, n in rows if name is not None}
        visited = [places[n] for n in rest if n in places]
        assert visited == sorted(visited)


def test_messages_that_come_a_partition_at_a_time_stay_as_they_are(
    kafka: Broker, topics: Topics, native: ModuleType
) -> None:
    topic = topics(PARTITIONS)
    values, keys = Spans.of([b"%d" % n for n in range(300)]), Spans.of([b"%d" % (n // 50) for n in range(300)])
    with writing(kafka.bootstrap, **{"queue.buffering.max.messages": 100}) as (writer, producer):
        writer.foresee(topic, PARTITIONS, "murmur2_random")
        left, _, _ = writer.write([topic], values, keys)
        assert left == list(range(100, 300))
        assert producer.flush(PATIENCE) == 0


def test_a_refused_message_is_named_whatever_the_order(kafka: Broker, topics: Topics, native: ModuleType) -> None:
    topic = topics(PARTITIONS)
    values = Spans.of([bytes(3000) if n in (5, 411) else b"%d" % n for n in range(COUNT)])
    keys = Spans.of([key(n) for n in range(COUNT)])
    with writing(kafka.bootstrap, **{"message.max.bytes": 1000}) as (writer, producer):
        writer.foresee(topic, PARTITIONS, "murmur2_random")
        left, refused, mark = writer.write([topic], values, keys)
        too_large = KafkaError.MSG_SIZE_TOO_LARGE
        assert (left, sorted(refused)) == ([], [(5, too_large), (411, too_large)])
        assert producer.flush(PATIENCE) == 0
        assert writer.finished() == ([mark], [])
