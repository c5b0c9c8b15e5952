"""Fifty simulated fans that publish their acceleration on MQTT, of which one gets a fault after ten seconds.

    python examples/vibration/devices.py [--broker localhost:1883] [--seconds 40]

The fault is there for half of the time that is left. The numbers are made up, and plausible.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Final

import numpy as np
import numpy.typing as npt

from connectors.mqtt.sinkconfig import MqttSinkConfig
from connectors.records import Messages

DEVICES: Final = 50
RATE: Final = 800.0
"""Samples a second."""
BLOCK: Final = 64
"""Samples of a message."""
FAULTY: Final = 7
"""The number of the device that gets a fault."""
SOUND_SECONDS: Final = 10.0
"""How long it is well before."""
_TURNS: Final = 24.5
"""Revolutions a second."""
_HITS: Final = 3.6
"""Hits of a damaged bearing in a revolution."""
_RINGING: Final = 290.0
"""Hz at which a housing rings when it is hit."""


class Device:
    """A fan with a sensor. Devices with other seeds differ a little."""

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)
        self._gain = self._random.uniform(0.8, 1.2)
        self._samples = 0
        self.fault = False
        """Whether its bearing is damaged."""

    def block(self) -> npt.NDArray[np.float64]:
        """The next samples of the acceleration, `(64,)`, in g, rounded to a thousandth as sensors do."""
        seconds = (self._samples + np.arange(BLOCK)) / RATE
        self._samples += BLOCK
        turns = 2.0 * np.pi * _TURNS * seconds
        signal = self._gain * (np.sin(turns) + 0.3 * np.sin(2.0 * turns)) + self._random.normal(0.0, 0.05, BLOCK)
        if self.fault:
            since = seconds % (1.0 / (_TURNS * _HITS))
            signal += np.exp(-since / 0.004) * np.sin(2.0 * np.pi * _RINGING * since)
        return np.round(signal, 3)


def topic(number: int) -> str:
    """The topic that a device publishes to."""
    return f"devices/fan-{number:02}/acceleration"


def payload(block: npt.NDArray[np.float64]) -> bytes:
    """The payload of a message, as JSON."""
    return json.dumps({"acceleration": block.tolist()}, separators=(",", ":")).encode()


def main() -> None:
    """Publish until the time is over."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--broker", default="localhost:1883", metavar="HOST:PORT")
    parser.add_argument("--seconds", type=float, default=40.0)
    given = parser.parse_args()
    devices = [Device(number) for number in range(DEVICES)]
    topics = [topic(number) for number in range(DEVICES)]
    repaired = SOUND_SECONDS + max(given.seconds - SOUND_SECONDS, 0.0) / 2
    sink = MqttSinkConfig(url=f"mqtt://{given.broker}", client_id="vibration-devices", topic="devices").build()
    sink.open()
    try:
        began = time.monotonic()
        for turn in range(round(given.seconds * RATE / BLOCK)):
            due = turn * BLOCK / RATE
            time.sleep(max(began + due - time.monotonic(), 0.0))
            devices[FAULTY].fault = SOUND_SECONDS <= due < repaired
            values = [payload(device.block()) for device in devices]
            deadline = time.monotonic() + 10.0
            sink.send(Messages(np.arange(DEVICES, dtype=np.int64), values, topics=topics), deadline)
            sink.barrier(deadline)
    finally:
        sink.close()


if __name__ == "__main__":
    main()
