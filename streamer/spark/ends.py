"""The ends of a service on Spark, which reads and writes in its place: where records are from and messages stay."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

import numpy as np

from connectors.kafka.config import KafkaSinkConfig
from connectors.kafka.producer.messagesizes import message_sizes
from connectors.records import Ints, Lane, Messages, Records
from connectors.sink import Lost, Refused, Sink
from connectors.source import Event, Replays, Settle, Source
from pipelines.errors import ConnectorError, StreamerError

OVERHEAD: Final = 100
"""Bytes that a message takes beside its payload, key and headers, at most."""
_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")


class GivenSource(Source):
    """A source whose records are given by somebody else, and delivered again by that: it is never polled."""

    replays = Replays.OFFSET

    def __init__(self, name: str) -> None:
        self.name = name

    def open(self, settle: Settle | None = None, *, commits: bool = True) -> None:
        return

    def poll(self, max_records: int, max_bytes: int, timeout: float) -> Records:
        return Records.empty(self.name)

    def acknowledge(self, positions: Mapping[Lane, int], *, wait: bool = False) -> None:
        return

    def rewind(self, lanes: Iterable[Lane]) -> None:
        return

    def events(self) -> list[Event]:
        return []

    def close(self) -> None:
        return


class KeepingSink(Sink):
    """Keeps the messages for Spark's writer, which delivers them all or has their records come again.

    It refuses what would fail a whole query: a message larger than `max_message`, and a topic that none can be.
    """

    def __init__(self, config: KafkaSinkConfig) -> None:
        self.name = config.label
        self._topic = config.topic
        self._most = config.max_message
        self._kept: list[Messages] = []
        self._confirmed: list[Ints] = []

    def open(self) -> None:
        return

    def send(self, messages: Messages, deadline: float) -> Refused:
        refused = {**self._too_large(messages), **self._no_topic(messages)}
        if refused:
            good = np.ones(len(messages), np.bool_)
            good[list(refused)] = False
            messages = messages.take(np.flatnonzero(good))
        if len(messages):
            self._kept.append(messages)
            self._confirmed.append(messages.rows)
        return refused

    def collect(self) -> list[tuple[list[str], Messages]]:
        """The messages since the last call, with the topic of each."""
        kept, self._kept = self._kept, []
        return [(self._topics(messages), messages) for messages in kept]

    def barrier(self, deadline: float) -> Lost:
        return {}

    def confirmed(self) -> list[Ints]:
        confirmed, self._confirmed = self._confirmed, []
        return confirmed

    def close(self) -> None:
        self._kept, self._confirmed = [], []

    def _topics(self, messages: Messages) -> list[str]:
        if messages.topics is None:
            return [self._topic] * len(messages)
        return [topic or self._topic for topic in messages.topics]

    def _too_large(self, messages: Messages) -> dict[int, ConnectorError]:
        sizes = message_sizes(messages) + OVERHEAD
        return {
            at: ConnectorError(
                f"sink {self.name}: the message has {int(sizes[at])} bytes, and max_message is {self._most}; raise it, "
                "or make the results smaller"
            )
            for at in np.flatnonzero(sizes > self._most).tolist()
        }

    def _no_topic(self, messages: Messages) -> dict[int, ConnectorError]:
        if messages.topics is None:
            return {}
        wrong = {topic for topic in set(messages.topics) if topic and not _can_be_topic(topic)}
        return {
            at: ConnectorError(f"sink {self.name}: {topic[:300]!r} is no name that a topic can have")
            for at, topic in enumerate(messages.topics if wrong else ())
            if topic in wrong
        }


class Spark:
    """What delivery knows of the sources, where Spark stands in for them (`streamer.delivery.confirming.Upstream`)."""

    def rewind(self, lanes: Iterable[Lane], marks: Mapping[Lane, int]) -> None:
        raise StreamerError("a message was lost, and Spark has its record come again only when the task fails")

    def token(self) -> Any:
        return None

    def serve(self) -> None:
        return

    def patience(self) -> float:
        return 60.0


def _can_be_topic(name: str) -> bool:
    return _TOPIC.fullmatch(name) is not None and name not in (".", "..")
