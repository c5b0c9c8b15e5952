"""The MQTT clients that are compared, and how each of them is started."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks.contestants import CannotRun, Contestant
from benchmarks.environments import MQTT_PEERS, python_of
from benchmarks.environments import TITLES as PEER_TITLES
from benchmarks.mqtt.rows import Row

TITLES = {
    "ours": "streamer",
    "paho": "paho, by hand (the baseline)",
    **{name: PEER_TITLES[name] for name in MQTT_PEERS},
}
"""How the tables call them."""

SHARES = {
    "paho": 0.025,
    "mqtt-gmqtt": 0.05,
    "mqtt-aiomqtt": 0.02,
    "mqtt-bridge": 0.2,
    "mqtt-faststream": 0.012,
}
"""How much of a row's messages the slower programs get where the broker is played."""


def contestants(progress: Callable[[str], None], *, peers: bool) -> tuple[list[Contestant], dict[str, str]]:
    """All that can run here, in the order of the table, and why others cannot, by name."""
    found, left_out = [_program("ours", "ours"), _program("paho", "paho")], {}
    for peer in MQTT_PEERS if peers else ():
        try:
            found.append(_program(peer, MQTT_PEERS[peer], python_of(peer, progress)))
        except (CannotRun, RuntimeError) as error:
            left_out[peer] = str(error).strip().splitlines()[-1]
    return found, left_out


def counted(row: Row, program: Contestant, share: float) -> int:
    """How many messages of a row a program gets."""
    return row.counted(share * SHARES.get(program.name, 1.0) if row.broker == "played" else share)


def _program(name: str, module: str, python: Path | None = None) -> Contestant:
    interpreter = str(python or sys.executable)
    return Contestant(
        name,
        lambda job: [interpreter, "-m", f"benchmarks.programs.mqtt.{module}", job.to_json()],
        {},
        ours=module == "ours",
    )
