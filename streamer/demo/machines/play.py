"""The demo from broker to summary."""

from __future__ import annotations

import math
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from pipelines.plugins.requirements import Package
from streamer.agent.agent import Agent
from streamer.demo.machines import example
from streamer.demo.machines.board import Board, Count, FaultFinding
from streamer.demo.machines.gateway import Gateway, publisher
from streamer.demo.machines.hall import WINDOWS, Hall, plan
from streamer.demo.machines.screen import SensorsLook
from streamer.demo.machines.viewer import ScoreViewer
from streamer.demo.running import batches, check, mean, started, wait_for_the_first
from streamer.demo.screen import Screen
from streamer.demo.stop import Stop
from streamer.devbroker.mqtt import MqttBroker, open_mqtt_broker

REFRESH = 0.2
"""Seconds between two updates of the screen."""
OPENING = 30.0
"""Timeout in seconds of the first score."""
LAST = 10.0
"""Seconds that the last scores and alerts may take after the last window."""
SETTLED = 0.5
"""Seconds to wait for alerts after the last score, as they come on another topic."""

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class SensorsOutcome:
    """The result of a demo. Times are in seconds."""

    broker: str
    real: bool
    """Whether the broker is mosquitto or the user's, rather than one for development."""
    machines: int
    count: Count
    dead: int
    batch_mean: float
    findings: list[FaultFinding]

    @property
    def lost(self) -> int:
        """Windows without a score."""
        return self.count.sent - self.count.scored

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain values, for JSON."""
        counts = {key: value if math.isfinite(value) else None for key, value in asdict(self.count).items()}
        fields = {key: value for key, value in asdict(self).items() if key != "count"}
        return {**fields, **counts, "lost": self.lost}


def play(
    *,
    seconds: float,
    rate: float | None,
    progress: Progress,
    screen: Callable[[MqttBroker], Screen[SensorsLook]],
    stop: Stop,
) -> SensorsOutcome | None:
    """Run the demo for about `seconds`, less if `stop` is set; `None` if there is no result.

    `rate` is in windows a second, of all machines together; `None`: as fast as the sensors measure. `progress` is
    called before each preparation, `screen` makes the view once the broker is there. Raises `StreamerError` if a part
    is missing or fails.
    """
    Package("onnxruntime", "onnx").check("streamer demo sensors")
    run = uuid.uuid4().hex[:8]
    faults = plan(seconds)
    hall = Hall(faults)
    rate = WINDOWS * len(hall.places) if rate is None else rate
    total = round(seconds * rate)
    board = Board(hall.places, faults, total)
    with ExitStack() as stack:
        progress("looking for a broker")
        with stop.at_once():
            broker = stack.enter_context(open_mqtt_broker("the demo", progress, allow_development=True))
        progress("starting the services")
        scoring, alerting = example.services(broker.address, run)
        # Its subscription has to be there before the first score.
        alerts = started(alerting, stack)
        agent = started(scoring, stack)
        viewer = ScoreViewer(broker.url, f"demo-{run}-viewer", board)
        stack.callback(viewer.stop)
        viewer.start()
        gateway = stack.enter_context(_gateway(broker, run, hall, board, rate, total))
        wait_for_the_first(
            agent,
            viewer,
            gateway.probe,
            stop,
            OPENING,
            "is there an ACL on the broker for the topics factory/# and alerts/#?",
        )
        if stop.is_set():
            return None
        with screen(broker) as view:
            _watch((agent, alerts), viewer, gateway, board, seconds, view, stop)
        viewer.stop()
        dead = 0
        for each in (agent, alerts):
            each.stop()
            dead += each.join().dead
            check(each)
        return SensorsOutcome(
            broker=broker.description,
            real=broker.kind != "development",
            machines=len(hall.places),
            count=board.count(),
            dead=dead,
            batch_mean=mean(batches(agent)),
            findings=board.findings(),
        )


@contextmanager
def _gateway(broker: MqttBroker, run: str, hall: Hall, board: Board, rate: float, total: int) -> Iterator[Gateway]:
    sink = publisher(broker.url, f"demo-{run}-gateway")
    sink.open()
    gateway = Gateway(sink, hall, board, rate=rate, total=total)
    try:
        yield gateway
    finally:
        gateway.stop()
        sink.close()


def _watch(
    agents: Sequence[Agent],
    viewer: ScoreViewer,
    gateway: Gateway,
    board: Board,
    seconds: float,
    view: Screen[SensorsLook],
    stop: Stop,
) -> None:
    began = time.monotonic()
    deadline = float("inf")
    gateway.start()
    while True:
        viewer.check()
        for agent in agents:
            check(agent)
        if stop.is_set():
            gateway.stop()
        count = board.count()
        if gateway.done and deadline == float("inf"):
            deadline = time.monotonic() + LAST
        view.show(SensorsLook(time.monotonic() - began, seconds, count, board.machines(), board.findings()))
        if gateway.done and count.scored == count.sent:
            deadline = min(deadline, time.monotonic() + SETTLED)
        if time.monotonic() > deadline:
            return
        time.sleep(REFRESH)
