"""The sink that gets the results of a shadow, beside those of the service."""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from addingmodels import adding
from mqttbrokers import StartMosquitto

from connectors.memory import MemorySink
from connectors.memory.topic import MemoryTopic
from connectors.records import Messages
from connectors.sink import Refused
from pipelines import Data, Onnx
from pipelines.errors import ConnectorError
from streamer import testing

VERSION, VARIANT = ("streamer-version", b"2"), ("streamer-variant", b"shadow")
KAFKA = {"type": "kafka", "bootstrap": "nowhere.invalid:9"}
"""What a sink in memory stands for."""
NOT_TOLD = "results of the shadow do not reach its sink, and this is not told again"


@pytest.fixture
def models(tmp_path: Path) -> Path:
    """Version 1 adds 1000, 2 adds 2000, 3 adds 3000."""
    for version in (1, 2, 3):
        adding(tmp_path / str(version) / "model.onnx", 1000 * version)
    return tmp_path


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sink is waited for less long than outside of tests."""
    monkeypatch.setattr("streamer.models.shadowsink.SETTLE", 0.02)
    monkeypatch.setattr("streamer.models.shadowsink.CONFIRM_WAIT", 0.1)
    monkeypatch.setattr("streamer.models.shadowsink.SEND_WAIT", 0.1)


def shadow_of(sink: dict[str, Any]) -> dict[str, Any]:
    return {"shadow": {"version": 2, "sink": sink}}


class Beside:
    """A service in memory whose shadow has the sink of this test."""

    def __init__(self, define: Any, serve: Any, models: Path, sink: MemorySink, **fields: Any) -> None:
        definition = define(Onnx(model_uri=models), variants=shadow_of({**KAFKA, "topic": "s", **fields}))
        self.serving = serve(definition, sinks={"memory": MemorySink(name="memory"), "shadow": sink})
        self.fed = 0

    def feed(self, count: int = 1) -> None:
        """Feed numbers one after the other, each once the shadow has had the one before."""
        for _ in range(count):
            self.serving.feed(self.fed)
            self.fed += 1
            deadline = time.monotonic() + 60
            while self.ran < self.fed:
                assert time.monotonic() < deadline
                time.sleep(0.002)

    @property
    def ran(self) -> int:
        return sum(self.serving.agent._loop.models.shadow.counts.values())

    @property
    def counts(self) -> dict[str, int]:
        document = self.serving.agent._loop.models.shadow.document()["sink"]
        return {outcome: document[outcome] for outcome in ("sent", "failed", "unsent")}


def test_results_of_a_shadow_go_to_a_sink_of_its_own_and_say_which_version_made_them(
    define: Any, serve: Any, eventually: Any, models: Path
) -> None:
    sink = MemorySink(name="shadow", gathers=True)
    chosen = {"when": {"y": {"gt": 2000}}, "topic": "shadow.{record.key}", "topics": ["^shadow"], "codec": "json"}
    variants = shadow_of({**KAFKA, **chosen})
    service = define(Onnx(model_uri=models), variants=variants, keep="all", batch={"max_records": 1})
    serving = serve(service, sinks={"memory": MemorySink(name="memory"), "shadow": sink})
    for number in range(3):
        serving.feed(number, key=b"k%d" % number)
        eventually(lambda done=number + 1: sum(serving.agent._loop.models.shadow.counts.values()) == done)
    assert serving.results() == [3000, 3001, 3002]
    assert all(not dict(message.headers).keys() & {"streamer-variant"} for message in serving.sink.messages)
    assert serving.stop().ok == 3
    assert [(message.key, message.topic, message.value) for message in sink.messages] == [
        (b"k1", "shadow.k1", b'{"y":2001,"x":1}'),
        (b"k2", "shadow.k2", b'{"y":2002,"x":2}'),
    ]
    assert [message.headers for message in sink.messages] == [(VERSION, VARIANT)] * 2
    document = serving.agent._loop.models.shadow.document()
    assert document["sink"] == {"name": "shadow", "sent": 2, "failed": 0, "unsent": 0, "down": None}


@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_a_run_without_brokers_sends_the_results_of_a_shadow_to_memory_too(
    define: Any, models: Path, delivery: str
) -> None:
    variants = shadow_of({**KAFKA, "topic": "shadow"})
    report = testing.run(define(Onnx(model_uri=models), variants=variants, delivery=delivery), [{"x": 7}])
    assert [int(result["y"]) for result in report.results if result] == [3007]
    assert [int(result["y"]) for result in report.decoded["shadow"] if result] == [2007]
    assert report.sinks["shadow"][0].headers == (VERSION, VARIANT)


def test_a_sink_of_a_shadow_that_is_away_is_not_waited_for_and_gets_later_results(
    define: Any, serve: Any, eventually: Any, models: Path, caplog: pytest.LogCaptureFixture
) -> None:
    topic = MemoryTopic("s")
    beside = Beside(define, serve, models, MemorySink(topic, name="shadow"))
    beside.feed(2)
    eventually(lambda: beside.counts == {"sent": 2, "failed": 0, "unsent": 0})
    topic.faults.away = "it is frozen"
    with caplog.at_level(logging.WARNING):
        beside.feed()
        eventually(lambda: NOT_TOLD in caplog.text)
        beside.feed(3)
        assert beside.counts == {"sent": 2, "failed": 0, "unsent": 3}, "of the third it is not known"
    assert caplog.text.count(NOT_TOLD) == 1
    assert beside.serving.agent.ready() is None
    topic.faults.away = None
    eventually(lambda: beside.counts["sent"] == 3)
    beside.feed()
    eventually(lambda: beside.counts == {"sent": 4, "failed": 0, "unsent": 3})
    assert [Data.from_bytes(message.value or b"")["y"] for message in topic.messages()] == [2000, 2001, 2002, 2006]
    assert beside.serving.stop().ok == 7


def test_what_is_on_its_way_to_the_sink_of_a_shadow_at_the_end_is_counted_as_unsent(
    define: Any, serve: Any, models: Path
) -> None:
    topic = MemoryTopic("s")
    topic.faults.away = "it is frozen"
    beside = Beside(define, serve, models, MemorySink(topic, name="shadow"))
    beside.feed(3)
    assert beside.serving.stop(20).ok == 3
    assert beside.counts == {"sent": 0, "failed": 0, "unsent": 3}


def test_a_result_that_the_sink_of_a_shadow_refuses_or_loses_is_counted(
    define: Any, serve: Any, eventually: Any, models: Path
) -> None:
    topic = MemoryTopic("s")
    topic.faults.refuse = lambda message: "too large" if Data.from_bytes(message.value or b"")["y"] == 2001 else None
    topic.faults.lose = lambda message: Data.from_bytes(message.value or b"")["y"] == 2002
    beside = Beside(define, serve, models, MemorySink(topic, name="shadow"))
    beside.feed(4)
    eventually(lambda: beside.counts == {"sent": 2, "failed": 1, "unsent": 1})
    assert not beside.serving.buried()
    assert beside.serving.stop().ok == 4


def test_a_result_that_cannot_be_addressed_or_written_is_counted_and_the_others_are_sent(
    define: Any, serve: Any, eventually: Any, models: Path
) -> None:
    sink = MemorySink(name="shadow", gathers=True)
    beside = Beside(define, serve, models, sink, topic="s.{y}", topics=["s.2000", "s.2002"])
    beside.feed(3)
    eventually(lambda: beside.counts == {"sent": 2, "failed": 1, "unsent": 0})
    assert [message.topic for message in sink.messages] == ["s.2000", "s.2002"]
    assert beside.serving.results() == [3000, 3001, 3002]


class Breaks(MemorySink):
    """Is broken for good from the second block on: by an error of its own kind, or by one that no sink may raise."""

    error: Exception
    blocks = 0

    def send(self, messages: Messages, deadline: float) -> Refused:
        self.blocks += 1
        if self.blocks > 1:
            raise self.error
        return super().send(messages, deadline)


@pytest.mark.parametrize("outcome", ["unsent", "failed"])
def test_a_sink_of_a_shadow_that_breaks_leaves_the_service_alone(
    define: Any, serve: Any, models: Path, outcome: str
) -> None:
    sink = Breaks(name="shadow")
    sink.error = ConnectorError("it may not write") if outcome == "unsent" else OverflowError("a fault of the sink")
    beside = Beside(define, serve, models, sink)
    beside.feed(4)
    assert beside.serving.results() == [3000, 3001, 3002, 3003]
    assert beside.serving.agent.ready() is None
    assert beside.serving.stop().ok == 4
    assert beside.counts[outcome] >= 3
    assert sink.blocks == (2 if outcome == "unsent" else 4)


def test_a_sink_of_a_shadow_that_cannot_be_opened_is_an_error_at_the_start(
    define: Any, serve: Any, models: Path
) -> None:
    class Shut(MemorySink):
        def open(self) -> None:
            raise ConnectorError("sink shadow: the login is refused")

    with pytest.raises(ConnectorError, match="the login is refused"):
        Beside(define, serve, models, Shut(name="shadow"))


def test_a_broker_that_freezes_under_the_sink_of_a_shadow_harms_nobody(
    define: Any, serve: Any, eventually: Callable[..., None], models: Path, start_mosquitto: StartMosquitto
) -> None:
    broker = start_mosquitto()
    sink = {"type": "mqtt", "url": broker.url, "topic": "shadow", "qos": 1}
    service = define(Onnx(model_uri=models), variants=shadow_of(sink))
    config = service.shadow_sink
    serving = serve(service, sinks={"memory": MemorySink(name="memory"), "shadow": config.build()})
    serving.feed(0)
    sent = serving.agent._loop.models.shadow._sink.counts
    eventually(lambda: sent["sent"] == 1)
    pid = broker.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    try:
        serving.feed(1)
        eventually(lambda: serving.agent._loop.models.shadow._sink._held_up)
        serving.feed(*range(2, 50))
        eventually(lambda: len(serving.results()) == 50)
        assert serving.agent.ready() is None
        assert serving.stop(20).ok == 50
    finally:
        os.kill(pid, signal.SIGCONT)
    assert sent["sent"] == 1
    assert sent["unsent"] >= 1
