"""FastStream on zmqtt: a subscriber whose messages are acknowledged when its function has returned."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from faststream import AckPolicy
from faststream.mqtt import MQTTBroker, QoS

from benchmarks.programs.mqtt.job import WINDOW, MqttJob, Told


def main() -> None:
    """Run until SIGTERM."""
    job = MqttJob.from_arguments()
    told = Told(job)
    broker = MQTTBroker(
        f"mqtt://{job.bootstrap}",
        client_id=job.group,
        version="5.0" if job.version == "5" else "3.1.1",
        **({"receive_maximum": WINDOW} if job.version == "5" else {}),
        logger=None,
        log_level=logging.WARNING,
    )

    async def raw(message: Any) -> Any:
        return message.body

    @broker.subscriber(job.source, qos=QoS.AT_LEAST_ONCE, ack_policy=AckPolicy.ACK, decoder=raw)  # type: ignore[untyped-decorator]
    async def receive(payload: bytes) -> None:
        told.add(1)

    async def run() -> None:
        await broker.start()
        await asyncio.Event().wait()

    asyncio.run(run())


if __name__ == "__main__":
    main()
