"""`Room`: how many payload bytes may be under way at a time, over all sources of a service."""

from __future__ import annotations

import threading


class Room:
    """A bound on bytes between arrival and confirmation.

    Intake threads `enter` with a batch, the run thread says by `leave` what is done with. One batch that is larger
    than the whole room may enter when the room is empty.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._taken = 0
        self._waiting = 0
        self._changed = threading.Condition()

    @property
    def taken(self) -> int:
        """Bytes inside."""
        return self._taken

    @property
    def is_full(self) -> bool:
        """Whether somebody waits for room."""
        return self._waiting > 0

    @property
    def is_short(self) -> bool:
        """Whether somebody waits for room, or soon will: half of it is taken."""
        return self._waiting > 0 or self._taken * 2 > self.limit

    def enter(self, size: int, timeout: float) -> bool:
        """Take `size` bytes of room, waiting for it at most `timeout` seconds; whether there was room."""
        with self._changed:
            if not self._fits(size):
                self._waiting += 1
                self._changed.wait_for(lambda: self._fits(size), timeout)
                self._waiting -= 1
            if not self._fits(size):
                return False
            self._taken += size
            return True

    def leave(self, size: int) -> None:
        """So many bytes are done with."""
        with self._changed:
            self._taken -= size
            if self._waiting:
                self._changed.notify_all()

    def _fits(self, size: int) -> bool:
        return self._taken == 0 or self._taken + size <= self.limit
