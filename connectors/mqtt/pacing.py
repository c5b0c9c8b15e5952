"""How a broker sends messages: whether it waits for acknowledgements, and how long messages should gather.

`Starvation` and `Gathering` learn it from the times at which messages come.
"""

from __future__ import annotations

import time
from typing import Final

_SURE = 0.002
"""Seconds of silence that are enough if the broker held messages back before."""
_FIRST = 0.02
"""Seconds of silence that are enough as long as nothing is known about the broker."""
_LONGEST = 1.0
"""Seconds of silence that are enough in any case."""
_PROMPT = 0.005
"""Seconds, besides a round trip, within which a broker that held messages back sends them after an acknowledgement."""
_HITS = 2
"""How often in a row it has to do so until it counts as holding messages back."""
LONGEST: Final = 0.01
"""The longest time that messages gather, in seconds."""
_SHORTEST: Final = 0.001
"""The shortest time worth waiting, in seconds: the resolution of the system's waits."""
_FEWEST: Final = 10
"""The number of messages that have to be expected meanwhile."""
_SPAN: Final = 0.005
"""Seconds over which messages are counted."""


class Starvation:
    """A broker's window is not always the requested one: mosquitto exceeds it, others grow theirs, and 3.1.1 has none.
    So starvation is judged by silence while messages are unacknowledged. How long the silence has to last is learned:
    if messages came at once after an acknowledgement, the broker had held them back, and a short silence is enough the
    next time; if none came, there were none, and it takes twice as long.
    """

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """A connection begins: nothing is known about its broker."""
        now = time.monotonic()
        self._heard_at = now
        self._expected_at = now
        self._stood_at = 0
        self._answer_until = 0.0
        self._full_at = 0
        self._hits = 0
        self._misses = 0

    def heard(self) -> None:
        """Note the arrival of messages."""
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
        """Note acknowledgements. The next messages need `round_trip` seconds at least."""
        now = time.monotonic()
        self._expected_at = now + round_trip
        if self._stood_at and not self._answer_until:
            self._answer_until = now + round_trip + _PROMPT

    @property
    def window(self) -> float:
        """How many unacknowledged messages the broker allows; infinite as long as that was not learned."""
        return self._full_at if self._hits >= _HITS else float("inf")

    def rest(self, unacknowledged: int) -> float:
        """Seconds of silence that are still missing; infinite if no message is unacknowledged."""
        if not unacknowledged:
            return float("inf")
        if self._hits >= _HITS and unacknowledged >= self._full_at:
            enough = _SURE
        else:
            enough = min(_LONGEST, _FIRST * 2.0 ** min(self._misses, 10))
        return max(0.0, max(self._heard_at, self._expected_at) + enough - time.monotonic())

    def stands(self, unacknowledged: int) -> bool:
        """Whether the broker counts as holding messages back."""
        if self.rest(unacknowledged) > 0:
            return False
        self._stood_at = unacknowledged
        return True


class Gathering:
    """A broker sends messages one by one, and one wake-up costs as much as reading fifty. A poll that goes on waiting
    for more messages in any case therefore reads them some milliseconds later, many at a time.

    No record is delivered later by that, unless the batch becomes full meanwhile: so the pause is the time in which
    half of the missing messages come, at the present rate.
    """

    def __init__(self) -> None:
        self._since = time.monotonic()
        self._count = 0
        self._rate = 0.0
        self._fresh = False

    def came(self, count: int) -> None:
        """Note that this many messages came just now."""
        self._fresh = True
        self._count += count
        now = time.monotonic()
        if now - self._since >= _SPAN:
            self._rate = self._count / (now - self._since)
            self._since, self._count = now, 0

    @property
    def worth_it(self) -> bool:
        """Whether messages come so often that some would gather."""
        return self._rate * LONGEST >= _FEWEST

    def pause(self, missing: float) -> float:
        """Seconds to wait, 0 if that is not worth it; `missing` is how many more messages are wanted and may come."""
        if not self._fresh or not self.worth_it:
            return 0.0
        self._fresh = False
        pause = min(LONGEST, missing / 2 / self._rate)
        return pause if pause >= _SHORTEST and pause * self._rate >= _FEWEST else 0.0
