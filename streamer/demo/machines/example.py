"""The sensors example as the demo runs it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from streamer.demo.examples import folder

if TYPE_CHECKING:
    from streamer.definition.service import Service

KEPT = 60.0
"""Seconds that the broker keeps the sessions of the demo's services."""


def services(broker: str, run: str) -> tuple[Service, Service]:
    """The services of `sensors.yaml`, which gives scores, and of `alerts.yaml`, on this broker (`host:port`).

    Their MQTT client ids contain `run`, so that other services of the example are not disconnected.
    """
    return _service("sensors", broker, run), _service("alerts", broker, run)


def _service(name: str, broker: str, run: str) -> Service:
    import streamer.definition.loading

    text = (folder("sensors") / f"{name}.yaml").read_text(encoding="utf-8")
    environment = {**os.environ, "MQTT_BROKER": broker}
    service = streamer.definition.loading.loads(text, folder("sensors"), environment=environment)
    ids = f"demo-{run}-{name}"
    sinks = [sink.model_copy(update={"client_id": f"{ids}-{sink.label}"}) for sink in service.sinks]
    sources = [
        source.model_copy(update={"client_id": f"{ids}-{source.label}", "expiry": KEPT}) for source in service.sources
    ]
    letters = service.dead_letter
    if letters is not None:
        letters = letters.model_copy(update={"client_id": f"{ids}-dead"})
    return service.model_copy(update={"source": sources, "sink": sinks, "dead_letter": letters})
