"""Kafka's transactions beyond the contract of all transactional sinks, which is in test_kafka_transaction_contract."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from kafkabus import QUICK, make_anew, read, set_largest_message
from kafkafixtures import CuttableKafka, Name, Topics, Write, numbers, values

from connectors.contract import Reader, Received
from connectors.kafka.client.member import Member
from connectors.kafka.config import KafkaSinkConfig, KafkaSourceConfig
from connectors.kafka.transactionalsink import KafkaTransactionalSink
from connectors.message import Message, block_of
from connectors.sink import Voided
from connectors.source import TransactionToken
from pipelines.errors import ConnectorError, DefinitionError
from streamer.devbroker import Broker, create_topics

pytestmark = [pytest.mark.usefixtures("hot_path"), pytest.mark.slow]

PATIENCE = 60.0


def soon(seconds: float = PATIENCE) -> float:
    return time.monotonic() + seconds


@dataclass
class Place:
    """Topics of one test, a source of them and sinks to them."""

    bootstrap: str
    records: str
    results: str

    def source(self, **fields: Any) -> KafkaSourceConfig:
        quick = {} if fields.get("assignor") == "consumer" else QUICK
        client = {**quick, **fields.pop("client", {})}
        where = {"bootstrap": self.bootstrap, "topics": self.records, "group": self.records}
        return KafkaSourceConfig.model_validate({**where, "client": client, **fields})

    def sink(self, timeout: float = 15.0, instance: str | None = None, **fields: Any) -> KafkaTransactionalSink:
        config = KafkaSinkConfig.model_validate({"bootstrap": self.bootstrap, "topic": self.results, **fields})
        return KafkaTransactionalSink.first(config, self.source(instance=instance), timeout)

    def read(self, count: int) -> list[bytes]:
        return [one.value for one in read(self.bootstrap, self.results, count, PATIENCE)]

    def committed(self) -> int:
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": self.records})
        (found,) = consumer.committed([TopicPartition(self.records, 0)], timeout=PATIENCE)
        consumer.close()
        return found.offset


@pytest.fixture
def place(kafka: Broker, topics: Topics) -> Place:
    return Place(kafka.bootstrap, topics(1), topics(1, prefix="results"))


@pytest.fixture
def own_place(cuttable_kafka: CuttableKafka, topic_name: Name) -> Place:
    records, results = topic_name(), topic_name("results")
    create_topics(cuttable_kafka.bootstrap, {records: 1, results: 1})
    return Place(cuttable_kafka.bootstrap, records, results)


def send(sink: KafkaTransactionalSink, received: list[Received]) -> None:
    block = block_of([Message(one.message.value, one.message.key) for one in received])
    assert sink.send(block, soon()) == {}
    assert sink.barrier(soon()) == {}


def commit(
    sink: KafkaTransactionalSink,
    received: list[Received],
    reader: Reader,
    deadline: float = 0.0,
    *,
    ahead: bool = False,
) -> None:
    """`ahead`: the positions are added first, as a service does while messages are on their way."""
    token = reader.source.transaction_token()
    assert token is not None
    positions = {one.lane: one.position + 1 for one in received}
    if ahead:
        sink.add_positions(positions, token, deadline or soon())
    sink.commit(positions, token, deadline or soon())


def rewound(reader: Reader, received: list[Received]) -> list[Received]:
    reader.source.rewind({one.lane for one in received})
    return reader.take(len(received))


def eventually(call: Callable[[], None]) -> None:
    """Repeats a call that ends in a retriable error, as a service does."""
    deadline = soon()
    while True:
        try:
            return call()
        except ConnectorError as error:
            if not error.retriable or time.monotonic() > deadline:
                raise


def test_a_client_that_was_fenced_is_replaced_and_its_records_are_delivered_again(place: Place, write: Write) -> None:
    write(place.bootstrap, place.records, numbers(0, 4))
    sink = place.sink(instance="one")
    sink.open()
    with Reader(place.source(instance="one").build(), PATIENCE, commits=False) as reader:
        received = reader.take(4)
        sink.begin(soon())
        send(sink, received)
        other = place.sink(instance="one")
        other.open()
        with pytest.raises(Voided):
            commit(sink, received, reader)
        eventually(lambda: sink.abort(soon()))
        again = rewound(reader, received)
        sink.begin(soon())
        send(sink, again)
        commit(sink, again, reader)
        other.close()
    sink.close()
    assert place.read(4) == numbers(0, 4)
    assert place.committed() == 4


def test_records_of_a_topic_that_was_created_again_come_once_though_they_were_taken_for_those_of_the_former(
    place: Place, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("connectors.kafka.consumer.membership._IDS_AFTER", 1000.0)
    write(place.bootstrap, place.records, numbers(0, 4))
    sink = place.sink()
    sink.open()
    with Reader(place.source(out_of_range="earliest").build(), PATIENCE, commits=False) as reader:
        received = reader.take(4)
        sink.begin(soon())
        send(sink, received)
        commit(sink, received, reader)
        reader.acknowledge(received)
        # Meanwhile the client does not notice that its position was not there for a while.
        reader.source.standing_still(True)
        make_anew(place.bootstrap, place.records)
        write(place.bootstrap, place.records, numbers(10, 20))
        reader.source.standing_still(False)
        later = reader.take(6)
        assert values(later) == numbers(14, 20)
        sink.begin(soon())
        send(sink, later)
        with pytest.raises(Voided, match="was deleted and created again"):
            commit(sink, later, reader)
        eventually(lambda: sink.abort(soon()))
        reader.source.rewind({one.lane for one in later})
        again = reader.take(10)
        sink.begin(soon())
        send(sink, again)
        commit(sink, again, reader)
        assert sorted(place.read(14)) == sorted(numbers(0, 4) + numbers(10, 20))
        assert place.committed() == 10
    sink.close()


def test_a_client_that_is_fenced_again_and_again_stops_the_service(place: Place, write: Write) -> None:
    write(place.bootstrap, place.records, numbers(0, 1))
    sink = place.sink(instance="one")
    sink.open()
    with Reader(place.source().build(), PATIENCE, commits=False) as reader:
        received = reader.take(1)
        for turn in range(4):
            sink.begin(soon())
            send(sink, received)
            other = place.sink(instance="one")
            other.open()
            with pytest.raises(Voided):
                commit(sink, received, reader)
            other.close()
            if turn < 3:
                eventually(lambda: sink.abort(soon()))
        with pytest.raises(ConnectorError, match="another process has the same instance") as raised:
            sink.abort(soon())
    assert not raised.value.retriable
    sink.close()
    assert place.read(0) == []


def test_a_client_that_fails_for_good_while_brokers_go_away_is_replaced_as_often_as_it_fails(
    place: Place, write: Write
) -> None:
    """It was not fenced: its transaction was in a state that it did not expect, as a coordinator had moved."""
    write(place.bootstrap, place.records, numbers(0, 1))
    sink = place.sink(instance="one")
    sink.open()
    with Reader(place.source().build(), PATIENCE, commits=False) as reader:
        received = reader.take(1)
        for _ in range(5):
            sink.begin(soon())
            send(sink, received)
            sink._transactions.fail(KafkaError(KafkaError.INVALID_TXN_STATE, "the coordinator moved", True))
            with pytest.raises(Voided):
                commit(sink, received, reader)
            eventually(lambda: sink.abort(soon()))
        sink.begin(soon())
        send(sink, received)
        commit(sink, received, reader)
    sink.close()
    assert place.read(1) == numbers(0, 1)


def test_a_transaction_that_brokers_gave_up_waiting_for_is_aborted_and_begun_anew(place: Place, write: Write) -> None:
    write(place.bootstrap, place.records, numbers(0, 4))
    sink = place.sink(timeout=1.0)
    sink.open()
    with Reader(place.source().build(), PATIENCE, commits=False) as reader:
        received = reader.take(4)
        sink.begin(soon())
        send(sink, received)
        # No consumer reads past an open transaction: when this is read the brokers have given it up.
        write(place.bootstrap, place.results, [b"later"])
        assert place.read(1) == [b"later"]
        with pytest.raises(Voided):
            commit(sink, received, reader)
        eventually(lambda: sink.abort(soon()))
        again = rewound(reader, received)
        sink.begin(soon())
        send(sink, again)
        commit(sink, again, reader)
    sink.close()
    assert place.read(5) == [b"later", *numbers(0, 4)]


@contextmanager
def given_up(
    place: Place, write: Write, monkeypatch: pytest.MonkeyPatch, *, ahead: bool
) -> Iterator[tuple[KafkaTransactionalSink, Reader, list[Received], Hanging]]:
    """A sink whose client hangs where it adds positions, and was given up; in the end all results must be there once.

    `ahead`: see `commit`.
    """
    monkeypatch.setattr("connectors.kafka.producer.transactions.HUNG", 1.0)
    write(place.bootstrap, place.records, numbers(0, 4))
    sink = place.sink()
    sink.open()
    with Reader(place.source().build(), PATIENCE, commits=False) as reader:
        received = reader.take(4)
        sink.begin(soon())
        send(sink, received)
        hanging = Hanging(sink._transactions.producer)
        sink._transactions.producer = hanging  # type: ignore[assignment]
        with pytest.raises(Voided, match="hangs"):
            eventually(lambda: commit(sink, received, reader, soon(0.3), ahead=ahead))
        yield sink, reader, received, hanging
    sink.close()
    assert place.read(4) == numbers(0, 4)
    assert place.committed() == 4


@pytest.mark.parametrize("ahead", [False, True])
def test_a_client_that_hangs_where_it_adds_positions_is_replaced(
    place: Place, write: Write, monkeypatch: pytest.MonkeyPatch, ahead: bool
) -> None:
    with given_up(place, write, monkeypatch, ahead=ahead) as (sink, reader, received, hanging):
        eventually(lambda: sink.abort(soon()))
        again = rewound(reader, received)
        sink.begin(soon())
        send(sink, again)
        # The first client, when it goes on, does not affect the second one.
        hanging.goes_on.set()
        assert hanging.is_closed.wait(PATIENCE)
        commit(sink, again, reader)


def test_a_client_that_goes_on_after_it_was_given_up_is_served_until_it_is_replaced(
    place: Place, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that stood still, for one, finds that its client has hung for longer than it may, and the answer of the
    brokers comes a moment later."""
    with given_up(place, write, monkeypatch, ahead=True) as (sink, reader, received, hanging):
        hanging.goes_on.set()
        assert hanging.has_returned.wait(PATIENCE)
        assert not hanging.is_closed.wait(0.5)
        assert sink.barrier(soon()) == {}
        eventually(lambda: sink.abort(soon()))
        assert hanging.is_closed.wait(PATIENCE)
        again = rewound(reader, received)
        sink.begin(soon())
        send(sink, again)
        commit(sink, again, reader)


def test_positions_that_were_added_ahead_are_added_once(place: Place, write: Write) -> None:
    write(place.bootstrap, place.records, numbers(0, 4))
    sink = place.sink()
    sink.open()
    with Reader(place.source().build(), PATIENCE, commits=False) as reader:
        received = reader.take(4)
        sink.begin(soon())
        counting = Counting(sink._transactions.producer)
        sink._transactions.producer = counting  # type: ignore[assignment]
        send(sink, received)
        commit(sink, received, reader, ahead=True)
    sink.close()
    assert counting.added == 1
    assert place.read(4) == numbers(0, 4)
    assert place.committed() == 4


class Stuck:
    """A producer of which one call never succeeds, as when librdkafka has lost a coordinator: it hangs until it is told
    to go on, or it times out each time."""

    def __init__(self, producer: Producer, call: str, *, hangs: bool) -> None:
        self._producer, self._call, self._hangs = producer, call, hangs
        self.goes_on, self.is_closed = threading.Event(), threading.Event()

    def __getattr__(self, name: str) -> Any:
        return self._fails if name == self._call else getattr(self._producer, name)

    def __len__(self) -> int:
        return len(self._producer)

    def close(self) -> None:
        try:
            self._producer.close()
        finally:
            self.is_closed.set()

    def _fails(self, *_: Any) -> None:
        if self._hangs:
            self.goes_on.wait()
        time.sleep(0.05)
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "Timed out", retriable=True))


@pytest.mark.parametrize("hangs", [True, False], ids=["hangs", "times-out"])
@pytest.mark.parametrize(
    "call",
    [
        "init_transactions",
        "begin_transaction",
        "send_offsets_to_transaction",
        "commit_transaction",
        "abort_transaction",
    ],
)
def test_a_client_of_which_a_call_does_not_succeed_is_replaced_and_no_result_is_lost_or_twice(
    place: Place, write: Write, monkeypatch: pytest.MonkeyPatch, call: str, hangs: bool
) -> None:
    monkeypatch.setattr("connectors.kafka.producer.transactions.HUNG", 1.0)
    write(place.bootstrap, place.records, numbers(0, 4))
    sink = place.sink()
    sink.open()
    stuck = Stuck(sink._transactions.producer, call, hangs=hangs)
    sink._transactions.producer = stuck  # type: ignore[assignment]
    sink._transactions._admitted = call != "init_transactions"
    with Reader(place.source().build(), PATIENCE, commits=False) as reader:
        received = reader.take(4)
        next_call, aborts = "begin", call == "abort_transaction"
        deadline = time.monotonic() + 2 * PATIENCE
        while next_call != "end":
            assert time.monotonic() < deadline, f"it does not get beyond {next_call}"
            try:
                if next_call == "begin":
                    sink.begin(soon(0.3))
                    send(sink, received)
                    next_call = "abort" if aborts else "commit"
                elif next_call == "commit":
                    commit(sink, received, reader, soon(0.3), ahead=True)
                    next_call = "end"
                else:
                    sink.abort(soon(0.3))
                    received, next_call, aborts = rewound(reader, received), "begin", False
            except Voided:
                next_call = "abort"
            except ConnectorError as error:
                if not error.retriable:
                    raise
        stuck.goes_on.set()
        assert stuck.is_closed.wait(PATIENCE)
    sink.close()
    assert place.read(4) == numbers(0, 4)
    assert place.committed() == 4


def test_a_client_is_not_given_up_while_the_brokers_are_away(
    own_place: Place, cuttable_kafka: CuttableKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("connectors.kafka.producer.transactions.HUNG", 0.5)
    sink = own_place.sink()
    sink.open()
    sink.begin(soon())
    assert sink.send(block_of([Message(b"x")]), soon()) == {}
    assert sink.barrier(soon()) == {}
    client = sink._transactions.producer
    cuttable_kafka.cut()
    for _ in range(6):
        with pytest.raises(ConnectorError, match="abort"):
            sink.abort(soon(0.3))
    assert sink._transactions.producer is client
    cuttable_kafka.mend()
    eventually(lambda: sink.abort(soon()))
    sink.close()


class Counting:
    """A producer that counts how often positions are added."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self.added = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._producer, name)

    def __len__(self) -> int:
        return len(self._producer)

    def send_offsets_to_transaction(self, *arguments: Any) -> None:
        self.added += 1
        self._producer.send_offsets_to_transaction(*arguments)


class Hanging:
    """A producer that hangs in one of its calls, as librdkafka does, until it is told to go on."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self.goes_on, self.has_returned, self.is_closed = threading.Event(), threading.Event(), threading.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._producer, name)

    def __len__(self) -> int:
        return len(self._producer)

    def send_offsets_to_transaction(self, *arguments: Any) -> None:
        self.goes_on.wait()
        try:
            self._producer.send_offsets_to_transaction(*arguments)
        finally:
            self.has_returned.set()

    def close(self) -> None:
        try:
            self._producer.close()
        finally:
            self.is_closed.set()


def test_a_message_that_its_topic_does_not_take_is_refused_alone(kafka: Broker, topics: Topics) -> None:
    small = topics(1, max_message_bytes="2000", cleanup_policy="compact,delete")
    place = Place(kafka.bootstrap, topics(1), small)
    sink = place.sink(compression="none")
    sink.open()
    sink.begin(soon())
    few = [
        Message(b"fits", b"k"),
        Message(os.urandom(3000), b"k"),
        Message(b"no key"),
        Message(b"", b"k", (("h", b"x" * 3000),)),
    ]
    refused = sink.send(block_of([*few, *(Message(b"%d" % n, b"k") for n in range(1000))]), soon())
    assert sorted(refused) == [1, 2, 3]
    assert not any(error.retriable for error in refused.values())
    assert "max_message" in str(refused[1])
    assert "needs a key" in str(refused[2])
    # More than a batch of this topic may hold.
    assert sink.barrier(soon()) == {}
    sink.commit({}, no_positions(place), soon())
    sink.close()
    assert place.read(1001) == [b"fits", *numbers(0, 1000)]


def test_a_message_that_brokers_refuse_names_its_whole_request_and_the_next_transaction_works(
    place: Place, write: Write
) -> None:
    write(place.bootstrap, place.records, numbers(0, 4))
    sink = place.sink()
    sink.open()
    set_largest_message(place.bootstrap, place.results, 2000)
    with Reader(place.source().build(), PATIENCE, commits=False) as reader:
        received = reader.take(4)
        sink.begin(soon())
        send(sink, received)
        assert sink.send(block_of([Message(os.urandom(9000)), Message(b"beside it")], 100), soon()) == {}
        lost = sink.barrier(soon())
        assert {row for row, error in lost.items() if not error.retriable} >= {100}
        # The transaction has failed: messages that are sent now are lost with it, and no message is to blame.
        assert sink.send(block_of([Message(b"after")], 200), soon()) == {}
        assert sink.barrier(soon())[200].retriable
        with pytest.raises(Voided):
            commit(sink, received, reader)
        eventually(lambda: sink.abort(soon()))
        assert sink.confirmed() == []
        # Now the limit is known, and the numbers of messages begin anew.
        again = rewound(reader, received)
        sink.begin(soon())
        send(sink, again)
        assert list(sink.send(block_of([Message(os.urandom(9000))], 100), soon())) == [0]
        commit(sink, again, reader)
    sink.close()
    assert place.read(4) == numbers(0, 4)


def test_siblings_write_to_topics_of_their_own_in_one_transaction(place: Place, topics: Topics) -> None:
    sink = place.sink()
    other = Place(place.bootstrap, place.records, topics(1, prefix="dead"))
    dead = sink.sibling(KafkaSinkConfig(bootstrap=place.bootstrap, topic=other.results))
    sink.open()
    dead.open()
    sink.begin(soon())
    assert sink.send(block_of([Message(b"result")], 1), soon()) == {}
    assert dead.send(block_of([Message(b"letter")], 2), soon()) == {}
    # Each learns of its own messages only.
    assert sink.barrier(soon()) == {}
    assert [rows.tolist() for rows in sink.confirmed()] == [[1]]
    assert dead.barrier(soon()) == {}
    assert [rows.tolist() for rows in dead.confirmed()] == [[2]]
    assert place.read(0) == other.read(0) == []
    sink.commit({}, no_positions(place), soon())
    assert (place.read(1), other.read(1)) == ([b"result"], [b"letter"])
    sink.close()
    dead.close()


def test_a_sink_with_other_settings_of_its_producer_is_no_sibling(place: Place) -> None:
    with pytest.raises(DefinitionError, match="compression"):
        place.sink().sibling(KafkaSinkConfig(bootstrap=place.bootstrap, topic="x", compression="none"))


def test_a_sink_that_is_closed_aborts_its_transaction(place: Place, write: Write) -> None:
    write(place.bootstrap, place.records, numbers(0, 4))
    sink = place.sink(timeout=600.0)
    sink.open()
    with Reader(place.source().build(), PATIENCE, commits=False) as reader:
        received = reader.take(4)
        sink.begin(soon())
        send(sink, received)
        sink.close()
        write(place.bootstrap, place.results, [b"later"])
        # It does not wait behind a transaction that is still open.
        assert place.read(1) == [b"later"]


def test_a_timeout_beyond_that_of_the_brokers_says_what_to_change(place: Place) -> None:
    sink = place.sink(timeout=24 * 3600.0)
    with pytest.raises(ConnectorError, match=r"transaction\.max\.timeout\.ms") as raised:
        sink.open()
    assert not raised.value.retriable


def test_a_source_in_another_cluster_is_refused(place: Place, own_place: Place, write: Write) -> None:
    write(own_place.bootstrap, own_place.records, numbers(0, 1))
    sink = place.sink()
    sink.open()
    with Reader(own_place.source().build(), PATIENCE, commits=False) as reader:
        received = reader.take(1)
        assert "cluster" in str(sink.accepts(reader.source))
        sink.begin(soon())
        send(sink, received)
        with pytest.raises(ConnectorError, match="cluster") as raised:
            commit(sink, received, reader)
        assert not raised.value.retriable
    sink.close()


def test_a_source_of_transactions_commits_no_position_itself(place: Place, write: Write) -> None:
    write(place.bootstrap, place.records, numbers(0, 4))
    with Reader(place.source().build(), PATIENCE, commits=False) as reader:
        reader.acknowledge(reader.take(4), wait=True)
    assert place.committed() < 0


@pytest.mark.parametrize("assignor", ["range", "consumer"])
def test_a_first_position_is_committed_before_a_record_is_delivered(place: Place, write: Write, assignor: str) -> None:
    write(place.bootstrap, place.records, numbers(0, 4))
    with Reader(place.source(start="latest", assignor=assignor).build(), PATIENCE, commits=False) as reader:
        reader.until(lambda r: bool(r.lanes))
        assert place.committed() == 4
        write(place.bootstrap, place.records, numbers(4, 6))
        received = reader.take(2)
        # Also before the first transaction there is a place to go back to.
        assert values(rewound(reader, received)) == numbers(4, 6)


def test_positions_that_a_transaction_has_not_decided_yet_are_waited_for(place: Place, write: Write) -> None:
    write(place.bootstrap, place.records, numbers(0, 4))
    producer = Producer({"bootstrap.servers": place.bootstrap, "transactional.id": place.records})
    producer.init_transactions(PATIENCE)
    with Reader(place.source().build(), PATIENCE, commits=False) as reader:
        received = reader.take(4)
        token = reader.source.transaction_token()
        assert token is not None
        member = token.member
        assert isinstance(member, Member)
        producer.begin_transaction()
        producer.send_offsets_to_transaction([TopicPartition(place.records, 0, 2)], member.group, PATIENCE)
        later = threading.Timer(2.0, lambda: producer.commit_transaction(PATIENCE))
        later.start()
        reader.source.rewind({one.lane for one in received})
        assert values(reader.take(2)) == numbers(2, 4)
        later.join()


def test_there_is_no_lag_at_the_end_of_a_topic_that_transactions_wrote(place: Place) -> None:
    producer = Producer({"bootstrap.servers": place.bootstrap, "transactional.id": place.records})
    producer.init_transactions(PATIENCE)
    for turn in range(3):
        producer.begin_transaction()
        producer.produce(place.records, b"%d" % turn)
        # The last one is aborted: its record is behind all that is ever delivered.
        (producer.abort_transaction if turn == 2 else producer.commit_transaction)(PATIENCE)
    source = place.source().build()
    with Reader(source, PATIENCE) as reader:
        assert values(reader.take(2)) == numbers(0, 2)
        reader.until(lambda r: source.lag() == {(place.records, 0): 0})


@pytest.mark.timeout(240)
def test_errors_name_the_right_that_access_rules_deny(
    start_kafka: Callable[..., Any], topic_name: Name, write: Write
) -> None:
    rules = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    kafka = start_kafka(authorizer_class_name=rules, allow_everyone_if_no_acl_found="true")
    place = Place(kafka.bootstrap, topic_name(), topic_name("results"))
    create_topics(kafka.bootstrap, {place.records: 1, place.results: 1})
    write(place.bootstrap, place.records, numbers(0, 1))
    # Without the topic's settings all works; only refusals of brokers come later.
    forbid(kafka.bootstrap, ResourceType.TOPIC, place.results, AclOperation.DESCRIBE_CONFIGS)
    sink = place.sink()
    sink.open()
    with Reader(place.source().build(), PATIENCE, commits=False) as reader:
        received = reader.take(1)
        sink.begin(soon())
        send(sink, received)
        commit(sink, received, reader)
        sink.begin(soon())
        send(sink, received)
        forbid(kafka.bootstrap, ResourceType.GROUP, place.records, AclOperation.READ)
        with pytest.raises(ConnectorError, match="read the group of the source") as raised:
            commit(sink, received, reader)
        assert not raised.value.retriable
    sink.close()
    sink = place.sink()
    sink.open()
    sink.begin(soon())
    forbid(kafka.bootstrap, ResourceType.TOPIC, place.results, AclOperation.WRITE)
    sink.send(block_of([Message(b"x")]), soon())
    with pytest.raises(ConnectorError, match="access rule") as raised:
        sink.barrier(soon())
    assert not raised.value.retriable
    sink.close()
    forbid(kafka.bootstrap, ResourceType.TRANSACTIONAL_ID, f"streamer-{place.records}-one", AclOperation.WRITE)
    with pytest.raises(ConnectorError, match=f"transactional id streamer-{place.records}-one"):
        place.sink(instance="one").open()


def forbid(bootstrap: str, kind: ResourceType, name: str, operation: AclOperation) -> None:
    def rule(what: AclOperation, permission: AclPermissionType) -> AclBinding:
        return AclBinding(kind, name, ResourcePatternType.LITERAL, "User:ANONYMOUS", "*", what, permission)

    # A resource with a rule is forbidden except for the allowed operations.
    rules = [rule(AclOperation.ALL, AclPermissionType.ALLOW), rule(operation, AclPermissionType.DENY)]
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for answer in admin.create_acls(rules).values():
        answer.result()
    # Brokers learn of it a moment later.
    time.sleep(1)


def no_positions(place: Place) -> Any:
    return TransactionToken(frozenset(), Member(None, None, {}))
