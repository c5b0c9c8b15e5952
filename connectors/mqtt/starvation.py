"""`Starvation`: tells a broker that holds back until something is acknowledged from one that has nothing to send."""

from __future__ import annotations

import time

_SURE = 0.002
"""Seconds of silence that are enough where the broker held back before."""
_FIRST = 0.02
"""Seconds of silence that are enough as long as nothing is known of it."""
_LONGEST = 1.0
"""Seconds of silence that are enough in any case."""
_PROMPT = 0.005
"""Seconds, and a round trip, within which a broker that held back sends again after an acknowledgement."""
_HITS = 2
"""How often in a row it has to have done so to be believed to hold back."""


class Starvation:
    """The window of a broker is neither what was asked for nor always the same: mosquitto exceeds it, others grow
    theirs, and 3.1.1 does not tell it. So it cannot be reckoned: what counts is that messages are unacknowledged and
    nothing comes. How long that has to last is learned from what followed the last times: if messages came at once
    after an acknowledgement, the broker had held them back, and little silence is enough the next time; if none came,
    there were none, and it takes twice as long.
    """

    def __init__(self) -> None:
        now = time.monotonic()
        self._heard_at = now
        self._expected_at = now
        self._stood_at = 0
        self._answer_until = 0.0
        self._full_at = 0
        self._hits = 0
        self._misses = 0

    def heard(self) -> None:
        """Messages came."""
        self._heard_at = now = time.monotonic()
        if not self._answer_until:
            return
        if now <= self._answer_until:
            self._hits, self._misses = self._hits + 1, 0
            self._full_at = self._stood_at
        else:
            self._hits, self._misses = 0, self._misses + 1
        self._answer_until, self._stood_at = 0.0, 0

    def acknowledged(self, round_trip: float) -> None:
        """Some were acknowledged; what is sent in answer needs the time of a round trip, in seconds."""
        now = time.monotonic()
        self._expected_at = now + round_trip
        if self._stood_at and not self._answer_until:
            self._answer_until = now + round_trip + _PROMPT

    @property
    def window(self) -> float:
        """How many messages the broker leaves unacknowledged, infinite as long as that was not learned."""
        return self._full_at if self._hits >= _HITS else float("inf")

    def rest(self, unacknowledged: int) -> float:
        """Seconds of silence that are missing until it is sure; infinite where nothing is unacknowledged."""
        if not unacknowledged:
            return float("inf")
        if self._hits >= _HITS and unacknowledged >= self._full_at:
            enough = _SURE
        else:
            enough = min(_LONGEST, _FIRST * 2.0 ** min(self._misses, 10))
        return max(0.0, max(self._heard_at, self._expected_at) + enough - time.monotonic())

    def stands(self, unacknowledged: int) -> bool:
        """Whether the broker is believed to hold back."""
        if self.rest(unacknowledged) > 0:
            return False
        self._stood_at = unacknowledged
        return True
