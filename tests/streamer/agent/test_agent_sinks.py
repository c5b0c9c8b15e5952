"""Services with several sinks, of which one breaks, is away, or refuses or loses messages."""

from __future__ import annotations

import resource
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from connectors.file import FileSink, ImageSink
from connectors.memory import MemorySink
from connectors.message import Message
from pipelines import Data
from pipelines.errors import ConnectorError
from streamer.delivery.sending import LONGEST_PAUSE, pause

SINKS = [{"type": "memory", "topic": name, "name": name} for name in ("a", "b")]


class Broken(MemorySink):
    """Fails for good at the second message."""

    def send(self, *arguments: Any) -> Any:
        if len(self.topic) + len(arguments[0]) > 1:
            raise ConnectorError(f"{self.name} is broken")
        return super().send(*arguments)


def test_a_record_whose_result_reached_only_one_of_two_sinks_is_not_acknowledged(
    define: Any, serve: Any, eventually: Any
) -> None:
    sinks = {"a": MemorySink(name="a"), "b": Broken(name="b")}
    serving = serve(define(sink=SINKS, batch={"max_records": 1}), sinks=sinks)
    serving.feed(0)
    eventually(lambda: serving.source.acknowledged == [1])
    serving.feed(1)
    summary = serving.agent.join(60)
    assert (summary.reason, summary.error) == ("failed", "b is broken")
    assert serving.results("a") == [0, 2]
    assert serving.source.acknowledged == [1]


def twice(data: Data) -> list[Data]:
    return [Data({"y": data["x"]}), Data({"y": data["x"]})]


class TakesOne(MemorySink):
    """Takes the first message of a block, and is broken for good then."""

    def send(self, messages: Any, deadline: float) -> Any:
        super().send(type(messages)(messages.rows[:1], messages.values[:1]), deadline)
        raise ConnectorError("broken in the middle")


def test_a_record_is_not_acknowledged_when_only_one_of_its_two_results_arrived(define: Any, serve: Any) -> None:
    serving = serve(define(twice), sinks={"memory": TakesOne(name="memory")})
    serving.feed(7)
    assert serving.agent.join(60).reason == "failed"
    assert serving.results() == [7]
    assert serving.source.acknowledged == [0]


class Watched(MemorySink):
    """Counts the barriers that it could not keep."""

    given_up = 0

    def barrier(self, deadline: float) -> Any:
        try:
            return super().barrier(deadline)
        except ConnectorError:
            self.given_up += 1
            raise


def test_a_message_lost_by_one_sink_comes_again_though_another_sink_was_away(
    define: Any, serve: Any, eventually: Any
) -> None:
    lost: list[Message] = []

    def lose(message: Message) -> bool:
        lost.append(message)
        return len(lost) == 1

    away = Watched(name="b")
    serving = serve(define(sink=SINKS, limits={"confirm": "200ms"}), sinks={"a": MemorySink(name="a"), "b": away})
    away.topic.faults.cut()
    serving.sinks["a"].topic.faults.lose = lose
    serving.feed(1, 2, 3)
    eventually(lambda: away.given_up > 0 and len(lost) == 3)
    away.topic.faults.mend()
    eventually(lambda: serving.source.acknowledged == [3])
    assert set(serving.results("a")) == set(serving.results("b")) == {2, 4, 6}


def test_a_message_that_all_sinks_refuse_becomes_one_dead_letter(define: Any, serve: Any, eventually: Any) -> None:
    serving = serve(define(sink=SINKS))
    for sink in serving.sinks.values():
        sink.topic.faults.refuse = lambda message: "no" if Data.from_bytes(message.value)["y"] == 2 else None
    serving.feed(0, 1, 2)
    eventually(lambda: serving.source.acknowledged == [3])
    assert serving.results("a") == serving.results("b") == [0, 4]
    assert serving.buried() == [1]
    assert serving.stop().ok == 2


def test_a_record_that_one_sink_refuses_is_acknowledged_once_the_other_sink_confirms_it(
    define: Any, serve: Any, eventually: Any
) -> None:
    serving = serve(define(sink=SINKS, limits={"confirm": "200ms"}, errors={"stop_ratio": 1}))
    serving.sinks["a"].topic.faults.cut()
    serving.sinks["b"].topic.faults.refuse = lambda message: "no"
    serving.feed(5)
    eventually(lambda: serving.buried() == [5])
    assert serving.source.acknowledged == [0]
    serving.sinks["a"].topic.faults.mend()
    eventually(lambda: serving.source.acknowledged == [1])
    assert serving.results("a") == [10]


def test_a_sink_that_is_away_for_hours_does_not_end_the_waiting() -> None:
    assert 0 < pause(0) < 1
    assert all(pause(tries) <= LONGEST_PAUSE for tries in (10, 1023, 1024, 100_000))


def test_a_dead_letter_that_is_refused_however_short_stops_the_service_with_its_record_unacknowledged(
    define: Any, serve: Any
) -> None:
    def fail(data: Data) -> Data:
        raise ValueError("never")

    dead = MemorySink(name="dead_letter")
    dead.topic.faults.refuse = lambda message: "too large"
    serving = serve(define(fail, errors={"stop_ratio": 1}), dead=dead)
    serving.feed(1)
    summary = serving.agent.join(60)
    assert summary.reason == "failed"
    assert "memory[0]@0, even without its payload, key and headers: dead_letter: too large" in str(summary.error)
    assert serving.source.acknowledged == [0]


def test_a_dead_letter_that_is_lost_comes_again_with_its_record(define: Any, serve: Any, eventually: Any) -> None:
    def fail(data: Data) -> Data:
        if data["x"] == 3:
            raise ValueError("three")
        return Data({"y": data["x"]})

    lost: list[Message] = []

    def lose(message: Message) -> bool:
        lost.append(message)
        return len(lost) == 1

    dead = MemorySink(name="dead_letter")
    dead.topic.faults.lose = lose
    serving = serve(define(fail), dead=dead)
    serving.feed(*range(10))
    eventually(lambda: serving.source.acknowledged == [10])
    assert serving.buried() == [3]
    assert set(serving.results()) == set(range(10)) - {3}


@pytest.mark.parametrize("kind", [FileSink, ImageSink])
def test_a_service_whose_sink_finds_no_room_on_the_disk_is_not_ready_until_there_is_some(
    kind: type[FileSink | ImageSink], define: Any, serve: Any, eventually: Any, tmp_path: Path
) -> None:
    def large(data: Data) -> Data:
        return Data({"y": bytes(200_000)})

    serving = serve(define(large), sinks={"memory": kind(tmp_path / "out")})
    eventually(lambda: serving.agent.ready() is None)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        serving.feed(1, key=b"one")
        eventually(lambda: serving.agent.ready() is not None)
        assert serving.agent.ready().startswith("sink memory: ")
        assert "File too large" in serving.agent.ready()
        assert str(tmp_path / "out") in serving.agent.ready()
        assert serving.agent.live() is None
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    eventually(lambda: serving.source.acknowledged == [1])
    assert serving.agent.ready() is None
    assert serving.stop().ok == 1


class Full(MemorySink):
    """Takes one message at each attempt, or none."""

    takes = 0

    def send(self, messages: Any, deadline: float) -> Any:
        super().send(messages.take(np.arange(self.takes)), deadline)
        return dict.fromkeys(range(self.takes, len(messages)), ConnectorError("no room here", retriable=True))


def test_a_sink_that_accepts_nothing_makes_the_service_unready_though_it_reaches_its_peer(
    define: Any, serve: Any, eventually: Any
) -> None:
    sink = Full(name="memory")
    serving = serve(define(batch={"max_records": 5}), sinks={"memory": sink})
    serving.feed(1, 2, 3, 4, 5)
    eventually(lambda: serving.agent.ready() == "sink memory: no room here")
    assert serving.agent.live() is None
    sink.takes = 1
    eventually(lambda: serving.agent.ready() is None)
    eventually(lambda: serving.source.acknowledged == [5])
    assert serving.results() == [2, 4, 6, 8, 10]
