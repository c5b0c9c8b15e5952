"""A loop on paho, as one would write it by hand: the work is done in its network thread (`loop_start`).

A message is acknowledged (`manual_ack`) when its batch is done; in the service, when every result of it has its PUBACK.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

import paho.mqtt.client as mqtt
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from benchmarks.programs.mqtt.job import RESULTS, WINDOW, MqttJob, Told


def main() -> None:
    """Run until SIGTERM."""
    job = MqttJob.from_arguments()
    client = mqtt.Client(
        mqtt.CallbackAPIVersion.VERSION2,
        job.group,
        protocol=mqtt.MQTTv5 if job.version == "5" else mqtt.MQTTv311,
        manual_ack=True,
    )
    client.max_inflight_messages_set(WINDOW)
    properties = None
    if job.version == "5":
        properties = Properties(PacketTypes.CONNECT)
        properties.ReceiveMaximum = WINDOW
    if job.task != "publish":
        client.on_connect = lambda *_: client.subscribe(job.source, 1)
        client.on_message = _receiving(client, job) if job.task == "receive" else _serving(client, job)
    client.connect(job.host, job.port, properties=properties)
    client.loop_start()
    if job.task == "publish":
        _publish(client, job)
    signal.sigwait([signal.SIGTERM])


def _receiving(client: mqtt.Client, job: MqttJob) -> Callable[..., None]:
    batch: list[Any] = []
    size, told = job.batch, Told(job)

    def on_message(client: mqtt.Client, userdata: Any, message: mqtt.MQTTMessage) -> None:
        batch.append(message)
        if len(batch) == size:
            for one in batch:
                client.ack(one.mid, 1)
            batch.clear()
            told.add(size)

    return on_message


def _serving(client: mqtt.Client, job: MqttJob) -> Callable[..., None]:
    from benchmarks.programs.work import Work

    work = Work(job)
    batch: list[Any] = []
    unfinished: dict[int, list[Any]] = {}

    def on_message(client: mqtt.Client, userdata: Any, message: mqtt.MQTTMessage) -> None:
        nonlocal batch
        batch.append(message)
        if len(batch) == job.batch:
            last = 0
            for result in work.run([one.payload for one in batch]):
                last = client.publish(RESULTS, result, 1).mid
            unfinished[last] = batch
            batch = []

    def on_publish(client: mqtt.Client, userdata: Any, mid: int, *rest: Any) -> None:
        # Acknowledgements come in the order of publishing: this one is the last of its batch.
        for one in unfinished.pop(mid, ()):
            client.ack(one.mid, 1)

    client.on_publish = on_publish
    return on_message


def _publish(client: mqtt.Client, job: MqttJob) -> None:
    """As many at once as the window takes: paho is slower where messages queue up in it."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    payload = bytes(job.payload)
    while True:
        waits = [client.publish(job.sink, payload, 1) for _ in range(job.batch)]
        waits[-1].wait_for_publish()


if __name__ == "__main__":
    main()
