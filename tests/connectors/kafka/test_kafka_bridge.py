"""The compiled bridge to confluent-kafka's clients beside plain Python: common behaviour, and when plain Python is used
instead."""

from __future__ import annotations

import json
import logging
import random
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from kafkatopics import Topics, numbers, read, write

from connectors.contract import Reader
from connectors.headers import Headers
from connectors.kafka.client import bridge
from connectors.kafka.config import KafkaSinkConfig, KafkaSourceConfig
from connectors.kafka.consumer.reading import CompiledReading, PlainReading, Reading
from connectors.kafka.producer.writing import CompiledWriting, Sent
from connectors.message import Message, block_of, messages_of_records
from connectors.records import Lane, Records
from connectors.secrets import Scrubber
from pipelines.data.spans import Spans
from pipelines.hotpath import HotPath, choose, choosing
from streamer.devbroker import Broker

PATIENCE = 60.0
HERE = Lane("test", "0", 0)


def soon() -> float:
    return time.monotonic() + PATIENCE


class Assigned:
    """A consumer that reads partition 0 of one topic, on one lane or the other."""

    def __init__(self, bootstrap: str, topic: str, hot_path: HotPath, **properties: Any) -> None:
        made = bridge.join(
            Consumer,
            lambda extension: extension.KafkaReader(),
            {
                "bootstrap.servers": bootstrap,
                "group.id": topic,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                **properties,
            },
            choosing(hot_path)(choose)(),
            "test",
            Scrubber({}),
        )
        self.topic = topic
        self.consumer = made.client
        self.handle = made.handle
        self.reading: Reading = (
            PlainReading(made.client, topic) if made.handle is None else CompiledReading(made.client, made.handle)
        )
        self.codes: list[int] = []
        self.reading.begin([(topic, 0)])
        self.consumer.assign([TopicPartition(topic, 0, 0)])

    def __enter__(self) -> Assigned:
        return self

    def __exit__(self, *exception: object) -> None:
        self.reading.close()
        self.consumer.close()

    def take(self, count: int) -> Records:
        """A block of `count` records."""
        deadline = soon()
        while self.reading.held < count:
            assert time.monotonic() < deadline, f"only {self.reading.held} of {count} came"
            self.listen(count - self.reading.held)
        return self.reading.take("test", count, 2**30, lambda place, first: HERE)

    def listen(self, count: int = 1000) -> None:
        """One wait of a tenth of a second."""
        self.codes += [trouble.error.code() for trouble in self.reading.receive(count, 0.1)]

    def until(self, happened: Callable[[], bool]) -> None:
        """Waits."""
        deadline = soon()
        while not happened():
            assert time.monotonic() < deadline
            self.listen()


def produced(bootstrap: str, topic: str, messages: list[Message], **properties: Any) -> None:
    """Send these messages by confluent-kafka alone."""
    producer = Producer({"bootstrap.servers": bootstrap, **properties})
    for one in messages:
        producer.produce(topic, one.value, one.key, headers=list(one.headers), timestamp=one.timestamp or 0)
    assert producer.flush(PATIENCE) == 0


def all_kinds() -> list[Message]:
    """Null and empty keys and payloads, and headers of every kind, in every combination."""
    headers: list[tuple[tuple[str, bytes | None], ...]] = [
        (),
        (("trace", b"\x00\xff"),),
        (("a", None), ("a", b""), ("ä", b"x" * 300)),
    ]
    contents: list[bytes | None] = [None, b"", b"\x00", b"payload" * 50]
    return [
        Message(value, key, some, 1_700_000_000_000 + number)
        for number, (value, key, some) in enumerate(
            (value, key, some) for value in contents for key in contents for some in headers
        )
    ]


def test_null_and_empty_keys_and_payloads_and_all_headers_come_as_they_were_sent(
    kafka: Broker, topics: Topics, hot_path: HotPath
) -> None:
    topic = topics(1, retention_ms="-1")
    produced(kafka.bootstrap, topic, all_kinds())
    with Assigned(kafka.bootstrap, topic, hot_path) as assigned:
        records = assigned.take(len(all_kinds()))
    assert [one._replace(topic=None, partition=None) for one in messages_of_records(records)] == all_kinds()
    assert isinstance(records.values, Spans) is isinstance(records.header_column(), Headers) is (hot_path == "native")
    assert records.byte_count == sum(len(one.value or b"") + len(one.key or b"") for one in all_kinds())


@pytest.mark.parametrize("compression", ["none", "gzip", "lz4"])
def test_headers_of_many_records_come_as_they_were_sent(
    kafka: Broker, topics: Topics, hot_path: HotPath, compression: str
) -> None:
    topic = topics(1, retention_ms="-1")
    chance = random.Random(compression)
    sent = []
    for number in range(3_000):
        headers = tuple(
            (
                chance.choice(["", "a", "trace", "ä" * 70]),
                chance.choice([None, b"", chance.randbytes(chance.randrange(200))]),
            )
            # Most have none, some have many.
            for _ in range(max(0, chance.randrange(-6, 6)) * (10 if number % 500 == 7 else 1))
        )
        sent.append(
            Message(chance.randbytes(chance.randrange(5)), chance.choice([None, b"key"]), headers, 1_700_000_000_000)
        )
    # One whose headers lie far from the next record.
    sent[100] = sent[100]._replace(headers=(("large", chance.randbytes(10_000)), ("last", b"1")))
    produced(kafka.bootstrap, topic, sent, **{"compression.type": compression, "linger.ms": 50})
    with Assigned(kafka.bootstrap, topic, hot_path) as assigned:
        came = messages_of_records(assigned.take(len(sent)))
    assert [one._replace(topic=None, partition=None, timestamp=sent[0].timestamp) for one in came] == sent


def test_a_source_that_reads_no_headers_gives_records_without_them(
    kafka: Broker, topics: Topics, hot_path: HotPath
) -> None:
    topic = topics(1, retention_ms="-1")
    produced(kafka.bootstrap, topic, all_kinds())
    config = KafkaSourceConfig.model_validate(
        {"bootstrap": kafka.bootstrap, "topics": topic, "group": topic, "headers": False}
    )
    with Reader(choosing(hot_path)(config.build)()) as reader:
        came = [one.message._replace(topic=None, partition=None) for one in reader.take(len(all_kinds()))]
    assert came == [one._replace(headers=()) for one in all_kinds()]


@pytest.mark.parametrize("as_columns", [False, True])
def test_null_and_empty_keys_and_payloads_and_all_headers_go_out_as_they_were_given(
    kafka: Broker, topics: Topics, hot_path: HotPath, as_columns: bool
) -> None:
    topic = topics(1, retention_ms="-1")
    sink = choosing(hot_path)(KafkaSinkConfig(bootstrap=kafka.bootstrap, topic=topic).build)()
    sink.open()
    block = block_of(all_kinds())
    if as_columns:
        assert block.keys is not None
        assert block.headers is not None
        # Not from the beginning of their buffers, and in another order than there.
        block.values = Spans.of([b"before", *reversed(list(block.values))])[1:][::-1]
        block.keys, block.headers = Spans.of(block.keys), Headers.of(block.headers)
        block.values = Spans(
            block.values.buffer, *(np.ascontiguousarray(c) for c in (block.values.starts, block.values.lengths))
        )
    assert sink.send(block, soon()) == {}
    assert sink.barrier(soon()) == {}
    sink.close()
    came = read(kafka.bootstrap, topic, len(all_kinds()))
    assert [one._replace(partition=None) for one in came] == all_kinds()


def test_a_header_name_that_is_no_utf_8_stops_no_record(
    kafka: Broker, topics: Topics, native: ModuleType, hot_path: HotPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = topics(1)
    one = np.array([0, 1], np.int64), np.array([1, 1], np.int64)
    headers = Headers(Spans.of([b"\xff\xfe", b"name"]), Spans.of([b"1", b"2"]), *one)
    with monkeypatch.context() as patch:
        patch.setenv("STREAMER_NATIVE", "native")
        writer, producer = writing(kafka.bootstrap)
    assert writer.write([topic], Spans.of([b"a", b"b"]), None, headers)[:2] == ([], [])
    assert producer.flush(PATIENCE) == 0
    producer.close()
    with Assigned(kafka.bootstrap, topic, hot_path) as assigned:
        records = assigned.take(2)
    assert list(records.values) == [b"a", b"b"]
    # confluent-kafka gives no header of such a record.
    broken = [("\ufffd\ufffd", b"1")] if hot_path == "native" else None
    assert list(records.header_column() or ()) == [broken, [("name", b"2")]]


def test_seek_pause_resume_and_the_position_go_on_working(kafka: Broker, topics: Topics, hot_path: HotPath) -> None:
    topic = topics(1)
    write(kafka.bootstrap, topic, numbers(0, 20))
    place = TopicPartition(topic, 0)
    with Assigned(kafka.bootstrap, topic, hot_path) as assigned:
        assert list(assigned.take(8).values) == numbers(0, 8)
        assigned.until(lambda: assigned.reading.held == 12)
        assert assigned.consumer.position([place])[0].offset == 20
        assigned.reading.forget([(topic, 0)])
        assert assigned.reading.held == 0
        assigned.consumer.seek(TopicPartition(topic, 0, 5))
        assert list(assigned.take(15).values) == numbers(5, 20)
        assigned.consumer.pause([place])
        write(kafka.bootstrap, topic, numbers(20, 25))
        for _ in range(5):
            assigned.listen()
        assert assigned.reading.held == 0
        assigned.consumer.resume([place])
        assert list(assigned.take(5).values) == numbers(20, 25)


def test_the_end_of_a_partition_statistics_logs_and_commits_are_still_told(
    kafka: Broker, topics: Topics, hot_path: HotPath, caplog: pytest.LogCaptureFixture
) -> None:
    topic = topics(1)
    write(kafka.bootstrap, topic, numbers(0, 5))
    statistics: list[str] = []
    commits: list[int] = []
    with (
        caplog.at_level(logging.DEBUG),
        Assigned(
            kafka.bootstrap,
            topic,
            hot_path,
            **{
                "enable.partition.eof": True,
                "statistics.interval.ms": 50,
                "stats_cb": statistics.append,
                "on_commit": lambda error, partitions: commits.append(partitions[0].offset),
                "debug": "cgrp",
                "logger": logging.getLogger("bridge-test"),
            },
        ) as assigned,
    ):
        assigned.take(5)
        assigned.until(lambda: KafkaError._PARTITION_EOF in assigned.codes)
        assigned.consumer.commit(offsets=[TopicPartition(topic, 0, 3)], asynchronous=True)
        assigned.until(lambda: commits == [3] and bool(statistics))
    assert json.loads(statistics[0])["type"] == "consumer"
    assert any(record.name == "bridge-test" for record in caplog.records)


def test_a_block_keeps_to_the_records_and_bytes_asked_for(kafka: Broker, topics: Topics, hot_path: HotPath) -> None:
    topic = topics(1)
    write(kafka.bootstrap, topic, [b"x" * 100] * 50)
    with Assigned(kafka.bootstrap, topic, hot_path) as assigned:
        assigned.until(lambda: assigned.reading.held == 50)
        assert len(assigned.reading.take("test", 7, 2**20, lambda place, first: HERE)) == 7
        assert len(assigned.reading.take("test", 40, 1000, lambda place, first: HERE)) == 10
        assert len(assigned.reading.take("test", 40, 1, lambda place, first: HERE)) == 1
        assert assigned.reading.held == 32
        assert assigned.reading.held_bytes >= 3200
        assert len(assigned.reading.take("test", 40, 2**20, lambda place, first: None)) == 0
        assert assigned.reading.held == 0


def holds_more_than(count: int, reading: Reading) -> bool:
    return reading.held > count


@pytest.mark.parametrize("reader_first", [True, False])
def test_closing_in_either_order_with_records_held_ends(
    kafka: Broker, topics: Topics, native: ModuleType, reader_first: bool
) -> None:
    topic = topics(1)
    write(kafka.bootstrap, topic, numbers(0, 5000))
    for _ in range(10):
        assigned = Assigned(kafka.bootstrap, topic, "native")
        assigned.until(partial(holds_more_than, 100, assigned.reading))
        kept = assigned.reading.take("test", 10, 2**20, lambda place, first: HERE)
        closing = threading.Thread(
            target=lambda assigned=assigned: [
                close() for close in (assigned.reading.close, assigned.consumer.close)[:: 1 if reader_first else -1]
            ]
        )
        closing.start()
        closing.join(PATIENCE)
        assert not closing.is_alive(), "the consumer waits for ever"
        assert list(kept.values) == numbers(0, 10), "a block outlives its consumer"


def test_a_consumer_that_nobody_closes_can_be_forgotten(kafka: Broker, topics: Topics, native: ModuleType) -> None:
    topic = topics(1)
    write(kafka.bootstrap, topic, numbers(0, 1000))
    for _ in range(3):
        assigned = Assigned(kafka.bootstrap, topic, "native")
        kept = assigned.take(100)
        del assigned
        assert len(list(kept.values)) == 100


@pytest.mark.parametrize("wait", [0.0, 0.1])
def test_a_process_ends_in_peace_while_a_thread_still_reads(
    kafka: Broker, topics: Topics, hot_path: HotPath, wait: float
) -> None:
    script = f"""
import threading, time
from connectors.kafka.config import KafkaSourceConfig

source = KafkaSourceConfig(bootstrap={kafka.bootstrap!r}, topics={topics(1)!r}, group="left").build()
source.open()
polled = threading.Event()

def read():
    while True:
        source.poll(10, 1000, {wait})
        polled.set()

threading.Thread(target=read, daemon=True).start()
polled.wait()
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=PATIENCE)
    assert ended.returncode == 0, ended.stderr


def test_a_closed_consumer_or_producer_raises(kafka: Broker, topics: Topics, native: ModuleType) -> None:
    topic = topics(1)
    with Assigned(kafka.bootstrap, topic, "native") as assigned:
        pass
    handle = assigned.handle
    assert handle is not None
    with pytest.raises(RuntimeError, match="closed"):
        handle.receive(1, 0)
    with pytest.raises(RuntimeError, match="closed"):
        handle.take(1, 1, True)
    assert handle.held == 0
    handle.close()
    writer, producer = writing(kafka.bootstrap)
    producer.close()
    with pytest.raises(RuntimeError, match="closed"):
        writer.write([topic], Spans.of([b"x"]))


def writing(bootstrap: str, **properties: Any) -> tuple[Any, Producer]:
    made = bridge.join(
        Producer,
        lambda extension: extension.KafkaWriter(),
        {"bootstrap.servers": bootstrap, "linger.ms": 0, **properties},
        choosing("native")(choose)(),
        "test",
        Scrubber({}),
        producer=True,
    )
    return made.handle, made.client


def test_a_full_queue_takes_the_first_and_stops_at_the_next(kafka: Broker, topics: Topics, native: ModuleType) -> None:
    topic = topics(1)
    values = Spans.of(numbers(0, 30))
    stamps = np.full(30, 1_700_000_000_000, np.int64)
    for columns in ({}, {"timestamps": stamps}):
        writer, producer = writing(
            kafka.bootstrap, **{"queue.buffering.max.messages": 20, "linger.ms": 60_000, "message.timeout.ms": 120_000}
        )
        left, refused, first = writer.write([topic], values, **columns)
        assert (left, refused) == (list(range(20, 30)), [])
        # There is no room: nothing is taken, and nothing goes by a mark.
        assert writer.write([topic], values, rows=left, **columns) == (left, [], [])
        assert writer.outstanding == 20
        assert writer.finished() == ([], [])
        assert producer.flush(PATIENCE) == 0
        assert writer.outstanding == 0
        left, refused, second = writer.write([topic], values, rows=left, **columns)
        assert (left, refused) == ([], [])
        assert producer.flush(PATIENCE) == 0
        assert writer.finished() == ([*first, *second], [])
        producer.close()
    assert [one.value for one in read(kafka.bootstrap, topic, 60)] == numbers(0, 30) * 2


def test_a_block_is_confirmed_while_others_are_on_their_way(kafka: Broker, topics: Topics, native: ModuleType) -> None:
    topic = topics(1)
    properties = {"linger.ms": 60_000, "batch.num.messages": 100, "message.timeout.ms": 120_000}
    writer, producer = writing(kafka.bootstrap, **properties)
    written = CompiledWriting(producer, writer)
    # The first fill a batch, which goes at once; one more waits for company.
    blocks = [block_of([Message(one) for one in numbers(start, stop)]) for start, stop in ((0, 100), (100, 101))]
    outstanding = deque(Sent(block, topic) for block in blocks)
    first, second = outstanding
    for sent, block in zip(outstanding, blocks, strict=True):
        assert written.send(sent, block, topic, lambda: False) == {}
    deadline = soon()
    while not (found := written.finished(outstanding, 0)):
        assert time.monotonic() < deadline
    assert found == [first]
    assert first.losses() == {}
    assert not written.is_idle()
    assert producer.flush(PATIENCE) == 0
    assert written.finished(outstanding, 0) == [second]
    assert written.is_idle()
    producer.close()


@pytest.mark.parametrize("only_errors", [True, False])
@pytest.mark.slow
def test_the_client_may_be_told_of_every_message_and_follows_none_of_our_marks(
    native: ModuleType, only_errors: bool
) -> None:
    script = f"""
from confluent_kafka import Producer
from connectors.kafka.client import bridge
from pipelines.hotpath import choose
from pipelines.data.spans import Spans

native = bridge._bridge(choose())
native.kafka_expect({only_errors})
producer = Producer({{bridge.PLUGINS: native.__file__, "test.mock.num.brokers": 1}})
writer = native.KafkaWriter()
left, refused, marks = writer.write(["topic"], Spans.of([b"a", b"b"]))
assert producer.flush({PATIENCE}) == 0
assert writer.finished() == (marks, [])
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=2 * PATIENCE)
    assert ended.returncode == 0, ended.stderr


def test_a_sink_says_how_far_behind_it_is_where_it_confirms_block_by_block(
    kafka: Broker, topics: Topics, hot_path: HotPath
) -> None:
    sink = choosing(hot_path)(KafkaSinkConfig(bootstrap=kafka.bootstrap, topic=topics(1)).build)()
    sink.open()
    if hot_path == "native":
        assert sink.behind() == 0
        assert sink.send(block_of([Message(b"x")]), soon()) == {}
        assert 0 < sink.behind() < PATIENCE
        assert sink.barrier(soon()) == {}
        assert sink.behind() == 0
    else:
        assert sink.behind() == float("inf")
    sink.close()


def test_a_message_that_is_lost_is_named_though_another_is_its_equal(
    kafka: Broker, topics: Topics, native: ModuleType
) -> None:
    topic = topics(1, max_message_bytes="500")
    writer, producer = writing(kafka.bootstrap, **{"linger.ms": 0, "batch.num.messages": 1})
    written = CompiledWriting(producer, writer)
    # The topic takes no larger message; the client would.
    large = np.random.default_rng(0).bytes(2000)
    block = block_of([Message(value) for value in (b"a", large, b"b", large, b"c")])
    sent = Sent(block, topic)
    assert written.send(sent, block, topic, lambda: False) == {}
    assert producer.flush(PATIENCE) == 0
    assert written.finished(deque([sent]), 1) == [sent]
    assert {index: error.code() for index, error in sent.losses().items()} == dict.fromkeys(
        (1, 3), KafkaError.MSG_SIZE_TOO_LARGE
    )
    assert [one.value for one in read(kafka.bootstrap, topic, 3)] == [b"a", b"b", b"c"]
    producer.close()


def test_messages_that_are_refused_are_not_outstanding(kafka: Broker, topics: Topics, native: ModuleType) -> None:
    topic = topics(1)
    writer, producer = writing(kafka.bootstrap, **{"message.max.bytes": 1000})
    values = Spans.of([b"a", bytes(3000), b"b"])
    for headers in (None, Headers.of([[("n", b"v")]] * 3)):
        left, refused, marks = writer.write([topic], values, headers=headers)
        assert (left, refused) == ([], [(1, KafkaError.MSG_SIZE_TOO_LARGE)])
        assert producer.flush(PATIENCE) == 0
        assert writer.outstanding == 0
        assert writer.finished() == (marks, [])
    assert writer.write([topic, "nul\0name"], values[:1], codes=np.array([1], np.int64))[1] == [
        (0, KafkaError._INVALID_ARG)
    ]
    producer.close()


@pytest.mark.parametrize(
    ("starts", "lengths"),
    [([0], [11]), ([5], [6]), ([-1], [1]), ([0], [-2]), ([2**62], [2**62]), ([11], [0])],
)
def test_columns_that_reach_beyond_their_buffer_are_refused(
    kafka: Broker, native: ModuleType, starts: list[int], lengths: list[int]
) -> None:
    writer, producer = writing(kafka.bootstrap)
    wrong = Spans(np.zeros(10, np.uint8), np.array(starts, np.int64), np.array(lengths, np.int64))
    good = Spans.of([b"x"])
    with pytest.raises(ValueError, match="does not lie in the buffer"):
        writer.write(["t"], wrong)
    with pytest.raises(ValueError, match="does not lie in the buffer"):
        writer.write(["t"], good, wrong)
    one = np.array([0], np.int64)
    with pytest.raises(ValueError, match="does not lie in the buffer"):
        writer.write(["t"], good, None, Headers(wrong, good, one, one + 1))
    assert writer.outstanding == 0
    producer.close()


def test_columns_that_do_not_fit_together_are_refused(kafka: Broker, native: ModuleType) -> None:
    writer, producer = writing(kafka.bootstrap)
    two, one = Spans.of([b"x", b"y"]), Spans.of([b"x"])
    ints = np.array([0], np.int64)
    for arguments in (
        {"keys": one},
        {"timestamps": ints},
        {"codes": ints},
        {"codes": np.array([0, 1], np.int64)},
        {"partitions": ints},
        {"partitions": np.array([0, -1], np.int64)},
        {"partitions": np.array([0, 2**31], np.int64)},
        {"headers": Headers.of([[("n", b"v")]])},
        {"headers": Headers(one, one, np.array([0, 1], np.int64), np.array([1, 1], np.int64))},
        {"timestamps": np.array([0, 1], np.int32)},
        {"timestamps": np.zeros(4, np.int64)[::2]},
        {"rows": [2]},
    ):
        with pytest.raises(ValueError):
            writer.write(["t"], two, **arguments)
    with pytest.raises(ValueError, match="places in topics"):
        writer.write([], two)
    assert writer.write(["t"], Spans.of([])) == ([], [], [])
    producer.close()


def test_a_bridge_is_only_to_the_client_that_was_just_made(kafka: Broker, native: ModuleType) -> None:
    native.kafka_expect(True)
    with pytest.raises(RuntimeError, match="did not tell"):
        native.KafkaReader()
    properties = {"bootstrap.servers": kafka.bootstrap, bridge.PLUGINS: str(native.__file__)}
    native.kafka_expect(True)
    first, second = Producer(properties), Producer(properties)
    with pytest.raises(RuntimeError, match="more clients than one"):
        native.KafkaWriter()
    native.kafka_expect(True)
    third = Producer(properties)
    with pytest.raises(RuntimeError, match="of the other kind"):
        native.KafkaReader()
    # Without a bridge they are clients like others.
    for producer in (first, second, third):
        producer.close()


def test_both_lanes_give_the_agent_the_same_records(kafka: Broker, topics: Topics, native: ModuleType) -> None:
    topic = topics(3)
    for partition in range(3):
        write(kafka.bootstrap, topic, numbers(1000 * partition, 1000 * partition + 200), partition)
    found = []
    choices: tuple[HotPath, ...] = ("python", "native")
    for choice in choices:
        config = KafkaSourceConfig.model_validate(
            {"bootstrap": kafka.bootstrap, "topics": topic, "group": f"{topic}-{choice}"}
        )
        with Reader(choosing(choice)(config.build)()) as reader:
            found.append(sorted((one.lane.partition, one.position, one.message) for one in reader.take(600)))
    assert found[0] == found[1]
