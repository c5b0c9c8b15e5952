"""Whole services on memory connectors, whose faults a test can bring about."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

import pipelines
from connectors.memory import MemorySink, MemorySource
from connectors.message import Message
from connectors.sink import Sink
from connectors.source import Source
from pipelines import Data
from streamer.agent.agent import Agent
from streamer.agent.assembly import build
from streamer.agent.summary import Summary
from streamer.definition.service import Service


def double(data: Data) -> Data:
    return Data({"y": data.get_int64("x") * 2})


class Serving:
    """A service in the background. Records are numbers: `{"x": n}` goes in, `{"y": ...}` comes out."""

    def __init__(
        self,
        definition: Service,
        sources: Mapping[str, Source] | None,
        sinks: Mapping[str, Sink] | None,
        dead: Sink | None,
    ) -> None:
        self.sources = dict(sources or {one.label: MemorySource(name=one.label) for one in definition.sources})
        self.sinks = dict(sinks or {one.label: MemorySink(name=one.label) for one in definition.sinks})
        self.dead: Any = MemorySink(name="dead_letter") if dead is None else dead
        self.agent = Agent(
            definition, assembly=build(definition, sources=self.sources, sinks=self.sinks, dead=self.dead)
        )

    @property
    def source(self) -> Any:
        """The first source."""
        return next(iter(self.sources.values()))

    @property
    def sink(self) -> Any:
        """The first sink."""
        return next(iter(self.sinks.values()))

    def feed(self, *numbers: int, source: str | None = None, key: bytes | None = None) -> None:
        """Append these to a source."""
        into: Any = self.source if source is None else self.sources[source]
        into.feed(*[Message(Data({"x": number}).to_bytes(), key) for number in numbers])

    def results(self, sink: str | None = None) -> list[Any]:
        """The `y` of every message of a sink, `None` for a tombstone."""
        out: Any = self.sink if sink is None else self.sinks[sink]
        return [None if one.value is None else Data.from_bytes(one.value)["y"] for one in out.messages]

    def buried(self) -> list[int]:
        """The `x` of every dead letter."""
        return [Data.from_bytes(one.value)["x"] for one in self.dead.messages]

    def stop(self, timeout: float = 60.0) -> Summary:
        """Stop it and wait for the end."""
        self.agent.stop()
        return self.agent.join(timeout)


@pytest.fixture(autouse=True)
def commit_interval(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Seconds between acknowledgements: `commit_interval(1.0)` is what it is outside of tests, here it is less."""

    def between(seconds: float) -> None:
        monkeypatch.setattr("streamer.agent.runloop.COMMIT_INTERVAL", seconds)

    between(0.1)
    return between


PARALLEL = {
    "test_agent_chaos": (1, 4),
    "test_agent_delivery": (1, 2),
    "test_agent_letters": (1, 2),
    "test_agent_outbox": (1, 2),
    "test_agent_sinks": (1, 2),
    "test_agent_sources": (1, 2),
    "test_agent_stopping": (1, 2),
    "test_agent_transactions": (1, 2),
    "test_sessions": (1, 2),
    "test_transactions_chaos": (1, 4),
}
"""The modules whose tests run with several values of `limits.parallel`. Not those that count batches on their way, nor
those whose steps keep state."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "define" in metafunc.fixturenames and (counts := PARALLEL.get(metafunc.module.__name__.rpartition(".")[2])):
        metafunc.parametrize("parallel", counts, ids="parallel {}".format, indirect=True)


@pytest.fixture
def parallel(request: pytest.FixtureRequest) -> int:
    """`limits.parallel` of services that do not say it."""
    return int(getattr(request, "param", 1))


@pytest.fixture
def define(parallel: int) -> Callable[..., Service]:
    """`define(step, **settings)` is a service in memory with a dead letter; a setting of `None` is left out."""

    def defined(step: Any = double, **settings: Any) -> Service:
        known: dict[str, Any] = {
            "source": {"type": "memory", "topic": "in"},
            "sink": {"type": "memory", "topic": "out"},
            "dead_letter": {"type": "memory", "topic": "dead"},
        }
        if parallel > 1:
            settings["limits"] = {"parallel": parallel, **settings.get("limits", {})}
        chosen = {key: value for key, value in {**known, **settings}.items() if value is not None}
        return Service(name="test", pipeline=pipelines.Sequence([step]), **chosen)

    return defined


@pytest.fixture
def serve() -> Iterator[Callable[..., Serving]]:
    """`serve(definition, sources=, sinks=, dead=)` starts a service; it is stopped at the end."""
    running: list[Serving] = []

    def started(
        definition: Service,
        sources: Mapping[str, Source] | None = None,
        sinks: Mapping[str, Sink] | None = None,
        dead: Sink | None = None,
    ) -> Serving:
        serving = Serving(definition, sources, sinks, dead)
        running.append(serving)
        serving.agent.start()
        return serving

    yield started
    for serving in running:
        if serving.agent._thread.ident is not None:
            serving.stop()


@pytest.fixture
def eventually() -> Callable[..., None]:
    """`eventually(condition)` waits until it holds."""

    def wait(true: Callable[[], bool], seconds: float = 60.0) -> None:
        deadline = time.monotonic() + seconds
        while not true():
            assert time.monotonic() < deadline, "it did not happen in time"
            time.sleep(0.01)

    return wait
