"""In which order a block's messages reach librdkafka: by partition where that is cheaper, and never out of order."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import defaultdict, deque
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from confluent_kafka import KafkaError, Producer
from kafkatopics import Topics, read

from connectors.kafka.client import bridge
from connectors.kafka.config import KafkaSinkConfig
from connectors.kafka.producer.writing import CompiledWriting, PlainWriting, Sent
from connectors.message import Message, block_of
from connectors.secrets import Scrubber
from pipelines.data.spans import Spans
from pipelines.hotpath import HotPath, choose, choosing
from streamer.devbroker import Broker

pytestmark = pytest.mark.slow

PATIENCE = 60.0
PARTITIONS = 6
COUNT = 600
ROOM = 270
"""More than librdkafka is told of in one call, and no multiple of it."""
HELD = {"linger.ms": 60_000, "message.timeout.ms": 120_000}
"""Nothing leaves the queue, and so makes room in it, before it is flushed."""
PARTITIONERS = ("murmur2_random", "murmur2", "consistent_random", "consistent", "fnv1a_random", "fnv1a", "random")


def key(number: int) -> bytes | None:
    """Of many devices; some messages have none, or an empty one."""
    return None if number % 50 == 7 else b"" if number % 50 == 8 else b"device-%d" % (number * 7919 % 83)


def placed(bootstrap: str, topic: str, count: int) -> dict[int, list[tuple[bytes | None, int]]]:
    """Key and number of so many messages, in the order of each partition."""
    places: dict[int, list[tuple[bytes | None, int]]] = defaultdict(list)
    for one in read(bootstrap, topic, count, PATIENCE):
        places[one.partition or 0].append((one.key, int(one.value or b"")))
    return places


def check_each_came_once_in_the_order_of_its_key(found: dict[int, list[tuple[bytes | None, int]]]) -> None:
    assert sorted(number for rows in found.values() for _, number in rows) == list(range(COUNT))
    for rows in found.values():
        for name in {name for name, _ in rows} - {None}:
            kept = [n for other, n in rows if other == name]
            assert kept == sorted(kept)


@contextmanager
def writing(bootstrap: str, **properties: Any) -> Iterator[tuple[Any, Producer]]:
    made = bridge.join(
        Producer,
        lambda extension: extension.KafkaWriter(),
        {"bootstrap.servers": bootstrap, "linger.ms": 0, "partitioner": "murmur2_random", **properties},
        choosing("native")(choose)(),
        "test",
        Scrubber({}),
        producer=True,
    )
    yield made.handle, made.client
    made.client.close()


def goes_anywhere(key: bytes | None, partitioner: str) -> bool:
    """Whether librdkafka sends messages with this key to any partition, for some time to the same."""
    return partitioner == "random" or key is None or (key == b"" and partitioner == "consistent_random")


def test_messages_go_to_the_partitions_that_they_name_whatever_their_keys(
    kafka: Broker, topics: Topics, hot_path: HotPath
) -> None:
    topic = topics(PARTITIONS)
    sink = choosing(hot_path)(KafkaSinkConfig(bootstrap=kafka.bootstrap, topic=topic).build)()
    sink.open()
    block = block_of([Message(b"%d" % n, key(n)) for n in range(COUNT)])
    block.partitions = np.arange(COUNT, dtype=np.int64) * 5 // 3 % PARTITIONS
    assert sink.send(block, time.monotonic() + PATIENCE) == {}
    unknown = block_of([Message(b"nowhere", b"k"), Message(b"%d" % COUNT, b"k")])
    unknown.partitions = np.array([PARTITIONS, 0], np.int64)
    assert list(sink.send(unknown, time.monotonic() + PATIENCE)) == [0]
    assert sink.barrier(time.monotonic() + PATIENCE) == {}
    sink.close()
    found = placed(kafka.bootstrap, topic, COUNT + 1)
    for partition, rows in found.items():
        numbers = [n for _, n in rows if n < COUNT]
        assert numbers == [n for n in range(COUNT) if block.partitions[n] == partition]
    assert found[0][-1] == (b"k", COUNT)


@pytest.mark.parametrize("headers", [False, True], ids=["plain", "headers"])
@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_each_partition_gets_its_keys_in_their_order_whatever_the_lane(
    kafka: Broker, topics: Topics, hot_path: HotPath, partitioner: Any, headers: bool
) -> None:
    topic = topics(PARTITIONS)
    some = (("trace", b"1"),) if headers else ()
    sink = choosing(hot_path)(KafkaSinkConfig(bootstrap=kafka.bootstrap, topic=topic, partitioner=partitioner).build)()
    sink.open()
    for start in range(0, COUNT, COUNT // 2):
        block = block_of([Message(b"%d" % n, key(n), some) for n in range(start, start + COUNT // 2)])
        assert sink.send(block, time.monotonic() + PATIENCE) == {}
    assert sink.barrier(time.monotonic() + PATIENCE) == {}
    sink.close()
    found = placed(kafka.bootstrap, topic, COUNT)
    assert sorted(number for rows in found.values() for _, number in rows) == list(range(COUNT))
    # librdkafka decides where a key goes: asked without us, it decides the same.
    expected = topics(PARTITIONS)
    plain = Producer({"bootstrap.servers": kafka.bootstrap, "partitioner": partitioner})
    for n in range(COUNT):
        plain.produce(expected, b"%d" % n, key(n))
    assert plain.flush(PATIENCE) == 0
    plain.close()
    places = {n: partition for partition, rows in placed(kafka.bootstrap, expected, COUNT).items() for _, n in rows}
    for partition, rows in found.items():
        keyed = [n for name, n in rows if not goes_anywhere(name, partitioner)]
        assert keyed == sorted(keyed)
        assert {places[n] for n in keyed} <= {partition}


@pytest.mark.parametrize("stamped", [False, True], ids=["in bulk", "one by one"])
@pytest.mark.parametrize("foreseen", [PARTITIONS, PARTITIONS - 1], ids=["right", "wrong"])
def test_where_the_queue_was_full_it_goes_on_partition_by_partition(
    kafka: Broker, topics: Topics, native: ModuleType, stamped: bool, foreseen: int
) -> None:
    topic = topics(PARTITIONS)
    values, keys = Spans.of([b"%d" % n for n in range(COUNT)]), Spans.of([key(n) for n in range(COUNT)])
    stamps = np.full(COUNT, 1_700_000_000_000, np.int64) if stamped else None
    with writing(kafka.bootstrap, **HELD, **{"queue.buffering.max.messages": ROOM}) as (writer, producer):
        writer.foresee(topic, foreseen, "murmur2_random")
        left, marks, waiting = None, [], []
        while left is None or left:
            left, refused, some = writer.write([topic], values, keys, None, stamps, rows=left)
            assert refused == []
            marks += some
            waiting.append(left)
            assert producer.flush(PATIENCE) == 0
        assert [len(rows) for rows in waiting] == [COUNT - ROOM, COUNT - 2 * ROOM, 0]
        finished, failures = writer.finished()
        assert (sorted(finished), failures) == (marks, [])
    found = placed(kafka.bootstrap, topic, COUNT)
    check_each_came_once_in_the_order_of_its_key(found)
    if foreseen == PARTITIONS:
        for rows in found.values():
            kept = [n for name, n in rows if name is not None]
            assert kept == sorted(kept)
        places = {n: partition for partition, rows in found.items() for name, n in rows if name is not None}
        visited = [places[n] for n in waiting[0] if n in places]
        assert visited == sorted(visited)


def test_messages_that_come_a_partition_at_a_time_stay_as_they_are(
    kafka: Broker, topics: Topics, native: ModuleType
) -> None:
    topic = topics(PARTITIONS)
    values, keys = Spans.of([b"%d" % n for n in range(300)]), Spans.of([b"%d" % (n // 50) for n in range(300)])
    with writing(kafka.bootstrap, **HELD, **{"queue.buffering.max.messages": 100}) as (writer, producer):
        writer.foresee(topic, PARTITIONS, "murmur2_random")
        left, _, _ = writer.write([topic], values, keys)
        assert left == list(range(100, 300))
        assert producer.flush(PATIENCE) == 0


def values_with(large: set[int]) -> Spans:
    return Spans.of([bytes(3000) if n in large else b"%d" % n for n in range(COUNT)])


def all_but(left_out: set[int]) -> list[int]:
    return [n for n in range(COUNT) if n not in left_out]


@pytest.mark.parametrize("stamped", [False, True], ids=["in bulk", "one by one"])
def test_a_refused_message_is_named_whatever_the_order_and_though_the_queue_is_full_behind_it(
    kafka: Broker, topics: Topics, native: ModuleType, stamped: bool
) -> None:
    topic = topics(PARTITIONS)
    large = set(range(5, COUNT, 29))
    keys = Spans.of([key(n) for n in range(COUNT)])
    stamps = np.full(COUNT, 1_700_000_000_000, np.int64) if stamped else None
    properties = {"message.max.bytes": 1000, "queue.buffering.max.messages": ROOM}
    with writing(kafka.bootstrap, **HELD, **properties) as (writer, producer):
        writer.foresee(topic, PARTITIONS, "murmur2_random")
        left, marks, refused = None, [], []
        while left is None or left:
            left, some, new = writer.write([topic], values_with(large), keys, None, stamps, rows=left)
            refused += some
            marks.append(new)
            assert producer.flush(PATIENCE) == 0
            assert writer.outstanding == 0
        assert len(marks) == 3
        assert sorted(refused) == [(n, KafkaError.MSG_SIZE_TOO_LARGE) for n in sorted(large)]
        finished, failures = writer.finished()
        assert (sorted(finished), failures) == ([mark for some in marks for mark in some], [])
    found = placed(kafka.bootstrap, topic, COUNT - len(large))
    assert sorted(number for rows in found.values() for _, number in rows) == all_but(large)


@pytest.mark.parametrize("stamped", [False, True], ids=["in bulk", "one by one"])
def test_a_lost_message_is_named_whatever_the_order(
    kafka: Broker, topics: Topics, native: ModuleType, stamped: bool
) -> None:
    # The topic takes no larger message; the client would. Alone in its batch, it takes no other with it.
    topic = topics(PARTITIONS, max_message_bytes="1000")
    large = {5, 300, 411}
    keys = Spans.of([key(n) for n in range(COUNT)])
    stamps = np.full(COUNT, int(time.time() * 1000), np.int64) if stamped else None
    with writing(kafka.bootstrap, **{"batch.num.messages": 1}) as (writer, producer):
        writer.foresee(topic, PARTITIONS, "murmur2_random")
        left, refused, marks = writer.write([topic], values_with(large), keys, None, stamps)
        assert (left, refused) == ([], [])
        assert producer.flush(PATIENCE) == 0
        finished, failures = writer.finished()
    assert sorted(finished) == marks
    assert {mark for _, mark, _ in failures} <= set(marks)
    assert sorted((code, n) for code, _, n in failures) == [(KafkaError.MSG_SIZE_TOO_LARGE, n) for n in sorted(large)]
    found = placed(kafka.bootstrap, topic, COUNT - len(large))
    assert sorted(number for rows in found.values() for _, number in rows) == all_but(large)


def makes_room(producer: Producer, answers: deque[bool]) -> bool:
    return answers.popleft() and producer.flush(PATIENCE) == 0


def test_messages_without_room_in_time_are_named_and_may_be_sent_again(
    kafka: Broker, topics: Topics, native: ModuleType
) -> None:
    topic = topics(PARTITIONS)
    block = block_of([Message(b"%d" % n, key(n)) for n in range(COUNT)])
    with writing(kafka.bootstrap, **HELD, **{"queue.buffering.max.messages": ROOM}) as (writer, producer):
        written = CompiledWriting(producer, writer)
        written.foresee(topic, PARTITIONS, "murmur2_random")
        outstanding: deque[Sent] = deque()
        rows = np.arange(COUNT)
        while len(rows):
            some = block.take(rows)
            sent = Sent(some, topic)
            # There is room once more, but not for all that are left.
            answers = deque([True, False])
            full = written.send(sent, some, topic, partial(makes_room, producer, answers))
            assert {error.code() for error in full.values()} <= {KafkaError._QUEUE_FULL}
            outstanding.append(sent)
            # As `streamer.delivery.sending` does it: in the order of the block.
            rows = rows[sorted(full)]
            assert producer.flush(PATIENCE) == 0
        assert len(outstanding) == 2
        assert [one.losses() for one in written.finished(outstanding, 0)] == [{}, {}]
        assert written.is_idle()
    check_each_came_once_in_the_order_of_its_key(placed(kafka.bootstrap, topic, COUNT))


@pytest.mark.parametrize("room", [1300, 1024, 700, 512, 0])
def test_in_plain_python_a_block_larger_than_the_queue_is_accepted_up_to_a_message_and_not_behind_it(room: int) -> None:
    count = 1300
    block = block_of([Message(b"%d" % n, key(n)) for n in range(count)])
    # No broker is there: only `purge` makes room.
    held = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0, **HELD, "queue.buffering.max.messages": max(room, 1)}
    producer = Producer(held)
    if not room:
        producer.produce("topic", b"in the way")
    sent = Sent(block, "topic")
    full = PlainWriting(producer).send(sent, block, "topic", lambda: False)
    assert sorted(full) == list(range(room, count))
    assert {error.code() for error in full.values()} <= {KafkaError._QUEUE_FULL}
    producer.purge()
    assert producer.flush(PATIENCE) == 0
    assert sorted(sent.losses()) == list(range(room))


def test_in_plain_python_the_rest_of_a_block_follows_in_order_as_soon_as_there_is_room() -> None:
    block = block_of([Message(b"%d" % n, key(n)) for n in range(1300)])
    held = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0, **HELD, "queue.buffering.max.messages": 300}
    producer = Producer(held)
    sent = Sent(block, "topic")
    lost: list[list[int]] = []

    def purged() -> bool:
        producer.purge()
        producer.flush(PATIENCE)
        lost.append(list(sent.losses()))
        return True

    assert PlainWriting(producer).send(sent, block, "topic", purged) == {}
    purged()
    assert [len(one) for one in lost] == [300, 600, 900, 1200, 1300]
    assert sorted(lost[3]) == list(range(1200))
    assert sorted(lost[4]) == list(range(1300))


def test_a_key_that_is_too_long_for_librdkafka_is_refused_and_ends_no_process(native: ModuleType) -> None:
    # Four gibibytes that are never written to take no memory.
    script = f"""
import numpy as np
from confluent_kafka import KafkaError, Producer
from connectors.kafka.client import bridge
from pipelines.hotpath import choose
from pipelines.data.spans import Spans

native = bridge._bridge(choose())
native.kafka_expect(True)
producer = Producer({{bridge.PLUGINS: native.__file__, "test.mock.num.brokers": 1, "partitioner": "consistent"}})
writer = native.KafkaWriter()
writer.foresee("topic", {PARTITIONS}, "consistent")
keys = Spans(np.zeros(2**32, np.uint8), np.array([0], np.int64), np.array([2**32], np.int64))
assert writer.write(["topic"], Spans.of([b"x"]), keys) == ([], [(0, KafkaError.MSG_SIZE_TOO_LARGE)], [])
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=2 * PATIENCE)
    assert ended.returncode == 0, ended.stderr
