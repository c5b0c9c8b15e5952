"""Simulated machines: the measurements of a sensor on their housing, of sound machines and of machines with faults.

A machine turns at about 47 to 50 revolutions a second, a little slower under load, as motors on the mains do. Its
vibration is a sum of harmonics of that speed and of noise, in mm/s; its temperature follows its load. The numbers are
made up, and plausible: a model for real machines has to be trained on their own data.
"""

from __future__ import annotations

import math
from typing import Final, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Fault = Literal["imbalance", "looseness", "bearing", "overheating"]

FAULTS: Final[tuple[Fault, ...]] = get_args(Fault)
RATE: Final = 2000.0
"""Samples a second."""
SAMPLES: Final = 128
"""Samples of a window: 64 ms, three revolutions."""

_HARMONICS: Final = np.array([1.0, 2.0, 3.0, 4.0])
_GAINS: Final = np.array([1.0, 0.45, 0.25, 0.12])
"""Amplitudes of the harmonics in mm/s under full load, of a median machine."""
_NOISE: Final = 0.12
_SPEED: Final = 50.0
_RINGING: Final = 640.0
"""Hz at which a housing rings when a damaged bearing hits it."""
_HITS: Final = 3.6
"""Hits of a damaged bearing in a revolution."""
_TIMES: Final = np.arange(SAMPLES) / RATE


class Window(NamedTuple):
    """One message of a sensor."""

    vibration: Floats
    """mm/s, `float64 (128,)`, rounded to a thousandth as sensors do."""
    temperature: float
    """Degrees Celsius."""


class Machine:
    """A machine with a sensor. Machines with different `seed`s differ as the machines of a hall do."""

    def __init__(self, seed: int) -> None:
        self._random = random = np.random.default_rng(seed)
        self._gains = _GAINS * random.lognormal(0.0, 0.12, len(_GAINS))
        self._offsets = random.uniform(0.0, 2.0 * math.pi, len(_GAINS))
        self._noise = _NOISE * random.lognormal(0.0, 0.1)
        self._ambient = random.uniform(18.0, 24.0)
        self._load = random.uniform(0.4, 1.0)
        self.fault: Fault | None = None
        self.severity = 0.0
        """The severity of the fault: at 0 there is none, at 1 a maintainer would stop the machine."""

    def window(self) -> Window:
        """The next 64 ms. The load wanders between 0.3 and 1."""
        random = self._random
        self._load = min(max(self._load + random.normal(0.0, 0.02), 0.3), 1.0)
        gains = self._gains * (0.5 + 0.5 * self._load)
        if self.fault == "imbalance":
            gains = gains * (1.0 + self.severity * np.array([3.0, 0.3, 0.1, 0.0]))
        turn = 2.0 * math.pi * self._speed() * (_TIMES + random.uniform(0.0, 1.0))
        signal = np.sin(np.outer(turn, _HARMONICS) + self._offsets) @ gains
        if self.fault == "looseness":
            halves = np.outer(turn, np.array([0.5, 1.5, 2.5, 3.5, 4.5, 5.5]))
            signal += self.severity * np.sin(halves) @ np.array([0.7, 0.6, 0.5, 0.4, 0.4, 0.3])
        if self.fault == "bearing":
            signal += 1.6 * self.severity * self._hits(turn)
        signal += random.normal(0.0, self._noise, SAMPLES)
        temperature = self._ambient + 28.0 * self._load + random.normal(0.0, 0.5)
        if self.fault == "overheating":
            temperature += 35.0 * self.severity
        return Window(np.round(signal, 3), round(temperature, 2))

    def _speed(self) -> float:
        return _SPEED * (1.0 - 0.05 * self._load)

    def _hits(self, turn: Floats) -> Floats:
        since = (turn * _HITS) % (2.0 * math.pi) / (2.0 * math.pi * self._speed() * _HITS)
        ringing: Floats = np.exp(-since / 0.0025) * np.sin(2.0 * math.pi * _RINGING * since)
        return ringing


def windows(machine: Machine, count: int) -> tuple[Floats, Floats]:
    """`count` windows of a machine: vibration `(count, 128)` and temperature `(count,)`."""
    measured = [machine.window() for _ in range(count)]
    return np.array([window.vibration for window in measured]), np.array([window.temperature for window in measured])
