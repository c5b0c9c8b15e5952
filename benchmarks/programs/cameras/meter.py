"""`Meter`: the CPU of a program for each picture, once it runs evenly. Imports nothing that a program may lack."""

from __future__ import annotations

import json
import time

WARM = 30
"""Pictures before measuring begins."""


class Meter:
    """Counts pictures; CPU is that of the whole process, all threads, user and system."""

    def __init__(self) -> None:
        self.count = 0
        self._began = (0, 0.0, 0.0)

    def saw(self, count: int) -> None:
        """So many pictures are done, counted from the start."""
        if self.count < WARM <= count:
            self._began = (count, time.process_time(), time.perf_counter())
        self.count = count

    def tell(self) -> None:
        """Print the measurement."""
        count, cpu, wall = self._began
        done = self.count - count
        told = {
            "pictures": self.count,
            "cpu_us": (time.process_time() - cpu) / done * 1e6,
            "wall_us": (time.perf_counter() - wall) / done * 1e6,
        }
        print(json.dumps(told), flush=True)
