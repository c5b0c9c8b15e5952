"""`RoundSizer`: learns how many records are best run together, where `max_records` is not given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

CLOSE_TO_BEST: Final = 1.1
"""The smallest size is chosen whose time per record is at most this many times the best one."""
TRIES: Final = 3
"""Batches of one size that are measured before the next size is tried."""
_LAST: Final = 8
"""Measurements of a size that are kept. The fastest of them counts: others are slower mostly for other reasons."""
AGAIN: Final = 1000
"""Batches after which other sizes are tried again, as a machine's load and a model's work change."""
IN_VAIN: Final = 2
"""Larger sizes that may fail to be faster before no more are tried."""


class RoundSizer:
    """The size of rounds of one service: the smallest whose time per record is within 10 % of the best.

    On a processor without an accelerator that is mostly 1: a batch of 4 takes four times as long, and the first of its
    records waits for the last. Sizes are tried in powers of two, up to the number of lanes, as long as they are
    faster. The run thread calls `ran`, intake threads read `size`.
    """

    def __init__(self) -> None:
        # Never changed, only replaced, as two threads look at it.
        self._times: dict[int, tuple[float, ...]] = {}
        self._ran = 0

    def forget(self) -> None:
        """Nothing is known about sizes any more, as other models run them."""
        self._times, self._ran = {}, 0

    def ran(self, rows: int, seconds: float) -> None:
        """Note that a batch of so many rows took `seconds`."""
        if not rows:
            return
        self._ran += 1
        times = {**self._times, rows: (*self._times.get(rows, ())[1 - _LAST :], seconds / rows)}
        if self._ran % AGAIN == 0:
            best = _chosen(times, sorted(times))
            times = {best: times[best]}
        self._times = times

    def size(self, lanes: int) -> int:
        """How many records the next batch has at most, if there are so many lanes."""
        measured = self._times
        known: list[int] = []
        in_vain = 0
        best = float("inf")
        size = 1
        while True:
            times = measured.get(size, ())
            if len(times) < TRIES:
                return size
            known.append(size)
            in_vain = in_vain + 1 if min(times) * CLOSE_TO_BEST > best else 0
            best = min(best, *times)
            if size >= lanes or in_vain >= IN_VAIN:
                return _chosen(measured, known)
            size = min(2 * size, lanes)


def _chosen(times: Mapping[int, tuple[float, ...]], sizes: Sequence[int]) -> int:
    fastest = {size: min(times[size]) for size in sizes}
    best = min(fastest.values())
    return next(size for size in sizes if fastest[size] <= CLOSE_TO_BEST * best)
