"""A service that is told to stop while a batch takes long: it ends in time, and what it did not run comes again."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from countwindows import WindowStep, WithWindows

import pipelines
from connectors.memory import MemorySink, MemorySource
from connectors.message import Message
from pipelines import Data
from pipelines.data.batch import Batch
from streamer.batching.sizer import GROWTH, BatchSizer

pytestmark = pytest.mark.slow

PER_ROW = 0.03
COUNT = 500
IN_TIME = 10.0
"""Far less than the 15 s that a whole batch takes, and far more than the second that there is."""


def per_record(data: Data) -> Data:
    time.sleep(PER_ROW)
    return Data({"y": data["x"]})


@pipelines.batched
def per_batch(batch: Batch) -> Batch:
    time.sleep(PER_ROW * batch.size)
    return batch.with_columns({"y": batch.column("x")}).without(["x"])


def messages(*numbers: int) -> list[Message]:
    return [Message(Data({"x": number}).to_bytes()) for number in numbers]


@pytest.fixture
def stopped_soon(serve: Any, eventually: Any) -> Callable[..., Any]:
    """`stopped_soon(definition, source)`: the service when it was stopped in the midst of its first results."""

    def run(definition: Any, source: MemorySource, **sinks: Any) -> Any:
        serving = serve(definition, {"memory": source}, **sinks)
        eventually(lambda: len(serving.results()) > 20)
        began = time.monotonic()
        summary = serving.stop()
        assert time.monotonic() - began < IN_TIME
        assert (summary.reason, summary.error) == ("stopped", None)
        return serving

    return run


@pytest.mark.parametrize("step", [per_record, per_batch])
@pytest.mark.parametrize("settings", [{}, {"debug": True}, {"keep": "all"}], ids=["plain", "debug", "keep"])
def test_a_batch_that_takes_long_is_cut_into_portions_that_end_in_time(
    define: Any, stopped_soon: Any, step: Any, settings: Any
) -> None:
    source = MemorySource(name="memory")
    source.feed(*messages(*range(COUNT)))
    definition = define(step, limits={"drain": "1s"}, **settings)
    first = stopped_soon(definition, source)
    done = len(first.results())
    assert 20 < done < COUNT
    assert first.results() == list(range(done))
    assert source.acknowledged == [done], "what was run, and nothing else"
    second = stopped_soon(definition, MemorySource(topic=source.topic, name="memory"))
    assert second.results() == list(range(done, done + len(second.results()))), "the rest comes again, none is left out"


def test_records_that_fail_or_are_empty_are_told_of_with_the_portion_that_they_stand_in(
    define: Any, stopped_soon: Any
) -> None:
    source = MemorySource(name="memory", partitions=2)
    odd = {7: b"\xff", 8: None}
    values = [odd.get(number % 10, Data({"x": number}).to_bytes()) for number in range(COUNT)]
    source.feed(*[Message(value, partition=number % 2) for number, value in enumerate(values)])
    definition = define(per_record, limits={"drain": "1s"})
    for _ in range(2):
        before = source.acknowledged
        serving = stopped_soon(definition, MemorySource(topic=source.topic, name="memory"))
        after = source.acknowledged
        done = [one for number in (0, 1) for one in values[number::2][before[number] : after[number]]]
        results = [None if one is None else Data.from_bytes(one)["x"] for one in done if one != b"\xff"]
        assert sorted(serving.results(), key=str) == sorted(results, key=str)
        assert len(serving.dead.messages) == done.count(b"\xff")
    assert sum(after) < COUNT


def test_a_batch_of_an_exact_size_is_run_whole_or_not_at_all(define: Any, serve: Any, eventually: Any) -> None:
    sizes: list[int] = []

    @pipelines.batched
    def model(batch: Batch) -> Batch:
        sizes.append(batch.size)
        time.sleep(1.0)
        return batch.with_columns({"y": batch.column("x")})

    source = MemorySource(name="memory")
    source.feed(*messages(*range(400)))
    batch = {"type": "hard", "max_records": 20}
    serving = serve(define(model, batch=batch, limits={"drain": "3500ms"}), {"memory": source})
    eventually(lambda: len(sizes) == 2)
    began = time.monotonic()
    assert serving.stop().reason == "stopped"
    assert time.monotonic() - began < IN_TIME
    assert set(sizes) == {20}
    assert 2 <= len(sizes) <= 5, "none is begun that would end too late"
    assert source.acknowledged == [len(serving.results())] == [20 * len(sizes)]


def test_windows_are_cut_between_records_and_those_that_are_not_full_come_again(define: Any, stopped_soon: Any) -> None:
    source = MemorySource(name="memory")
    source.feed(*messages(*range(COUNT)))
    definition = define(limits={"drain": "1s"}).model_copy(
        update={"pipeline": WithWindows([WindowStep(seconds=PER_ROW)])}
    )
    first = stopped_soon(definition, source)
    done = len(first.results())
    assert first.results() == [9 * window + 3 for window in range(done)]
    assert source.acknowledged == [3 * done] != [COUNT // 3 * 3]
    second = stopped_soon(definition, MemorySource(topic=source.topic, name="memory"))
    assert second.results()[0] == 9 * done + 3


def test_at_most_once_what_there_is_no_time_for_is_lost_and_the_service_ends_in_time(
    define: Any, stopped_soon: Any
) -> None:
    source = MemorySource(name="memory")
    source.feed(*messages(*range(COUNT)))
    serving = stopped_soon(define(per_record, limits={"drain": "1s"}, delivery="at_most_once"), source)
    assert source.acknowledged == [COUNT]
    assert serving.results() == list(range(len(serving.results())))


def test_lanes_that_go_while_a_batch_is_run_take_what_was_not_run_with_them(
    define: Any, serve: Any, eventually: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("connectors.memory.source.SETTLE_SECONDS", 0.5)
    first = MemorySource(name="memory", partitions=2)
    definition = define(per_record, limits={"drain": "1s"})
    # Partition 0 stands first in the batch, and partition 1, which goes, last.
    for partition in (0, 1):
        numbers = range(100 * partition, 100 * partition + 100)
        first.feed(*[Message(Data({"x": number}).to_bytes(), partition=partition) for number in numbers])
    serving = serve(definition, {"memory": first})
    eventually(lambda: len(serving.results()) > 5)
    second = MemorySource(topic=first.topic, name="second")
    second.open()
    got: list[int] = []

    def polled() -> bool:
        got.extend(Data.from_bytes(value)["x"] for value in second.poll(1000, 10**6, 0.05).values)
        return len(got) >= 100

    eventually(polled)
    lost = min(got) // 100
    eventually(lambda: first.acknowledged[1 - lost] == 100)
    results = serving.results()
    assert set(got) | set(results) == set(range(200))
    assert len(set(got) & set(results)) < 50, "it goes on with rows that are someone else's"
    second.close()


class Slow(MemorySource):
    """Takes its time to acknowledge for good."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.go_on = threading.Event()

    def acknowledge(self, positions: Any, *, wait: bool = False) -> None:
        if wait:
            self.go_on.wait(30)
        super().acknowledge(positions, wait=wait)


def test_a_source_that_does_not_take_the_last_positions_is_left_when_the_time_is_over(
    define: Any, serve: Any, eventually: Any
) -> None:
    source = Slow(name="memory")
    source.feed(*messages(1, 2, 3))
    serving = serve(define(limits={"drain": "1s"}), {"memory": source})
    eventually(lambda: len(serving.results()) == 3)
    began = time.monotonic()
    assert serving.stop().reason == "stopped"
    assert time.monotonic() - began < IN_TIME
    source.go_on.set()


def test_a_full_sink_is_not_waited_for_longer_than_there_is_time(define: Any, serve: Any, eventually: Any) -> None:
    sink = MemorySink(name="memory", max_in_flight=100)
    sink.topic.faults.cut()
    source = MemorySource(name="memory")
    source.feed(*messages(*range(200)))
    serving = serve(define(limits={"drain": "500ms"}), {"memory": source}, {"memory": sink})
    eventually(lambda: sink.down() is not None and len(sink._waiting) > 0)
    time.sleep(0.5)
    began = time.monotonic()
    summary = serving.stop()
    assert time.monotonic() - began < IN_TIME
    assert (summary.reason, "accepts no messages" in str(summary.error)) == ("failed", True)
    assert source.acknowledged == [0]


def test_a_wait_for_confirmations_ends_with_the_time_to_drain(
    define: Any, serve: Any, eventually: Any, commit_interval: Any
) -> None:
    source = MemorySource(name="memory")
    source.feed(*messages(*range(5)))
    serving = serve(define(limits={"drain": "500ms", "confirm": "1m"}), {"memory": source})
    serving.sink.topic.faults.cut()
    source.feed(*messages(*range(5)))
    eventually(lambda: serving.agent.meters.run.stages["send"].count > 0)
    # It waits for a confirmation now, for up to a minute.
    time.sleep(0.5)
    began = time.monotonic()
    summary = serving.stop()
    assert time.monotonic() - began < IN_TIME
    assert (summary.reason, "could be confirmed" in str(summary.error)) == ("failed", True)


class ServesRebalances(MemorySource):
    """Takes part in rebalances also while nobody polls, as Kafka's does."""

    def standing_still(self, still: bool) -> None:
        if still:
            self._rebalance()


def test_a_rebalance_while_the_last_results_are_confirmed_does_not_end_the_wait(
    define: Any, serve: Any, eventually: Any
) -> None:
    source = ServesRebalances(name="memory", partitions=2)
    source.feed(*messages(*range(COUNT)))
    serving = serve(define(per_record, limits={"drain": "8s"}), {"memory": source})
    eventually(lambda: len(serving.results()) > 20)
    serving.sink.topic.faults.cut()
    # Time enough for what happens below.
    serving.agent._loop._drain.last_wait = 7.0
    serving.agent.stop()
    other = MemorySource(topic=source.topic, name="other")
    other.open()
    time.sleep(4.0)
    serving.sink.topic.faults.mend()
    summary = serving.agent.join(60)
    other.close()
    assert (summary.reason, summary.error) == ("stopped", None)
    assert sum(source.acknowledged) > 0


def test_the_first_row_is_run_by_itself_and_then_as_many_as_there_is_time_for() -> None:
    sizer = BatchSizer(1)
    assert sizer.fitting(10.0) == 1
    assert sizer.fitting(0.0) == sizer.fitting(-1.0) == 0
    assert sizer.takes(100) == 0.0
    sizer.ran(1, 0.5, last=True)
    assert sizer.fitting(10.0) == GROWTH, "who knows what comes after the first"
    sizer.ran(8, 4.0, last=True)
    assert sizer.fitting(10.0) == 20
    assert sizer.fitting(0.4) == sizer.fitting(0.0) == sizer.fitting(-10.0) == 0
    assert sizer.takes(20) == pytest.approx(10.0)


def test_batches_of_quick_records_are_not_divided() -> None:
    sizer = BatchSizer(1)
    sizer.ran(1, 0.0001, last=True)
    assert sizer.fitting(6.0) >= 512
    sizer.ran(1, 0.0, last=True)
    assert sizer.fitting(6.0) >= 512


def test_rows_that_were_slow_once_count_until_they_have_been_quick_for_a_while() -> None:
    sizer = BatchSizer(1)
    sizer.ran(512, 0.512, last=True)
    sizer.ran(10, 1.0, last=True)
    assert sizer.fitting(6.0) == 60
    for _ in range(4):
        sizer.ran(60, 0.06, last=True)
    assert sizer.fitting(6.0) >= 512
