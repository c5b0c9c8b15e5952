"""`Presence`: whether a sink's topic exists. Topics are deleted while services write to them, and created again."""

from __future__ import annotations

import time
from collections.abc import Callable

from confluent_kafka import KafkaException

_EVERY = 0.5
_PATIENCE = 0.2


class Presence:
    """Asks the brokers twice a second for a topic that the client found missing, until it exists again.

    `ask(seconds)` returns whether it exists, and raises `KafkaException` without an answer in this time.
    """

    def __init__(self, ask: Callable[[float], bool]) -> None:
        self._ask = ask
        self._next = 0.0
        self.gone_since: float | None = None
        """Since when the topic is missing (seconds on `time.monotonic`); `None`: it exists, as far as known."""

    def missed(self) -> None:
        """The client reports that the topic is missing. From any thread."""
        if self.gone_since is None:
            self.gone_since = time.monotonic()

    def check(self) -> None:
        """Ask the brokers if there is reason to, waiting at most 0.2 s."""
        now = time.monotonic()
        if self.gone_since is None or now < self._next:
            return
        self._next = now + _EVERY
        try:
            if self._ask(_PATIENCE):
                self.gone_since = None
        except KafkaException:
            # Without an answer from the brokers nothing is known about the topic.
            return
