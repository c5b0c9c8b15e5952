"""`ByteBudget`: how many payload bytes may be between arrival and confirmation, over all sources of a service."""

from __future__ import annotations

import threading


class ByteBudget:
    """A limit on payload bytes in memory.

    Intake threads `reserve` the bytes of a batch before they hand it over; the run thread gives them back by `release`
    when its results are confirmed. A batch that is larger than the limit gets its bytes when no others are reserved.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._reserved = 0
        self._waiting = 0
        self._changed = threading.Condition()

    @property
    def reserved(self) -> int:
        """Bytes that are reserved at present."""
        return self._reserved

    @property
    def is_full(self) -> bool:
        """Whether a thread waits for bytes."""
        return self._waiting > 0

    @property
    def is_short(self) -> bool:
        """Whether a thread waits for bytes, or soon will: more than half of them are reserved."""
        return self._waiting > 0 or self._reserved * 2 > self.limit

    def reserve(self, size: int, timeout: float) -> bool:
        """Reserve `size` bytes, waiting for them at most `timeout` seconds; whether that succeeded."""
        with self._changed:
            if not self._fits(size):
                self._waiting += 1
                self._changed.wait_for(lambda: self._fits(size), timeout)
                self._waiting -= 1
            if not self._fits(size):
                return False
            self._reserved += size
            return True

    def release(self, size: int) -> None:
        """Give `size` reserved bytes back."""
        with self._changed:
            self._reserved -= size
            if self._waiting:
                self._changed.notify_all()

    def _fits(self, size: int) -> bool:
        return self._reserved == 0 or self._reserved + size <= self.limit
