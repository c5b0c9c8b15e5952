"""The service of a demo, in this process."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack

from pipelines.errors import StreamerError
from pipelines.observe.histogram import Histogram
from streamer.agent.agent import Agent
from streamer.definition.service import Service
from streamer.demo.reader import Reader


def started(service: Service, stack: ExitStack) -> Agent:
    """Start the service. Returns its agent, which is stopped when `stack` is closed."""
    agent = Agent(service)
    agent.start()
    stack.callback(agent.join)
    stack.callback(agent.stop)
    return agent


def check(agent: Agent) -> None:
    """Raise `StreamerError` if the service has failed."""
    if agent.summary is not None and agent.summary.error is not None:
        raise StreamerError(f"the service failed: {agent.summary.error}")


def wait_for_the_first(
    agent: Agent, reader: Reader, probe: Callable[[], None], stop: threading.Event, seconds: float, hint: str
) -> None:
    """Send probes until the reader sees a result, or `stop` is set.

    Raises `StreamerError`, with `hint`, after `seconds`.
    """
    deadline = time.monotonic() + seconds
    while not stop.is_set():
        probe()
        if reader.sees.wait(0.3):
            reader.check()
            return
        reader.check()
        check(agent)
        if time.monotonic() > deadline:
            state = agent.ready() or "the service runs"
            raise StreamerError(f"no result came back within {seconds:.0f} s ({state}); {hint}")


def batches(agent: Agent) -> Histogram:
    """The sizes of the batches of the service's only source, in records."""
    (meters,) = agent.meters.sources.values()
    return meters.batch_records


def mean(histogram: Histogram) -> float:
    """The mean of all values in a histogram; 0 if it is empty."""
    return histogram.total / histogram.count if histogram.count else 0.0


def free_port() -> int:
    """A port of 127.0.0.1 on which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port
