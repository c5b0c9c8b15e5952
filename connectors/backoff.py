"""How long to wait before connecting again."""

from __future__ import annotations

import random


class Backoff:
    """Waits that grow from `least` to `most` seconds, each a random part of its bound ("full jitter").

    So the many clients of a broker that was away do not all reconnect at the same moment. It only computes the wait:
    its callers have other work meanwhile, or have to be woken, so a retry library, which sleeps, does not fit.
    """

    def __init__(self, least: float = 0.25, most: float = 30.0) -> None:
        self._least = least
        self._most = most
        self.failures = 0
        """The number of failed attempts since the last `reset`."""

    def wait(self) -> float:
        """Seconds to wait after one more failure."""
        bound = min(self._most, self._least * 2.0 ** min(self.failures, 30))
        self.failures += 1
        return random.uniform(0.0, bound)  # noqa: S311 - no secret hangs on it

    def longest(self) -> float:
        """Seconds to wait, half of `most` at least, after a failure that more attempts make worse: a refused login."""
        self.failures += 1
        return random.uniform(self._most / 2, self._most)  # noqa: S311 - no secret hangs on it

    def reset(self) -> None:
        """The connection holds: begin anew with short waits."""
        self.failures = 0
