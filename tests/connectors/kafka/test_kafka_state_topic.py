"""A topic with the state of a service: what a new owner of a partition reads is all that was committed, and no more."""

from __future__ import annotations

import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AclOperation, AdminClient, ConfigResource, NewPartitions, ResourceType
from kafkatopics import ReadTopic, forbid, write

from connectors.contract import Reader
from connectors.kafka import statetopic
from connectors.kafka.client import properties
from connectors.kafka.statetopic import KafkaStateTopic
from connectors.records import Lane
from connectors.source import CheckpointNote, LaneBegan
from connectors.statetopic import StateRecord
from pipelines.errors import ConnectorError, DefinitionError
from streamer.devbroker import create_topics

pytestmark = pytest.mark.usefixtures("hot_path")

MakeTopic = Callable[..., ReadTopic]
KEY = b'["item"]'
NOTE = CheckpointNote("T1", "here", 3)


@contextmanager
def opened(topic: ReadTopic, **fields: Any) -> Iterator[KafkaStateTopic]:
    state = KafkaStateTopic(f"{topic.name}.state", topic.config(**fields))
    state.open()
    try:
        yield state
    finally:
        state.close()


def nothing() -> None: ...


def member(topic: ReadTopic) -> Reader:
    return Reader(topic.source(), commits=False)


def lanes_of(reader: Reader, count: int = 1) -> list[Lane]:
    deadline = time.monotonic() + 60
    while len(reader.lanes) < count:
        reader.poll()
        assert time.monotonic() < deadline
    return sorted(reader.lanes, key=lambda lane: lane.partition)


def test_state_and_positions_are_read_by_the_next_owner(read_topic: MakeTopic) -> None:
    topic = read_topic(2)
    topic.write([b"x"] * 10, 1)
    with opened(topic) as state:
        with member(topic) as reader:
            lane = lanes_of(reader, 2)[1]
            reader.source.noted = NOTE
            token = reader.source.transaction_token()
            assert token is not None
            state.write([StateRecord(1, KEY, b"one"), StateRecord(1, b"gone", b"x")], {lane: 4}, token, nothing)
            state.write([StateRecord(1, KEY, b"two"), StateRecord(1, b"gone", None)], {lane: 6}, token, nothing)
        assert state.read(1, nothing) == {KEY: b"two"}
        assert state.read(0, nothing) == {}
        assert topic.committed(1) == 6
        with opened(topic) as again:
            assert again.id == state.id
            assert again.read(1, nothing) == {KEY: b"two"}
        with member(topic) as reader:
            lanes_of(reader, 2)
            began = [event for event in reader.seen if isinstance(event, LaneBegan)]
            assert {event.partition: event.noted for event in began} == {0: None, 1: NOTE}


def test_the_topic_is_compacted_and_has_the_partitions_of_the_source(read_topic: MakeTopic) -> None:
    topic = read_topic(3)
    with opened(topic) as state:
        admin = AdminClient({"bootstrap.servers": topic.bootstrap})
        assert len(admin.list_topics(state.name, timeout=30).topics[state.name].partitions) == 3
        resource = ConfigResource(ResourceType.TOPIC, state.name)
        assert admin.describe_configs([resource])[resource].result(30)["cleanup.policy"].value == "compact"


def test_brokers_that_do_not_answer_when_state_is_read_are_waited_for(
    read_topic: MakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = read_topic(1)
    with opened(topic) as state:
        positions = state._queries.positions
        errors = [KafkaError._TIMED_OUT, KafkaError._TRANSPORT]

        def away(*arguments: Any) -> Any:
            if errors:
                raise KafkaException(KafkaError(errors.pop()))
            return positions(*arguments)

        monkeypatch.setattr(state._queries, "positions", away)
        told: list[int] = []
        assert state.read(0, lambda: told.append(len(errors))) == {}
        assert told[:2] == [1, 0]
        errors.append(KafkaError.TOPIC_AUTHORIZATION_FAILED)
        with pytest.raises(ConnectorError, match="ask for an access rule"):
            state.read(0, nothing)
        errors.append(KafkaError._TRANSPORT)
        with pytest.raises(ConnectorError, match="no time is left"):
            state.read(0, no_time)


def no_time() -> None:
    raise ConnectorError("no time is left")


def test_a_transaction_that_ends_while_it_is_read_is_waited_for(read_topic: MakeTopic) -> None:
    topic = read_topic(1)
    with opened(topic) as state:
        producer = Producer({"bootstrap.servers": topic.bootstrap, "transactional.id": topic.name})
        producer.init_transactions(60)
        producer.begin_transaction()
        producer.produce(state.name, b"late", KEY, 0)
        assert producer.flush(60) == 0
        told: list[float] = []
        found: list[dict[bytes, bytes]] = []
        thread = threading.Thread(target=lambda: found.append(state.read(0, lambda: told.append(time.monotonic()))))
        thread.start()
        deadline = time.monotonic() + 60
        while len(told) < 3 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert found == []
        producer.commit_transaction(60)
        thread.join(60)
        assert found == [{KEY: b"late"}]


def test_somebody_who_looks_into_it_does_not_wait_for_ever(
    read_topic: MakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(statetopic, "_SILENCE", 1.0)
    topic = read_topic(1)
    with opened(topic) as state:
        producer = Producer({"bootstrap.servers": topic.bootstrap, "transactional.id": topic.name})
        producer.init_transactions(60)
        producer.begin_transaction()
        producer.produce(state.name, b"open", KEY, 0)
        assert producer.flush(60) == 0
        with pytest.raises(ConnectorError, match="nothing came for 1 s, and there is more in partition 0"):
            dict(state.each(0))
        producer.commit_transaction(60)
        monkeypatch.setattr(statetopic, "_SILENCE", 60.0)
        assert dict(state.each(0)) == {KEY: b"open"}


def test_a_former_owner_writes_nothing(read_topic: MakeTopic) -> None:
    topic = read_topic(1)
    topic.write([b"x"] * 10)
    with opened(topic) as state:
        with member(topic) as reader:
            (lane,) = lanes_of(reader)
            token = reader.source.transaction_token()
            assert token is not None
            state.write([StateRecord(0, KEY, b"mine")], {lane: 4}, token, nothing)
        # It has left, and another has the partition.
        with member(topic) as other:
            lanes_of(other)
            with pytest.raises(ConnectorError) as caught:
                state.write([StateRecord(0, KEY, b"late")], {lane: 5}, token, nothing)
            assert caught.value.retriable
            assert state.read(0, nothing) == {KEY: b"mine"}
            assert topic.committed() == 4
            # What it has of others it still writes.
            (theirs,) = lanes_of(other)
            newer = other.source.transaction_token()
            assert newer is not None
            state.write([StateRecord(0, KEY, b"theirs")], {theirs: 6}, newer, nothing)
            assert state.read(0, nothing) == {KEY: b"theirs"}


def test_more_than_the_client_has_room_for_is_written_as_room_comes(
    read_topic: MakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No single call waits for room, which is for a tenth of them.
    monkeypatch.setattr(statetopic, "_SLICE", 0.0)
    monkeypatch.setattr(properties, "QUEUE_SIZE", 1000)
    topic = read_topic(1)
    topic.write([b"x"] * 10)
    value = b"v" * 2000
    records = [StateRecord(0, b"%d" % number, value) for number in range(5000)]
    waits: list[float] = []
    with opened(topic) as state, member(topic) as reader:
        (lane,) = lanes_of(reader)
        token = reader.source.transaction_token()
        assert token is not None
        state.write(records, {lane: 4}, token, lambda: waits.append(time.monotonic()))
        assert state.read(0, nothing) == {record.key: value for record in records}
    assert waits
    assert topic.committed() == 4


def test_what_was_written_is_not_kept_in_memory(read_topic: MakeTopic) -> None:
    topic = read_topic(1)
    topic.write([b"x"] * 10)
    records = [StateRecord(0, KEY, b"v" * 1000)]
    with opened(topic) as state, member(topic) as reader:
        (lane,) = lanes_of(reader)
        token = reader.source.transaction_token()
        assert token is not None
        # Counted outside of an assertion, which holds what it looks at.
        before = sys.getrefcount(records[0].value)
        state.write(records, {lane: 4}, token, nothing)
        after = sys.getrefcount(records[0].value)
        assert after == before


@pytest.mark.parametrize(("most", "made"), [(3_000_000, True), (16 << 20, False)], ids=["made before", "created"])
def test_records_may_be_as_large_as_the_topic_takes_and_it_may_take_more_than_usual(
    most: int, made: bool, read_topic: MakeTopic
) -> None:
    topic = read_topic(1)
    topic.write([b"x"] * 10)
    if made:
        config = {"cleanup.policy": "compact", "max.message.bytes": str(most)}
        create_topics(topic.bootstrap, {f"{topic.name}.state": 1}, config=config)
    with opened(topic) as state, member(topic) as reader:
        assert most - 200 < state.longest < most
        (lane,) = lanes_of(reader)
        token = reader.source.transaction_token()
        assert token is not None
        value = random.Random(1).randbytes(state.longest - len(KEY))
        state.write([StateRecord(0, KEY, value)], {lane: 4}, token, nothing)
        assert state.read(0, nothing) == {KEY: value}


def test_keys_are_deleted_only_while_the_group_has_no_members(read_topic: MakeTopic) -> None:
    topic = read_topic(1)
    topic.write([b"x"] * 10)
    with opened(topic) as state, member(topic) as reader:
        (lane,) = lanes_of(reader)
        token = reader.source.transaction_token()
        assert token is not None
        state.write([StateRecord(0, KEY, b"one"), StateRecord(0, b"other", b"two")], {lane: 4}, token, nothing)
    looked = KafkaStateTopic(state.name, topic.config())
    looked.look()
    try:
        with member(topic) as reader:
            lanes_of(reader)
            with pytest.raises(ConnectorError, match=f"is in use by the group {topic.name}: .* on "):
                looked.clear(0, [KEY])
        # Tombstones of the transaction that was given up are none.
        assert dict(looked.each(0)) == {KEY: b"one", b"other": b"two"}
        for _ in range(2):
            looked.clear(0, [KEY])
        assert dict(looked.each(0)) == {KEY: None, b"other": b"two"}
        assert topic.committed() == 4
    finally:
        looked.close()


@pytest.mark.timeout(240)
def test_keys_are_not_deleted_if_the_user_may_not_see_whether_the_group_has_members(
    start_kafka: Callable[..., Any], read_topic: MakeTopic
) -> None:
    rules = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    topic = read_topic(1, on=start_kafka(authorizer_class_name=rules, allow_everyone_if_no_acl_found="true"))
    topic.write([b"x"])
    with opened(topic) as state, member(topic) as reader:
        lanes_of(reader)
        forbid(topic.bootstrap, ResourceType.GROUP, topic.name, AclOperation.DESCRIBE)
        with pytest.raises(ConnectorError, match=f"members of the group {topic.name}: .* access rule"):
            state.check_unused()


def test_a_client_that_fails_between_two_transactions_is_replaced(read_topic: MakeTopic) -> None:
    topic = read_topic(1)
    topic.write([b"x"] * 10)
    with opened(topic) as state, member(topic) as reader:
        (lane,) = lanes_of(reader)
        token = reader.source.transaction_token()
        assert token is not None
        state.write([StateRecord(0, KEY, b"one")], {lane: 4}, token, nothing)
        state._sink._client.fail(KafkaError(KafkaError._FENCED, "fenced", fatal=True))
        with pytest.raises(ConnectorError) as caught:
            state.write([StateRecord(0, KEY, b"two")], {lane: 5}, token, nothing)
        assert caught.value.retriable
        state.write([StateRecord(0, KEY, b"two")], {lane: 5}, token, nothing)
        assert state.read(0, nothing) == {KEY: b"two"}


def test_a_process_that_is_fenced_again_and_again_stops_and_names_no_setting_that_there_is_not(
    read_topic: MakeTopic,
) -> None:
    topic = read_topic(1)
    topic.write([b"x"] * 10)
    with opened(topic, instance="one") as state, member(topic) as reader:
        (lane,) = lanes_of(reader)
        token = reader.source.transaction_token()
        assert token is not None
        for turn in range(4):
            with opened(topic, instance="one"), pytest.raises(ConnectorError) as caught:
                state.write([StateRecord(0, KEY, b"one")], {lane: 4}, token, nothing)
            assert caught.value.retriable == (turn < 3)
    assert "another process has the same instance" in str(caught.value)
    assert "than the 10 s that brokers wait for one" in str(caught.value)
    assert "transaction.timeout" not in str(caught.value)


def test_a_topic_that_is_created_again_while_it_is_used_is_not_read(read_topic: MakeTopic) -> None:
    topic = read_topic(1)
    with opened(topic) as state:
        admin = AdminClient({"bootstrap.servers": topic.bootstrap})
        admin.delete_topics([state.name], operation_timeout=30)[state.name].result(60)
        time.sleep(0.5)
        with opened(topic):
            pass
        with pytest.raises(DefinitionError, match="was deleted and created again"):
            state.read(0, nothing)


def test_partitions_that_are_added_to_the_source_stop_the_service(read_topic: MakeTopic) -> None:
    topic = read_topic(1)
    with opened(topic) as state:
        admin = AdminClient({"bootstrap.servers": topic.bootstrap})
        admin.create_partitions([NewPartitions(topic.name, 2)])[topic.name].result(60)
        with pytest.raises(DefinitionError, match="has 1 partitions, and"):
            state.number(f"{topic.name}-1")
    write(topic.bootstrap, topic.name, [b"x"], 1)
    with pytest.raises(DefinitionError, match=r"has 1 partitions, and .* has 2 \("), opened(topic):
        pass


def test_each_partition_of_several_topics_has_one_of_its_own_in_whatever_order_they_are_named(
    read_topic: MakeTopic,
) -> None:
    first, second = read_topic(3), read_topic(2)
    topics = [first.name, second.name]
    parts = [f"{first.name}-{number}" for number in range(3)] + [f"{second.name}-{number}" for number in range(2)]
    with opened(first, topics=topics) as state:
        numbers = [state.number(part) for part in parts]
        assert sorted(numbers) == list(range(5))
    with opened(first, topics=topics[::-1]) as state:
        assert [state.number(part) for part in parts] == numbers
        # One that is added is not taken for the first of the other topic.
        with pytest.raises(DefinitionError, match=f"has 6 .*{first.name}: 4"):
            state.number(f"{first.name}-3")
        with pytest.raises(DefinitionError, match="has 6"):
            state.number("other-0")
    third = read_topic(1)
    with (
        pytest.raises(DefinitionError, match="has 5 partitions, and what its source reads has 6"),
        opened(first, topics=[*topics, third.name]),
    ):
        pass
    with pytest.raises(ConnectorError, match='the topic "nothing" of its source does not exist'):
        KafkaStateTopic(f"{first.name}.state", first.config(topics=[*topics, "nothing"])).open()
