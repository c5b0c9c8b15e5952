"""A program that publishes numbered messages at a steady rate, and keeps what the broker acknowledged.

    python mqttpublisher.py PORT FILE RATE [TOPIC]

Payloads are `{"device": D, "seq": N}`, each device's on `TOPIC/D`. It goes on until its input ends, waits for the
acknowledgements that are missing, and writes one line "D N" for each message that the broker has taken to FILE.
"""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

from paho.mqtt.client import MQTT_ERR_QUEUE_SIZE, Client, MQTTMessageInfo
from paho.mqtt.enums import CallbackAPIVersion
from waiting import PATIENCE

DEVICES = 20
_AHEAD = 500


def main() -> None:
    port, file, rate, topic = int(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), (*sys.argv[4:], "proof")[0]
    client = Client(CallbackAPIVersion.VERSION2, f"publisher-{topic}", clean_session=False)
    client.max_inflight_messages_set(_AHEAD)
    client.reconnect_delay_set(1, 1)
    client.connect("127.0.0.1", port)
    client.loop_start()
    stopping = threading.Event()

    def wait() -> None:
        sys.stdin.read()
        stopping.set()

    threading.Thread(target=wait, daemon=True).start()
    sent: list[MQTTMessageInfo] = []
    began = time.monotonic()
    print("began", flush=True)
    while not stopping.wait(0.005):
        for number in range(len(sent), int((time.monotonic() - began) * rate)):
            device, seq = number % DEVICES, number // DEVICES
            sent.append(client.publish(f"{topic}/{device}", b'{"device":%d,"seq":%d}' % (device, seq), 1))
    print(f"{len(sent) / (time.monotonic() - began):.0f} messages/s", flush=True)
    deadline = time.monotonic() + PATIENCE
    taken = []
    for number, one in enumerate(sent):
        # Not sent, as the broker was too far behind.
        if one.rc == MQTT_ERR_QUEUE_SIZE:
            continue
        one.wait_for_publish(max(0.01, deadline - time.monotonic()))
        if one.is_published():
            taken.append(f"{number % DEVICES} {number // DEVICES}\n")
    file.write_text("".join(taken))
    client.disconnect()


if __name__ == "__main__":
    main()
