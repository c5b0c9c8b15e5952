"""How services end: in time, with the right reason, and with nothing acknowledged that was not done."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from typing import Any

import pytest

from connectors.memory import MemorySink, MemorySource
from pipelines import Data
from pipelines.errors import ConnectorError
from streamer.agent.agent import Agent
from streamer.agent.assembly import build


def test_stopping_does_not_wait_until_a_batch_is_full_or_old(define: Any, serve: Any, eventually: Any) -> None:
    serving = serve(define(batch={"max_wait": "1m"}))
    serving.feed(1, 2)
    eventually(lambda: serving.agent.meters.lag() != {})
    began = time.monotonic()
    assert serving.stop().reason == "stopped"
    assert time.monotonic() - began < 10
    assert serving.results() == [2, 4]
    assert serving.source.acknowledged == [2]


def test_the_end_of_a_source_closes_a_batch_that_is_waiting(define: Any, serve: Any) -> None:
    source = MemorySource([Data({"x": 1})], name="memory")
    serving = serve(define(batch={"max_wait": "1m"}), {"memory": source})
    assert serving.agent.join(60).reason == "ended"
    assert serving.results() == [2]


def test_positions_are_acknowledged_while_a_batch_is_gathered(define: Any, serve: Any, eventually: Any) -> None:
    serving = serve(define(batch={"max_records": 5, "max_wait": "1m"}))
    serving.feed(*range(7))
    eventually(lambda: serving.source.acknowledged == [5])
    assert len(serving.results()) == 5


def test_a_slow_pipeline_is_cut_short_when_the_time_to_drain_is_over(define: Any, serve: Any, eventually: Any) -> None:
    def slow(data: Data) -> Data:
        time.sleep(0.6)
        return Data({"y": data["x"]})

    serving = serve(define(slow, batch={"max_records": 1}, limits={"drain": "1s", "batches": 20}))
    serving.feed(*range(20))
    eventually(lambda: len(serving.results()) >= 1)
    began = time.monotonic()
    summary = serving.stop()
    assert time.monotonic() - began < 8
    assert (summary.reason, summary.error) == ("stopped", None)
    assert len(serving.results()) < 8
    assert serving.source.acknowledged == [len(serving.results())]


@pytest.mark.parametrize("in_flight", ["1KiB", "64MiB"])
def test_a_service_whose_sink_is_away_ends_when_the_time_to_drain_is_over(
    define: Any, serve: Any, eventually: Any, in_flight: str
) -> None:
    # Hard ones never travel together: a second that is larger would not be let in beside the first.
    batch = {"type": "hard", "max_records": 10, "max_bytes": "1KiB"}
    serving = serve(define(batch=batch, limits={"drain": "500ms", "confirm": "300ms", "in_flight": in_flight}))
    serving.sink.topic.faults.cut()
    serving.feed(*range(2000))
    eventually(lambda: serving.agent.meters.in_flight() > 500)
    began = time.monotonic()
    summary = serving.stop()
    assert time.monotonic() - began < 8
    assert summary.reason == "failed"
    assert "could be confirmed" in str(summary.error)
    assert serving.source.acknowledged == [0]


def test_a_service_that_fails_ends_at_once(define: Any, serve: Any) -> None:
    def fail(data: Data) -> Data:
        raise ValueError("never")

    serving = serve(define(fail, dead_letter=None, batch={"max_records": 1}))
    serving.feed(*range(300))
    began = time.monotonic()
    assert serving.agent.join(60).reason == "failed"
    assert time.monotonic() - began < 8
    assert serving.source.acknowledged == [0]
    assert serving.source.group.members == []


def test_stopping_twice_and_after_the_end_is_harmless(define: Any, serve: Any) -> None:
    serving = serve(define())
    for _ in range(3):
        assert serving.stop().reason == "stopped"


def test_stopping_while_it_opens_ends_it_without_joining_the_group(define: Any, serve: Any) -> None:
    opening, go_on = threading.Event(), threading.Event()

    class Slow(MemorySource):
        def open(self, settle: Any = None, *, commits: bool = True) -> None:
            opening.set()
            go_on.wait(60)
            super().open(settle)

    source = Slow(name="memory")
    starting: list[Any] = []
    thread = threading.Thread(target=lambda: starting.append(serve(define(), {"memory": source})))
    thread.start()
    assert opening.wait(60)
    # Only now is there something to stop.
    agent = next(one for one in threading.enumerate() if one.name == "run test")._target.__self__  # type: ignore[attr-defined]
    agent.stop()
    go_on.set()
    thread.join(60)
    assert agent.join(60).reason == "stopped"
    assert source.group.members == []


class ClosesBadly(MemorySource):
    """Cannot say goodbye."""

    def close(self) -> None:
        super().close()
        raise ConnectorError("the line is dead")


def test_a_source_that_cannot_be_closed_is_no_failure(define: Any, serve: Any, eventually: Any) -> None:
    serving = serve(define(), {"memory": ClosesBadly(name="memory")})
    serving.feed(1)
    eventually(lambda: len(serving.results()) == 1)
    assert serving.stop().reason == "stopped"
    assert serving.source.acknowledged == [1]


def test_a_sink_that_cannot_be_closed_is_told(define: Any, serve: Any, eventually: Any) -> None:
    class Stuck(MemorySink):
        def close(self) -> None:
            raise ConnectorError("the disk is gone")

    serving = serve(define(), sinks={"memory": Stuck(name="memory")})
    serving.feed(1)
    eventually(lambda: len(serving.results()) == 1)
    summary = serving.stop()
    assert (summary.reason, summary.error) == ("failed", "the disk is gone")
    assert serving.source.acknowledged == [1]


@pytest.mark.slow
def test_a_rebalance_during_the_last_confirmations_is_answered(define: Any, serve: Any, eventually: Any) -> None:
    source = MemorySource(name="memory", partitions=2)
    serving = serve(define(limits={"drain": "20s", "confirm": "10s"}), {"memory": source})
    serving.sink.topic.faults.cut()
    serving.feed(*range(10))
    eventually(lambda: serving.agent.meters.run.stages["send"].count > 0)
    serving.agent.stop()
    other = MemorySource(topic=source.topic, name="other")
    other.open()
    polled = threading.Thread(target=lambda: [other.poll(1, 1, 0.1) for _ in range(40)])
    polled.start()
    time.sleep(1.5)
    serving.sink.topic.faults.mend()
    began = time.monotonic()
    assert serving.agent.join(60).reason == "stopped"
    assert time.monotonic() - began < 10
    polled.join()
    assert sum(source.acknowledged) >= 5
    other.close()


def test_a_rebalance_is_answered_also_by_a_service_that_fails(
    define: Any, serve: Any, eventually: Any, commit_interval: Any
) -> None:
    class LosesForGood(MemorySink):
        def barrier(self, deadline: float) -> Any:
            return {row: ConnectorError("too large after all") for row in super().barrier(deadline)}

    commit_interval(60.0)
    source = MemorySource(name="memory", partitions=2)
    sink = LosesForGood(name="memory")
    sink.topic.faults.lose = lambda message: True
    serving = serve(define(dead_letter=None), {"memory": source}, {"memory": sink})
    serving.feed(1, 2)
    eventually(lambda: len(sink._lost) == 2)
    other = MemorySource(topic=source.topic, name="other")
    other.open()
    began = time.monotonic()
    summary = serving.agent.join(60)
    assert (summary.reason, "too large after all" in str(summary.error)) == ("failed", True)
    assert time.monotonic() - began < 8, "nobody waited for an answer"
    assert source.acknowledged == [0, 0]
    other.close()


def test_a_failure_while_it_drains_is_a_failure(define: Any, serve: Any, eventually: Any) -> None:
    class Broken(MemorySink):
        def barrier(self, deadline: float) -> Any:
            raise ConnectorError("the disk is full")

    serving = serve(define(), sinks={"memory": Broken(name="memory")})
    serving.feed(1)
    eventually(lambda: len(serving.results()) == 1)
    summary = serving.stop()
    assert (summary.reason, summary.error) == ("failed", "the disk is full")


@pytest.mark.slow
def test_a_program_that_ends_without_stopping_its_service_finishes_and_acknowledges_what_was_taken_in() -> None:
    program = """
import atexit, threading
import streamer
from connectors.memory import MemorySink, MemorySource
from pipelines import Data
from streamer.agent.agent import Agent
from streamer.agent.assembly import build

started, go = threading.Event(), threading.Event()

def slow(data):
    started.set()
    go.wait()
    return data

service = streamer.Service(
    source={"type": "memory", "topic": "in"}, pipeline=[slow], sink={"type": "memory", "topic": "out"}
)
source, sink = MemorySource(), MemorySink()
source.feed(*[Data({"x": n}) for n in range(50)])
atexit.register(lambda: print(len(sink.messages), source.acknowledged))
agent = Agent(service, assembly=build(service, sources={"memory": source}, sinks={"memory": sink}))
agent.start()
started.wait()
atexit.register(go.set)
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert (ended.returncode, ended.stdout) == (0, "50 [50]\n"), ended.stderr


@pytest.mark.slow
def test_a_second_ctrl_c_ends_a_program_whose_service_still_drains() -> None:
    program = """
import signal, sys, time
import streamer
from connectors.memory import MemorySink, MemorySource
from pipelines import Data
from streamer.agent.agent import Agent
from streamer.agent.assembly import build
from streamer.agent.signals import stopped_by_signals

# Where the tests run in the background, a shell has it ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)

def stuck(data):
    print("running", flush=True)
    time.sleep(600)

service = streamer.Service(
    source={"type": "memory", "topic": "in"}, pipeline=[stuck], sink={"type": "memory", "topic": "out"},
    limits={"drain": "10m"},
)
source = MemorySource()
source.feed(Data({"x": 1}))
agent = Agent(service, assembly=build(service, sources={"memory": source}, sinks={"memory": MemorySink()}))

def stop():
    agent.stop()
    print("stopping", flush=True)

with stopped_by_signals(stop):
    agent.run()
"""
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        for word in ("running", "stopping"):
            assert process.stdout.readline() == f"{word}\n"
            process.send_signal(signal.SIGINT)
        process.wait(60)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == -signal.SIGINT


def test_a_source_that_does_not_close_is_not_waited_for_while_nothing_is_in_flight(define: Any, serve: Any) -> None:
    closing, go_on = threading.Event(), threading.Event()

    class Hangs(MemorySource):
        def close(self) -> None:
            closing.set()
            go_on.wait(600)
            super().close()

    serving = serve(define(), {"memory": Hangs(name="memory")})
    assert serving.stop().reason == "stopped"
    assert closing.is_set()
    assert not go_on.is_set()
    go_on.set()


@pytest.mark.parametrize("fails", [False, True])
def test_a_service_that_is_stopped_while_opening_hangs_or_fails_ends_all_the_same(define: Any, fails: bool) -> None:
    opening, go_on = threading.Event(), threading.Event()

    class Hangs(MemorySource):
        def open(self, settle: Any = None, *, commits: bool = True) -> None:
            opening.set()
            if fails:
                agents[0].stop()
                raise ConnectorError("no broker answers")
            go_on.wait(600)

    definition = define()
    parts = build(
        definition, sources={"memory": Hangs(name="memory")}, sinks={"memory": MemorySink()}, dead=MemorySink()
    )
    agents = [Agent(definition, assembly=parts)]
    starting = threading.Thread(target=agents[0].start)
    starting.start()
    assert opening.wait(60)
    agents[0].stop()
    starting.join(60)
    assert not starting.is_alive()
    assert agents[0].join(60).reason == "stopped"
    go_on.set()
