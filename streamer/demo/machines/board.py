"""The board: the windows, scores and alerts of every machine."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from streamer.demo.machines.hall import Failing
from streamer.demo.machines.simulation import Fault, Window

Floats = npt.NDArray[np.float64]

POINTS = 24
"""Points of a machine's curve."""
POINT = 0.6
"""Seconds that each point stands for."""
RECENT = 8
"""Number of latest scores whose median is shown."""


@dataclass(frozen=True, slots=True)
class MachineState:
    """The state of a machine at one moment."""

    line: str
    name: str
    vibration: list[float]
    """Root mean squares, mm/s, the newest last."""
    temperature: float
    score: float
    """Median of the last `RECENT` scores; NaN without any."""
    alert: bool
    """Whether there was an alert, and no message since that the machine is well again."""
    fault: Fault | None
    """The fault that the machine has now in the simulation."""


@dataclass(frozen=True, slots=True)
class FaultFinding:
    """A fault, and when it was found. Times are in seconds since the beginning."""

    machine: str
    fault: Fault
    began: float
    after: float | None
    """Seconds from the beginning of the fault to its first alert; `None`: there was no alert."""


@dataclass(frozen=True, slots=True)
class Count:
    """Windows and alerts of all machines together."""

    sent: int
    scored: int
    alerts: int
    false_alerts: int
    """Alerts of machines that had no fault yet."""
    p50: float
    p99: float
    """Seconds from publishing a window to the arrival of its score; NaN without any."""


class Board:
    """The windows, scores and alerts of all machines. `capacity`: the most windows that are sent in all.

    Written by the threads of gateway and viewer, read by any thread.
    """

    def __init__(self, places: Sequence[tuple[str, str]], faults: Sequence[Failing], capacity: int) -> None:
        self._places = places
        self._numbers = {name: number for number, (_, name) in enumerate(places)}
        self._faults = {failing.machine: failing for failing in faults}
        self._lock = threading.Lock()
        self._began = 0.0
        self._sent = 0
        turns = -(-capacity // len(places))
        self._sent_at = np.full((turns, len(places)), np.nan)
        self._late = np.full((turns, len(places)), np.nan)
        self._level = np.full((turns, len(places)), np.nan)
        self._scores = np.full((turns, len(places)), np.nan)
        self._temperatures = [float("nan")] * len(places)
        self._alerted = np.zeros((turns, len(places)), np.bool_)
        self._first_alert: dict[str, float] = {}
        self._alerting: set[str] = set()
        self._false_alerts = 0

    def sending(self, number: int, window: Window) -> None:
        """Note that window `number // machines` of machine `number % machines` is published now."""
        turn, machine = divmod(number, len(self._places))
        now = time.monotonic()
        with self._lock:
            self._began = self._began or now
            self._sent = number + 1
            self._sent_at[turn, machine] = now
            self._level[turn, machine] = np.sqrt(np.mean(window.vibration**2))
            self._temperatures[machine] = window.temperature

    def scored(self, machine: str, turn: int, score: float) -> None:
        """Note the score of a window. A second one, or one of a window that was never sent, does not count."""
        now = time.monotonic()
        with self._lock:
            number = self._of(machine, turn)
            if number is not None and np.isnan(self._scores[turn, number]):
                self._scores[turn, number] = score
                self._late[turn, number] = now - self._sent_at[turn, number]

    def recovered(self, machine: str) -> None:
        """Note that a machine is well again."""
        with self._lock:
            self._alerting.discard(machine)

    def alerted(self, machine: str, turn: int) -> None:
        """Note an alert, by a window. A second one by it, or one by a window that was never sent, does not count."""
        now = time.monotonic()
        with self._lock:
            number = self._of(machine, turn)
            if number is None or self._alerted[turn, number]:
                return
            self._alerted[turn, number] = True
            self._alerting.add(machine)
            failing = self._faults.get(machine)
            if failing is None or self._sent_at[turn, number] - self._began < failing.begins:
                self._false_alerts += 1
            else:
                self._first_alert.setdefault(machine, now)

    def count(self) -> Count:
        """Windows and alerts of all machines together, up to now."""
        with self._lock:
            late = self._late[~np.isnan(self._late)]
            p50, p99 = np.percentile(late, (50, 99)).tolist() if len(late) else (float("nan"), float("nan"))
            return Count(self._sent, len(late), int(self._alerted.sum()), self._false_alerts, p50, p99)

    def machines(self) -> list[MachineState]:
        """The state of every machine, in order."""
        with self._lock:
            elapsed = time.monotonic() - self._began if self._began else 0.0
            return [self._state(number, elapsed) for number in range(len(self._places))]

    def findings(self) -> list[FaultFinding]:
        """The faults that have begun, in the order of their beginnings."""
        with self._lock:
            elapsed = time.monotonic() - self._began if self._began else 0.0
            begun = [failing for failing in self._faults.values() if failing.begins <= elapsed]
            return [
                FaultFinding(failing.machine, failing.fault, failing.begins, self._after(failing))
                for failing in sorted(begun, key=lambda failing: failing.begins)
            ]

    def _of(self, machine: str, turn: int) -> int | None:
        number = self._numbers.get(machine)
        if number is None or not 0 <= turn < len(self._sent_at) or np.isnan(self._sent_at[turn, number]):
            return None
        return number

    def _after(self, failing: Failing) -> float | None:
        first = self._first_alert.get(failing.machine)
        return None if first is None else first - self._began - failing.begins

    def _state(self, number: int, elapsed: float) -> MachineState:
        line, name = self._places[number]
        failing = self._faults.get(name)
        known = self._scores[:, number][~np.isnan(self._scores[:, number])][-RECENT:]
        return MachineState(
            line,
            name,
            self._curve(number, elapsed),
            self._temperatures[number],
            float(np.median(known)) if len(known) else float("nan"),
            name in self._alerting,
            failing.fault if failing is not None and elapsed >= failing.begins else None,
        )

    def _curve(self, number: int, elapsed: float) -> list[float]:
        at = self._sent_at[:, number] - self._began
        sent = ~np.isnan(at)
        points = (at[sent] / POINT).astype(np.int64)
        levels = self._level[:, number][sent]
        last = int(elapsed / POINT)
        groups = [levels[points == point] for point in range(max(last - POINTS + 1, 0), last + 1)]
        return [float(group.mean()) for group in groups if len(group)]
