"""aiomqtt, which acknowledges by itself before the message is handed over."""

from __future__ import annotations

import asyncio

import aiomqtt
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from benchmarks.programs.mqtt.job import WINDOW, MqttJob, Told


async def main() -> None:
    """Run until SIGTERM."""
    job = MqttJob.from_arguments()
    told = Told(job)
    properties = None
    if job.version == "5":
        properties = Properties(PacketTypes.CONNECT)
        properties.ReceiveMaximum = WINDOW
    protocol = aiomqtt.ProtocolVersion.V5 if job.version == "5" else aiomqtt.ProtocolVersion.V311
    async with aiomqtt.Client(
        job.host, job.port, identifier=job.group, protocol=protocol, properties=properties
    ) as client:
        await client.subscribe(job.source, qos=1)
        async for _ in client.messages:
            told.add(1)


if __name__ == "__main__":
    asyncio.run(main())
