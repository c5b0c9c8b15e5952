"""A Kafka source as a member of its group: beginnings, commits, and assignments of partitions."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions
from kafkabus import make_anew
from kafkatopics import CuttableKafka, MakeTopic, Name, Topics, numbers, polled, source, values, write
from waiting import until

from connectors.contract import Reader, Received
from connectors.kafka.client.member import Member
from connectors.records import Lane
from connectors.source import LaneEnded
from pipelines.errors import ConnectorError
from pipelines.hotpath import HotPath
from streamer.devbroker import Broker, create_topics

pytestmark = pytest.mark.slow
on_both_paths = pytest.mark.usefixtures("hot_path")
"""For tests in which records are held while partitions come and go; who has which partition is the same on both."""
on_each_path_with = partial(pytest.mark.parametrize, ("hot_path", "assignor"), indirect=["hot_path"])
"""For those in which it counts, too, whether a rebalance takes all partitions away or only those that another gets."""


def test_where_the_group_has_committed_the_start_does_not_count(read_topic: MakeTopic) -> None:
    topic = read_topic()
    topic.write(numbers(0, 10))
    with topic.reader() as reader:
        reader.acknowledge(reader.take(4))
    with topic.reader(start="latest") as reader:
        assert values(reader.take(6)) == numbers(4, 10)


def test_a_crash_before_the_first_acknowledgement_loses_nothing_that_came_after_latest(read_topic: MakeTopic) -> None:
    topic = read_topic()
    topic.write(numbers(0, 3))
    with topic.reader(start="latest") as reader:
        reader.until(lambda r: bool(r.lanes))
        topic.write(numbers(3, 6))
        assert values(reader.take(3)) == numbers(3, 6)
    topic.write(numbers(6, 8))
    with topic.reader(start="latest") as reader:
        assert values(reader.take(5)) == numbers(3, 8)


def test_a_group_that_waits_for_a_member_that_does_not_answer_is_told_once(
    read_topic: MakeTopic, caplog: pytest.LogCaptureFixture
) -> None:
    topic = read_topic()
    topic.write(numbers(0, 3))
    silent = Consumer(
        {
            "bootstrap.servers": topic.bootstrap,
            "group.id": topic.name,
            "partition.assignment.strategy": "range,roundrobin",
        }
    )
    try:
        silent.subscribe([topic.name])
        while not silent.assignment():
            silent.poll(0.1)
        # From now on it does not poll, so it takes no part in the rebalance, as a process that was killed.
        with topic.reader() as reader:
            reader.until(lambda _: "has not assigned partitions" in caplog.text)
            assert not reader.lanes
            silent.close()
            assert values(reader.take(3)) == numbers(0, 3)
    finally:
        silent.close()
    (said,) = [one for one in caplog.messages if "has not assigned partitions" in one]
    assert f"the group {topic.name}" in said
    assert "session.timeout.ms" in said
    assert "`instance`" in said


SOON = {"topic.metadata.refresh.interval.ms": 300}


def grow(bootstrap: str, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for grown in admin.create_partitions([NewPartitions(topic, partitions)]).values():
        grown.result(60)
    create_topics(bootstrap, {topic: partitions})


@pytest.mark.parametrize("start", ["latest", "2100-01-01T00:00:00Z"])
def test_partitions_that_are_added_later_begin_at_their_first_record(read_topic: MakeTopic, start: str) -> None:
    topic = read_topic()
    topic.write(numbers(0, 5))
    with topic.reader(start=start, client=SOON) as reader:
        reader.until(lambda r: bool(r.lanes))
        grow(topic.bootstrap, topic.name, 2)
        topic.write(numbers(100, 110), 1)
        topic.write(numbers(5, 8))
        assert sorted(values(reader.take(13))) == sorted(numbers(5, 8) + numbers(100, 110))
    # Also if they are added while no member reads.
    grow(topic.bootstrap, topic.name, 3)
    topic.write(numbers(200, 204), 2)
    with topic.reader(start=start) as reader:
        assert sorted(values(reader.take(17))) == sorted(numbers(5, 8) + numbers(100, 110) + numbers(200, 204))


def test_topics_that_begin_to_match_a_pattern_begin_at_their_first_record(
    kafka: Broker, topics: Topics, topic_name: Name
) -> None:
    prefix = topic_name()
    topics(2, prefix)
    later = f"{prefix}-later"
    with Reader(source(kafka.bootstrap, f"^{prefix}.*", prefix, start="latest", client=SOON)) as reader:
        reader.until(lambda r: bool(r.lanes))
        create_topics(kafka.bootstrap, {later: 1})
        write(kafka.bootstrap, later, numbers(0, 10))
        assert values(reader.take(10)) == numbers(0, 10)


@pytest.mark.parametrize("assignor", ["range", "consumer"])
def test_a_pattern_leaves_out_the_topics_in_which_brokers_keep_positions(
    read_topic: MakeTopic, topic_name: Name, assignor: str
) -> None:
    """Each commit of the group would be a new record for it."""
    prefix = topic_name()
    topic = read_topic(1, prefix)
    topic.write(numbers(0, 10))
    with topic.reader() as reader:
        reader.acknowledge(reader.take(10))
    pattern = f"^({prefix}|__consumer|__transaction).*"
    with Reader(source(topic.bootstrap, pattern, prefix, assignor=assignor)) as reader:
        assert values(reader.take(10)) == numbers(0, 10)
        assert {lane.partition for lane in reader.lanes} == {f"{topic.name}-0"}
        assert reader.listen(1.0) == []


@pytest.mark.parametrize("assignor", ["range", "consumer"])
@pytest.mark.parametrize("rest", ["", "$", ".*", "|^nothing-of-this-name"])
def test_a_pattern_has_the_topics_whose_names_contain_it_whoever_compares(
    read_topic: MakeTopic, topics: Topics, topic_name: Name, assignor: str, rest: str
) -> None:
    prefix = topic_name()
    topic = read_topic(1, prefix)
    topics(1, f"other-{prefix}")
    topic.write(numbers(0, 10))
    pattern = f"^{topic.name if rest == '$' else prefix}{rest}"
    with Reader(source(topic.bootstrap, pattern, topic.name, assignor=assignor)) as reader:
        assert values(reader.take(10)) == numbers(0, 10)
        assert {lane.partition for lane in reader.lanes} == {f"{topic.name}-0"}


def test_a_topic_in_which_brokers_keep_positions_can_be_read_by_its_name(read_topic: MakeTopic) -> None:
    topic = read_topic()
    topic.write(numbers(0, 10))
    with topic.reader() as reader:
        reader.acknowledge(reader.take(10))
    with Reader(source(topic.bootstrap, "__consumer_offsets", f"{topic.name}-internal")) as reader:
        reader.take(1)


def test_members_that_begin_a_group_together_all_begin_at_its_start(read_topic: MakeTopic) -> None:
    topic = read_topic(4)
    for partition in range(4):
        topic.write(numbers(0, 50), partition)
    members = [topic.reader(start="latest", name=f"m{n}") for n in range(3)]
    with polled(members[0]) as first, polled(members[1]) as second, polled(members[2]) as third:
        deadline = time.monotonic() + 60
        while not all(len(member.lanes) in (1, 2) for member in members):
            assert time.monotonic() < deadline, [member.lanes for member in members]
            time.sleep(0.05)
        for partition in range(4):
            topic.write(numbers(50, 55), partition)
        while len(first) + len(second) + len(third) < 20:
            assert time.monotonic() < deadline
            time.sleep(0.05)
    assert sorted(values([*first, *second, *third])) == sorted(4 * numbers(50, 55))


def test_a_group_whose_positions_another_program_committed_begins_new_partitions_at_their_first_record(
    read_topic: MakeTopic,
) -> None:
    topic = read_topic(2)
    for partition in (0, 1):
        topic.write(numbers(100 * partition, 100 * partition + 5), partition)
    consumer = Consumer({"bootstrap.servers": topic.bootstrap, "group.id": topic.name})
    consumer.commit(offsets=[TopicPartition(topic.name, 0, 3, "{not ours")], asynchronous=False)
    consumer.close()
    with topic.reader(start="latest") as reader:
        assert sorted(values(reader.take(7))) == sorted(numbers(3, 5) + numbers(100, 105))


def test_a_topic_that_was_created_again_is_not_read_from_the_position_of_the_former_one(read_topic: MakeTopic) -> None:
    topic = read_topic()
    topic.write(numbers(0, 10))
    with topic.reader() as reader:
        reader.acknowledge(reader.take(10))
    consumer = Consumer({"bootstrap.servers": topic.bootstrap, "group.id": topic.name})
    position = consumer.committed([TopicPartition(topic.name, 0)], 60)
    make_anew(topic.bootstrap, topic.name)
    topic.write(numbers(0, 30))
    # A commit that was late: deleting the topic had removed the position.
    consumer.commit(offsets=position, asynchronous=False)
    consumer.close()
    with (
        topic.reader() as reader,
        pytest.raises(
            ConnectorError, match=f'"{topic.name}" was deleted and created again: .* position 10 .*out_of_range'
        ),
    ):
        reader.until(lambda r: False)
    assert topic.committed() == 10
    with topic.reader(out_of_range="latest") as reader:
        reader.until(lambda r: bool(r.lanes))
        topic.write(numbers(30, 32))
        assert values(reader.take(2)) == numbers(30, 32)
    consumer = Consumer({"bootstrap.servers": topic.bootstrap, "group.id": topic.name})
    consumer.commit(offsets=position, asynchronous=False)
    consumer.close()
    with topic.reader(out_of_range="earliest") as reader:
        received = reader.take(32)
        assert values(received) == numbers(0, 32)
        reader.acknowledge(received)
    with topic.reader() as reader:
        assert reader.listen(1) == []


@pytest.mark.parametrize("out_of_range", ["stop", "earliest"])
def test_a_topic_that_is_created_again_while_it_is_read_is_found_out(
    read_topic: MakeTopic, out_of_range: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("connectors.kafka.consumer.membership._IDS_AFTER", 0.5)
    topic = read_topic()
    topic.write(numbers(0, 10))
    with topic.reader(out_of_range=out_of_range) as reader:
        received = reader.take(10)
        # The source stands still, so that the client does not notice that its position was not there for a while.
        reader.source.standing_still(True)
        make_anew(topic.bootstrap, topic.name)
        topic.write(numbers(0, 30))
        reader.source.standing_still(False)
        if out_of_range == "stop":
            with pytest.raises(ConnectorError, match=f'"{topic.name}" was deleted and created again'):
                reader.until(lambda r: False)
            return
        reader.until(lambda r: len(r.events(LaneEnded)) == 1)
        (begun,) = reader.lanes
        assert begun.epoch > received[0].lane.epoch
        assert values(reader.take(30)) == numbers(0, 30)


def test_a_topic_that_is_created_again_with_fewer_records_is_read_once_and_told_of(
    read_topic: MakeTopic, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("connectors.kafka.consumer.membership._IDS_AFTER", 3.0)
    topic = read_topic()
    topic.write(numbers(0, 10))
    with topic.reader(out_of_range="earliest") as reader:
        reader.take(10)
        make_anew(topic.bootstrap, topic.name)
        topic.write(numbers(20, 25))
        # The client goes back by itself, before the new id of the topic is known.
        received = reader.take(5)
        assert values(received) == numbers(20, 25)
        # The client's own position is still that of the former topic.
        reader.acknowledge(received)
        assert reader.listen(6) == []
        assert topic.committed() == 5
    assert f"{topic.name}, partition 0 goes on at offset 0 instead of 10" in caplog.text


@pytest.mark.parametrize(("position", "first"), [("earliest", 0), ("latest", 9), ("2023-11-14T22:13:20Z", 5)])
def test_a_group_can_be_put_back(read_topic: MakeTopic, topics: Topics, position: str, first: int) -> None:
    topic = read_topic(retention_ms="-1")
    topic.write(numbers(0, 5), timestamp=1_000_000)
    topic.write(numbers(5, 9), timestamp=1_700_000_000_000)
    with topic.reader() as reader:
        reader.acknowledge(reader.take(7))
    with Reader(topic.config().starting(position).build()) as reader:
        received = reader.until(lambda r: bool(r.lanes))
        topic.write([b"9"])
        received += reader.take(10 - first - len(received))
    assert values(received) == numbers(first, 10)


def test_a_group_with_members_cannot_be_put_back(read_topic: MakeTopic) -> None:
    topic = read_topic()
    with topic.reader() as reader:
        reader.until(lambda r: bool(r.lanes))
        with pytest.raises(ConnectorError, match="kafka"):
            topic.source(reset="earliest").open()


@on_each_path_with(
    [("python", "range"), ("python", "consumer"), ("native", "roundrobin"), ("native", "cooperative-sticky")]
)
def test_a_member_that_joins_gets_its_share_and_no_record_is_lost_or_done_twice(
    read_topic: MakeTopic, hot_path: HotPath, assignor: str
) -> None:
    topic = read_topic(2)
    done: list[Received] = []

    def settle(lanes: Iterable[Lane], deadline: float) -> Mapping[Lane, int]:
        return {lane: max((one.position + 1 for one in done if one.lane == lane), default=0) for lane in lanes}

    for partition in (0, 1):
        topic.write(numbers(100 * partition, 100 * partition + 20), partition)
    first = topic.reader(assignor=assignor, settle=settle)
    second = topic.reader(assignor=assignor, name="second")
    with first:
        done += first.take(40)
        with polled(second) as others:
            done += first.until(lambda r: bool(r.events(LaneEnded)) and len(second.lanes) == 1 and len(r.lanes) == 1)
            for partition in (0, 1):
                topic.write(numbers(100 * partition + 20, 100 * partition + 30), partition)
            done += first.until(lambda r: len(others) >= 10 and len(done) + len(others) >= 50)
            done += first.take(60 - len(done) - len(others)) if len(done) + len(others) < 60 else []
    assert sorted(values(done) + values(others)) == sorted(numbers(0, 30) + numbers(100, 130))
    assert {one.message.partition for one in others} != {0, 1}


@on_both_paths
def test_a_late_acknowledgement_of_a_partition_that_another_member_has_commits_nothing(read_topic: MakeTopic) -> None:
    topic = read_topic(2)
    for partition in (0, 1):
        topic.write(numbers(0, 10), partition)
    first = topic.reader()
    with first:
        received = first.take(20)
        with polled(topic.reader(name="second")) as others:
            first.until(lambda r: bool(r.events(LaneEnded)) and len(r.lanes) == 1)
            (kept,) = {lane.partition for lane in first.lanes}
            first.until(lambda r: len(others) == 10)
            first.acknowledge(received)
            time.sleep(0.3)
            given = 1 - int(kept[-1])
            assert topic.committed(given) < 0


@on_both_paths
def test_finished_records_are_committed_before_partitions_are_revoked(read_topic: MakeTopic) -> None:
    topic = read_topic(2)
    for partition in (0, 1):
        topic.write(numbers(0, 10), partition)
    budgets: list[float] = []

    def settle(lanes: Iterable[Lane], deadline: float) -> Mapping[Lane, int]:
        budgets.append(deadline - time.monotonic())
        return dict.fromkeys(lanes, 7)

    first = topic.reader(revoke_timeout="4s", settle=settle)
    with first:
        first.take(20)
        with polled(topic.reader(name="second")) as others:
            first.until(lambda r: len(others) == 3)
            assert [one.position for one in others] == [7, 8, 9]
    assert budgets
    assert max(budgets) <= 4


def test_a_static_member_that_restarts_keeps_its_partitions_without_a_rebalance(read_topic: MakeTopic) -> None:
    topic = read_topic(2)
    # As much time for the restart as there is outside of tests.
    client = {"session.timeout.ms": 45_000}
    other = topic.reader(name="other", instance="two", client=client)
    with polled(other):
        with topic.reader(instance="one", client=client) as reader:
            reader.until(lambda r: len(r.lanes) == 1 and len(other.lanes) == 1)
            mine = {lane.partition for lane in reader.lanes}
        before = len(other.seen)
        with topic.reader(instance="one", client=client) as reader:
            reader.until(lambda r: bool(r.lanes))
            assert {lane.partition for lane in reader.lanes} == mine
        assert len(other.seen) == before


def test_two_members_with_one_instance_name_are_an_error_for_the_first(read_topic: MakeTopic) -> None:
    topic = read_topic()
    with topic.reader(instance="same") as reader:
        reader.until(lambda r: bool(r.lanes))
        with (
            polled(topic.reader(instance="same")),
            pytest.raises(ConnectorError, match="give each its own"),
        ):
            reader.until(lambda r: False)


@on_both_paths
def test_a_source_that_stands_still_keeps_its_partitions_and_loses_nothing(read_topic: MakeTopic) -> None:
    topic = read_topic()
    topic.write(numbers(0, 500))
    # Whoever does not poll for so long is thrown out of the group.
    member = topic.source(assignor="consumer", client={"max.poll.interval.ms": 1500})
    with Reader(member) as reader:
        received = reader.take(100)
        writing = threading.Thread(target=topic.write, args=(numbers(500, 510),))
        writing.start()
        deadline = time.monotonic() + 2.5
        while time.monotonic() < deadline or writing.is_alive():
            reader.source.standing_still(True)
            time.sleep(0.05)
        writing.join()
        reader.source.standing_still(False)
        received += reader.take(410)
        assert values(received) == numbers(0, 510)
        assert not reader.events(LaneEnded)
        reader.acknowledge(received)
    assert topic.committed() == 510


@on_both_paths
def test_partitions_assigned_while_standing_still_wait_too(read_topic: MakeTopic) -> None:
    topic = read_topic()
    topic.write(numbers(0, 10))
    with topic.reader() as reader:
        deadline = time.monotonic() + reader.patience
        while not reader.lanes and time.monotonic() < deadline:
            reader.source.standing_still(True)
            reader.notice()
            time.sleep(0.02)
        assert reader.lanes
        reader.source.standing_still(False)
        assert values(reader.take(10)) == numbers(0, 10)


@on_each_path_with([("python", "range"), ("python", "cooperative-sticky"), ("native", "range"), ("native", "consumer")])
def test_partitions_that_went_while_standing_still_are_read_when_they_are_back(
    read_topic: MakeTopic, hot_path: HotPath, assignor: str
) -> None:
    topic = read_topic(2)
    for partition in (0, 1):
        topic.write(numbers(0, 10), partition)
    reader = topic.reader(assignor=assignor)

    with reader:
        reader.take(20)
        with polled(topic.reader(assignor=assignor, name="second")):
            deadline = time.monotonic() + reader.patience
            while len(reader.lanes) != 1:
                assert time.monotonic() < deadline, reader.seen
                reader.source.standing_still(True)
                reader.notice()
                time.sleep(0.02)
            reader.source.standing_still(False)
        reader.until(lambda r: len(r.lanes) == 2)
        for partition in (0, 1):
            topic.write(numbers(10, 20), partition)
        wanted = {(partition, offset) for partition in (0, 1) for offset in range(10, 20)}
        seen: set[tuple[int | None, int]] = set()
        deadline = time.monotonic() + reader.patience
        while not wanted <= seen and time.monotonic() < deadline:
            seen |= {(one.message.partition, one.position) for one in reader.poll()}
        assert wanted <= seen


@on_both_paths
def test_a_source_that_nobody_polls_is_thrown_out_says_so_and_comes_back(
    read_topic: MakeTopic, caplog: pytest.LogCaptureFixture
) -> None:
    topic = read_topic()
    topic.write(numbers(0, 10))
    member = topic.source(assignor="consumer", client={"max.poll.interval.ms": 1500})
    with Reader(member) as reader:
        received = reader.take(10)
        with caplog.at_level(logging.WARNING):
            time.sleep(2.5)
            again = reader.take(10)
        reader.acknowledge(received)
        assert values(again) == values(received)
        assert [event.lane for event in reader.events(LaneEnded)] == [received[0].lane]
    assert topic.committed() < 0
    assert any("maximum poll interval" in record.getMessage() for record in caplog.records)


def test_a_commit_that_the_broker_is_late_for_arrives_all_the_same(
    read_topic: MakeTopic, cuttable_kafka: CuttableKafka
) -> None:
    topic = read_topic(on=cuttable_kafka)
    topic.write(numbers(0, 5))
    client = {"reconnect.backoff.max.ms": 300}
    with topic.reader(client=client) as reader:
        received = reader.take(5)
        cuttable_kafka.cut()
        reader.acknowledge(received, wait=False)
        reader.listen(0.5)
        cuttable_kafka.mend()
        deadline = time.monotonic() + reader.patience
        while topic.committed() != 5 and time.monotonic() < deadline:
            reader.poll()
        assert topic.committed() == 5


@on_both_paths
def test_a_topic_that_is_deleted_is_an_error_and_commits_to_it_are_told_to_fail(
    read_topic: MakeTopic, caplog: pytest.LogCaptureFixture
) -> None:
    topic = read_topic()
    topic.write(numbers(0, 5))
    client = {"topic.metadata.refresh.interval.ms": 300}
    with topic.reader(client=client) as reader:
        received = reader.take(5)
        admin = AdminClient({"bootstrap.servers": topic.bootstrap})
        for deleted in admin.delete_topics([topic.name]).values():
            deleted.result(60)
        # The broker that takes the commits learns of it a little later.
        until(lambda: topic.name not in admin.list_topics(timeout=60).topics)
        with caplog.at_level(logging.WARNING, "connectors.kafka"):
            reader.acknowledge(received, wait=False)
            with pytest.raises(ConnectorError, match=f"{topic.name}.*create the topic, or check its name"):
                reader.until(lambda r: False)
    assert any("cannot commit its positions" in record.getMessage() for record in caplog.records)


def test_waiting_for_a_commit_ends_when_the_broker_hangs(
    read_topic: MakeTopic, cuttable_kafka: CuttableKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("connectors.kafka.source._COMMIT_WAIT", 0.5)
    topic = read_topic(on=cuttable_kafka)
    topic.write(numbers(0, 5))
    with topic.reader() as reader:
        received = reader.take(5)
        cuttable_kafka.broker.freeze()
        began = time.monotonic()
        with pytest.raises(ConnectorError) as raised:
            reader.acknowledge(received)
        assert time.monotonic() - began < 8
        assert raised.value.retriable
        cuttable_kafka.broker.thaw()


def test_a_transaction_can_commit_positions_with_its_token(read_topic: MakeTopic) -> None:
    topic = read_topic()
    topic.write(numbers(0, 5))
    with topic.reader() as reader:
        reader.take(5)
        producer = Producer({"bootstrap.servers": topic.bootstrap, "transactional.id": topic.name})
        producer.init_transactions(60)
        producer.begin_transaction()
        token = reader.source.transaction_token()
        assert token is not None
        assert token.lanes == reader.lanes
        member = token.member
        assert isinstance(member, Member)
        producer.send_offsets_to_transaction([TopicPartition(topic.name, 0, 3)], member.group, 60)
        producer.commit_transaction(60)
    assert topic.committed() == 3


@on_both_paths
def test_only_what_lies_behind_acknowledged_records_is_passed(read_topic: MakeTopic) -> None:
    topic = read_topic(2)
    producer = Producer({"bootstrap.servers": topic.bootstrap, "transactional.id": topic.name})
    producer.init_transactions(60)
    producer.begin_transaction()
    for number in range(6):
        producer.produce(topic.name, str(number).encode(), partition=number % 2)
    producer.commit_transaction(60)
    with topic.reader() as reader:
        fetched: Any = reader.source
        deadline = time.monotonic() + reader.patience
        while fetched._reading.held < 6 and time.monotonic() < deadline:
            fetched._receive(6, 0.1)
        received = reader.poll(1)
        # The client has passed both markers, but this side holds records of both partitions.
        time.sleep(1)
        assert [topic.committed(one) for one in (0, 1)] == [-1001, -1001]
        received += reader.take(5)
        reader.listen(1.5)
        assert [topic.committed(one) for one in (0, 1)] == [-1001, -1001]
        reader.acknowledge(one for one in received if one.lane.partition.endswith("-0"))
        reader.listen(1.5)
        assert [topic.committed(one) for one in (0, 1)] == [4, -1001]
        reader.acknowledge(received)
        reader.listen(1.5)
        assert [topic.committed(one) for one in (0, 1)] == [4, 4]


@on_both_paths
def test_after_a_rewind_nothing_is_passed_before_the_records_have_come_again(read_topic: MakeTopic) -> None:
    topic = read_topic()
    producer = Producer({"bootstrap.servers": topic.bootstrap, "transactional.id": topic.name})
    producer.init_transactions(60)
    producer.begin_transaction()
    for number in range(3):
        producer.produce(topic.name, str(number).encode())
    producer.commit_transaction(60)
    with topic.reader() as reader:
        received = reader.take(3)
        reader.listen(1.5)
        reader.source.rewind({one.lane for one in received})
        # The client may still have the position that it had before.
        fetched: Any = reader.source
        fetched._pass_over()
        again = reader.take(3)
        assert values(again) == values(received)
        assert topic.committed() < 0
        reader.acknowledge(again)
        reader.listen(1.5)
        assert topic.committed() == 4
