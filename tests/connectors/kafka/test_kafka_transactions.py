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
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AclOperation, ResourceType
from kafkabus import make_anew, set_largest_message
from kafkatopics import CuttableKafka, MakeTopic, ReadTopic, Topics, forbid, numbers, read, values, write

from connectors.contract import Reader, Received
from connectors.kafka.client.member import Member
from connectors.kafka.config import KafkaSinkConfig
from connectors.kafka.transactionalsink import KafkaTransactionalSink
from connectors.message import Message, block_of
from connectors.sink import Voided
from connectors.source import TransactionToken
from pipelines.errors import ConnectorError, DefinitionError

pytestmark = pytest.mark.slow
on_both_paths = pytest.mark.usefixtures("hot_path")
"""For tests of how messages are sent; transactions begin and end in the same way on both."""

PATIENCE = 60.0


def soon(seconds: float = PATIENCE) -> float:
    return time.monotonic() + seconds


@dataclass
class Place:
    """Topics of one test: records with a group that reads them, and results."""

    records: ReadTopic
    results: str

    @property
    def bootstrap(self) -> str:
        return self.records.bootstrap

    def sink(self, timeout: float = 15.0, instance: str | None = None, **fields: Any) -> KafkaTransactionalSink:
        config = KafkaSinkConfig.model_validate({"bootstrap": self.bootstrap, "topic": self.results, **fields})
        return KafkaTransactionalSink.first(config, self.records.config(instance=instance), timeout)

    def reader(self, **fields: Any) -> Reader:
        return Reader(self.records.source(**fields), PATIENCE, commits=False)

    def read(self, count: int) -> list[bytes]:
        return [one.value for one in read(self.bootstrap, self.results, count, PATIENCE)]

    def has_all_once(self) -> bool:
        """Whether each of the four records of `under_way` has one result, and all are committed."""
        return (self.read(4), self.records.committed()) == (numbers(0, 4), 4)


@pytest.fixture
def place(read_topic: MakeTopic, topics: Topics) -> Place:
    return Place(read_topic(), topics(1, prefix="results"))


@pytest.fixture
def own_place(read_topic: MakeTopic, cuttable_kafka: CuttableKafka) -> Place:
    return Place(read_topic(on=cuttable_kafka), read_topic(1, "results", on=cuttable_kafka).name)


@dataclass
class UnderWay:
    """Records that were received, and a sink that is open for their results."""

    sink: KafkaTransactionalSink
    reader: Reader
    received: list[Received]

    def begin(self) -> None:
        """Begin a transaction, and send all results in it."""
        self.sink.begin(soon())
        self.send()

    def send(self) -> None:
        block = block_of([Message(one.message.value, one.message.key) for one in self.received])
        assert self.sink.send(block, soon()) == {}
        assert self.sink.barrier(soon()) == {}

    def commit(self, deadline: float = 0.0, *, ahead: bool = False) -> None:
        """`ahead`: the positions are added first, as a service does while messages are on their way."""
        token = self.reader.source.transaction_token()
        assert token is not None
        positions = {one.lane: one.position + 1 for one in self.received}
        if ahead:
            self.sink.add_positions(positions, token, deadline or soon())
        self.sink.commit(positions, token, deadline or soon())

    def abort(self) -> None:
        eventually(lambda: self.sink.abort(soon()))

    def rewind(self) -> None:
        """Receive the records again."""
        self.reader.source.rewind({one.lane for one in self.received})
        self.received = self.reader.take(len(self.received))

    def start_over(self) -> None:
        """Abort the transaction, receive the records again, and send their results in another one."""
        self.abort()
        self.rewind()
        self.begin()


@contextmanager
def under_way(
    place: Place, count: int = 4, *, instance: str | None = None, timeout: float = 15.0, **source: Any
) -> Iterator[UnderWay]:
    """As many records, received of a source with these fields, and a sink."""
    place.records.write(numbers(0, count))
    sink = place.sink(timeout, instance)
    sink.open()
    with place.reader(**source) as reader:
        yield UnderWay(sink, reader, reader.take(count))
    sink.close()


def eventually(call: Callable[[], None]) -> None:
    """Repeats a call that ends in a retriable error, as a service does."""
    deadline = soon()
    while True:
        try:
            return call()
        except ConnectorError as error:
            if not error.retriable or time.monotonic() > deadline:
                raise


@on_both_paths
def test_a_client_that_was_fenced_is_replaced_and_its_records_are_delivered_again(place: Place) -> None:
    with under_way(place, instance="one") as trip:
        trip.begin()
        other = place.sink(instance="one")
        other.open()
        with pytest.raises(Voided):
            trip.commit()
        trip.start_over()
        trip.commit()
        other.close()
    assert place.has_all_once()


def test_records_of_a_topic_that_was_created_again_come_once_though_they_were_taken_for_those_of_the_former(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("connectors.kafka.consumer.membership._IDS_AFTER", 1000.0)
    with under_way(place, out_of_range="earliest") as trip:
        trip.begin()
        trip.commit()
        trip.reader.acknowledge(trip.received)
        # Meanwhile the client does not notice that its position was not there for a while.
        trip.reader.source.standing_still(True)
        make_anew(place.bootstrap, place.records.name)
        place.records.write(numbers(10, 20))
        trip.reader.source.standing_still(False)
        trip.received = trip.reader.take(6)
        assert values(trip.received) == numbers(14, 20)
        trip.begin()
        with pytest.raises(Voided, match="was deleted and created again"):
            trip.commit()
        trip.abort()
        trip.reader.source.rewind({one.lane for one in trip.received})
        trip.received = trip.reader.take(10)
        trip.begin()
        trip.commit()
        assert sorted(place.read(14)) == sorted(numbers(0, 4) + numbers(10, 20))
        assert place.records.committed() == 10


def test_a_client_that_is_fenced_again_and_again_stops_the_service(place: Place) -> None:
    with under_way(place, 1, instance="one") as trip:
        for turn in range(4):
            trip.begin()
            other = place.sink(instance="one")
            other.open()
            with pytest.raises(Voided):
                trip.commit()
            other.close()
            if turn < 3:
                trip.abort()
        with pytest.raises(ConnectorError, match="another process has the same instance") as raised:
            trip.sink.abort(soon())
    assert not raised.value.retriable
    assert "longer than transaction.timeout" in str(raised.value)
    assert place.read(0) == []


def test_a_client_that_fails_for_good_while_brokers_go_away_is_replaced_as_often_as_it_fails(place: Place) -> None:
    """It was not fenced: its transaction was in a state that it did not expect, as a coordinator had moved."""
    with under_way(place, 1, instance="one") as trip:
        for _ in range(5):
            trip.begin()
            trip.sink._transactions.fail(KafkaError(KafkaError.INVALID_TXN_STATE, "the coordinator moved", True))
            with pytest.raises(Voided):
                trip.commit()
            trip.abort()
        trip.begin()
        trip.commit()
    assert place.read(1) == numbers(0, 1)


def test_a_transaction_that_brokers_gave_up_waiting_for_is_aborted_and_begun_anew(place: Place) -> None:
    with under_way(place, timeout=1.0) as trip:
        trip.begin()
        # No consumer reads past an open transaction: when this is read the brokers have given it up.
        write(place.bootstrap, place.results, [b"later"])
        assert place.read(1) == [b"later"]
        with pytest.raises(Voided):
            trip.commit()
        trip.start_over()
        trip.commit()
    assert place.read(5) == [b"later", *numbers(0, 4)]


class Faulty:
    """A producer of which one call goes wrong, until it is told to go on."""

    def __init__(self, sink: KafkaTransactionalSink, call: str) -> None:
        self._producer, self._call = sink._transactions.producer, call
        self.goes_on, self.is_closed = threading.Event(), threading.Event()
        sink._transactions.producer = self  # type: ignore[assignment]

    def __getattr__(self, name: str) -> Any:
        return self.instead if name == self._call else getattr(self._producer, name)

    def __len__(self) -> int:
        return len(self._producer)

    def close(self) -> None:
        try:
            self._producer.close()
        finally:
            self.is_closed.set()

    def instead(self, *arguments: Any) -> None:
        raise NotImplementedError


class Hanging(Faulty):
    """It hangs where it adds positions, as librdkafka does."""

    def __init__(self, sink: KafkaTransactionalSink) -> None:
        super().__init__(sink, "send_offsets_to_transaction")
        self.has_returned = threading.Event()

    def instead(self, *arguments: Any) -> None:
        self.goes_on.wait()
        try:
            self._producer.send_offsets_to_transaction(*arguments)
        finally:
            self.has_returned.set()


class Counting(Faulty):
    """It counts how often positions are added."""

    added = 0

    def instead(self, *arguments: Any) -> None:
        self.added += 1
        self._producer.send_offsets_to_transaction(*arguments)


class Stuck(Faulty):
    """One call never succeeds, as when librdkafka has lost a coordinator: it hangs, or it times out each time."""

    hangs = False

    def instead(self, *arguments: Any) -> None:
        if self.hangs:
            self.goes_on.wait()
        time.sleep(0.05)
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "Timed out", retriable=True))


@contextmanager
def given_up(place: Place, monkeypatch: pytest.MonkeyPatch, *, ahead: bool) -> Iterator[tuple[UnderWay, Hanging]]:
    """A sink whose client hangs where it adds positions, and was given up; in the end all results must be there once.

    `ahead`: see `UnderWay.commit`.
    """
    monkeypatch.setattr("connectors.kafka.producer.transactions.HUNG", 1.0)
    with under_way(place) as trip:
        trip.begin()
        hanging = Hanging(trip.sink)
        with pytest.raises(Voided, match="hangs"):
            eventually(lambda: trip.commit(soon(0.3), ahead=ahead))
        yield trip, hanging
    assert place.has_all_once()


@on_both_paths
@pytest.mark.parametrize("ahead", [False, True])
def test_a_client_that_hangs_where_it_adds_positions_is_replaced(
    place: Place, monkeypatch: pytest.MonkeyPatch, ahead: bool
) -> None:
    with given_up(place, monkeypatch, ahead=ahead) as (trip, hanging):
        trip.start_over()
        # The first client, when it goes on, does not affect the second one.
        hanging.goes_on.set()
        assert hanging.is_closed.wait(PATIENCE)
        trip.commit()


def test_a_client_that_goes_on_after_it_was_given_up_is_served_until_it_is_replaced(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that stood still, for one, finds that its client has hung for longer than it may, and the answer of the
    brokers comes a moment later."""
    with given_up(place, monkeypatch, ahead=True) as (trip, hanging):
        hanging.goes_on.set()
        assert hanging.has_returned.wait(PATIENCE)
        assert not hanging.is_closed.wait(0.5)
        assert trip.sink.barrier(soon()) == {}
        trip.abort()
        assert hanging.is_closed.wait(PATIENCE)
        trip.rewind()
        trip.begin()
        trip.commit()


def test_positions_that_were_added_ahead_are_added_once(place: Place) -> None:
    with under_way(place) as trip:
        trip.sink.begin(soon())
        counting = Counting(trip.sink, "send_offsets_to_transaction")
        trip.send()
        trip.commit(ahead=True)
    assert counting.added == 1
    assert place.has_all_once()


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
    place: Place, monkeypatch: pytest.MonkeyPatch, call: str, hangs: bool
) -> None:
    monkeypatch.setattr("connectors.kafka.producer.transactions.HUNG", 1.0)
    with under_way(place) as trip:
        stuck = Stuck(trip.sink, call)
        stuck.hangs = hangs
        trip.sink._transactions._admitted = call != "init_transactions"
        next_call, aborts = "begin", call == "abort_transaction"
        deadline = time.monotonic() + 2 * PATIENCE
        while next_call != "end":
            assert time.monotonic() < deadline, f"it does not get beyond {next_call}"
            try:
                if next_call == "begin":
                    trip.sink.begin(soon(0.3))
                    trip.send()
                    next_call = "abort" if aborts else "commit"
                elif next_call == "commit":
                    trip.commit(soon(0.3), ahead=True)
                    next_call = "end"
                else:
                    trip.sink.abort(soon(0.3))
                    trip.rewind()
                    next_call, aborts = "begin", False
            except Voided:
                next_call = "abort"
            except ConnectorError as error:
                if not error.retriable:
                    raise
        stuck.goes_on.set()
        assert stuck.is_closed.wait(PATIENCE)
    assert place.has_all_once()


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


@on_both_paths
def test_a_message_that_its_topic_does_not_take_is_refused_alone(place: Place, topics: Topics) -> None:
    small = topics(1, max_message_bytes="2000", cleanup_policy="compact,delete")
    place.results = small
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


@on_both_paths
def test_a_message_that_brokers_refuse_names_its_whole_request_and_the_next_transaction_works(place: Place) -> None:
    with under_way(place) as trip:
        set_largest_message(place.bootstrap, place.results, 2000)
        trip.begin()
        assert trip.sink.send(block_of([Message(os.urandom(9000)), Message(b"beside it")], 100), soon()) == {}
        lost = trip.sink.barrier(soon())
        assert {row for row, error in lost.items() if not error.retriable} >= {100}
        # The transaction has failed: messages that are sent now are lost with it, and no message is to blame.
        assert trip.sink.send(block_of([Message(b"after")], 200), soon()) == {}
        assert trip.sink.barrier(soon())[200].retriable
        with pytest.raises(Voided):
            trip.commit()
        trip.abort()
        assert trip.sink.confirmed() == []
        # Now the limit is known, and the numbers of messages begin anew.
        trip.rewind()
        trip.begin()
        assert list(trip.sink.send(block_of([Message(os.urandom(9000))], 100), soon())) == [0]
        trip.commit()
    assert place.read(4) == numbers(0, 4)


@on_both_paths
def test_siblings_write_to_topics_of_their_own_in_one_transaction(place: Place, topics: Topics) -> None:
    sink = place.sink()
    other = Place(place.records, topics(1, prefix="dead"))
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


@on_both_paths
def test_a_sink_that_is_closed_aborts_its_transaction(place: Place) -> None:
    with under_way(place, timeout=600.0) as trip:
        trip.begin()
        trip.sink.close()
        write(place.bootstrap, place.results, [b"later"])
        # It does not wait behind a transaction that is still open.
        assert place.read(1) == [b"later"]


def test_a_timeout_beyond_that_of_the_brokers_says_what_to_change(place: Place) -> None:
    sink = place.sink(timeout=24 * 3600.0)
    with pytest.raises(ConnectorError, match=r"transaction\.max\.timeout\.ms") as raised:
        sink.open()
    assert not raised.value.retriable
    assert "lower transaction.timeout (86400 s)" in str(raised.value)


def test_a_source_in_another_cluster_is_refused(place: Place, own_place: Place) -> None:
    own_place.records.write(numbers(0, 1))
    sink = place.sink()
    sink.open()
    with own_place.reader() as reader:
        trip = UnderWay(sink, reader, reader.take(1))
        assert "cluster" in str(sink.accepts(reader.source))
        trip.begin()
        with pytest.raises(ConnectorError, match="cluster") as raised:
            trip.commit()
        assert not raised.value.retriable
    sink.close()


def test_a_source_of_transactions_commits_no_position_itself(place: Place) -> None:
    place.records.write(numbers(0, 4))
    with place.reader() as reader:
        reader.acknowledge(reader.take(4), wait=True)
    assert place.records.committed() < 0


@pytest.mark.parametrize("assignor", ["range", "consumer"])
def test_a_first_position_is_committed_before_a_record_is_delivered(place: Place, assignor: str) -> None:
    place.records.write(numbers(0, 4))
    with place.reader(start="latest", assignor=assignor) as reader:
        reader.until(lambda r: bool(r.lanes))
        assert place.records.committed() == 4
        place.records.write(numbers(4, 6))
        reader.source.rewind({one.lane for one in reader.take(2)})
        # Also before the first transaction there is a place to go back to.
        assert values(reader.take(2)) == numbers(4, 6)


def test_positions_that_a_transaction_has_not_decided_yet_are_waited_for(place: Place) -> None:
    place.records.write(numbers(0, 4))
    producer = Producer({"bootstrap.servers": place.bootstrap, "transactional.id": place.records.name})
    producer.init_transactions(PATIENCE)
    with place.reader() as reader:
        received = reader.take(4)
        token = reader.source.transaction_token()
        assert token is not None
        member = token.member
        assert isinstance(member, Member)
        producer.begin_transaction()
        producer.send_offsets_to_transaction([TopicPartition(place.records.name, 0, 2)], member.group, PATIENCE)
        later = threading.Timer(2.0, lambda: producer.commit_transaction(PATIENCE))
        later.start()
        reader.source.rewind({one.lane for one in received})
        assert values(reader.take(2)) == numbers(2, 4)
        later.join()


@on_both_paths
def test_there_is_no_lag_at_the_end_of_a_topic_that_transactions_wrote(place: Place) -> None:
    producer = Producer({"bootstrap.servers": place.bootstrap, "transactional.id": place.records.name})
    producer.init_transactions(PATIENCE)
    for turn in range(3):
        producer.begin_transaction()
        producer.produce(place.records.name, b"%d" % turn)
        # The last one is aborted: its record is behind all that is ever delivered.
        (producer.abort_transaction if turn == 2 else producer.commit_transaction)(PATIENCE)
    source = place.records.source()
    with Reader(source, PATIENCE) as reader:
        assert values(reader.take(2)) == numbers(0, 2)
        reader.until(lambda r: source.lag() == {(place.records.name, 0): 0})


@pytest.mark.timeout(240)
def test_errors_name_the_right_that_access_rules_deny(start_kafka: Callable[..., Any], read_topic: MakeTopic) -> None:
    rules = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    kafka = start_kafka(authorizer_class_name=rules, allow_everyone_if_no_acl_found="true")
    place = Place(read_topic(on=kafka), read_topic(1, "results", on=kafka).name)
    # Without the topic's settings all works; only refusals of brokers come later.
    forbid(kafka.bootstrap, ResourceType.TOPIC, place.results, AclOperation.DESCRIBE_CONFIGS)
    with under_way(place, 1) as trip:
        trip.begin()
        trip.commit()
        trip.begin()
        forbid(kafka.bootstrap, ResourceType.GROUP, place.records.name, AclOperation.READ)
        with pytest.raises(ConnectorError, match="read the group of the source") as raised:
            trip.commit()
        assert not raised.value.retriable
    sink = place.sink()
    sink.open()
    sink.begin(soon())
    forbid(kafka.bootstrap, ResourceType.TOPIC, place.results, AclOperation.WRITE)
    sink.send(block_of([Message(b"x")]), soon())
    with pytest.raises(ConnectorError, match="access rule") as raised:
        sink.barrier(soon())
    assert not raised.value.retriable
    sink.close()
    forbid(kafka.bootstrap, ResourceType.TRANSACTIONAL_ID, f"streamer-{place.records.name}-one", AclOperation.WRITE)
    with pytest.raises(ConnectorError, match=f"transactional id streamer-{place.records.name}-one"):
        place.sink(instance="one").open()


def no_positions(place: Place) -> Any:
    return TransactionToken(frozenset(), Member(None, None, {}))
