"""When to give the broker a sign of life, and when the broker has given none for too long."""

from __future__ import annotations

import time

ASK_AFTER = 0.75
"""Parts of the keep-alive without a packet sent, or received, after which the broker is asked for a sign of life."""
PATIENCE = 0.5
"""Parts of the keep-alive within which it has to give one: so a dead link is found within 1.25 of it."""
STUCK_AFTER = 1.5
"""Parts of the keep-alive after which a broker that takes no bytes, though some wait for it, is taken for dead."""


class KeepAlive:
    """The clocks of one connection, on `time.monotonic`. `interval` is the keep-alive in seconds."""

    def __init__(self, interval: float) -> None:
        now = time.monotonic()
        self.interval = interval
        self.heard_at = now
        """When bytes came last."""
        self.sent_at = now
        """When bytes were last given to be sent."""
        self.asked_at = now
        """When the broker was last asked."""
        self._reading = True
        self._reading_since = now
        self._unsent = 0
        self._unsent_since = now

    def due(self, now: float) -> bool:
        """Whether the broker has to be asked."""
        after = ASK_AFTER * self.interval
        return now - self.sent_at >= after or now - max(self.heard_at, self.asked_at) >= after

    def read(self, now: float, reading: bool) -> None:
        """Whether anything is read at present: who does not read cannot see answers."""
        if reading and not self._reading:
            self._reading_since = now
        self._reading = reading

    def silent(self, now: float) -> bool:
        """Whether it was asked and has been silent for too long: to be called when there was nothing to read."""
        since = max(self.heard_at, self._reading_since)
        return self._reading and self.asked_at > self.heard_at and now - max(since, self.asked_at) >= self._patience

    def stuck(self, now: float, unsent: int) -> bool:
        """Whether so many bytes have waited to be sent for too long, and none of them has left."""
        if not unsent or unsent != self._unsent:
            self._unsent, self._unsent_since = unsent, now
            return False
        return now - self._unsent_since >= STUCK_AFTER * self.interval

    def longest_wait(self, now: float) -> float:
        """Seconds until something may be due."""
        ask = min(self.sent_at, max(self.heard_at, self.asked_at)) + ASK_AFTER * self.interval
        give_up = max(self.heard_at, self.asked_at) + self._patience
        return max(0.0, min(ask, give_up if self.asked_at > self.heard_at else ask) - now)

    @property
    def _patience(self) -> float:
        return PATIENCE * self.interval
