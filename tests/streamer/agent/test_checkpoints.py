"""Checkpoints: state and positions are saved together, so that every record is in the state exactly once."""

from __future__ import annotations

import json
import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import structlog
from memorystore import MemoryStore
from savedsums import SumFactory, Sums, SumStep, WithSums

import pipelines
from connectors.memory import MemorySession, MemorySessionSource, MemorySink, MemorySource, MemoryTopic
from connectors.message import Message, records_of
from connectors.records import Lane, Records, Span
from pipelines import Batch, Data, Result
from streamer.agent.agent import Agent
from streamer.agent.assembly import build
from streamer.agent.runs.checkpointing import Checkpointing
from streamer.definition.service import Service
from streamer.delivery.ledger import Ledger
from streamer.state.checkpoints import Checkpoints
from streamer.state.store import Scope


class Bench:
    """Services one after another on the same topics and the same store."""

    def __init__(self, define: Callable[..., Service], monkeypatch: pytest.MonkeyPatch, partitions: int = 1) -> None:
        self.topic = MemoryTopic("in", partitions)
        self.out, self.dead = MemoryTopic("out", 1), MemoryTopic("dead", 1)
        self.store = MemoryStore()
        self.factory = SumFactory()
        monkeypatch.setattr(WithSums, "factory", self.factory)
        self._define = define
        self.agents: list[Agent] = []

    def feed(self, *pairs: tuple[str, int], partition: int = 0) -> None:
        for key, number in pairs:
            payload = Data({"k": key, "x": number}).to_bytes()
            self.topic.append(Message(payload, key.encode(), partition=partition), 1e18)

    def start(self, after: Any = None, source: Any = None, **settings: Any) -> Agent:
        steps = [SumStep(), *([] if after is None else [after])]
        settings = {"batch": {"max_records": 4}, "errors": {"stop_ratio": 1.0, "first": 0}, **settings}
        service = self._define(**settings).model_copy(update={"pipeline": WithSums(steps)})
        assembly = build(
            service,
            sources={"memory": MemorySource(topic=self.topic) if source is None else source},
            sinks={"memory": MemorySink(topic=self.out)},
            dead=MemorySink(topic=self.dead),
        )
        assembly.state = self.store
        self.agents.append(Agent(service, assembly=assembly))
        self.agents[-1].start()
        return self.agents[-1]

    def has_run_all(self) -> bool:
        """Whether the last service has acknowledged all records, or has ended."""
        try:
            self.agents[-1].join(0.001)
        except TimeoutError:
            return self.topic.group("default").acknowledged == [self.topic.end_of(0)]
        return True

    @property
    def sums(self) -> list[tuple[str, int]]:
        """Keys and sums of all results so far."""
        datas = [Data.from_bytes(message.value) for message in self.out.messages() if message.value is not None]
        return [(data["k"], data["y"]) for data in datas]

    @property
    def bits(self) -> dict[str, int]:
        """Of each key, the numbers in results and dead letters, which are bits of their own, joined by or."""
        seen: dict[str, int] = defaultdict(int)
        for key, number in self.sums:
            seen[key] |= number
        for letter in self.dead.messages():
            value = letter.value or b""
            # A window is in JSON, a record in ProtoData.
            data = json.loads(value) if value.startswith(b"{") else Data.from_bytes(value)
            seen[data["k"]] |= data["y"] if "y" in data else data["x"]
        return dict(seen)


@pytest.fixture
def bench(define: Callable[..., Service], monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    made = Bench(define, monkeypatch)
    yield made
    for agent in made.agents:
        agent.stop()
        agent.join(60)


def test_what_steps_remember_goes_on_after_a_restart(bench: Bench, eventually: Any) -> None:
    agent = bench.start()
    bench.feed(("a", 1), ("b", 10), ("a", 2))
    eventually(lambda: bench.store.checkpoint > 0 and agent.meters.total("ok") == 3)
    agent.stop()
    assert agent.join(60).ok == 3
    assert bench.topic.group("default").acknowledged == [3]
    bench.start()
    bench.feed(("b", 20), ("a", 3), ("b", 30))
    eventually(lambda: bench.sums == [("a", 6), ("b", 60)])


def test_records_are_acknowledged_though_their_sum_is_open(bench: Bench, eventually: Any) -> None:
    bench.start()
    bench.feed(("silent", 1), *(("a", n) for n in range(30)))
    eventually(lambda: bench.topic.group("default").acknowledged == [31])


def test_records_that_the_saved_state_has_seen_are_passed_over(
    bench: Bench, eventually: Any, caplog: pytest.LogCaptureFixture
) -> None:
    bench.store.dies_at = 2
    bench.feed(("a", 1), ("a", 2))
    agent = bench.start()
    assert "killed behind the save" in str(agent.join(60).error)
    assert bench.topic.group("default").acknowledged[0] < 2
    assert list(bench.store.positions.values()) == [2]
    bench.store.dies_at = None
    agent = bench.start()
    bench.feed(("a", 3), ("b", 1))
    eventually(lambda: bench.sums == [("a", 6)])
    assert "the state has seen records that come again, which are passed over" in caplog.text
    eventually(lambda: bench.topic.group("default").acknowledged == [4])
    assert agent.meters.total("ok") == 2


def test_a_lost_result_puts_the_state_back_and_comes_again(bench: Bench, eventually: Any) -> None:
    lost: list[Message] = []

    def lose(message: Message) -> bool:
        lost.append(message)
        return len(lost) == 2

    bench.out.faults.lose = lose
    bench.start(batch={"max_records": 1})
    bench.feed(*(("a", n) for n in range(1, 10)), *(("b", n) for n in range(1, 10)))
    eventually(lambda: {("a", 6), ("a", 15), ("a", 24), ("b", 6), ("b", 15), ("b", 24)} <= set(bench.sums))
    eventually(lambda: bench.topic.group("default").acknowledged == [18])
    assert len(set(bench.sums)) == 6


def test_nothing_is_acknowledged_while_the_state_cannot_be_saved(bench: Bench, eventually: Any) -> None:
    bench.store.full = True
    agent = bench.start()
    bench.feed(("a", 1), ("a", 2))
    eventually(lambda: agent.meters.total("ok") == 2)
    bench.feed(("a", 3))
    eventually(lambda: bench.sums == [("a", 6)])
    assert bench.topic.group("default").acknowledged == [0]
    bench.store.full = False
    eventually(lambda: bench.topic.group("default").acknowledged == [3])
    assert bench.store.pieces == {}


def test_metrics_say_how_state_is_saved_and_loaded(bench: Bench, eventually: Any) -> None:
    bench.store.dies_at = 2
    bench.feed(("a", 1), ("a", 2))
    bench.start().join(60)
    bench.store.dies_at = None
    agent = bench.start()
    bench.feed(("b", 1))
    eventually(lambda: bench.topic.group("default").acknowledged == [3])
    assert measured(agent, "streamer_state_passed_over_records_total") == 2
    assert measured(agent, "streamer_state_load_seconds_count") == 1
    assert measured(agent, "streamer_state_checkpoint_seconds_count") >= 1
    assert measured(agent, "streamer_state_written_bytes_total") > 0
    assert measured(agent, "streamer_state_bytes") == bench.store.bytes > 0
    assert measured(agent, "streamer_state_checkpoint_age_seconds") < 60


def test_the_age_of_the_last_save_grows_while_there_is_no_room(bench: Bench, eventually: Any) -> None:
    agent = bench.start(state={"path": "unused", "interval": 0.05})
    bench.feed(("a", 1))
    eventually(lambda: bench.topic.group("default").acknowledged == [1])
    bench.store.full = True
    bench.feed(("a", 2))
    eventually(lambda: measured(agent, "streamer_state_checkpoint_age_seconds") > 0.5)
    bench.store.full = False
    eventually(lambda: measured(agent, "streamer_state_checkpoint_age_seconds") < 0.5)
    eventually(lambda: bench.topic.group("default").acknowledged == [2])


def measured(agent: Agent, name: str) -> float:
    """The value of a metric of the service."""
    samples = [sample for metric in agent.meters.collect() for sample in metric.samples if sample.name == name]
    assert len(samples) == 1, name
    return samples[0].value


def test_a_source_that_is_ahead_of_the_state_stops_the_service(bench: Bench, eventually: Any) -> None:
    agent = bench.start()
    bench.feed(("a", 1), ("a", 2))
    eventually(lambda: bench.topic.group("default").acknowledged == [2])
    agent.stop()
    agent.join(60)
    (scope,) = bench.store.positions
    bench.store.positions[scope] = 1
    error = str(bench.start().join(60).error)
    assert "goes on at position 2, and the saved state has seen records only up to 1" in error
    assert "streamer state forget" in error


def test_a_source_that_was_put_back_stops_the_service(bench: Bench, eventually: Any) -> None:
    agent = bench.start()
    bench.feed(("a", 1), ("a", 2), ("a", 3), ("a", 4))
    eventually(lambda: list(bench.store.acknowledged.values()) == [4])
    agent.stop()
    agent.join(60)
    bench.topic.group("default").acknowledged[0] = 3
    error = str(bench.start().join(60).error)
    assert "goes on at position 3, though 4 was acknowledged, and the saved state has seen records up to 4" in error
    bench.topic.group("default").acknowledged[0] = 4
    bench.start()
    bench.feed(("a", 5), ("a", 6))
    eventually(lambda: bench.sums == [("a", 6), ("a", 15)])


def test_what_time_makes_has_the_key_of_its_last_record(bench: Bench, eventually: Any) -> None:
    bench.start()
    bench.feed(("a", 1), ("b", 5), ("a", 2))
    eventually(lambda: bench.topic.group("default").acknowledged == [3])
    bench.factory.runners[0].due = True
    eventually(lambda: sorted(bench.sums) == [("a", 3), ("b", 5)])
    assert sorted(message.key or b"" for message in bench.out.messages()) == [b"a", b"b"]
    eventually(lambda: bench.store.pieces == {})


def test_what_time_makes_comes_after_a_restart_too_without_a_record(bench: Bench, eventually: Any) -> None:
    agent = bench.start()
    bench.feed(("a", 1))
    eventually(lambda: bench.topic.group("default").acknowledged == [1])
    agent.stop()
    agent.join(60)
    bench.start()
    eventually(lambda: len(bench.factory.runners[1].open) == 1)
    bench.factory.runners[1].due = True
    eventually(lambda: bench.sums == [("a", 1)])


def test_the_first_record_meets_the_state_of_all_partitions(
    bench: Bench, eventually: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.topic = MemoryTopic("in", 2)
    agent = bench.start()
    bench.feed(("a", 1))
    bench.feed(("b", 1), partition=1)
    eventually(lambda: bench.topic.group("default").acknowledged == [1, 1])
    agent.stop()
    agent.join(60)
    met: list[set[str]] = []
    run_batch = Sums.run_batch

    def noted(runner: Sums, batch: Batch) -> Result:
        met.append({key for _, key in runner.open})
        return run_batch(runner, batch)

    monkeypatch.setattr(Sums, "run_batch", noted)
    bench.feed(("a", 2))
    bench.start()
    eventually(lambda: met)
    assert met[0] == {"a", "b"}


def refuse(data: Data) -> Data:
    if data["k"] == "bad":
        raise ValueError("refused")
    return data


def test_what_time_makes_and_a_step_refuses_is_a_dead_letter_with_what_was_gathered(
    bench: Bench, eventually: Any
) -> None:
    agent = bench.start(refuse)
    bench.feed(("bad", 1), ("good", 2), ("bad", 3))
    eventually(lambda: bench.topic.group("default").acknowledged == [3])
    bench.factory.runners[0].due = True
    eventually(lambda: bench.sums == [("good", 2)] and len(bench.dead.messages()) == 1)
    (letter,) = bench.dead.messages()
    headers = dict(letter.headers)
    assert letter.value is not None
    assert json.loads(letter.value) == {"k": "bad", "y": 4}
    assert (letter.key, headers["streamer-window"], headers["streamer-offset"]) == (b"bad", b"json", b"2")
    agent.stop()
    assert agent.join(60).dead == 1


def test_a_lost_result_of_time_comes_again(bench: Bench, eventually: Any) -> None:
    bench.start()
    bench.feed(("a", 1), ("b", 5))
    eventually(lambda: bench.topic.group("default").acknowledged == [2])
    lost: list[Message] = []

    def lose(message: Message) -> bool:
        lost.append(message)
        return len(lost) == 1

    bench.out.faults.lose = lose
    bench.factory.runners[0].due = True
    eventually(lambda: len(lost) == 2 and len(bench.sums) == 1)
    # The state is back, and has the sum of which the result was lost, and with it the other.
    eventually(lambda: len(bench.factory.runners[0].open) == 2)
    bench.factory.runners[0].due = True
    eventually(lambda: {("a", 1), ("b", 5)} <= set(bench.sums))
    bench.feed(("a", 2))
    eventually(lambda: bench.topic.group("default").acknowledged == [3])


def test_results_of_the_end_that_are_lost_come_again_and_the_run_ends(bench: Bench) -> None:
    lost: list[Message] = []

    def lose(message: Message) -> bool:
        lost.append(message)
        return len(lost) <= 3

    bench.out.faults.lose = lose
    source = MemorySource([Data({"k": key, "x": number}) for key, number in (("a", 1), ("b", 5))], name="memory")
    summary = bench.start(source=source).join(60)
    assert (summary.reason, summary.error) == ("ended", None)
    assert len(lost) > 3
    assert set(bench.sums) == {("a", 1), ("b", 5)}
    assert source.acknowledged == [2]
    assert list(bench.store.positions.values()) == [2]


def test_a_source_that_ends_at_once_has_what_the_state_holds_flushed_too(
    bench: Bench, eventually: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = bench.start()
    bench.feed(("a", 1), ("b", 5))
    eventually(lambda: bench.topic.group("default").acknowledged == [2])
    agent.stop()
    agent.join(60)
    assert bench.sums == []
    begin_lanes = Checkpointing.begin_lanes

    def begun_late(self: Checkpointing, *, surely: bool = False) -> None:
        if surely:
            begin_lanes(self, surely=True)

    # As on a machine on which the source is at its end before the run thread has looked at its lanes.
    monkeypatch.setattr(Checkpointing, "begin_lanes", begun_late)
    source = MemorySource(topic=bench.topic)
    source.end()
    assert bench.start(source=source).join(60).reason == "ended"
    assert bench.sums == [("a", 1), ("b", 5)]


@pytest.mark.parametrize("seed", range(4))
def test_every_record_has_a_result_or_a_dead_letter_whatever_becomes_of_results_of_time(
    bench: Bench, eventually: Any, seed: int
) -> None:
    chance = random.Random(seed)
    bits: dict[str, int] = dict.fromkeys("abcd", 0)

    def fail(data: Data) -> Data:
        if data["k"] == "d" and chance.random() < 0.3:
            raise ValueError("a step fails")
        return data

    def refuse_some(message: Message) -> str | None:
        return "too large" if message.key == b"c" and chance.random() < 0.2 else None

    for _ in range(3):
        agent = bench.start(fail, batch={"max_records": chance.choice([1, 3, 64])})
        bench.out.faults.lose = bench.dead.faults.lose = lambda message: chance.random() < 0.15
        bench.out.faults.refuse = refuse_some
        for number in range(20):
            key, bit = chance.choice("abcd"), 1 << (sum(map(int.bit_count, bits.values())))
            bits[key] |= bit
            bench.feed((key, bit))
            bench.factory.runners[-1].due = chance.random() < 0.3
            bench.store.full = number % 10 == 3
            time.sleep(0.005)
        bench.store.full = False
        if chance.random() < 0.5:
            eventually(bench.has_run_all)
        agent.stop()
        agent.join(60)
    bench.out.faults.lose = bench.dead.faults.lose = bench.out.faults.refuse = None
    agent = bench.start()
    eventually(lambda: bench.topic.group("default").acknowledged == [60])

    def all_came() -> bool:
        # Again and again, as the state is loaded a moment after the start.
        bench.factory.runners[-1].due = True
        return bench.bits == bits

    eventually(all_came)
    eventually(lambda: not agent._loop._open_delivery.ledger.has_open_rows)


def test_a_result_of_time_that_stops_the_service_is_still_in_the_saved_state(bench: Bench, eventually: Any) -> None:
    agent = bench.start(refuse, dead_letter=None)
    bench.feed(("bad", 1), ("bad", 2))
    eventually(lambda: bench.topic.group("default").acknowledged == [2])
    bench.factory.runners[0].due = True
    assert "refused" in str(agent.join(60).error)
    assert bench.sums == []
    bench.start()
    bench.feed(("bad", 3))
    eventually(lambda: bench.sums == [("bad", 6)])


def test_a_result_that_was_never_confirmed_is_still_in_the_saved_state(bench: Bench, eventually: Any) -> None:
    bench.out.faults.cut()
    agent = bench.start(limits={"drain": "1s", "confirm": "200ms"})
    bench.feed(("a", 1), ("a", 2), ("a", 3))
    eventually(lambda: agent.meters.total("ok") == 3 and not bench.factory.runners[0].open)
    agent.stop()
    assert agent.join(60).error is not None
    bench.out.faults.mend()
    bench.start()
    eventually(lambda: ("a", 6) in bench.sums)


def test_records_of_a_lane_with_positions_of_its_own_are_not_passed_over() -> None:
    store, ledger = MemoryStore(), Ledger()
    scope = Scope("memory", "0")
    store.save([], {scope: 10})
    with pipelines.Sequence([]).open() as executor:
        checkpoints = Checkpoints(store, {}, lambda: executor, ledger, {"memory"}, dict, structlog.get_logger())

        def three(epoch: int) -> Records:
            records = records_of([Message(b"")] * 3, "memory")
            return replace(records, spans=[Span(Lane("memory", "0", epoch), 0, 3)])

        again, others = three(0), three(1)
        checkpoints.begin(again.spans[0].lane, 0)
        seen = checkpoints.seen(again)
        assert seen is not None
        assert seen.tolist() == [0, 1, 2]
        checkpoints.end([again.spans[0].lane])
        checkpoints.begin(others.spans[0].lane, None)
        assert checkpoints.seen(others) is None
        ledger.enter(others, 0)
        ledger.decide(range(3))
        assert checkpoints.save()
        assert store.positions == {scope: 3}


def test_a_position_behind_the_last_record_is_saved_and_does_not_go_back() -> None:
    store, ledger = MemoryStore(), Ledger()
    lane = Lane("memory", "0", 0)
    with pipelines.Sequence([]).open() as executor:
        checkpoints = Checkpoints(store, {}, lambda: executor, ledger, {"memory"}, dict, structlog.get_logger())
        checkpoints.begin(lane, 0)
        records = replace(records_of([Message(b"")] * 3, "memory"), spans=[Span(lane, 0, 3)])
        ledger.enter(records, 0)
        ledger.decide(range(3))
        assert checkpoints.save()
        store.passed = {lane: 4, Lane("memory", "1", 0): 9}
        assert checkpoints.save()
        assert checkpoints.save()
        assert store.positions == {Scope("memory", "0"): 4}
        assert checkpoints.marks() == {lane: 4}


def test_a_session_that_was_lost_goes_on_with_the_same_state(bench: Bench, eventually: Any) -> None:
    session = MemorySession()
    bench.start(source=MemorySessionSource(session, name="memory"))

    def feed(*pairs: tuple[str, int]) -> None:
        session.feed([Message(Data({"k": key, "x": number}).to_bytes()) for key, number in pairs])

    feed(("a", 1), ("a", 2))
    eventually(lambda: len(bench.store.pieces) == 1)
    session.forget()
    feed(("a", 3), ("b", 1))
    eventually(lambda: bench.sums == [("a", 6)])


def test_a_bus_that_waits_for_acknowledgements_gets_a_checkpoint_at_once(
    bench: Bench, eventually: Any, commit_interval: Callable[[float], None]
) -> None:
    commit_interval(3600.0)
    session = MemorySession(window=2)
    bench.store.full = True
    bench.start(source=MemorySessionSource(session, name="memory"))
    session.feed([Message(Data({"k": "a", "x": number}).to_bytes()) for number in range(1, 7)])
    eventually(lambda: bench.factory.runners[0].open)
    assert not bench.sums
    assert session.acknowledged == 0
    bench.store.full = False
    eventually(lambda: bench.sums == [("a", 6), ("a", 15)] and session.acknowledged == 6)
    # The source has no positions, and the state of the last sum is gone.
    assert (bench.store.pieces, list(bench.store.positions.values())) == ({}, [None])


def test_a_partition_that_goes_to_another_member_takes_its_saved_state_along(
    define: Callable[..., Service],
    monkeypatch: pytest.MonkeyPatch,
    eventually: Any,
    commit_interval: Callable[[float], None],
) -> None:
    commit_interval(3600.0)
    bench = Bench(define, monkeypatch, partitions=2)
    first = bench.start()
    for partition in range(2):
        bench.feed((f"p{partition}", 1), (f"p{partition}", 2), partition=partition)
    eventually(lambda: first.meters.total("ok") == 4)
    assert bench.store.pieces == {}
    second = bench.start()
    # It is for the revocation that the first member saves: its next checkpoint would be in an hour.
    eventually(lambda: bench.store.checkpoint == 1)
    for partition in range(2):
        bench.feed((f"p{partition}", 3), partition=partition)
    eventually(lambda: sorted(bench.sums) == [("p0", 6), ("p1", 6)])
    assert sorted((first.meters.total("ok"), second.meters.total("ok"))) == [1, 5]
    for agent in bench.agents:
        agent.stop()
        assert agent.join(60).error is None


@pytest.mark.parametrize("seed", range(6))
def test_every_record_is_in_one_sum_whatever_fails(bench: Bench, eventually: Any, seed: int) -> None:
    chance = random.Random(seed)
    bench.out.faults.lose = lambda message: chance.random() < 0.1
    expected: dict[str, list[int]] = {}
    count = 0
    for _ in range(5):
        bench.store.dies_at = None
        agent = bench.start(batch={"max_records": chance.choice([1, 3, 64])})
        for _ in range(60):
            key = chance.choice("abcde")
            expected.setdefault(key, []).append(1 << (count % 60))
            bench.feed((key, 1 << (count % 60)))
            count += 1
        if chance.random() < 0.6:
            bench.store.dies_at = 0
        else:
            eventually(bench.has_run_all)
        agent.stop()
        agent.join(60)
    bench.store.dies_at = None
    bench.out.faults.lose = None
    bench.start()
    sums = {(key, sum(each[at : at + 3])) for key, each in expected.items() for at in range(0, len(each) - 2, 3)}
    eventually(lambda: sums <= set(bench.sums))
    # Results may come twice, but none of other records.
    assert set(bench.sums) == sums
