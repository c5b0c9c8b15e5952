"""`KeepAlive`: when to send a ping to the broker, and when the broker has been silent for too long."""

from __future__ import annotations

import time
from collections import deque

ASK_AFTER = 0.75
"""Parts of the keep-alive without a packet sent, or received, after which a ping is sent."""
PATIENCE = 0.5
"""Parts of the keep-alive within which the broker has to answer: so a dead connection is found within 1.25 of it."""
STUCK_AFTER = 1.5
"""Parts of the keep-alive after which a broker that accepts no bytes, though some wait to be sent, counts as dead."""


class KeepAlive:
    """The pings of a session, and the clocks of its present connection, on `time.monotonic`."""

    def __init__(self, interval: float) -> None:
        self._asked = self._answered = 0
        self._pings: deque[float] = deque()
        self.begin(interval)

    def begin(self, interval: float) -> None:
        """A connection begins; `interval` is its keep-alive in seconds."""
        now = time.monotonic()
        # Pings of the last connection are not answered any more.
        self._answered = self._asked
        self._pings.clear()
        self.interval = interval
        self.heard_at = now
        """When bytes came last."""
        self.sent_at = now
        """When bytes were last sent."""
        self.asked_at = now
        """When the last ping was sent."""
        self._reading = True
        self._reading_since = now
        self._unsent = 0
        self._unsent_since = now

    def ask(self, *, sent: bool) -> int:
        """The number of the next ping, which is `sent` now, or lost."""
        self._asked += 1
        if sent:
            self.asked_at = now = time.monotonic()
            self._pings.append(now)
        return self._asked

    def answer(self) -> float:
        """A ping was answered. Returns the seconds that it took."""
        if self._answered < self._asked:
            self._answered += 1
        return time.monotonic() - self._pings.popleft() if self._pings else float("inf")

    def answered(self, number: int) -> bool:
        """Whether this ping was answered."""
        return self._answered >= number

    def due(self, now: float) -> bool:
        """Whether a ping has to be sent."""
        after = ASK_AFTER * self.interval
        return now - self.sent_at >= after or now - max(self.heard_at, self.asked_at) >= after

    def read(self, now: float, reading: bool) -> None:
        """Note whether the connection is read at present: otherwise no answer can be seen."""
        if reading and not self._reading:
            self._reading_since = now
        self._reading = reading

    def silent(self, now: float) -> bool:
        """Whether the broker has left a ping unanswered for too long: to be called when there was nothing to read."""
        since = max(self.heard_at, self._reading_since)
        return self._reading and self.asked_at > self.heard_at and now - max(since, self.asked_at) >= self._patience

    def stuck(self, now: float, unsent: int) -> bool:
        """Whether `unsent` bytes have waited for too long, without any of them being sent."""
        if not unsent or unsent != self._unsent:
            self._unsent, self._unsent_since = unsent, now
            return False
        return now - self._unsent_since >= STUCK_AFTER * self.interval

    def longest_wait(self, now: float) -> float:
        """Seconds until the next ping or timeout."""
        ask = min(self.sent_at, max(self.heard_at, self.asked_at)) + ASK_AFTER * self.interval
        give_up = max(self.heard_at, self.asked_at) + self._patience
        return max(0.0, min(ask, give_up if self.asked_at > self.heard_at else ask) - now)

    @property
    def _patience(self) -> float:
        return PATIENCE * self.interval
