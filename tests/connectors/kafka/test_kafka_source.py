"""Kafka's source beyond the contract of all sources, which is in test_kafka_contract."""

from __future__ import annotations

import importlib
import math
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from kafkatopics import CuttableKafka, MakeTopic, Name, Topics, numbers, source, values, write
from waiting import until

from connectors.contract import Reader
from connectors.source import LaneBegan, SourceDown
from pipelines.errors import ConnectorError
from streamer.devbroker import Broker, MockKafka, create_topics

pytestmark = pytest.mark.slow
on_both_paths = pytest.mark.usefixtures("hot_path")
"""For tests of how records are received."""


@on_both_paths
def test_a_poll_may_ask_for_any_number_of_records(read_topic: MakeTopic) -> None:
    topic = read_topic()
    topic.write(numbers(0, 100))
    polled = topic.source()
    polled.open()
    deadline = time.monotonic() + 30
    received: list[bytes] = []
    while len(received) < 100:
        assert time.monotonic() < deadline
        received += polled.poll(10**15, 2**60, 0.1).values
    polled.close()
    assert received == numbers(0, 100)


def test_a_regular_expression_takes_all_topics_that_match_and_those_that_come_later(
    kafka: Broker, topic_name: Name
) -> None:
    mark = topic_name("regex")
    create_topics(kafka.bootstrap, {f"{mark}-a": 1, f"{mark}-b": 1, f"other-{mark}": 1})
    for topic in (f"{mark}-a", f"{mark}-b", f"other-{mark}"):
        write(kafka.bootstrap, topic, [topic.encode()])
    client = {"topic.metadata.refresh.interval.ms": 500}
    with Reader(source(kafka.bootstrap, f"^{mark}-.*", mark, client=client)) as reader:
        received = reader.take(2)
        assert sorted((one.message.topic, one.message.value) for one in received) == [
            (f"{mark}-a", f"{mark}-a".encode()),
            (f"{mark}-b", f"{mark}-b".encode()),
        ]
        reader.acknowledge(received)
        create_topics(kafka.bootstrap, {f"{mark}-c": 1})
        write(kafka.bootstrap, f"{mark}-c", [b"late"])
        assert b"late" in values(reader.take(1))


@on_both_paths
def test_several_topics_share_a_block_in_spans_of_their_own(kafka: Broker, topics: Topics) -> None:
    names = [topics(2), topics(1)]
    for name, partition in ((names[0], 0), (names[1], 0), (names[0], 1)):
        write(kafka.bootstrap, name, numbers(0, 5), partition)
    with Reader(source(kafka.bootstrap, names, names[0])) as reader:
        received = reader.take(15)
    places = {(one.message.topic, one.message.partition) for one in received}
    assert places == {(names[0], 0), (names[1], 0), (names[0], 1)}
    for place in places:
        here = [one for one in received if (one.message.topic, one.message.partition) == place]
        assert values(here) == numbers(0, 5)


def test_a_group_that_committed_nothing_begins_at_the_time_it_is_told(read_topic: MakeTopic) -> None:
    topic = read_topic(2, retention_ms="-1")
    for stamp in (1_000_000, 2_000_000, 3_000_000):
        topic.write([b"%d" % stamp], timestamp=stamp)
    topic.write([b"old"], 1, timestamp=1_000_000)
    with topic.reader(start=2_000_000) as reader:
        received = reader.take(2)
        began = {event.partition: event.position for event in reader.events(LaneBegan)}
        # No record in partition 1 is as young: the next one is.
        topic.write([b"new"], 1)
        later = reader.take(1)
    assert values(received) == [b"2000000", b"3000000"]
    assert values(later) == [b"new"]
    assert began == {0: 1, 1: 1}


@on_both_paths
def test_records_fetched_ahead_while_nobody_polls_do_not_fill_the_memory(read_topic: MakeTopic) -> None:
    topic = read_topic(4)
    # Not compressed: limits count transferred bytes, so any amount of well compressible records may come at once.
    producer = Producer({"bootstrap.servers": topic.bootstrap, "linger.ms": 5})
    for number in range(4000):
        producer.produce(topic.name, b"%06d" % number + bytes(100_000), partition=number % 4)
        producer.poll(0)
    assert producer.flush(120) == 0
    del producer
    process = psutil.Process()
    with topic.reader() as reader:
        reader.take(1)
        before = process.memory_info().rss
        highest = before
        for _ in range(20):
            time.sleep(0.1)
            highest = max(highest, process.memory_info().rss)
        # 400 MB wait in the topic.name; 32 MiB and one fetch of 16 MiB may be here, and as much again in copies.
        assert highest - before < 200 * 2**20
        assert len(reader.take(1599, timeout=0.5)) == 1599


@on_both_paths
@pytest.mark.parametrize("policy", ["stop", "earliest", "latest"])
def test_a_position_that_retention_has_deleted_is_an_error_unless_it_is_said_where_to_go_on(
    read_topic: MakeTopic, policy: str
) -> None:
    topic = read_topic()
    topic.write(numbers(0, 20))
    with topic.reader() as reader:
        reader.acknowledge(reader.take(5))
    admin = AdminClient({"bootstrap.servers": topic.bootstrap})
    for deleted in admin.delete_records([TopicPartition(topic.name, 0, 12)]).values():
        deleted.result(60)
    with topic.reader(out_of_range=policy) as reader:
        if policy == "stop":
            with pytest.raises(ConnectorError, match="set out_of_range to earliest or latest"):
                reader.take(1)
            return
        if policy == "earliest":
            received = reader.take(8)
            assert values(received) == numbers(12, 20)
            reader.acknowledge(received)
            assert topic.committed() == 20
            return
        deadline = time.monotonic() + reader.patience
        received = []
        while not received and time.monotonic() < deadline:
            topic.write([b"new"])
            received = reader.listen(0.3)
        assert set(values(received)) == {b"new"}


@on_both_paths
def test_a_topic_made_anew_begins_another_life_of_its_lane(read_topic: MakeTopic) -> None:
    topic = read_topic()
    topic.write(numbers(0, 3))
    with topic.reader(out_of_range="earliest") as reader:
        received = reader.take(3)
        # A topic that was created again: positions that existed before.
        progress = reader.source._lanes.places[topic.name, 0]  # type: ignore[attr-defined]
        reader.acknowledge(received)
        progress.delivered = 100
        topic.write(numbers(3, 5))
        again = reader.take(2)
        assert values(again) == numbers(3, 5)
        assert again[0].lane.epoch > received[0].lane.epoch
        reader.acknowledge(again)
    assert topic.committed() == 5


@on_both_paths
def test_records_that_the_client_delivers_again_by_itself_are_passed_over(
    read_topic: MakeTopic, caplog: pytest.LogCaptureFixture
) -> None:
    topic = read_topic()
    topic.write(numbers(0, 10))
    with topic.reader() as reader:
        received = reader.take(10)
        # As a client with a fault does: the source has not asked for it.
        reader.source._consumer.seek(TopicPartition(topic.name, 0, 4))  # type: ignore[attr-defined]
        topic.write(numbers(10, 13))
        new = reader.take(3)
        assert values(new) == numbers(10, 13)
        assert {one.lane for one in new} == {one.lane for one in received}
        assert reader.listen(0.3) == []
    assert f"records of {topic.name} again; they are passed over" in caplog.text


@pytest.mark.parametrize("fields", [{}, {"assignor": "consumer"}])
def test_an_unknown_topic_is_an_error_that_names_the_nearest(read_topic: MakeTopic, fields: Any) -> None:
    topic = read_topic()
    with pytest.raises(ConnectorError, match=f'topic "{topic.name}x": .*; did you mean "{topic.name}"') as raised:
        source(topic.bootstrap, topic.name + "x", topic.name, **fields).open()
    assert not raised.value.retriable


def test_an_unknown_property_is_an_error_that_names_it(kafka: Broker) -> None:
    with pytest.raises(ConnectorError, match=r'"sesion\.timeout\.ms"'):
        source(kafka.bootstrap, "t", "g", client={"sesion.timeout.ms": 1}).open()


def test_a_login_that_is_refused_is_an_error_without_the_password(kafka: Broker) -> None:
    login = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "u",
        "sasl.password": "correct-horse",
    }
    with pytest.raises(ConnectorError, match=r"check security\.protocol") as raised:
        source(kafka.bootstrap, "t", "g", client=login).open()
    assert "correct-horse" not in str(raised.value)


def test_an_oauth_callback_is_asked_for_the_token(
    kafka: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "login_of_the_test.py").write_text(
        "asked = []\ndef token(config):\n    asked.append(config)\n    return 'x.y.z', 4e9\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "login_of_the_test", raising=False)
    login = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.config": "scope=digits",
        "oauth_cb": "login_of_the_test:token",
    }
    # This broker knows no logins at all.
    with pytest.raises(ConnectorError, match=r"check security\.protocol"):
        source(kafka.bootstrap, "t", "g", client=login).open()
    assert importlib.import_module("login_of_the_test").asked == ["scope=digits"]


@on_both_paths
def test_brokers_that_are_away_are_an_event_and_so_is_their_return(
    read_topic: MakeTopic, cuttable_kafka: CuttableKafka
) -> None:
    topic = read_topic(on=cuttable_kafka)
    client = {"reconnect.backoff.max.ms": 300}
    with topic.reader(client=client) as reader:
        reader.until(lambda r: bool(r.lanes))
        cuttable_kafka.cut()
        reader.until(lambda r: [e.down for e in r.seen if isinstance(e, SourceDown)] == [True])
        (down,) = [event for event in reader.seen if isinstance(event, SourceDown)]
        assert topic.bootstrap in down.reason
        cuttable_kafka.mend()
        reader.until(lambda r: [e.down for e in r.seen if isinstance(e, SourceDown)] == [True, False])
        topic.write([b"after"])
        assert values(reader.take(1)) == [b"after"]


@on_both_paths
def test_a_source_opens_and_closes_without_a_broker(cuttable_kafka: CuttableKafka) -> None:
    cuttable_kafka.cut()
    one = source(cuttable_kafka.bootstrap, "t", "g")
    one.open()
    assert [event.down for event in one.events() if isinstance(event, SourceDown)] == [True], "before it is polled"
    assert len(one.poll(1, 1000, 0.2)) == 0
    assert one.events() == []
    began = time.monotonic()
    one.close()
    assert time.monotonic() - began < 10


@on_both_paths
def test_lag_is_the_distance_to_the_end(read_topic: MakeTopic) -> None:
    topic = read_topic()
    topic.write(numbers(0, 50))
    with topic.reader() as reader:
        reader.take(20)
        reader.until(lambda r: bool(r.source.lag()))
        deadline = time.monotonic() + reader.patience
        while reader.source.lag() != {(topic.name, 0): 0} and time.monotonic() < deadline:
            reader.poll()
        assert reader.source.lag() == {(topic.name, 0): 0}


def caught_up(reader: Reader) -> float:
    return reader.source.caught_up(-math.inf)


@on_both_paths
def test_it_catches_up_with_a_topic_that_ends_with_what_is_never_delivered(read_topic: MakeTopic) -> None:
    topic = read_topic(2)
    producer = Producer({"bootstrap.servers": topic.bootstrap, "transactional.id": topic.name})
    producer.init_transactions()
    for turn in range(2):
        producer.begin_transaction()
        producer.produce(topic.name, b"%d" % turn, partition=0)
        # The last one is aborted: its record is behind all that is ever delivered.
        (producer.abort_transaction if turn else producer.commit_transaction)()
    written = time.monotonic()
    with topic.reader() as reader:
        received = reader.until(lambda r: caught_up(r) >= written)
    assert values(received) == [b"0"]


@on_both_paths
def test_it_does_not_catch_up_while_its_partitions_are_not_read(read_topic: MakeTopic) -> None:
    topic = read_topic()
    topic.write(numbers(0, 10))
    with topic.reader() as reader:
        reader.take(10)
        reader.source.standing_still(True)
        reader.until(lambda r: caught_up(r) > -math.inf)
        topic.write(numbers(10, 20))
        written = time.monotonic()
        while time.monotonic() < written + 3:
            reader.source.standing_still(True)
            assert caught_up(reader) < written
            time.sleep(0.05)
        reader.source.standing_still(False)
        assert values(reader.until(lambda r: caught_up(r) >= written)) == numbers(10, 20)


def test_it_does_not_catch_up_with_records_that_it_holds(read_topic: MakeTopic) -> None:
    """They were received, and polls are asked for few bytes."""
    topic = read_topic()
    topic.write([b"x" * 1000 for _ in range(20)])
    written = time.monotonic()
    with topic.reader() as reader:
        received: list[object] = []
        while caught_up(reader) < written:
            received += reader.poll(max_bytes=1)
            time.sleep(0.1)
    assert len(received) == 20


def test_it_does_not_catch_up_while_brokers_are_away_and_does_without_partitions(
    read_topic: MakeTopic, cuttable_kafka: CuttableKafka
) -> None:
    topic = read_topic(on=cuttable_kafka)
    with topic.reader() as reader, topic.reader() as other:
        readers = reader, other
        until(lambda: [one.poll() for one in readers] and all(caught_up(one) > -math.inf for one in readers))
        assert sum(len(one.lanes) for one in readers) == 1, "one of them has no partition"
        (reads,) = (one for one in readers if one.lanes)
        cuttable_kafka.cut()
        cut = time.monotonic()
        while time.monotonic() < cut + 3:
            reads.poll()
            assert caught_up(reads) < cut
        cuttable_kafka.mend()
        topic.write([b"after"])
        written = time.monotonic()
        assert values(reads.until(lambda r: caught_up(r) >= written)) == [b"after"]


def test_the_source_also_reads_from_the_clients_own_mock_cluster(read_topic: MakeTopic, mock_kafka: MockKafka) -> None:
    topic = read_topic(4, on=mock_kafka)
    topic.write(numbers(0, 10))
    written = time.monotonic()
    with topic.reader() as reader:
        received = reader.until(lambda r: caught_up(r) >= written)
        reader.acknowledge(received)
    assert sorted(values(received)) == numbers(0, 10)
    assert topic.committed() == 10


@on_both_paths
def test_an_open_transaction_of_another_program_is_waited_for_and_no_lag(
    read_topic: MakeTopic, caplog: pytest.LogCaptureFixture
) -> None:
    topic = read_topic()
    producer = Producer({"bootstrap.servers": topic.bootstrap, "transactional.id": topic.name})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(topic.name, b"done")
    producer.commit_transaction()
    with caplog.at_level("INFO"), topic.reader() as reader:
        assert values(reader.take(1)) == [b"done"]
        producer.begin_transaction()
        producer.produce(topic.name, b"open")
        producer.flush()
        reader.until(lambda r: r.source.waits is not None)
        assert f"{topic.name}[0]: a producer's transaction is open" in str(reader.source.waits)
        assert reader.source.lag() == {(topic.name, 0): 0}
        assert "a producer's transaction is open" in caplog.text
        producer.commit_transaction()
        assert values(reader.take(1)) == [b"open"]
        reader.until(lambda r: r.source.waits is None)
