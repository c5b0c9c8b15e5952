"""What is acknowledged, when, and what comes again: a service with one source and one sink."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from connectors.memory import MemorySink, MemorySource
from connectors.message import Message
from pipelines import Data
from streamer.agent.batchqueue import BatchQueue
from streamer.agent.runloop import CONFIRM_WAIT, IDLE_WAIT


def y_of(message: Message) -> int:
    return int(Data.from_bytes(message.value)["y"])


def test_stopping_finishes_and_acknowledges_what_was_taken_in(define: Any, serve: Any, eventually: Any) -> None:
    serving = serve(define())
    serving.feed(*range(500))
    eventually(lambda: len(serving.results()) > 0)
    assert serving.stop().reason == "stopped"
    assert serving.source.acknowledged == [len(serving.results())]


def test_positions_are_acknowledged_about_every_second_without_stopping(
    define: Any, serve: Any, eventually: Any, commit_interval: Any
) -> None:
    commit_interval(1.0)
    serving = serve(define())
    serving.feed(*range(10))
    eventually(lambda: serving.source.acknowledged == [10])
    assert serving.agent.summary is None


def test_sinks_are_not_asked_over_and_over_when_they_have_confirmed_everything(
    define: Any, serve: Any, eventually: Any, commit_interval: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit_interval(3600.0)
    waits: list[float] = []
    get = BatchQueue.get

    def spied(batches: BatchQueue, timeout: float) -> Any:
        waits.append(timeout)
        return get(batches, timeout)

    monkeypatch.setattr(BatchQueue, "get", spied)
    serving = serve(define())
    serving.feed(1, 2, 3)
    eventually(lambda: len(serving.results()) == 3)
    begun = len(waits)
    eventually(lambda: len(waits) > begun + 3)
    assert waits[-1] == IDLE_WAIT
    # Until then it asks soon again.
    serving.sink.topic.faults.away = "for a test"
    serving.feed(4)
    eventually(lambda: CONFIRM_WAIT in waits[begun + 3 :])
    serving.sink.topic.faults.away = None
    eventually(lambda: len(serving.results()) == 4)


@pytest.mark.slow
def test_nothing_is_acknowledged_while_the_sink_is_away_and_nothing_is_lost(
    define: Any, serve: Any, eventually: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamer.delivery.sending.SEND_TRY", 0.1)
    monkeypatch.setattr("streamer.delivery.sending.LONGEST_PAUSE", 0.1)
    limits = {"in_flight": "64KiB", "confirm": "200ms", "stuck": "2s"}
    sink = MemorySink(name="memory", max_in_flight=4096)
    serving = serve(define(limits=limits, batch={"max_records": 50, "max_bytes": "16KiB"}), sinks={"memory": sink})
    sink.topic.faults.cut()
    for start in range(0, 5000, 500):
        serving.feed(*range(start, start + 500))
    eventually(lambda: "sink memory" in str(serving.agent.ready()))
    time.sleep(2.5)
    assert serving.source.acknowledged == [0]
    assert serving.agent.meters.in_flight() <= 64 * 1024
    assert serving.agent.live() is None, "a restart would not bring the sink back"
    sink.topic.faults.mend()
    eventually(lambda: len(serving.results()) == 5000)
    eventually(lambda: serving.source.acknowledged == [5000])
    assert serving.results() == [2 * x for x in range(5000)]


def test_messages_that_are_lost_after_being_taken_are_sent_again(define: Any, serve: Any, eventually: Any) -> None:
    lost: list[int] = []

    def lose(message: Message) -> bool:
        if len(lost) < 3 and y_of(message) in (20, 40, 60):
            lost.append(y_of(message))
            return True
        return False

    serving = serve(define())
    serving.sink.topic.faults.lose = lose
    serving.feed(*range(100))
    eventually(lambda: serving.source.acknowledged == [100])
    assert set(serving.results()) == {2 * x for x in range(100)}
    assert len(lost) == 3


def test_messages_that_are_lost_after_the_source_has_ended_are_sent_again(define: Any, serve: Any) -> None:
    lost: list[int] = []

    def lose(message: Message) -> bool:
        if not lost and y_of(message) == 8:
            lost.append(8)
            return True
        return False

    sink = MemorySink(name="memory")
    sink.topic.faults.lose = lose
    source = MemorySource([Data({"x": x}) for x in range(10)], name="memory")
    serving = serve(define(), {"memory": source}, {"memory": sink})
    summary = serving.agent.join(60)
    assert (summary.reason, summary.error) == ("ended", None)
    assert lost == [8]
    assert set(serving.results()) == {2 * x for x in range(10)}
    assert source.acknowledged == [10]


def test_a_message_that_the_sink_refuses_for_good_becomes_a_dead_letter(
    define: Any, serve: Any, eventually: Any
) -> None:
    serving = serve(define())
    serving.sink.topic.faults.refuse = lambda message: "too large" if y_of(message) == 10 else None
    serving.feed(*range(10))
    eventually(lambda: serving.source.acknowledged == [10])
    assert serving.results() == [2 * x for x in range(10) if x != 5]
    assert serving.buried() == [5]
    assert dict(serving.dead.messages[0].headers)["streamer-step"] == b"sink memory"


def test_with_on_error_drop_what_the_sink_refuses_for_good_is_lost_alone(
    define: Any, serve: Any, eventually: Any
) -> None:
    serving = serve(define(dead_letter=None, on_error="drop"))
    serving.sink.topic.faults.refuse = lambda message: "too large" if y_of(message) == 10 else None
    serving.feed(*range(10))
    eventually(lambda: serving.source.acknowledged == [10])
    assert serving.results() == [2 * x for x in range(10) if x != 5]
    assert serving.stop().failed == 1


def test_at_most_once_acknowledges_before_it_runs(define: Any, serve: Any) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def wait(data: Data) -> Data:
        begun.set()
        go_on.wait(60)
        return Data({"y": 1})

    serving = serve(define(wait, delivery="at_most_once"))
    serving.feed(1)
    assert begun.wait(60)
    assert serving.source.acknowledged == [1]
    assert list(serving.agent.acknowledged.values()) == [1]
    go_on.set()


@pytest.mark.parametrize("dead_letter", [None, {"type": "memory", "topic": "dead"}])
def test_at_most_once_a_lost_message_takes_no_other_with_it(
    define: Any, serve: Any, eventually: Any, dead_letter: Any
) -> None:
    serving = serve(define(delivery="at_most_once", batch={"max_records": 10}, dead_letter=dead_letter))
    serving.sink.topic.faults.lose = lambda message: y_of(message) == 10
    serving.feed(*range(1000))
    eventually(lambda: len(serving.results()) == 999)
    summary = serving.stop()
    assert summary.reason == "stopped"
    assert serving.results() == [2 * x for x in range(1000) if x != 5]
    assert serving.buried() == ([5] if dead_letter else [])
    assert (summary.dead, summary.failed) == ((1, 0) if dead_letter else (0, 1))


class Counted(MemorySink):
    """Counts what it is asked."""

    sends = barriers = 0

    def send(self, *arguments: Any) -> Any:
        self.sends += 1
        return super().send(*arguments)

    def barrier(self, deadline: float) -> Any:
        self.barriers += 1
        return super().barrier(deadline)


def test_results_flow_without_waiting_for_confirmations(
    define: Any, serve: Any, eventually: Any, commit_interval: Any
) -> None:
    commit_interval(1.0)
    sink = Counted(name="memory")
    began = time.monotonic()
    # Hard batches never travel together: as many sends as there are batches.
    batch = {"type": "hard", "max_records": 10}
    serving = serve(define(batch=batch, dead_letter=None), sinks={"memory": sink})
    serving.feed(*range(3000))
    eventually(lambda: serving.source.acknowledged == [3000])
    assert sink.sends >= 300
    assert sink.barriers <= time.monotonic() - began + 2, "one about every second, whatever was sent between"


class Flowing(Counted):
    """Confirms while messages flow, and always has some on their way."""

    lag = 0.01

    def behind(self) -> float:
        return self.lag


def test_a_sink_that_keeps_up_is_not_brought_to_a_stop_for_acknowledgements(
    define: Any, serve: Any, eventually: Any, commit_interval: Any
) -> None:
    commit_interval(0.05)
    sink = Flowing(name="memory")
    serving = serve(define(batch={"max_records": 10}, dead_letter=None), sinks={"memory": sink})
    for count in (100, 200, 300):
        serving.feed(*range(100))
        eventually(lambda count=count: serving.source.acknowledged == [count])
    assert sink.barriers == 0
    # One that does not keep up any more is waited for.
    sink.lag = 1.0
    eventually(lambda: sink.barriers > 0)


def test_confirmations_are_taken_in_before_the_next_barrier(
    define: Any, serve: Any, eventually: Any, commit_interval: Any
) -> None:
    commit_interval(30.0)
    sink = Counted(name="memory")
    serving = serve(define(dead_letter=None), sinks={"memory": sink})
    serving.feed(1)
    eventually(lambda: serving.agent.meters.run.latency.count == 1)
    eventually(lambda: serving.agent.meters.in_flight() == 0)
    assert sink.barriers == 0


def test_the_latency_of_each_record_that_has_a_time_counts_in_batches_of_any_size(
    define: Any, serve: Any, eventually: Any
) -> None:
    source, payload = MemorySource(name="memory"), Data({"x": 1}).to_bytes()
    serving = serve(define(), {"memory": source})
    meters, before = serving.agent.meters, int(time.time() * 1000) - 60_000
    for size, finished, counted in ((3, 3, 2), (200, 203, 135)):
        source.feed(*(Message(payload, timestamp=before if number % 3 else -1) for number in range(size)))
        eventually(lambda: meters.total("ok") == finished and meters.run.latency.count >= counted)  # noqa: B023
        assert meters.run.latency.count == counted
    assert 60 * 135 <= meters.run.latency.total < 180 * 135
