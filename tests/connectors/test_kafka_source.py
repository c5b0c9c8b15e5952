"""What is Kafka's own about its source; what every source must do is in test_kafka_contract."""

from __future__ import annotations

import importlib
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import psutil
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from connectors.contract import Reader, Received
from connectors.kafka.config import KafkaSourceConfig
from connectors.kafka.source import KafkaSource
from connectors.records import Lane
from connectors.source import LaneBegan, LaneEnded, SourceDown
from pipelines.errors import ConnectorError
from streamer.broker import Broker, LocalKafka, MockKafka, create_topics

Topics = Callable[..., str]
Name = Callable[..., str]
QUICK = {"heartbeat.interval.ms": 200, "session.timeout.ms": 6000}


class CuttableKafka(Protocol):
    """The fixture of `conftest`."""

    bootstrap: str
    broker: LocalKafka

    def cut(self) -> None: ...
    def mend(self) -> None: ...


def source(bootstrap: str, topics: str | Sequence[str], group: str, **fields: Any) -> KafkaSource:
    quick = QUICK if fields.get("assignor") != "consumer" else {}
    client = {**quick, **fields.pop("client", {})}
    return KafkaSourceConfig.model_validate(
        {"bootstrap": bootstrap, "topics": topics, "group": group, "client": client, **fields}
    ).build()


def write(bootstrap: str, topic: str, values: Iterable[bytes | None], partition: int = 0, **more: Any) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    for value in values:
        producer.produce(topic, value, partition=partition, **more)
    assert producer.flush(20) == 0


def numbers(start: int, stop: int) -> list[bytes]:
    return [b"%d" % number for number in range(start, stop)]


def values(received: Iterable[Received]) -> list[bytes]:
    return [one.message.value for one in received]


def committed(bootstrap: str, group: str, topic: str, partition: int = 0) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    (found,) = consumer.committed([TopicPartition(topic, partition)], timeout=20)
    consumer.close()
    return -1 if found.offset is None else found.offset


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


def test_a_group_that_committed_nothing_begins_at_the_time_it_is_told(kafka: Broker, topics: Topics) -> None:
    topic = topics(2, retention_ms="-1")
    for stamp in (1_000_000, 2_000_000, 3_000_000):
        write(kafka.bootstrap, topic, [b"%d" % stamp], timestamp=stamp)
    write(kafka.bootstrap, topic, [b"old"], 1, timestamp=1_000_000)
    with Reader(source(kafka.bootstrap, topic, topic, start=2_000_000)) as reader:
        received = reader.take(2)
        began = {event.partition: event.position for event in reader.events(LaneBegan)}
        # Nothing in partition 1 is as young: what comes next is.
        write(kafka.bootstrap, topic, [b"new"], 1)
        later = reader.take(1)
    assert values(received) == [b"2000000", b"3000000"]
    assert values(later) == [b"new"]
    assert began == {0: 1, 1: 1}


def test_where_the_group_has_committed_the_start_does_not_count(kafka: Broker, topics: Topics) -> None:
    topic = topics(1)
    write(kafka.bootstrap, topic, numbers(0, 10))
    with Reader(source(kafka.bootstrap, topic, topic)) as reader:
        reader.acknowledge(reader.take(4))
    with Reader(source(kafka.bootstrap, topic, topic, start="latest")) as reader:
        assert values(reader.take(6)) == numbers(4, 10)


def test_a_crash_before_the_first_acknowledgement_loses_nothing_that_came_after_latest(
    kafka: Broker, topics: Topics
) -> None:
    topic = topics(1)
    write(kafka.bootstrap, topic, numbers(0, 3))
    with Reader(source(kafka.bootstrap, topic, topic, start="latest")) as reader:
        reader.until(lambda r: bool(r.lanes))
        write(kafka.bootstrap, topic, numbers(3, 6))
        assert values(reader.take(3)) == numbers(3, 6)
    write(kafka.bootstrap, topic, numbers(6, 8))
    with Reader(source(kafka.bootstrap, topic, topic, start="latest")) as reader:
        assert values(reader.take(5)) == numbers(3, 8)


@pytest.mark.parametrize(("position", "first"), [("earliest", 0), ("latest", 9), ("2023-11-14T22:13:20Z", 5)])
def test_a_group_can_be_put_back(kafka: Broker, topics: Topics, position: str, first: int) -> None:
    topic = topics(1, retention_ms="-1")
    write(kafka.bootstrap, topic, numbers(0, 5), timestamp=1_000_000)
    write(kafka.bootstrap, topic, numbers(5, 9), timestamp=1_700_000_000_000)
    with Reader(source(kafka.bootstrap, topic, topic)) as reader:
        reader.acknowledge(reader.take(7))
    config = KafkaSourceConfig(bootstrap=kafka.bootstrap, topics=(topic,), group=topic).starting(position)
    with Reader(config.build()) as reader:
        received = reader.until(lambda r: bool(r.lanes))
        write(kafka.bootstrap, topic, [b"9"])
        received += reader.take(10 - first - len(received))
    assert values(received) == numbers(first, 10)


def test_a_group_with_members_cannot_be_put_back(kafka: Broker, topics: Topics) -> None:
    topic = topics(1)
    with Reader(source(kafka.bootstrap, topic, topic)) as reader:
        reader.until(lambda r: bool(r.lanes))
        with pytest.raises(ConnectorError, match="kafka"):
            source(kafka.bootstrap, topic, topic, reset="earliest").open()


@pytest.mark.parametrize("assignor", ["range", "roundrobin", "consumer"])
def test_a_member_that_joins_gets_its_share_and_no_record_is_lost_or_done_twice(
    kafka: Broker, topics: Topics, assignor: str
) -> None:
    topic = topics(2)
    done: list[Received] = []

    def settle(lanes: Iterable[Lane], deadline: float) -> Mapping[Lane, int]:
        return {lane: max((one.position + 1 for one in done if one.lane == lane), default=0) for lane in lanes}

    for partition in (0, 1):
        write(kafka.bootstrap, topic, numbers(100 * partition, 100 * partition + 20), partition)
    first = Reader(source(kafka.bootstrap, topic, topic, assignor=assignor), settle=settle)
    second = Reader(source(kafka.bootstrap, topic, topic, assignor=assignor, name="second"))
    with first:
        done += first.take(40)
        with polled(second) as others:
            done += first.until(lambda r: bool(r.events(LaneEnded)) and len(second.lanes) == 1 and len(r.lanes) == 1)
            for partition in (0, 1):
                write(kafka.bootstrap, topic, numbers(100 * partition + 20, 100 * partition + 30), partition)
            done += first.until(lambda r: len(others) >= 10 and len(done) + len(others) >= 50)
            done += first.take(60 - len(done) - len(others)) if len(done) + len(others) < 60 else []
    assert sorted(values(done) + values(others)) == sorted(numbers(0, 30) + numbers(100, 130))
    assert {one.message.partition for one in others} != {0, 1}


def test_a_late_acknowledgement_of_a_partition_that_another_member_has_commits_nothing(
    kafka: Broker, topics: Topics
) -> None:
    topic = topics(2)
    for partition in (0, 1):
        write(kafka.bootstrap, topic, numbers(0, 10), partition)
    first = Reader(source(kafka.bootstrap, topic, topic))
    with first:
        received = first.take(20)
        with polled(Reader(source(kafka.bootstrap, topic, topic, name="second"))) as others:
            first.until(lambda r: bool(r.events(LaneEnded)) and len(r.lanes) == 1)
            (kept,) = {lane.partition for lane in first.lanes}
            first.until(lambda r: len(others) == 10)
            first.acknowledge(received)
            time.sleep(0.3)
            given = 1 - int(kept[-1])
            assert committed(kafka.bootstrap, topic, topic, given) < 0


def test_what_settle_returns_is_committed_before_the_partitions_go(kafka: Broker, topics: Topics) -> None:
    topic = topics(2)
    for partition in (0, 1):
        write(kafka.bootstrap, topic, numbers(0, 10), partition)
    budgets: list[float] = []

    def settle(lanes: Iterable[Lane], deadline: float) -> Mapping[Lane, int]:
        budgets.append(deadline - time.monotonic())
        return dict.fromkeys(lanes, 7)

    first = Reader(source(kafka.bootstrap, topic, topic, revoke_timeout="4s"), settle=settle)
    with first:
        first.take(20)
        with polled(Reader(source(kafka.bootstrap, topic, topic, name="second"))) as others:
            first.until(lambda r: len(others) == 3)
            assert [one.position for one in others] == [7, 8, 9]
    assert budgets
    assert max(budgets) <= 4


def test_a_static_member_that_restarts_keeps_its_partitions_without_a_rebalance(kafka: Broker, topics: Topics) -> None:
    topic = topics(2)
    other = Reader(source(kafka.bootstrap, topic, topic, name="other", instance="two"))
    with polled(other):
        with Reader(source(kafka.bootstrap, topic, topic, instance="one")) as reader:
            reader.until(lambda r: len(r.lanes) == 1 and len(other.lanes) == 1)
            mine = {lane.partition for lane in reader.lanes}
        before = len(other.seen)
        with Reader(source(kafka.bootstrap, topic, topic, instance="one")) as reader:
            reader.until(lambda r: bool(r.lanes))
            assert {lane.partition for lane in reader.lanes} == mine
        assert len(other.seen) == before


def test_two_members_with_one_instance_name_are_an_error_for_the_first(kafka: Broker, topics: Topics) -> None:
    topic = topics(1)
    with Reader(source(kafka.bootstrap, topic, topic, instance="same")) as reader:
        reader.until(lambda r: bool(r.lanes))
        with (
            polled(Reader(source(kafka.bootstrap, topic, topic, instance="same"))),
            pytest.raises(ConnectorError, match="give each its own"),
        ):
            reader.until(lambda r: False)


def test_a_source_that_stands_still_keeps_its_partitions_and_loses_nothing(kafka: Broker, topics: Topics) -> None:
    topic = topics(1)
    write(kafka.bootstrap, topic, numbers(0, 500))
    # Whoever does not poll for so long is thrown out of the group.
    member = source(kafka.bootstrap, topic, topic, assignor="consumer", client={"max.poll.interval.ms": 1500})
    with Reader(member) as reader:
        received = reader.take(100)
        deadline = time.monotonic() + 2.5
        while time.monotonic() < deadline:
            reader.source.standing_still(True)
            time.sleep(0.05)
        write(kafka.bootstrap, topic, numbers(500, 510))
        reader.source.standing_still(False)
        received += reader.take(410)
        assert values(received) == numbers(0, 510)
        assert not reader.events(LaneEnded)
        reader.acknowledge(received)
    assert committed(kafka.bootstrap, topic, topic) == 510


def test_partitions_assigned_while_standing_still_wait_too(kafka: Broker, topics: Topics) -> None:
    topic = topics(1)
    write(kafka.bootstrap, topic, numbers(0, 10))
    with Reader(source(kafka.bootstrap, topic, topic)) as reader:
        deadline = time.monotonic() + reader.patience
        while not reader.lanes and time.monotonic() < deadline:
            reader.source.standing_still(True)
            reader.notice()
            time.sleep(0.02)
        assert reader.lanes
        reader.source.standing_still(False)
        assert values(reader.take(10)) == numbers(0, 10)


def test_a_source_that_nobody_polls_is_thrown_out_says_so_and_comes_back(
    kafka: Broker, topics: Topics, caplog: pytest.LogCaptureFixture
) -> None:
    topic = topics(1)
    write(kafka.bootstrap, topic, numbers(0, 10))
    member = source(kafka.bootstrap, topic, topic, assignor="consumer", client={"max.poll.interval.ms": 1500})
    with Reader(member) as reader:
        received = reader.take(10)
        with caplog.at_level(logging.WARNING):
            time.sleep(2.5)
            again = reader.take(10)
        reader.acknowledge(received)
        assert values(again) == values(received)
        assert [event.lane for event in reader.events(LaneEnded)] == [received[0].lane]
    assert committed(kafka.bootstrap, topic, topic) < 0
    assert any("maximum poll interval" in record.getMessage() for record in caplog.records)


def test_what_is_fetched_ahead_while_nobody_polls_does_not_fill_the_memory(kafka: Broker, topics: Topics) -> None:
    topic = topics(4)
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "linger.ms": 5, "compression.type": "lz4"})
    for number in range(1600):
        producer.produce(topic, b"%06d" % number + bytes(100_000), partition=number % 4)
        producer.poll(0)
    assert producer.flush(30) == 0
    del producer
    process = psutil.Process()
    with Reader(source(kafka.bootstrap, topic, topic)) as reader:
        reader.take(1)
        before = process.memory_info().rss
        highest = before
        for _ in range(20):
            time.sleep(0.1)
            highest = max(highest, process.memory_info().rss)
        # 160 MB wait in the topic; 32 MiB and one fetch of 16 MiB may be here.
        assert highest - before < 100 * 2**20
        assert len(reader.take(1599, timeout=0.5)) == 1599


@pytest.mark.parametrize("policy", ["stop", "earliest", "latest"])
def test_a_position_that_retention_has_deleted_is_an_error_unless_it_is_said_where_to_go_on(
    kafka: Broker, topics: Topics, policy: str
) -> None:
    topic = topics(1)
    write(kafka.bootstrap, topic, numbers(0, 20))
    with Reader(source(kafka.bootstrap, topic, topic)) as reader:
        reader.acknowledge(reader.take(5))
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    for deleted in admin.delete_records([TopicPartition(topic, 0, 12)]).values():
        deleted.result(20)
    with Reader(source(kafka.bootstrap, topic, topic, out_of_range=policy)) as reader:
        if policy == "stop":
            with pytest.raises(ConnectorError, match="set out_of_range to earliest or latest"):
                reader.take(1)
            return
        if policy == "earliest":
            received = reader.take(8)
            assert values(received) == numbers(12, 20)
            reader.acknowledge(received)
            assert committed(kafka.bootstrap, topic, topic) == 20
            return
        deadline = time.monotonic() + reader.patience
        received = []
        while not received and time.monotonic() < deadline:
            write(kafka.bootstrap, topic, [b"new"])
            received = reader.listen(0.3)
        assert set(values(received)) == {b"new"}


def test_a_topic_made_anew_begins_another_life_of_its_lane(kafka: Broker, topics: Topics) -> None:
    topic = topics(1)
    write(kafka.bootstrap, topic, numbers(0, 3))
    with Reader(source(kafka.bootstrap, topic, topic, out_of_range="earliest")) as reader:
        received = reader.take(3)
        # What a topic made anew looks like to a consumer: positions that were there before.
        progress = reader.source._lanes.places[topic, 0]  # type: ignore[attr-defined]
        reader.acknowledge(received)
        progress.delivered = 100
        write(kafka.bootstrap, topic, numbers(3, 5))
        again = reader.take(2)
        assert values(again) == numbers(3, 5)
        assert again[0].lane.epoch > received[0].lane.epoch
        reader.acknowledge(again)
    assert committed(kafka.bootstrap, topic, topic) == 5


@pytest.mark.parametrize("fields", [{}, {"assignor": "consumer"}])
def test_an_unknown_topic_is_an_error_that_names_the_nearest(kafka: Broker, topics: Topics, fields: Any) -> None:
    topic = topics(1)
    with pytest.raises(ConnectorError, match=f'topic "{topic}x": .*; did you mean "{topic}"') as raised:
        source(kafka.bootstrap, topic + "x", topic, **fields).open()
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


def test_brokers_that_are_away_are_an_event_and_so_is_their_return(
    cuttable_kafka: CuttableKafka, topic_name: Name
) -> None:
    topic = topic_name()
    create_topics(cuttable_kafka.bootstrap, {topic: 1})
    client = {"reconnect.backoff.max.ms": 300, **QUICK}
    with Reader(source(cuttable_kafka.bootstrap, topic, topic, client=client)) as reader:
        reader.until(lambda r: bool(r.lanes))
        cuttable_kafka.cut()
        reader.until(lambda r: [e.down for e in r.seen if isinstance(e, SourceDown)] == [True])
        (down,) = [event for event in reader.seen if isinstance(event, SourceDown)]
        assert cuttable_kafka.bootstrap in down.reason
        cuttable_kafka.mend()
        reader.until(lambda r: [e.down for e in r.seen if isinstance(e, SourceDown)] == [True, False])
        write(cuttable_kafka.bootstrap, topic, [b"after"])
        assert values(reader.take(1)) == [b"after"]


def test_a_source_opens_and_closes_without_a_broker(cuttable_kafka: CuttableKafka) -> None:
    cuttable_kafka.cut()
    one = source(cuttable_kafka.bootstrap, "t", "g")
    one.open()
    assert len(one.poll(1, 1000, 0.2)) == 0
    assert [event.down for event in one.events() if isinstance(event, SourceDown)] == [True]
    began = time.monotonic()
    one.close()
    assert time.monotonic() - began < 10


def test_a_commit_that_the_broker_is_late_for_arrives_all_the_same(
    cuttable_kafka: CuttableKafka, topic_name: Name
) -> None:
    topic = topic_name()
    create_topics(cuttable_kafka.bootstrap, {topic: 1})
    write(cuttable_kafka.bootstrap, topic, numbers(0, 5))
    client = {"reconnect.backoff.max.ms": 300, **QUICK}
    with Reader(source(cuttable_kafka.bootstrap, topic, topic, client=client)) as reader:
        received = reader.take(5)
        cuttable_kafka.cut()
        reader.acknowledge(received, wait=False)
        reader.listen(0.5)
        cuttable_kafka.mend()
        deadline = time.monotonic() + reader.patience
        while committed(cuttable_kafka.bootstrap, topic, topic) != 5 and time.monotonic() < deadline:
            reader.poll()
        assert committed(cuttable_kafka.bootstrap, topic, topic) == 5


def test_a_topic_that_is_deleted_is_an_error_and_commits_to_it_are_told_to_fail(
    kafka: Broker, topics: Topics, caplog: pytest.LogCaptureFixture
) -> None:
    topic = topics(1)
    write(kafka.bootstrap, topic, numbers(0, 5))
    client = {"topic.metadata.refresh.interval.ms": 300}
    with Reader(source(kafka.bootstrap, topic, topic, client=client)) as reader:
        received = reader.take(5)
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        for deleted in admin.delete_topics([topic]).values():
            deleted.result(20)
        with caplog.at_level(logging.WARNING, "connectors.kafka"):
            reader.acknowledge(received, wait=False)
            with pytest.raises(ConnectorError, match=f"{topic}.*create the topic, or check its name"):
                reader.until(lambda r: False)
    assert any("cannot commit its positions" in record.getMessage() for record in caplog.records)


def test_waiting_for_a_commit_ends_when_the_broker_hangs(
    cuttable_kafka: CuttableKafka, topic_name: Name, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("connectors.kafka.source._COMMIT_WAIT", 0.5)
    topic = topic_name()
    create_topics(cuttable_kafka.bootstrap, {topic: 1})
    write(cuttable_kafka.bootstrap, topic, numbers(0, 5))
    with Reader(source(cuttable_kafka.bootstrap, topic, topic)) as reader:
        received = reader.take(5)
        cuttable_kafka.broker.freeze()
        began = time.monotonic()
        with pytest.raises(ConnectorError) as raised:
            reader.acknowledge(received)
        assert time.monotonic() - began < 8
        assert raised.value.retriable
        cuttable_kafka.broker.thaw()


def test_a_transaction_can_commit_positions_with_its_token(kafka: Broker, topics: Topics) -> None:
    topic = topics(1)
    write(kafka.bootstrap, topic, numbers(0, 5))
    with Reader(source(kafka.bootstrap, topic, topic)) as reader:
        reader.take(5)
        producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": topic})
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.send_offsets_to_transaction([TopicPartition(topic, 0, 3)], reader.source.transaction_token(), 30)
        producer.commit_transaction(30)
    assert committed(kafka.bootstrap, topic, topic) == 3


def test_lag_is_the_distance_to_the_end(kafka: Broker, topics: Topics) -> None:
    topic = topics(1)
    write(kafka.bootstrap, topic, numbers(0, 50))
    with Reader(source(kafka.bootstrap, topic, topic)) as reader:
        reader.take(20)
        reader.until(lambda r: bool(r.source.lag()))
        deadline = time.monotonic() + reader.patience
        while reader.source.lag() != {(topic, 0): 0} and time.monotonic() < deadline:
            reader.poll()
        assert reader.source.lag() == {(topic, 0): 0}


def test_it_also_reads_from_the_clients_own_mock_cluster(mock_kafka: MockKafka, topic_name: Name) -> None:
    topic = topic_name()
    create_topics(mock_kafka.bootstrap, {topic: 4})
    write(mock_kafka.bootstrap, topic, numbers(0, 10))
    with Reader(source(mock_kafka.bootstrap, topic, topic)) as reader:
        received = reader.take(10)
        reader.acknowledge(received)
    assert values(received) == numbers(0, 10)
    assert committed(mock_kafka.bootstrap, topic, topic) == 10
