"""`Reachability`: whether brokers can be reached. librdkafka reports when they are gone, not when they are back."""

from __future__ import annotations

import time
from collections.abc import Callable

from confluent_kafka import KafkaException

_EVERY = 1.0
_PATIENCE = 0.2


class Reachability:
    """Asks the brokers once a second while the client reports that they are away.

    `ask(seconds)` sends a cheap request, and raises `KafkaException` without an answer in this time.
    """

    def __init__(self, ask: Callable[[float], object]) -> None:
        self._ask = ask
        self._suspicion: str | None = None
        self._last_words = ""
        self._next = 0.0
        self.reason: str | None = None
        """Why they cannot be reached; `None`: they can, as far as known."""

    def heard(self, text: str) -> None:
        """The client reports an error of one broker: it becomes the reason if no broker can be reached."""
        self._last_words = text

    def suspect(self, text: str) -> None:
        """The client reports that all brokers are away; it counts once a request has failed too. From any thread."""
        self._suspicion = text

    @property
    def suspected(self) -> bool:
        """Whether the brokers are, or may be, away."""
        return self._suspicion is not None or self.reason is not None

    def check(self) -> bool:
        """Ask the brokers if they are suspected, waiting at most 0.2 s. Returns whether `reason` came or went."""
        if not self.suspected:
            return False
        now = time.monotonic()
        if now < self._next:
            return False
        self._next = now + _EVERY
        suspicion, self._suspicion = self._suspicion, None
        before = self.reason
        try:
            self._ask(_PATIENCE)
            self.reason, self._last_words = None, ""
        except KafkaException:
            self.reason = before or self._last_words or suspicion
        return (before is None) != (self.reason is None)

    def answered(self) -> bool:
        """Note that the brokers answered. Returns whether `reason` went."""
        if self.reason is None:
            return False
        self.reason, self._suspicion, self._last_words = None, None, ""
        return True
