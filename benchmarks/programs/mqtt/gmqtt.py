"""gmqtt, which acknowledges when `on_message` returns: there is no acknowledging after a batch."""

from __future__ import annotations

import asyncio
from typing import Any

import gmqtt

from benchmarks.programs.mqtt.job import WINDOW, MqttJob, Told


async def main() -> None:
    """Run until SIGTERM."""
    job = MqttJob.from_arguments()
    told = Told(job)
    version = gmqtt.constants.MQTTv50 if job.version == "5" else gmqtt.constants.MQTTv311
    client = gmqtt.Client(job.group, **({"receive_maximum": WINDOW} if job.version == "5" else {}))

    def on_message(client: Any, topic: str, payload: bytes, qos: int, properties: Any) -> int:
        told.add(1)
        return 0

    client.on_message = on_message
    client.on_connect = lambda *_: client.subscribe(job.source, qos=1)
    await client.connect(job.host, job.port, version=version)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
