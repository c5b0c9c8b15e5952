"""Services on memory connectors, measured from their first record to their last result."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple
from unittest.mock import patch

import pipelines
from connectors.memory import MemorySink, MemorySource
from connectors.message import Message
from connectors.records import Records
from pipelines.definitions.pipeline import Pipeline
from streamer.agent.agent import Agent
from streamer.agent.assembly import build
from streamer.agent.runloop import RunLoop
from streamer.definition.service import Service

PATIENCE = 120.0


class Spent(NamedTuple):
    """Seconds for a number of records."""

    wall: float
    cpu: float


class SlowBus(MemorySource):
    """A source that gives one record and then, once, none: a device that sends one now and then."""

    gave = False

    def poll(self, max_records: int, max_bytes: int, timeout: float) -> Records:
        """As `Source.poll`."""
        if self.gave:
            self.gave = False
            return Records.empty(self.name)
        records = super().poll(1, max_bytes, timeout)
        self.gave = len(records) > 0
        return records


class LiveSource(MemorySource):
    """A source that is polled only while there is room to run a record, as a camera's pictures are."""

    perishable = True


def spent(
    pipeline: Pipeline,
    payloads: Sequence[bytes],
    *,
    sources: int = 1,
    kind: type[MemorySource] = MemorySource,
    warm: int = 8,
    joined: bool = True,
    **settings: Any,
) -> Spent:
    """What a service takes for these records, divided among its sources in turn.

    The first `warm` records are not measured. `joined`: whether batches that wait are run together.
    """
    names = [f"source-{number}" for number in range(sources)]
    service = Service(
        name="flow",
        pipeline=pipeline,
        source=[{"type": "memory", "topic": name, "name": name} for name in names],
        sink={"type": "memory", "topic": "out", "name": "out"},
        **settings,
    )
    readers = {name: kind(name=name) for name in names}
    sink = MemorySink(name="out", max_in_flight=1 << 30)
    agent = Agent(service, assembly=build(service, sources=readers, sinks={"out": sink}))
    with patch.object(RunLoop, "_may_join", (lambda loop: False) if not joined else RunLoop._may_join):
        agent.start()
        try:
            _run(agent, readers, payloads[:1] * warm)
            began, cpu = time.perf_counter(), time.process_time()
            _run(agent, readers, payloads)
            return Spent(time.perf_counter() - began, time.process_time() - cpu)
        finally:
            agent.stop()
            agent.join(PATIENCE)


def _run(agent: Agent, readers: dict[str, MemorySource], payloads: Sequence[bytes]) -> None:
    target = agent.meters.total("ok") + len(payloads)
    listed = list(readers.values())
    for number, reader in enumerate(listed):
        reader.feed(*[Message(payload) for payload in payloads[number :: len(listed)]])
    deadline = time.monotonic() + PATIENCE
    while agent.meters.total("ok") < target:
        if time.monotonic() > deadline or agent.summary is not None:
            raise RuntimeError(f"the service did not finish: {agent.summary}")
        time.sleep(0.002)


def best(measure: Sequence[Callable[[], Spent]], rounds: int) -> list[Spent]:
    """The least wall and CPU seconds of each, measured in turn."""
    found = [[each() for each in measure] for _ in range(rounds)]
    return [
        Spent(min(each.wall for each in times), min(each.cpu for each in times)) for times in zip(*found, strict=True)
    ]


def sleeping(seconds: float) -> Pipeline:
    """A step that waits for so many seconds for each record."""

    def wait(data: pipelines.Data) -> pipelines.Data:
        time.sleep(seconds)
        return data

    return pipelines.Sequence([wait])
