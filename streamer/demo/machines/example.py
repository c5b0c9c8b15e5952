"""The sensors example as the demo runs it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from streamer.demo.examples import folder

if TYPE_CHECKING:
    from streamer.definition.service import Service

KEPT = 60.0
"""Seconds that the broker keeps the session of the demo's service."""


def service(broker: str, run: str) -> Service:
    """The service that `sensors.yaml` defines, on this broker (`host:port`).

    Its MQTT client ids contain `run`, so that another service of the example is not disconnected.
    """
    import streamer.definition.loading

    text = (folder("sensors") / "sensors.yaml").read_text(encoding="utf-8")
    environment = {**os.environ, "MQTT_BROKER": broker}
    service = streamer.definition.loading.loads(text, folder("sensors"), environment=environment)
    sinks = [sink.model_copy(update={"client_id": f"demo-{run}-{sink.label}"}) for sink in service.sinks]
    sources = [
        source.model_copy(update={"client_id": f"demo-{run}-{source.label}", "expiry": KEPT})
        for source in service.sources
    ]
    letters = service.dead_letter
    if letters is not None:
        letters = letters.model_copy(update={"client_id": f"demo-{run}-dead"})
    return service.model_copy(update={"source": sources, "sink": sinks, "dead_letter": letters})
