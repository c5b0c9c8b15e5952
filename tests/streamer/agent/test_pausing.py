"""A source that is paused is not polled; the service goes on, and so does the source when it is resumed."""

from __future__ import annotations

import time
from typing import Any

import pytest

from pipelines.errors import StreamerError
from streamer.agent.running import agent_of
from tests.streamer.agent.test_http_service import ask, service_of


def test_records_of_a_paused_source_wait_and_those_of_others_run(define: Any, serve: Any, eventually: Any) -> None:
    sources = [{"type": "memory", "topic": name, "name": name} for name in ("a", "b")]
    serving = serve(define(source=sources))
    agent = serving.agent
    serving.feed(1, source="a")
    eventually(lambda: serving.results() == [2])
    agent.pause("a")
    still = serving.sources["a"]
    calls: list[bool] = []
    still.standing_still = calls.append
    eventually(lambda: True in calls)
    serving.feed(2, source="a")
    serving.feed(3, source="b")
    eventually(lambda: serving.results() == [2, 6])
    assert agent.ready() is None
    assert agent.live() is None
    assert agent.note() == "source a: paused"
    (paused,) = (each for each in agent.meters.readings() if each.name == "streamer_source_paused")
    assert dict(paused.samples) == {("a",): 1, ("b",): 0}
    time.sleep(0.2)
    assert serving.results() == [2, 6]
    agent.resume("a")
    eventually(lambda: serving.results() == [2, 6, 4])
    assert agent.note() is None
    assert calls[-1] is False


def test_a_paused_service_stops_at_once_and_acknowledges_what_was_run(define: Any, serve: Any, eventually: Any) -> None:
    serving = serve(define())
    serving.feed(1)
    eventually(lambda: serving.results() == [2])
    name = next(iter(serving.sources))
    serving.agent.pause(name)
    serving.agent.pause(name)
    serving.feed(2)
    assert serving.stop().reason == "stopped"
    assert serving.results() == [2]


def test_an_unknown_source_is_named_with_those_there_are(define: Any, serve: Any) -> None:
    serving = serve(define())
    with pytest.raises(StreamerError, match='there is no source "other"; there are memory'):
        serving.agent.pause("other")


def test_clients_of_a_paused_source_are_refused_and_the_service_is_not_ready(eventually: Any) -> None:
    with service_of() as service:
        agent = agent_of(service)
        assert agent is not None
        name = agent.sources[0].name
        assert ask(service, {"x": 3}).status_code == 200
        agent.pause(name)
        assert agent.ready() == f"source {name} is paused"
        eventually(lambda: ask(service, {"x": 3}).status_code == 503)
        refused = ask(service, {"x": 3})
        assert refused.json() == {"error": f"the service is not ready: source {name} is paused"}
        assert refused.headers["retry-after"] == "1"
        agent.resume(name)
        assert ask(service, {"x": 3}).json() == {"y": 1.5}
        assert agent.ready() is None
