"""`Silence`: which keys nothing came for, for a while in which something could have come."""

from __future__ import annotations

import math

import numpy as np

from pipelines.data.columns import Rows
from pipelines.runners.state.keytable import grown
from pipelines.runners.state.tickclock import TickClock


class Silence:
    """The time since the last record of each key, by its code, counted in ticks.

    It counts from the first tick behind the record, and to the time by which all records had come that were run: so no
    key is due too early, whose next record waits.
    """

    def __init__(self, seconds: float) -> None:
        """`seconds`: how long a key that is due has been silent."""
        self._seconds = seconds
        self._heard = np.zeros(0, np.bool_)
        """Of which keys records came since the last tick."""
        self._since = np.zeros(0)
        self._clock = TickClock()

    def heard(self, codes: Rows, capacity: int) -> None:
        """Records of these keys came; `capacity` is that of the table of keys."""
        if len(self._since) < capacity:
            self._heard, self._since = grown(self._heard, capacity), grown(self._since, capacity)
        self._heard[codes] = True

    def due(self, now: float, codes: Rows, caught_up: float = math.inf) -> Rows:
        """Those of the keys that have been silent for long at `now`, in seconds of a monotonic clock.

        All records that had come by `caught_up` were run; infinite: none waits.
        """
        self._clock.tick(now, caught_up)
        self._since[self._heard] = self._clock.seconds
        self._heard[:] = False
        due: Rows = codes[self._clock.caught_up - self._since[codes] >= self._seconds] if len(codes) else codes
        return due
