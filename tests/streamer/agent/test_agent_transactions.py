"""`delivery: exactly_once` on memory topics: what a reader of committed results sees, whatever happens."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from connectors.memory import (
    Faults,
    MemorySource,
    MemoryTopic,
    MemoryTransactionalSink,
    MemoryTransactions,
)
from connectors.message import Message
from connectors.records import Lane
from connectors.sink import Voided
from connectors.source import TransactionToken
from pipelines import Data
from streamer import testing
from streamer.delivery.deadletter import original
from streamer.delivery.transactions import Aborts

LONG = {"interval": "30s", "timeout": "60s"}


class World:
    """A service that delivers exactly once between memory topics, and what is in them."""

    def __init__(self, define: Any, serve: Any, partitions: int = 1) -> None:
        self.input = MemoryTopic("in", partitions)
        self.output = MemoryTopic("out")
        self.letters = MemoryTopic("dead")
        self.faults = Faults()
        self._define, self._serve = define, serve

    def run(
        self,
        step: Any = None,
        *,
        identity: str | None = None,
        source: type[MemorySource] = MemorySource,
        **settings: Any,
    ) -> Any:
        """Start a service."""
        settings = {"transaction": {"interval": "20ms", "timeout": "5s"}, **settings}
        definition = self._define(*(() if step is None else (step,)), delivery="exactly_once", **settings)
        shared = MemoryTransactions(self.faults, identity, timeout=definition.transactions.timeout)
        return self._serve(
            definition,
            {"memory": source(topic=self.input, name="memory")},
            {"memory": MemoryTransactionalSink(self.output, transactions=shared, name="memory")},
            MemoryTransactionalSink(self.letters, transactions=shared, name="dead_letter"),
        )

    def feed(self, *numbers: int) -> None:
        """Append these numbers."""
        for number in numbers:
            self.input.append(Message(Data({"x": number}).to_bytes(), b"key-%d" % (number % 7)))

    @property
    def acknowledged(self) -> int:
        """How many records are acknowledged."""
        with self.input.changed:
            return sum(self.input.group("default").acknowledged)

    def results(self) -> list[int]:
        """The committed results."""
        return [result_of(message) for message in self.output.messages()]

    def buried(self) -> list[int | None]:
        """What is in the committed dead letters, `None` for one without a payload."""
        return [
            None if message.headers is not None and message.headers[0][0] == "streamer-left-out" else number_of(message)
            for message in self.letters.messages()
        ]

    def wait(self, count: int) -> None:
        """Until so many records are acknowledged."""
        await_that(lambda: self.acknowledged >= count, lambda: f"{self.acknowledged} of {count}")


def number_of(message: Message) -> int:
    number: int = Data.from_bytes(message.value)["x"]
    return number


def result_of(message: Message) -> int:
    number: int = Data.from_bytes(message.value)["y"]
    return number


def await_that(happened: Callable[[], bool], text: Callable[[], str] = str) -> None:
    deadline = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < deadline, text()
        time.sleep(0.005)


@pytest.fixture
def world(define: Any, serve: Any) -> World:
    return World(define, serve)


def test_results_and_positions_are_committed_together(world: World) -> None:
    world.feed(*range(100))
    serving = world.run()
    world.wait(100)
    assert serving.stop().error is None
    assert world.results() == [2 * n for n in range(100)]
    meters = serving.agent.meters
    assert meters.outcome("memory", "ok") == 100
    assert meters.run.transactions["committed"] >= 1
    assert meters.run.transactions["aborted"] == 0
    assert meters.run.latency.total > 0


def test_nothing_is_visible_before_it_is_committed(world: World) -> None:
    world.faults.cut()
    world.feed(1, 2, 3)
    serving = world.run()
    time.sleep(0.2)
    assert (world.results(), world.acknowledged, serving.agent.meters.total("ok")) == ([], 0, 0)
    world.faults.mend()
    world.wait(3)
    assert world.results() == [2, 4, 6]


def test_a_commit_without_an_answer_is_asked_for_again_and_made_once(world: World) -> None:
    world.faults.silent = 3
    world.feed(*range(50))
    serving = world.run()
    world.wait(50)
    await_that(lambda: serving.agent.meters.total("ok") == 50)
    assert world.results() == [2 * n for n in range(50)]


def test_a_message_that_is_lost_voids_the_transaction_and_its_records_come_again(world: World) -> None:
    left = [True]
    world.output.faults.lose = lambda message: (
        left.pop() if left and Data.from_bytes(message.value)["y"] == 20 else False
    )
    world.feed(*range(50))
    serving = world.run()
    world.wait(50)
    assert world.results() == [2 * n for n in range(50)]
    assert serving.agent.meters.run.transactions["aborted"] == 1
    await_that(lambda: serving.agent.meters.total("ok") == 50)


def test_a_message_that_the_bus_refuses_late_becomes_a_dead_letter_alone(world: World) -> None:
    world.output.faults.refuse_late = lambda message: (
        "too large" if Data.from_bytes(message.value)["y"] in (20, 60) else None
    )
    world.feed(*range(50))
    serving = world.run()
    world.wait(50)
    assert world.results() == [2 * n for n in range(50) if n not in (10, 30)]
    assert world.buried() == [10, 30]
    found = original(world.letters.messages()[0].headers)
    assert found is not None
    assert found.step == "sink memory"
    assert "too large" in found.text
    await_that(lambda: serving.agent.meters.total("ok") == 48)
    assert serving.agent.meters.total("dead") == 2


def test_a_dead_letter_that_the_bus_refuses_late_is_sent_shorter(world: World) -> None:
    def fails(data: Data) -> Data:
        if data["x"] == 7:
            raise ValueError("poison")
        return Data({"y": data["x"] * 2})

    whole = Data({"x": 7}).to_bytes()
    world.letters.faults.refuse_late = lambda message: "too large" if message.value == whole else None
    world.feed(*range(50))
    world.run(fails)
    world.wait(50)
    assert world.results() == [2 * n for n in range(50) if n != 7]
    assert world.buried() == [None]
    found = original(world.letters.messages()[0].headers)
    assert found is not None
    assert (found.step, found.text, found.left_out) == ("0:FUNCTION", "poison", "payload")
    assert "too large" in found.refusal


def test_a_record_that_is_refused_late_stops_a_service_without_a_dead_letter(world: World) -> None:
    world.output.faults.refuse_late = lambda message: "too large" if result_of(message) == 20 else None
    world.feed(*range(50))
    summary = world.run(dead_letter=None).agent.join(60)
    assert summary.reason == "failed"
    assert "too large" in summary.error
    assert world.results() == [2 * n for n in range(10)]
    assert world.acknowledged == 10


def test_suspects_are_tried_alone_also_in_batches_of_an_exact_size(world: World) -> None:
    world.output.faults.refuse_late = lambda message: "too large" if result_of(message) == 20 else None
    world.feed(*range(32))
    world.run(batch={"type": "hard", "max_records": 8, "max_age": "50ms"})
    world.wait(32)
    assert world.results() == [2 * n for n in range(32) if n != 10]
    assert world.buried() == [10]


@pytest.mark.usefixtures("hot_path")
@pytest.mark.parametrize("bad", [0, 21, 63], ids=str)
def test_a_bad_record_among_many_that_the_bus_refuses_with_it_is_found_by_halves(world: World, bad: int) -> None:
    world.output.faults.refuse_late = lambda message: "too large" if result_of(message) == 2 * bad else None
    world.feed(*range(64))
    serving = world.run(transaction=LONG)
    world.wait(64)
    assert world.results() == [2 * n for n in range(64) if n != bad]
    assert world.buried() == [bad]
    ended = serving.agent.meters.run.transactions
    assert ended["aborted"] <= 7, "64, 32, 16, 8, 4, 2, and alone"
    assert ended["committed"] <= 9, "the other halves, the dead letter, and what came between"


@pytest.mark.usefixtures("hot_path")
@pytest.mark.parametrize("seed", range(2))
def test_records_that_are_refused_late_in_random_places_are_found_and_nothing_else(
    define: Any, serve: Any, seed: int
) -> None:
    chance = random.Random(seed)
    world = World(define, serve, partitions=chance.choice([1, 3]))
    count = 100
    bad = set(chance.sample(range(count), chance.choice([2, 4])))
    hopeless = set(chance.sample(sorted(bad), len(bad) // 2))
    world.output.faults.refuse_late = lambda message: "too large" if result_of(message) // 2 in bad else None
    # Some of their dead letters are refused too, unless they are shorter.
    world.letters.faults.refuse_late = lambda message: (
        "too large" if message.value in {Data({"x": number}).to_bytes() for number in hopeless} else None
    )
    world.feed(*range(count))
    world.run(batch={"max_records": chance.choice([7, 40, 100])}, errors={"stop_ratio": 1.0})
    world.wait(count)
    assert sorted(world.results()) == [2 * n for n in range(count) if n not in bad]
    buried = world.buried()
    assert sorted(number for number in buried if number is not None) == sorted(bad - hopeless)
    assert buried.count(None) == len(hopeless)
    for key in range(7):
        own = [y for y in world.results() if y // 2 % 7 == key]
        assert own == sorted(own), "out of order"


def test_another_process_with_the_same_identity_fences_this_one_which_comes_back(world: World) -> None:
    world.feed(*range(20))
    serving = world.run(identity="test-fence", transaction={"interval": "1s", "timeout": "5s"})
    world.wait(20)
    for start in (20, 40):
        other = MemoryTransactionalSink(transactions=MemoryTransactions(Faults(), "test-fence"))
        other.open()
        world.feed(*range(start, start + 20))
        world.wait(start + 20)
    assert world.results() == [2 * n for n in range(60)]
    assert serving.stop().error is None


def test_a_service_that_is_fenced_again_and_again_stops(world: World) -> None:
    serving = world.run(identity="test-fence-for-ever")
    number = 0

    def fenced_out() -> bool:
        nonlocal number
        MemoryTransactionalSink(transactions=MemoryTransactions(Faults(), "test-fence-for-ever")).open()
        world.feed(number)
        number += 1
        return serving.agent.summary is not None

    await_that(fenced_out)
    assert "give each process its own" in serving.agent.summary.error
    assert world.results() == [2 * n for n in range(world.acknowledged)]


def test_a_revocation_commits_at_once(define: Any, serve: Any) -> None:
    world = World(define, serve, partitions=2)
    first = world.run(transaction=LONG)
    world.feed(*range(100))
    second = world.run()
    world.wait(100)
    assert sorted(world.results()) == sorted(2 * n for n in range(100))
    for serving in (first, second):
        assert serving.stop().error is None


def test_a_lane_that_is_taken_away_without_asking_voids_the_transaction(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached, gate = threading.Event(), threading.Event()

    def slow(data: Data) -> Data:
        if data["x"] == 40:
            reached.set()
            gate.wait(60)
        return Data({"y": data["x"] * 2})

    world.feed(*range(50))
    with monkeypatch.context() as patch:
        # No commit before the lane ends, nor one that would be refused.
        patch.setattr("streamer.delivery.transactions.APART", 1e12)
        serving = world.run(slow, transaction=LONG, batch={"max_records": 10})
        assert reached.wait(60)
        with world.input.changed:
            world.input.group("default").expel(serving.source)
        gate.set()
        aborted = serving.agent.meters.run.transactions
        await_that(lambda: aborted["aborted"] == 1, lambda: str(dict(aborted)))
        assert aborted["committed"] == 0
    world.wait(50)
    assert world.results() == [2 * n for n in range(50)]


def test_a_service_that_fails_leaves_nothing_of_its_open_transaction(world: World) -> None:
    def breaks(data: Data) -> Data:
        if data["x"] == 30:
            raise ValueError("poison")
        return Data({"y": data["x"] * 2})

    world.feed(*range(50))
    serving = world.run(breaks, dead_letter=None, transaction=LONG, batch={"max_records": 10})
    assert serving.agent.join(60).reason == "failed"
    assert world.results() == [2 * n for n in range(world.acknowledged)]
    world.run()
    world.wait(50)
    assert world.results() == [2 * n for n in range(50)]


def test_a_stop_commits_what_is_done(world: World) -> None:
    world.feed(*range(50))
    serving = world.run(transaction=LONG)
    await_that(lambda: serving.source.lag() == {("in", 0): 0})
    assert serving.stop().error is None
    assert world.results() == [2 * n for n in range(world.acknowledged)]


def test_an_outcome_that_is_not_known_at_the_end_is_a_failure(world: World) -> None:
    serving = world.run(limits={"drain": "1s"})
    world.feed(*range(10))
    world.wait(10)
    world.faults.cut("the brokers are gone")
    world.feed(*range(10, 20))
    await_that(lambda: serving.agent.ready() is not None or serving.source.lag() == {("in", 0): 0})
    summary = serving.stop()
    assert summary.reason == "failed"
    assert world.results() == [2 * n for n in range(10)]
    assert world.acknowledged == 10


def test_records_that_become_nothing_are_acknowledged_too(world: World) -> None:
    world.feed(*range(50))
    world.run(lambda data: None)
    world.wait(50)
    assert world.results() == []


def test_dead_letters_that_are_held_back_hold_the_transaction_back(world: World) -> None:
    def fails(data: Data) -> Data:
        if data["x"] < 3:
            raise ValueError("poison")
        return Data({"y": data["x"] * 2})

    serving = world.run(fails)
    world.feed(0, 1, 2)
    await_that(lambda: serving.source.lag() == {("in", 0): 0})
    time.sleep(0.2)
    assert world.acknowledged == 0
    world.feed(*range(3, 20))
    world.wait(20)
    assert world.buried() == [0, 1, 2]
    assert world.results() == [2 * n for n in range(3, 20)]


def test_a_suspect_waits_for_no_dead_letters_that_are_held_back(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(data: Data) -> Data:
        if data["x"] < 3:
            raise ValueError("poison")
        return Data({"y": data["x"] * 2})

    monkeypatch.setattr("streamer.delivery.letters.HOLD", 0.2)
    world.output.faults.refuse_late = lambda message: "too large" if result_of(message) == 6 else None
    world.feed(*range(4))
    world.run(fails)
    world.wait(4)
    assert world.buried() == [0, 1, 2, 3]


def all_fail(data: Data) -> Data:
    raise ValueError("poison")


def hold_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamer.delivery.letters.HOLD", 1e6)


@pytest.mark.usefixtures("hot_path")
def test_a_revocation_waits_for_no_dead_letters_that_are_held_back(
    define: Any, serve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[int] = []

    def fails(data: Data) -> Data:
        ran.append(data["x"])
        if data["x"] < 4:
            raise ValueError("poison")
        return Data({"y": data["x"] * 2})

    hold_for_ever(monkeypatch)
    monkeypatch.setattr("connectors.memory.source.SETTLE_SECONDS", 1e6)
    world = World(define, serve, partitions=2)
    first = world.run(fails)
    world.feed(*range(4))
    await_that(lambda: len(ran) == 4)
    second = world.run(fails)
    await_that(lambda: bool(second.source.lag()))
    assert world.acknowledged == 0, "it is not known yet whether everything fails"
    world.feed(*range(4, 60))
    world.wait(60)
    assert sorted(map(number_of, world.letters.messages())) == list(range(4))
    assert sorted(world.results()) == [2 * n for n in range(4, 60)]
    for serving in (first, second):
        assert serving.stop().error is None


@pytest.mark.usefixtures("hot_path")
@pytest.mark.parametrize("last", [0, 2], ids=["before it began a transaction", "later"])
def test_a_service_that_has_no_time_to_finish_leaves_records_whose_dead_letters_are_held_back_to_the_next(
    world: World, monkeypatch: pytest.MonkeyPatch, last: int
) -> None:
    ran, gate = threading.Event(), threading.Event()

    def fails(data: Data) -> Data:
        if data["x"] == last:
            ran.set()
            gate.wait(60)
        raise ValueError("poison")

    hold_for_ever(monkeypatch)
    world.feed(*range(last + 1))
    serving = world.run(fails, batch={"max_records": 1}, limits={"drain": "500ms"})
    assert ran.wait(60)
    serving.agent.stop()
    threading.Timer(0.6, gate.set).start()
    summary = serving.agent.join(60)
    assert (summary.reason, summary.error) == ("stopped", None)
    assert (world.acknowledged, world.buried()) == (0, [])


@pytest.mark.usefixtures("hot_path")
def test_dead_letters_that_are_held_back_are_sent_in_time_also_while_nothing_more_can_be_polled(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamer.delivery.letters.HOLD", 0.2)
    world.feed(*range(20))
    world.run(
        all_fail,
        batch={"max_records": 5, "max_bytes": "100B"},
        errors={"first": 0},
        limits={"in_flight": "100B", "confirm": "1000s"},
    )
    world.wait(20)
    assert world.buried() == list(range(20))


class Standing(MemoryTopic):
    """A topic of which some partitions give nothing."""

    def __init__(self, partitions: int) -> None:
        super().__init__("in", partitions)
        self.still: set[int] = set()

    def read(self, partition: int, position: int, max_records: int, max_bytes: int) -> tuple[int, list[Message]]:
        return (position, []) if partition in self.still else super().read(partition, position, max_records, max_bytes)


@pytest.mark.usefixtures("hot_path")
def test_a_partition_that_stands_still_holds_up_no_other(define: Any, serve: Any) -> None:
    world = World(define, serve)
    world.input = topic = Standing(3)
    in_still = [number for number in range(100) if number % 3 == 1]

    def feed(numbers: range) -> None:
        for number in numbers:
            topic.append(Message(Data({"x": number}).to_bytes(), partition=number % 3))

    topic.still = {1}
    feed(range(50))
    first = world.run()
    world.wait(50 - sum(number < 50 for number in in_still))
    # Not when partitions change hands, either.
    second = world.run()
    await_that(lambda: bool(second.source.lag()))
    feed(range(50, 100))
    world.wait(100 - len(in_still))
    assert sorted(world.results()) == [2 * n for n in range(100) if n not in in_still]
    topic.still = set()
    world.wait(100)
    assert sorted(world.results()) == [2 * n for n in range(100)]
    for serving in (first, second):
        assert serving.stop().error is None


@pytest.mark.parametrize("at", ["out", "dead"])
def test_a_sink_that_finds_the_transaction_void_while_it_sends_has_it_aborted(
    world: World, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    def fails(data: Data) -> Data:
        if data["x"] < 3:
            raise ValueError("poison")
        return Data({"y": data["x"] * 2})

    left = [2]
    send = MemoryTransactionalSink.send

    def sent(sink: MemoryTransactionalSink, *arguments: Any) -> Any:
        if sink.topic.name == at and left[0]:
            left[0] -= 1
            raise Voided("the producer was fenced")
        return send(sink, *arguments)

    # Dead letters are held back at first, as every record seems to fail, and are sent by themselves.
    monkeypatch.setattr("streamer.delivery.letters.HOLD", 0.1)
    monkeypatch.setattr(MemoryTransactionalSink, "send", sent)
    world.feed(0, 1, 2)
    world.run(fails)
    world.feed(3, 4)
    world.wait(5)
    assert (world.buried(), world.results(), left) == ([0, 1, 2], [6, 8], [0])


@pytest.mark.slow
def test_results_that_have_waited_for_a_commit_do_not_wait_another_interval(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    interval = 3.0
    asked, answered = threading.Event(), threading.Event()
    commit = MemoryTransactionalSink.commit

    def held(sink: MemoryTransactionalSink, *args: Any) -> None:
        asked.set()
        answered.wait(60)
        commit(sink, *args)

    def slow(data: Data) -> Data:
        if data["x"]:
            time.sleep(0.001)
        return Data({"y": data["x"] * 2})

    monkeypatch.setattr(MemoryTransactionalSink, "commit", held)
    world.feed(0)
    world.run(slow, transaction={"interval": "3s", "timeout": "60s"}, batch={"max_records": 10})
    assert asked.wait(60)
    # Enough that there is always a batch to be run: otherwise a transaction is committed sooner.
    world.feed(*range(1, 8000))
    time.sleep(interval)
    answered.set()
    since = time.monotonic()
    world.wait(2)
    assert time.monotonic() - since < interval


def test_a_run_without_brokers_delivers_exactly_once_too(define: Any) -> None:
    def fails(data: Data) -> Data:
        if data["x"] == 3:
            raise ValueError("poison")
        return Data({"y": data["x"] * 2})

    report = testing.run(define(fails, delivery="exactly_once"), [{"x": n} for n in range(20)])
    assert [data["y"] for data in report.results if data] == [2 * n for n in range(20) if n != 3]
    assert [letter.error for letter in report.dead] == ["ValueError: poison"]
    assert report.acknowledged == 20


class PassingSource(MemorySource):
    """Says that nothing is left below `passed`, long after later records were committed, too."""

    passed = 0

    def transaction_token(self) -> TransactionToken:
        token = super().transaction_token()
        return replace(token, passed=dict.fromkeys(token.lanes, self.passed))


def test_positions_behind_what_is_never_delivered_are_committed_without_records_and_never_go_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits: list[int] = []

    def commit(source: MemorySource, positions: Mapping[Lane, int]) -> None:
        commits.extend(positions.values())
        committed(source, positions)

    committed = MemorySource.commit
    monkeypatch.setattr(MemorySource, "commit", commit)
    monkeypatch.setattr("streamer.delivery.transactions.PASS_AFTER", 0.1)
    world.feed(*range(5))
    serving = world.run(source=PassingSource)
    world.wait(5)
    source = serving.agent._assembly.sources[0][2]
    source.passed = 5
    time.sleep(0.5)
    # Committed already.
    assert commits[-1] == 5
    count = len(commits)
    source.passed = 8
    await_that(lambda: commits[-1] == 8)
    time.sleep(0.5)
    assert len(commits) == count + 1
    world.feed(*range(5, 10))
    await_that(lambda: commits[-1] == 10)
    time.sleep(0.5)
    assert commits == sorted(commits)
    assert serving.stop().error is None
    assert world.results() == [2 * n for n in range(10)]


def test_transactions_that_are_aborted_again_and_again_make_the_service_not_alive(
    world: World,
) -> None:
    serving = world.run(limits={"stuck": "2s"})
    world.feed(*range(5))
    world.wait(5)
    world.output.faults.lose = lambda message: True
    world.feed(*range(5, 10))
    await_that(lambda: serving.agent.live() is not None)
    assert "transactions in a row were aborted" in serving.agent.live()
    world.output.faults.lose = None
    world.wait(10)
    await_that(lambda: serving.agent.live() is None)
    assert serving.stop().error is None
    assert world.results() == [2 * n for n in range(10)]


def test_a_few_aborts_after_which_nothing_comes_do_not_count(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamer.delivery.transactions._COMES_AGAIN", 0.5)
    serving = world.run(limits={"stuck": "1s"}, transaction={"interval": "30s", "timeout": "60s"})
    world.feed(1)
    world.wait(1)
    transactions: Any = serving.agent._loop._delivery.confirming
    # As after rebalances that took away all partitions.
    transactions._aborts = Aborts(3, 1.0, time.monotonic())
    await_that(lambda: serving.agent.live() is not None)
    await_that(lambda: serving.agent.live() is None)
    assert serving.stop().error is None
