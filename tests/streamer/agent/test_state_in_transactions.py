"""`delivery: exactly_once` with state: results, state and positions are one transaction, so each record counts once."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest
from mortal import Mortal
from savedsums import Sums
from transactionalsums import MemoryStateTopic, SummingWorld

from connectors.memory import MemoryTransactions
from connectors.message import Message
from connectors.records import Lane
from connectors.sink import Voided
from connectors.source import TransactionToken
from pipelines import Batch, Data, Result
from streamer.agent.runs.checkpointing import Checkpointing
from streamer.delivery.transaction import State
from streamer.delivery.transactions import Transactions


@pytest.fixture
def world(define: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[SummingWorld]:
    made = SummingWorld(define, monkeypatch)
    yield made
    made.end()


@pytest.fixture
def divided(define: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[SummingWorld]:
    """With topics of three partitions, for several services."""
    made = SummingWorld(define, monkeypatch, partitions=3)
    yield made
    made.end()


def sum_of(message: Message) -> int:
    return int(Data.from_bytes(message.value)["y"])


def test_results_and_state_are_committed_with_their_positions(world: SummingWorld) -> None:
    world.feed(*"aabcabbca")
    member = world.start()
    world.wait()
    world.check()
    assert world.sums == {"a": [6], "b": [6]}
    assert world.open == {"a": [4], "c": [1, 2]}
    world.stop(member)
    world.start()
    world.feed(*"aac")
    world.wait()
    world.check()


def test_nothing_of_the_state_is_visible_before_it_is_committed(world: SummingWorld, eventually: Any) -> None:
    world.feed(*"aabb")
    member = world.start(transaction={"interval": "30s", "timeout": "60s"})
    eventually(lambda: len(member.sums.open) == 2)
    assert world.state.messages() == []
    world.stop(member)
    world.check()


def test_a_lost_message_puts_the_state_back_and_each_record_counts_once(world: SummingWorld) -> None:
    lost: list[int] = []

    def lose(message: Message) -> bool:
        lost.append(sum_of(message))
        return len(lost) in (2, 5)

    world.output.faults.lose = lose
    member = world.start()
    world.feed(*"ab" * 61)
    world.wait()
    world.check()
    assert member.agent.meters.run.transactions["aborted"] in (1, 2)
    assert len({lane for lane, _ in member.sums.open}) < 2, "state of a lane that has ended is kept"


def test_what_is_run_while_a_transaction_commits_is_not_saved_by_it(world: SummingWorld, eventually: Any) -> None:
    member = world.start(batch={"max_records": 3})
    world.feed(*"aaa")
    world.wait()
    # Its answer does not come, and the next batch is run meanwhile.
    world.faults.silent = 1_000_000
    world.feed("a")
    world.wait()
    world.feed("a")
    eventually(lambda: [numbers for numbers, _ in member.sums.open.values()] == [[4, 5]])
    assert world.open == {"a": [4]}
    assert world.saved_positions == [4]
    world.faults.silent = 0
    world.wait()
    world.check()


def test_a_transaction_that_waits_saves_what_was_run_before_it_began_to_commit(
    world: SummingWorld, eventually: Any
) -> None:
    member = world.start(transaction={"interval": "2s", "timeout": "60s"})
    world.feed("a")
    confirming = member.agent._loop._open_delivery.confirming
    assert isinstance(confirming, Transactions)
    # One that cannot begin lets no record be run.
    eventually(lambda: bool(member.sums.open) and confirming._transaction.state is State.OPEN)
    world.faults.cut()
    eventually(lambda: member.agent._loop.waiting is not None)
    world.feed("a")
    eventually(lambda: [numbers for numbers, _ in member.sums.open.values()] == [[1, 2]])
    world.faults.mend()
    world.wait()
    saved = [json.loads(message.value or b"") for message in world.state.messages()]
    assert [each[0] for each in saved if isinstance(each, list)] == [[1], [1, 2]]
    assert [each["position"] for each in saved if "position" in each] == [1, 2]


@pytest.mark.parametrize("at", [2, 8, 20])
def test_a_result_that_the_bus_refuses_late_is_found_and_buried_and_no_record_counts_twice(
    world: SummingWorld, at: int
) -> None:
    # The sum of the `at`th three numbers of b, in the midst of a batch.
    bad = (b"b", 9 * at + 6)
    world.output.faults.refuse_late = lambda message: "too large" if (message.key, sum_of(message)) == bad else None
    world.start(batch={"max_records": 50})
    world.feed(*"abc" * 100)
    world.wait()
    world.check(buried=1)


def test_sums_that_time_closes_are_visible_once_with_the_state_that_lacks_them(
    world: SummingWorld, eventually: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    member = world.start()
    world.feed(*"aab")
    world.wait()
    assert world.open == {"a": [1, 2], "b": [1]}
    committed: list[list[int]] = []
    commit = member.source.commit

    def noted(positions: Mapping[Lane, int]) -> None:
        committed.append([*positions.values()])
        commit(positions)

    monkeypatch.setattr(member.source, "commit", noted)
    member.sums.due = True
    eventually(lambda: world.sums == {"a": [3], "b": [1]} and not world.open)
    # The position that has not moved is named again: by that brokers refuse a process which has lost the partition.
    assert committed == [[3]]
    world.stop(member)
    assert world.acknowledged == 3
    assert world.saved_positions == [3]


def test_a_sum_that_time_closed_comes_again_when_its_transaction_is_aborted(
    world: SummingWorld, eventually: Any
) -> None:
    member = world.start()
    world.feed(*"aab")
    world.wait()
    lost: list[int] = []

    def lose(message: Message) -> bool:
        lost.append(sum_of(message))
        return len(lost) == 1

    world.output.faults.lose = lose
    member.sums.due = True
    # The state was put back with the transaction, so that it has them still.
    eventually(lambda: member.agent.meters.run.transactions["aborted"] == 1 and len(member.sums.open) == 2)
    assert world.open == {"a": [1, 2], "b": [1]}
    member.sums.due = True
    eventually(lambda: world.sums == {"a": [3], "b": [1]} and not world.open)
    eventually(lambda: not member.agent._loop._open_delivery.ledger.has_open_rows)


def test_sums_that_time_closes_and_the_bus_refuses_late_are_buried_with_their_values(
    world: SummingWorld, eventually: Any
) -> None:
    member = world.start()
    world.feed(*"abbccc")
    world.wait()
    # With it the bus refuses all that came in its request: of a as well.
    world.output.faults.refuse_late = lambda message: "too large" if message.key == b"b" else None
    for aborted in range(1, 3):
        eventually(lambda: len(member.sums.open) == 2)
        # Other transactions, in which records of the same partition are finished.
        world.feed(*"ccc")
        world.wait()
        member.sums.due = True
        eventually(lambda aborted=aborted: member.agent.meters.run.transactions["aborted"] == aborted)
    eventually(lambda: len(member.sums.open) == 2)
    member.sums.due = True
    eventually(lambda: not world.open)
    assert world.sums == {"c": [6, 15, 24]}
    assert [json.loads(message.value or b"") for message in world.letters.messages()] == [
        {"y": 1, "k": "a"},
        {"y": 3, "k": "b"},
    ]
    confirming = member.agent._loop._open_delivery.confirming
    assert isinstance(confirming, Transactions)
    eventually(lambda: not confirming._suspects)


def test_what_time_has_changed_without_a_result_is_saved_by_a_transaction_of_its_own(
    world: SummingWorld, eventually: Any
) -> None:
    member = world.start()
    world.feed(*"aab")
    world.wait()
    gone = member.sums.open.copy()
    member.sums.changed |= gone.keys()
    member.sums.open.clear()
    eventually(lambda: not world.open)
    assert world.saved_positions == [3]


def test_positions_behind_what_is_never_delivered_are_committed_with_the_state_that_is_of_them(
    define: Any, monkeypatch: pytest.MonkeyPatch, eventually: Any
) -> None:
    token, read = Mortal.transaction_token, MemoryStateTopic.read

    def passing(source: Mortal) -> TransactionToken:
        made = token(source)
        return replace(made, passed=dict.fromkeys(made.lanes, 9))

    def slow(topic: MemoryStateTopic, partition: int, tell: Callable[[], None]) -> dict[bytes, bytes]:
        time.sleep(0.2)
        return read(topic, partition, tell)

    monkeypatch.setattr(Mortal, "transaction_token", passing)
    monkeypatch.setattr(MemoryStateTopic, "read", slow)
    monkeypatch.setattr("streamer.delivery.transactions.PASS_AFTER", 0.1)
    world = SummingWorld(define, monkeypatch, partitions=4)
    member = world.start()
    # The state of some partitions is being loaded still.
    eventually(lambda: world.acknowledged > 0)
    world.stop(member)
    world.check()
    member = world.start()
    world.wait(4 * 9)
    world.stop(member)
    world.check()


def test_what_time_has_changed_without_a_result_is_put_back_when_its_transaction_is_aborted(
    world: SummingWorld, eventually: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    member = world.start()
    world.feed(*"aab")
    world.wait()
    commit = MemoryTransactions.commit

    def refused(transactions: MemoryTransactions, *arguments: Any) -> None:
        monkeypatch.setattr(MemoryTransactions, "commit", commit)
        raise Voided("refused")

    monkeypatch.setattr(MemoryTransactions, "commit", refused)
    member.sums.changed |= member.sums.open.keys()
    member.sums.open.clear()
    eventually(lambda: member.agent.meters.run.transactions["aborted"] == 1 and len(member.sums.open) == 2)
    world.feed("a")
    world.wait()
    world.check()


def test_an_abort_puts_back_the_state_of_all_partitions_that_a_step_joins(
    define: Any, monkeypatch: pytest.MonkeyPatch, eventually: Any
) -> None:
    world = SummingWorld(define, monkeypatch, partitions=2)
    member = world.start()
    loop = member.agent._loop
    loop._open_delivery.confirming.keep_together(loop._intakes.beside)
    world.feed(*"abcdefgh")
    world.wait()
    before = {lane for lane, _ in member.sums.open}
    assert len(before) == 2
    lost: list[int] = []

    def lose(message: Message) -> bool:
        lost.append(sum_of(message))
        return len(lost) == 1

    world.output.faults.lose = lose
    world.feed("a", "a")
    world.wait()
    eventually(lambda: len(member.sums.open) == 7 and before.isdisjoint(lane for lane, _ in member.sums.open))
    world.check()
    world.end()


@pytest.mark.parametrize("aborted", [1, 0], ids=["in time", "too late"])
def test_what_was_run_and_could_not_be_sent_before_the_end_is_not_saved(
    world: SummingWorld, eventually: Any, monkeypatch: pytest.MonkeyPatch, aborted: int
) -> None:
    end = Transactions.end

    def ended(transactions: Transactions, deadline: float) -> None:
        end(transactions, deadline if aborted else 0.0)
        world.faults.mend()
        eventually(
            lambda: transactions._transaction.calls._future is None or transactions._transaction.calls._future.done()
        )

    monkeypatch.setattr(Transactions, "end", ended)
    member = world.start(limits={"drain": "1s"})
    # Its results wait for a transaction, which begins when the service has given up.
    world.faults.cut()
    world.feed("a")
    eventually(lambda: bool(member.sums.open))
    member.agent.stop()
    confirming = member.agent._loop._open_delivery.confirming
    assert isinstance(confirming, Transactions)
    if aborted:
        eventually(lambda: confirming._ending)
        world.faults.mend()
    summary = member.agent.join(60)
    assert "results wait for a transaction, and there is no time left" in str(summary.error)
    assert member.agent.meters.run.transactions["aborted"] == aborted
    world.members.clear()
    assert not world.open
    world.start()
    world.wait()
    world.check()


def test_the_first_record_meets_the_state_of_all_partitions_also_at_the_end(
    define: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = SummingWorld(define, monkeypatch, partitions=3)
    world.feed(*"abcdefgh")
    member = world.start()
    world.wait()
    world.stop(member)
    met: list[set[str]] = []
    begin_lanes, run_batch = Checkpointing.begin_lanes, Sums.run_batch

    def held(checkpointing: Checkpointing, *, surely: bool = False) -> None:
        # Nothing is loaded before the service is told to stop, with a batch that waits.
        while not checkpointing._drain.begun:
            time.sleep(0.001)
        begin_lanes(checkpointing, surely=surely)

    def noted(runner: Sums, batch: Batch) -> Result:
        met.append({key for _, key in runner.open})
        return run_batch(runner, batch)

    monkeypatch.setattr(Checkpointing, "begin_lanes", held)
    monkeypatch.setattr(Sums, "run_batch", noted)
    world.feed("a")
    member = world.start()
    while not member.agent._loop._has_work:
        time.sleep(0.001)
    world.stop(member)
    assert met == [set("abcdefgh")]
    world.check()


def disturb(world: SummingWorld, chance: random.Random, *, by_time: bool) -> None:
    """Feed the services of a group for five seconds, in which all goes wrong that can; then wait until they are done.

    `by_time`: time closes sums, and no message is refused; else some are, and none is closed.
    """
    keys = [f"k{number}" for number in range(20)]
    world.start()
    until = time.monotonic() + 5
    while time.monotonic() < until:
        world.feed(*chance.choices(keys, k=chance.randrange(60)))
        time.sleep(chance.uniform(0, 0.05))
        member = chance.choice(world.members)
        member.sums.due = by_time and chance.random() < 0.3
        match chance.randrange(12):
            case 0 if len(world.members) < 3:
                world.start(batch={"max_records": chance.choice([1, 7, 50])})
            case 1 if len(world.members) > 1:
                world.stop(member)
            case 2:
                world.output.faults.lose = lambda message: chance.random() < 0.02
            case 3 if not by_time:
                world.output.faults.refuse_late = lambda message: "no" if sum_of(message) % 45 == 6 else None
            case 4:
                world.faults.silent = 2
            case 5:
                world.faults.cut()
            case 6:
                member.source.expel()
            case 7 if len(world.members) > 1:
                world.kill(member)
            case 8:
                world.fence(member)
            case _:
                world.faults.mend()
                world.output.faults.lose = None
    world.faults.mend()
    world.output.faults.lose = None
    world.wait()


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_each_record_counts_once_whatever_goes_wrong(divided: SummingWorld, seed: int) -> None:
    disturb(divided, random.Random(seed), by_time=False)
    divided.check(buried=len(divided.letters.messages()))


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_each_record_counts_once_though_time_closes_sums_whatever_goes_wrong(
    divided: SummingWorld, eventually: Any, seed: int
) -> None:
    disturb(divided, random.Random(seed), by_time=True)
    eventually(lambda: not any(each.agent._loop._open_delivery.ledger.has_open_rows for each in divided.members))
    divided.check_in_order()
