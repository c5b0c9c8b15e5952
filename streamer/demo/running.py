"""The service of a demo, in this process."""

from __future__ import annotations

from contextlib import ExitStack

from pipelines.errors import StreamerError
from pipelines.observe.histogram import Histogram
from streamer.agent.agent import Agent
from streamer.definition.service import Service


def started(service: Service, stack: ExitStack) -> Agent:
    """The service as it runs; it is stopped when the stack ends."""
    agent = Agent(service)
    agent.start()
    stack.callback(agent.join)
    stack.callback(agent.stop)
    return agent


def check(agent: Agent) -> None:
    """Raise `StreamerError` if the service has failed."""
    if agent.summary is not None and agent.summary.error is not None:
        raise StreamerError(f"the service failed: {agent.summary.error}")


def batches(agent: Agent) -> Histogram:
    """Records in its batches."""
    (meters,) = agent.meters.sources.values()
    return meters.batch_records


def mean(histogram: Histogram) -> float:
    """The mean of what it counted; 0 of nothing."""
    return histogram.total / histogram.count if histogram.count else 0.0
