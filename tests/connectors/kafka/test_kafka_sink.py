"""Kafka's sink beyond the contract of all sinks, which is in test_kafka_contract."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from typing import Any

import numpy as np
import pytest
from confluent_kafka import KafkaError
from failingkafka import brokers_that_fail
from kafkatopics import CuttableKafka, Name, Topics, read

import pipelines
from connectors.kafka.config import KafkaSinkConfig
from connectors.kafka.sink import KafkaSink
from connectors.memory import MemorySourceConfig, memory_topic
from connectors.message import Message, block_of
from connectors.records import Messages
from pipelines.errors import ConnectorError
from streamer.definition.service import Service
from streamer.devbroker import Broker, MockKafka, create_topics

pytestmark = [pytest.mark.usefixtures("hot_path"), pytest.mark.slow]

PATIENCE = 60.0


def opened(bootstrap: str, topic: str, **fields: Any) -> KafkaSink:
    sink = KafkaSink(KafkaSinkConfig.model_validate({"bootstrap": bootstrap, "topic": topic, **fields}))
    sink.open()
    return sink


def soon() -> float:
    return time.monotonic() + PATIENCE


def told(sink: KafkaSink) -> list[int]:
    return [row for rows in sink.confirmed() for row in rows.tolist()]


def lost_to_a_frozen_broker(kafka: CuttableKafka, topic: str, block: Messages) -> tuple[KafkaSink, dict[int, Any]]:
    """A sink that confirmed one message, and then sent this block while the broker hung until it timed out."""
    sink = opened(kafka.bootstrap, topic, timeout="1s")
    before = block_of([Message(b"before")], 1_000_000)
    # A broker that has only just started takes a while to admit its first producer.
    while sink.send(before, soon()) or sink.barrier(soon()):
        pass
    assert told(sink) == [1_000_000]
    kafka.broker.freeze()
    assert sink.send(block, soon()) == {}
    lost = dict(sink.barrier(soon()))
    return sink, lost


def numbered(count: int, **more: Any) -> list[Message]:
    return [Message(b"%d" % number, b"k%d" % (number % 7), **more) for number in range(count)]


@pytest.mark.parametrize("kind", ["in bulk", "with headers and timestamps"])
def test_every_message_that_a_frozen_broker_made_time_out_is_named_by_its_row(
    cuttable_kafka: CuttableKafka, topic_name: Name, kind: str
) -> None:
    topic = topic_name()
    create_topics(cuttable_kafka.bootstrap, {topic: 1})
    more = {} if kind == "in bulk" else {"headers": (("trace", b"\xff"),), "timestamp": 1_700_000_000_000}
    sink, lost = lost_to_a_frozen_broker(cuttable_kafka, topic, block_of(numbered(1000, **more), 500))
    confirmed = told(sink)
    assert sorted([*lost, *confirmed]) == list(range(500, 1500)), "each row is either lost or confirmed"
    assert len(lost) >= 900, "the broker was frozen"
    assert all(isinstance(error, ConnectorError) and error.retriable for error in lost.values())
    cuttable_kafka.broker.thaw()
    # Confirmed messages are there. Lost ones may be: an answer that never came is no refusal. A broker that was frozen
    # takes a while to be itself again, so that messages which have a second only may be lost again.
    again = [one for row, one in enumerate(numbered(1000, **more), 500) if row in lost]
    deadline = soon()
    while again:
        assert time.monotonic() < deadline
        assert sink.send(block_of(again, 5000), soon()) == {}
        lost = dict(sink.barrier(soon()))
        assert sorted([*lost, *told(sink)]) == list(range(5000, 5000 + len(again)))
        again = [one for row, one in enumerate(again, 5000) if row in lost]
    sink.close()
    assert {one.value for one in read(cuttable_kafka.bootstrap, topic)} == {b"before"} | {
        b"%d" % n for n in range(1000)
    }


def test_a_lost_message_names_all_the_rows_that_it_answers(cuttable_kafka: CuttableKafka, topic_name: Name) -> None:
    topic = topic_name()
    create_topics(cuttable_kafka.bootstrap, {topic: 1})
    block = Messages(
        np.array([1, 2, 3, 9, 9], np.int64),
        [b"window", b"same", b"same"],
        [b"a", b"b", b"b"],
        splits=np.array([0, 3, 4, 5], np.int64),
    )
    sink, lost = lost_to_a_frozen_broker(cuttable_kafka, topic, block)
    assert set(lost) == {1, 2, 3, 9}
    assert told(sink) == []
    cuttable_kafka.broker.thaw()
    sink.close()


def test_messages_that_differ_only_in_headers_or_time_are_told_apart_when_lost(
    cuttable_kafka: CuttableKafka, topic_name: Name
) -> None:
    topic, other = topic_name(), topic_name()
    create_topics(cuttable_kafka.bootstrap, {topic: 1, other: 1})
    sink = opened(cuttable_kafka.bootstrap, topic, timeout="1s", max_message="2KiB")
    same = [
        Message(b"same", b"k", (("n", b"1"),)),
        Message(b"same", b"k", (("n", b"1"),), topic=other),
        Message(b"same", b"k", (("n", b"1"),), timestamp=5_000),
        Message(b"same", b"k", (("n", None),)),
        Message(b"same", b"k"),
        Message(b"same"),
        Message(b"", b""),
        Message(None),
    ]
    # Messages that the client refuses at once are not among those that can be lost.
    block = block_of([same[0]._replace(value=bytes(3000)), *same], 10)
    cuttable_kafka.broker.freeze()
    assert list(sink.send(block, soon())) == [0]
    assert sorted(sink.barrier(soon())) == list(range(11, 19))
    assert told(sink) == []
    cuttable_kafka.broker.thaw()
    sink.close()


def test_a_message_with_headers_that_is_lost_takes_no_other_with_it(kafka: Broker, topics: Topics) -> None:
    topic = topics(1, max_message_bytes="500")
    sink = opened(kafka.bootstrap, topic, compression="none", client={"batch.num.messages": 1})
    values = [b"a", bytes(2000), b"b", bytes(2000), b"c"]
    block = block_of([Message(value, b"k", (("n", b"%d" % at),)) for at, value in enumerate(values)])
    assert sink.send(block, soon()) == {}
    assert sorted(sink.barrier(soon())) == [1, 3]
    assert told(sink) == [0, 2, 4]
    sink.close()
    assert [one.value for one in read(kafka.bootstrap, topic)] == [b"a", b"b", b"c"]


def test_a_message_that_is_lost_is_told_from_one_that_differs_only_in_its_headers(
    kafka: Broker, topics: Topics
) -> None:
    topic = topics(1, max_message_bytes="500")
    # Both are sent in batches of their own, and again alone if that is not known to the sink.
    sink = opened(kafka.bootstrap, topic, compression="none", client={"batch.num.messages": 1})
    for start in range(0, 30, 3):
        block = block_of([Message(b"same", b"k", (("n", bytes(size)),)) for size in (0, 2000, 1)], start)
        assert sink.send(block, soon()) == {}
    lost = list(range(1, 30, 3))
    assert sorted(sink.barrier(soon())) == lost
    assert sorted(told(sink)) == sorted(set(range(30)) - set(lost))
    sink.close()
    found = Counter(len(one.headers[0][1] or b"") for one in read(kafka.bootstrap, topic))
    assert found == {0: 10, 1: 10}


def test_confirmations_arrive_without_a_barrier(kafka: Broker, topics: Topics) -> None:
    topic = topics(1)
    sink = opened(kafka.bootstrap, topic)
    for start in range(0, 50, 10):
        assert sink.send(block_of(numbered(10), start), soon()) == {}
    rows: list[int] = []
    deadline = soon()
    while len(rows) < 50 and time.monotonic() < deadline:
        rows += told(sink)
        time.sleep(0.01)
    assert rows == list(range(50))
    assert len(read(kafka.bootstrap, topic)) == 50
    sink.close()


def pushed(bootstrap: str, topic: str) -> bool:
    """Whether messages that would wait half a minute for company are confirmed soon after a push, and not before."""
    sink = opened(bootstrap, topic, linger="30s")
    block = block_of([Message(b"%d" % row) for row in range(10)])
    # The first message also finds the brokers and their topic.
    sink.send(block, soon())
    assert sink.barrier(soon()) == {}
    assert told(sink) == list(range(10))
    sink.send(block, soon())
    time.sleep(0.3)
    assert told(sink) == []
    sink.push()
    deadline = time.monotonic() + 10.0
    while not (rows := told(sink)) and time.monotonic() < deadline:
        time.sleep(0.01)
    sink.close()
    assert rows in ([], list(range(10)))
    return rows != []


def test_lingering_messages_are_sent_in_a_pause(kafka: Broker, topics: Topics) -> None:
    topic = topics(1)
    # A machine that is very busy may miss one.
    assert any(pushed(kafka.bootstrap, topic) for _ in range(3))


def test_nothing_is_confirmed_before_the_broker_has_it(kafka: Broker, topics: Topics) -> None:
    topic = topics(3)
    sink = opened(kafka.bootstrap, topic, linger=0)
    for start in range(0, 600, 20):
        assert (
            sink.send(block_of([Message(b"%d" % row, b"%d" % row) for row in range(start, start + 20)], start), soon())
            == {}
        )
        if confirmed := told(sink):
            there = {one.value for one in read(kafka.bootstrap, topic)}
            assert {b"%d" % row for row in confirmed} <= there
    assert sink.barrier(soon()) == {}
    sink.close()


def test_null_and_empty_keys_and_payloads_stay_what_they_are_in_bulk(kafka: Broker, topics: Topics) -> None:
    topic = topics(1)
    sent = [Message(None, b"k"), Message(b"", b""), Message(b"v"), Message(None), Message(b"\x00\xff", b"\xff")]
    sink = opened(kafka.bootstrap, topic)
    assert sink.send(block_of(sent), soon()) == {}
    assert sink.barrier(soon()) == {}
    sink.close()
    assert [(one.value, one.key) for one in read(kafka.bootstrap, topic)] == [(one.value, one.key) for one in sent]


def test_a_message_larger_than_the_topic_allows_is_lost_alone_though_its_batch_was_refused(
    kafka: Broker, topics: Topics
) -> None:
    topic = topics(1, max_message_bytes="20000")
    random = np.random.default_rng(1)
    # Random bytes, as the broker measures compressed batches.
    sent = [Message(random.bytes(30_000 if number == 5 else 1000), b"k") for number in range(12)]
    sink = opened(kafka.bootstrap, topic)
    assert sink.send(block_of(sent, 100), soon()) == {}
    lost = sink.barrier(soon())
    assert list(lost) == [105]
    assert not lost[105].retriable
    assert "max.message.bytes" in str(lost[105])
    assert sorted(told(sink)) == [row for row in range(100, 112) if row != 105]
    sink.close()
    assert {one.value for one in read(kafka.bootstrap, topic)} == {one.value for one in sent} - {sent[5].value}


def test_a_message_that_is_too_large_is_told_also_by_barriers_that_are_shorter_than_an_answer_takes(
    kafka: Broker, topics: Topics
) -> None:
    topic = topics(1, max_message_bytes="20000")
    random = np.random.default_rng(1)
    sink = opened(kafka.bootstrap, topic)
    sent = [Message(random.bytes(30_000 if number == 5 else 1000), b"k") for number in range(12)]
    assert sink.send(block_of(sent, 100), soon()) == {}
    lost: dict[int, Any] = {}
    deadline = soon()
    while not lost:
        assert time.monotonic() < deadline, "it is sent again and again"
        with contextlib.suppress(ConnectorError):
            lost = dict(sink.barrier(time.monotonic()))
        time.sleep(0.1)
    assert list(lost) == [105]
    assert sink.barrier(soon()) == {}
    sink.close()
    assert [one.value for one in read(kafka.bootstrap, topic)].count(sent[4].value) == 1


def test_a_message_that_is_sent_alone_is_not_blamed_for_those_that_come_after_it(kafka: Broker, topics: Topics) -> None:
    topic = topics(1, max_message_bytes="20000")
    random = np.random.default_rng(1)
    sink = opened(kafka.bootstrap, topic, linger="2s")
    small, large = random.bytes(1000), random.bytes(30_000)
    assert sink.send(block_of([Message(small), Message(large)], 0), soon()) == {}
    for number in range(3):
        # Too short for an answer: the message that is sent alone now is in one batch with the next ones.
        with contextlib.suppress(ConnectorError):
            sink.barrier(time.monotonic())
        assert sink.send(block_of([Message(large)], 10 + number), soon()) == {}
    lost: dict[int, Any] = {}
    deadline = soon()
    while len(lost) < 4:
        assert time.monotonic() < deadline
        lost |= sink.barrier(soon())
    assert sorted(lost) == [1, 10, 11, 12]
    assert told(sink) == [0]
    sink.close()


def test_a_message_that_the_topic_does_not_take_is_told_from_its_neighbours(kafka: Broker, topics: Topics) -> None:
    topic = topics(1, cleanup_policy="compact")
    sink = opened(kafka.bootstrap, topic)
    block = block_of([Message(b"0", b"k"), Message(b"a compacted topic wants a key"), Message(b"2", b"k")], 0)
    assert sink.send(block, soon()) == {}
    lost = sink.barrier(soon())
    assert list(lost) == [1]
    assert not lost[1].retriable
    assert sorted(told(sink)) == [0, 2]
    sink.close()
    assert [one.value for one in read(kafka.bootstrap, topic)] == [b"0", b"2"]


def test_a_missing_topic_is_the_failure_of_its_message_alone(kafka: Broker, topics: Topics) -> None:
    topic = topics(1)
    sink = opened(kafka.bootstrap, topic)
    block = block_of([Message(b"0"), Message(b"1", topic="no such topic!"), Message(b"2")], 0)
    refused = sink.send(block, soon())
    lost = sink.barrier(soon())
    assert [*refused, *lost] == [1]
    error = {**refused, **lost}[1]
    assert not error.retriable
    assert "no such topic!" in str(error)
    assert sorted(told(sink)) == [0, 2]
    # The same in bulk, now that the client knows.
    assert len({**sink.send(block_of([Message(b"3", topic="no such topic!")], 3), soon()), **sink.barrier(soon())}) == 1
    sink.close()


@pytest.mark.parametrize(
    ("topic", "words"),
    [("results", 'topic "results" is gone; create it again'), ("{site}", 'topic "results" was deleted while')],
)
def test_a_message_whose_topic_was_deleted_on_its_way_comes_again(topic: str, words: str) -> None:
    """The client has a code of its own for that, which came once in a thousand runs on a busy machine."""
    fields = {"bootstrap": "127.0.0.1:9", "topic": topic, "topics": ["results"]}
    sink = KafkaSink(KafkaSinkConfig.model_validate(fields))
    error = sink._refusal(KafkaError(KafkaError._DESTROY), "results")
    assert error.retriable
    assert words in str(error)


def test_a_tombstone_that_its_topic_does_not_take_takes_no_other_with_it(kafka: Broker, topics: Topics) -> None:
    topic = topics(1, cleanup_policy="compact")
    sink = opened(kafka.bootstrap, topic)
    sent = [Message(None, b"a"), Message(None, None), Message(b"value", b"b"), Message(None, b"c")]
    sent += [Message(None, b"a", topic="no such topic!")]
    refused = sink.send(block_of(sent, 0), soon())
    lost = sink.barrier(soon())
    assert sorted({**refused, **lost}) == [1, 4]
    assert not any(error.retriable for error in {**refused, **lost}.values())
    assert sorted(told(sink)) == [0, 2, 3]
    sink.close()
    assert {(one.value, one.key) for one in read(kafka.bootstrap, topic)} == {
        (None, b"a"),
        (b"value", b"b"),
        (None, b"c"),
    }


@pytest.mark.parametrize("name", ["nul\0name", "x" * 600])
@pytest.mark.parametrize("others", [0, 1])
def test_an_invalid_topic_name_is_the_failure_of_its_message_alone(
    kafka: Broker, topics: Topics, name: str, others: int
) -> None:
    topic = topics(1)
    sink = opened(kafka.bootstrap, "{t}", topics=[".*"])
    names = [name] + [topic] * others
    refused = sink.send(Messages(np.arange(len(names)), [b"x"] * len(names), topics=names), soon())
    assert list(refused) == [0]
    assert not refused[0].retriable
    assert sink.barrier(soon()) == {}
    assert told(sink) == list(range(1, len(names)))
    sink.close()


def test_keys_go_to_the_partitions_that_kafkas_java_clients_choose(kafka: Broker, topics: Topics) -> None:
    # Hashes from Apache Kafka's UtilsTest.testMurmur2.
    hashes = {
        b"21": -973932308,
        b"foobar": -790332482,
        b"a-little-bit-long-string": -985981536,
        b"a-little-bit-longer-string": -1486304829,
        b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
        b"abc": 479470107,
    }
    topic = topics(7)
    sink = opened(kafka.bootstrap, topic)
    sink.send(block_of([Message(b"v", key) for key in hashes]), soon())
    assert sink.barrier(soon()) == {}
    sink.close()
    assert {one.key: one.partition for one in read(kafka.bootstrap, topic)} == {
        key: (hashed & 0x7FFFFFFF) % 7 for key, hashed in hashes.items()
    }


def test_messages_without_keys_are_spread_over_the_partitions(kafka: Broker, topics: Topics) -> None:
    topic = topics(2)
    sink = opened(kafka.bootstrap, topic, client={"sticky.partitioning.linger.ms": 0})
    sink.send(block_of([Message(b"%d" % number) for number in range(200)]), soon())
    assert sink.barrier(soon()) == {}
    sink.close()
    assert len(Counter(one.partition for one in read(kafka.bootstrap, topic))) == 2


@pytest.mark.parametrize("compression", ["none", "lz4", "zstd", "snappy", "gzip"])
def test_every_compression_arrives(kafka: Broker, topics: Topics, compression: str) -> None:
    topic = topics(1)
    sink = opened(kafka.bootstrap, topic, compression=compression)
    assert sink.send(block_of(numbered(50)), soon()) == {}
    assert sink.barrier(soon()) == {}
    sink.close()
    assert [one.value for one in read(kafka.bootstrap, topic)] == [one.value for one in numbered(50)]


def test_an_unknown_property_is_an_error_that_names_it(kafka: Broker) -> None:
    with pytest.raises(ConnectorError, match=r'"lingr\.ms"'):
        opened(kafka.bootstrap, "t", client={"lingr.ms": 1})


def test_a_login_that_is_refused_is_an_error_without_the_password(kafka: Broker) -> None:
    login = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "u",
        "sasl.password": "correct-horse",
    }
    with pytest.raises(ConnectorError, match=r"check security\.protocol") as raised:
        opened(kafka.bootstrap, "t", client=login)
    assert "correct-horse" not in str(raised.value)


@pytest.mark.parametrize(
    ("errors", "reason"),
    [
        # No producer id without the right to it.
        ({22: [KafkaError.CLUSTER_AUTHORIZATION_FAILED] * 5}, "authorization failed"),
        ({0: [KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER] * 5}, "sequence desynchronization"),
    ],
    ids=["at the start", "under way"],
)
def test_a_fatal_error_of_the_client_is_raised_by_every_later_call_of_the_sink(
    errors: dict[int, list[int]], reason: str
) -> None:
    with brokers_that_fail(errors) as bootstrap:
        sink = opened(bootstrap, "topic")
        deadline = soon()

        def go_on() -> None:
            while time.monotonic() < deadline:
                refused = sink.send(block_of(numbered(10)), deadline)
                lost = sink.barrier(deadline)
                assert all(error.retriable for error in [*refused.values(), *lost.values()])

        with pytest.raises(ConnectorError, match=reason) as raised:
            go_on()
        assert not raised.value.retriable
        for again in (lambda: sink.send(block_of(numbered(1)), deadline), lambda: sink.barrier(deadline)):
            with pytest.raises(ConnectorError, match=reason):
                again()  # type: ignore[no-untyped-call]
        assert told(sink) == []
        assert f"kafka sink {sink.name}" in {thread.name for thread in threading.enumerate()}
        sink.close()


@pytest.mark.parametrize("calls", ["send", "push"])
def test_a_fatal_error_of_the_client_between_calls_is_raised_by_the_next_call(calls: str) -> None:
    with brokers_that_fail({0: [KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER] * 5}) as bootstrap:
        sink = opened(bootstrap, "topic", linger="1ms")
        deadline = soon()

        def go_on() -> None:
            while time.monotonic() < deadline:
                if calls == "push":
                    sink.push()
                    time.sleep(0.02)
                sink.send(block_of(numbered(1)), deadline)

        with pytest.raises(ConnectorError, match="sequence desynchronization"):
            go_on()
        sink.close()


def test_a_service_whose_producer_fails_for_good_ends_with_that_and_acknowledges_nothing(topic_name: Name) -> None:
    name = topic_name()
    memory_topic(name).extend(numbered(100))
    with brokers_that_fail({0: [KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER] * 5}) as bootstrap:
        service = Service(
            source=MemorySourceConfig(topic=name, codec="raw"),
            pipeline=pipelines.Sequence([pipelines.Logging()]),
            sink=KafkaSinkConfig(bootstrap=bootstrap, topic="out", codec="raw"),
        )
        summary = service.run()
    assert summary.reason == "failed"
    assert "sequence desynchronization" in str(summary.error)
    assert memory_topic(name).group("default").acknowledged == [0]


def test_closing_while_the_broker_hangs_does_not_wait(cuttable_kafka: CuttableKafka, topic_name: Name) -> None:
    topic = topic_name()
    create_topics(cuttable_kafka.bootstrap, {topic: 1})
    sink = opened(cuttable_kafka.bootstrap, topic)
    cuttable_kafka.broker.freeze()
    sink.send(block_of(numbered(100)), soon())
    time.sleep(0.2)
    began = time.monotonic()
    sink.close()
    assert time.monotonic() - began < 5


def test_a_topic_made_from_values_is_not_looked_for_when_opening(kafka: Broker, topics: Topics) -> None:
    topic = topics(1)
    sink = opened(kafka.bootstrap, "results.{label}", topics=[topic])
    assert sink.send(block_of([Message(b"v", topic=topic)]), soon()) == {}
    assert sink.barrier(soon()) == {}
    sink.close()
    assert [one.value for one in read(kafka.bootstrap, topic)] == [b"v"]


def test_the_sink_also_writes_to_the_clients_own_mock_cluster(mock_kafka: MockKafka, topic_name: Name) -> None:
    topic = topic_name()
    create_topics(mock_kafka.bootstrap, {topic: 4})
    sink = opened(mock_kafka.bootstrap, topic)
    assert sink.send(block_of(numbered(50)), soon()) == {}
    assert sink.barrier(soon()) == {}
    assert sorted(told(sink)) == list(range(50))
    sink.close()
