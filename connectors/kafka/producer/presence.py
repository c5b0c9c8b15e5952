"""`Presence`: whether a sink's topic exists. Topics are deleted while services write to them, and created again."""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import Enum

from confluent_kafka import KafkaException

_EVERY = 0.5
_PATIENCE = 0.2


class TopicState(Enum):
    """The state of a topic, by an answer of the brokers."""

    READY = "all its partitions have leaders"
    WITHOUT_LEADER = "it exists, and a partition has no leader"
    GONE = "it does not exist"


class Presence:
    """Asks the brokers twice a second for a topic that is missing, or may be, until it is ready for messages.

    `ask(seconds)` returns what the brokers answered, and raises `KafkaException` without an answer in this time.
    """

    def __init__(self, ask: Callable[[float], TopicState]) -> None:
        self._ask = ask
        self._next = 0.0
        self._suspected = False
        self.gone_since: float | None = None
        """Since when the topic is missing (seconds on `time.monotonic`); `None`: it exists, as far as known."""

    def missed(self) -> None:
        """The client reports that the topic is missing. From any thread."""
        if self.gone_since is None:
            self.gone_since = time.monotonic()

    def suspect(self) -> None:
        """Messages for the topic timed out: it may be missing, or only slow. From any thread."""
        self._suspected = True

    def check(self) -> None:
        """Ask the brokers if there is reason to, waiting at most 0.2 s."""
        now = time.monotonic()
        if (self.gone_since is None and not self._suspected) or now < self._next:
            return
        self._next = now + _EVERY
        try:
            state = self._ask(_PATIENCE)
        except KafkaException:
            # Without an answer the state of the topic stays unknown.
            return
        self._suspected = False
        if state is TopicState.READY:
            self.gone_since = None
        elif state is TopicState.GONE:
            self.missed()
