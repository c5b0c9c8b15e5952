"""`/metrics` shows the process itself: CPU, memory, descriptors, versions, and whether each service is healthy."""

from __future__ import annotations

import asyncio
import os
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any

import faust
import psutil
import pytest
from observed import Quiet
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

import streamer.faust
from pipelines.hotpath import why_not
from streamer.definition.loading import loads
from streamer.observe import process
from streamer.observe.endpoint import Endpoint
from streamer.observe.metrics import ServiceMeters

LINUX = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="process_* are read from Linux' /proc")


class Service(Quiet):
    """A service that says of itself what the test says."""

    def __init__(self, name: str) -> None:
        self.meters = ServiceMeters(name, ["source"])
        self.trouble: str | None = None
        self.waiting: str | None = None

    def live(self) -> str | None:
        return self.trouble

    def ready(self) -> str | None:
        return self.waiting or self.trouble


@contextmanager
def scraped(*services: Service) -> Iterator[Callable[[], dict[str, Metric]]]:
    """The families of one port that all services share, by name; one that comes twice is an error."""
    endpoint = Endpoint("127.0.0.1:0")
    for service in services:
        endpoint._observed[service.meters.service] = service
    try:
        yield lambda: families_of(endpoint.address)
    finally:
        for service in services:
            endpoint.leave(service.meters.service)


def families_of(address: tuple[str, int]) -> dict[str, Metric]:
    host, port = address
    with urllib.request.urlopen(f"http://{host}:{port}/metrics", timeout=30) as answer:
        text = answer.read().decode()
    begins = [line for line in text.splitlines() if line.startswith("# TYPE ")]
    assert len(begins) == len(set(begins))
    return {family.name: family for family in text_string_to_metric_families(text)}


def value(families: dict[str, Metric], name: str, **labels: str) -> float:
    (found,) = [s.value for family in families.values() for s in family.samples if (s.name, s.labels) == (name, labels)]
    return found


@LINUX
def test_the_process_shows_its_memory_cpu_descriptors_and_start() -> None:
    me = psutil.Process()
    with scraped(Service("a")) as scrape:
        families = scrape()
        assert value(families, "process_resident_memory_bytes") == pytest.approx(me.memory_info().rss, rel=0.2)
        assert value(families, "process_start_time_seconds") == pytest.approx(me.create_time(), abs=2)
        assert value(families, "process_cpu_seconds_total") == pytest.approx(sum(me.cpu_times()[:2]), abs=1)
        before = value(families, "process_open_fds")
        held = [os.open(os.devnull, os.O_RDONLY) for _ in range(50)]
        try:
            assert value(scrape(), "process_open_fds") == pytest.approx(before + 50, abs=5)
        finally:
            for file in held:
                os.close(file)
        assert value(families, "process_max_fds") == me.rlimit(psutil.RLIMIT_NOFILE)[0]
        assert 0 < value(families, "streamer_process_memory_limit_bytes") <= psutil.virtual_memory().total


def test_versions_and_the_garbage_collector_are_there_on_every_system() -> None:
    with scraped(Service("a")) as scrape:
        families = scrape()
    (python,) = families["python_info"].samples
    assert python.labels["version"] == ".".join(map(str, sys.version_info[:3]))
    assert value(families, "python_gc_collections_total", generation="0") > 0


def test_the_build_says_its_version_and_the_hot_path(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = "python" if why_not() else "native"
    for variable, path in (("", usual), ("python", "python")):
        monkeypatch.setenv("STREAMER_NATIVE", variable)
        process._build.cache_clear()
        with scraped(Service("a")) as scrape:
            (built,) = scrape()["streamer_build_info"].samples
        assert built.labels == {"version": version("streamer-inference"), "hot_path": path}
    process._build.cache_clear()


def test_two_services_of_a_process_show_it_once_and_their_health_each() -> None:
    first, second = Service("first"), Service("second")
    with scraped(first, second) as scrape:
        assert len(scrape()["python_info"].samples) == 1
        assert len(scrape()["streamer_build_info"].samples) == 1

        def health(name: str) -> dict[str, float]:
            return {sample.labels["service"]: sample.value for sample in scrape()[name].samples}

        assert health("streamer_ready") == health("streamer_live") == {"first": 1, "second": 1}
        first.waiting = "broker b:1 is away"
        assert health("streamer_ready") == {"first": 0, "second": 1}
        assert health("streamer_live") == {"first": 1, "second": 1}
        second.trouble = "no progress"
        assert health("streamer_ready") == {"first": 0, "second": 0}
        assert health("streamer_live") == {"first": 1, "second": 0}


def test_inside_faust_a_service_shows_its_process_too(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Endpoint] = []
    join = Endpoint.join.__func__  # type: ignore[attr-defined]

    def joined(cls: type[Endpoint], *arguments: Any) -> Endpoint:
        opened.append(join(cls, *arguments))
        return opened[-1]

    monkeypatch.setattr(Endpoint, "join", classmethod(joined))
    text = """
        name: plain
        source: {type: kafka, topics: [in], codec: json}
        pipeline: []
        sink: {type: kafka, topic: out, codec: json}
        control: {listen: "127.0.0.1:0"}
    """

    async def shown() -> dict[str, Metric]:
        app = faust.App("plain", broker="kafka://localhost:9092", store="memory://")
        agent: Any = streamer.faust.attach(app, loads(text))
        async with agent.test_context() as tested:
            await tested.put(b'{"x": 1}')
            (endpoint,) = opened
            return await asyncio.to_thread(families_of, endpoint.address)

    families = asyncio.run(shown())
    assert value(families, "streamer_ready", service="plain") == 1
    assert len(families["python_info"].samples) == 1
