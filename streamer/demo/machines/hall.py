"""The hall: its machines, and the faults that some of them develop."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final, NamedTuple

from streamer.demo.machines.simulation import RATE, SAMPLES, Fault, Machine, Window

LINES: Final = {
    "north": ("press-1", "press-2", "lathe-1", "mill-1"),
    "south": ("press-3", "lathe-2", "lathe-3", "mill-2"),
    "west": ("saw-1", "saw-2", "pump-1", "pump-2"),
}
"""Machines by their line."""
WINDOWS: Final = RATE / SAMPLES
"""Windows a second of each machine, one behind the other."""
WORST: Final = 1.2
"""The severity that a fault reaches."""


class Failing(NamedTuple):
    """A fault that a machine will develop. Times are in seconds since the beginning."""

    machine: str
    fault: Fault
    begins: float
    grows: float
    """Seconds in which the severity grows from 0 to 1."""


def plan(seconds: float) -> list[Failing]:
    """The faults of a run of this length: four, one after the other, in the second fifth and later."""
    faults: tuple[tuple[str, Fault], ...] = (
        ("lathe-2", "bearing"),
        ("press-1", "imbalance"),
        ("pump-2", "overheating"),
        ("mill-1", "looseness"),
    )
    return [
        Failing(machine, fault, seconds * (0.2 + 0.12 * number), seconds * 0.2)
        for number, (machine, fault) in enumerate(faults)
    ]


class Hall:
    """Twelve machines on three lines; `faults` are those that they develop."""

    def __init__(self, faults: Sequence[Failing]) -> None:
        self.places = [(line, name) for line, names in LINES.items() for name in names]
        """Line and name of each machine, in order."""
        self._machines = [Machine(4 + 1000 * number) for number in range(len(self.places))]
        self._faults = {failing.machine: failing for failing in faults}

    def window(self, machine: int, elapsed: float) -> Window:
        """The measurement of the machine's sensor, `elapsed` seconds after the beginning."""
        simulated, failing = self._machines[machine], self._faults.get(self.places[machine][1])
        if failing is not None and elapsed >= failing.begins:
            simulated.fault = failing.fault
            simulated.severity = min((elapsed - failing.begins) / failing.grows, WORST)
        return simulated.window()


def topic(line: str, machine: str) -> str:
    """The topic that a machine publishes to."""
    return f"factory/{line}/{machine}/vibration"


def payload(window: Window, number: int) -> bytes:
    """The payload of a sensor's message, as JSON."""
    message = {"window": number, "temperature": window.temperature, "vibration": window.vibration.tolist()}
    return json.dumps(message, separators=(",", ":")).encode()
