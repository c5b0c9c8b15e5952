"""`MemorySink`: messages to this process."""

from __future__ import annotations

import itertools
import time
from collections import deque
from typing import Self

import numpy as np

from connectors.memory.config import MemorySinkConfig
from connectors.memory.topic import MemoryTopic, memory_topic, size_of
from connectors.message import Message, messages_of_block
from connectors.records import Ints, Messages
from connectors.sink import Lost, Refused, Sink
from pipelines.errors import ConnectorError

PAUSE = 0.005
"""Seconds between two checks whether a topic is still cut off or full."""


class MemorySink(Sink):
    """Puts messages into a `MemoryTopic` (by default its own); `messages` are those that arrived.

    `buffered`: messages arrive at the next `barrier` only and are lost without one, as with files; otherwise they
    arrive, and are confirmed, when they are sent. `gathers`: messages that name a topic arrive here too, for tests that
    look at them; otherwise they go to the topic of this process that has that name. It holds at most `max_in_flight`
    bytes that did not arrive because the topic is full or away. `topic.faults` makes it fail.
    """

    def __init__(
        self,
        topic: MemoryTopic | None = None,
        *,
        buffered: bool = False,
        gathers: bool = False,
        max_in_flight: int = 16 * 2**20,
        name: str = "memory",
    ) -> None:
        self.name = name
        self.topic = MemoryTopic(name) if topic is None else topic
        self._buffered = buffered
        self._gathers = gathers
        self._max_in_flight = max_in_flight
        self._waiting: deque[tuple[Message, Ints]] = deque()
        self._waiting_bytes = 0
        self._confirmed: list[Ints] = []
        self._lost: dict[int, ConnectorError] = {}
        self._open = False

    @classmethod
    def of(cls, config: MemorySinkConfig) -> Self:
        """The sink of this configuration. Raises `ConnectorError` if the topic has another number of partitions."""
        return cls(memory_topic(config.topic, config.partitions), name=config.label)

    @property
    def messages(self) -> list[Message]:
        """The messages in its topic."""
        return self.topic.messages()

    def open(self) -> None:
        """Get ready for `send`."""
        self._open = True

    def send(self, messages: Messages, deadline: float) -> Refused:
        """As `Sink.send`. `ConnectorError` when it is not open."""
        if not self._open:
            raise ConnectorError(f"{self.name} is not open")
        if self.topic.faults.delay:
            time.sleep(self.topic.faults.delay)
        refused: dict[int, ConnectorError] = {}
        for index, message in enumerate(messages_of_block(messages)):
            error = self._take(message, messages.parents(index), deadline)
            if error is None:
                continue
            refused[index] = error
            if error.retriable:
                # Full: a smaller message that still fits must not overtake this one.
                refused |= dict.fromkeys(range(index + 1, len(messages)), error)
                break
        self._flow()
        return refused

    def barrier(self, deadline: float) -> Lost:
        """As `Sink.barrier`."""
        self._flow(everything=True)
        while self._waiting:
            if time.monotonic() >= deadline:
                raise ConnectorError(
                    f"{self.name}: {len(self._waiting)} messages could not be confirmed: {self._why()}", retriable=True
                )
            time.sleep(PAUSE)
            self._flow(everything=True)
        lost, self._lost = self._lost, {}
        return lost

    def confirmed(self) -> list[Ints]:
        """As `Sink.confirmed`."""
        self._flow()
        confirmed, self._confirmed = self._confirmed, []
        # Joined: entering many rows into the ledger costs as much as one.
        return [np.concatenate(confirmed)] if len(confirmed) > 1 else confirmed

    def close(self) -> None:
        """Drop messages that have not arrived."""
        self._open = False
        self._waiting.clear()
        self._waiting_bytes = 0

    def down(self) -> str | None:
        """Why the topic cannot be reached."""
        return self.topic.faults.away

    def _take(self, message: Message, rows: Ints, deadline: float) -> ConnectorError | None:
        why = None if self.topic.faults.refuse is None else self.topic.faults.refuse(message)
        if why is not None:
            return ConnectorError(f"{self.name}: {why}")
        size = size_of(message)
        while not self._buffered and self._waiting and self._waiting_bytes + size > self._max_in_flight:
            self._flow()
            if not self._waiting or self._waiting_bytes + size <= self._max_in_flight:
                break
            if time.monotonic() >= deadline:
                return ConnectorError(f"{self.name} is full: {self._why()}", retriable=True)
            time.sleep(PAUSE)
        self._waiting.append((message, rows))
        self._waiting_bytes += size
        return None

    def _flow(self, everything: bool = False) -> None:
        if self._buffered and not everything:
            return
        faults = self.topic.faults
        while self._waiting and faults.away is None:
            if faults.lose is not None and faults.lose(self._waiting[0][0]):
                lost = ConnectorError(f"{self.name}: lost", retriable=True)
                self._lost.update(dict.fromkeys(self._passed(1)[0].tolist(), lost))
                continue
            # One at a time if each may be lost, or goes to another topic.
            count = 1 if faults.lose is not None else self._same_topic()
            arrived = self._arrive([message for message, _ in itertools.islice(self._waiting, count)])
            self._confirmed.extend(self._passed(arrived))
            if arrived < count:
                return

    def _arrive(self, messages: list[Message]) -> int:
        """Put these messages, all of one topic, into it. Returns how many found room."""
        topic = messages[0].topic
        return (memory_topic(topic) if topic and not self._gathers else self.topic).append_some(messages)

    def _same_topic(self) -> int:
        first = self._waiting[0][0].topic
        return sum(1 for _ in itertools.takewhile(lambda waiting: waiting[0].topic == first, self._waiting))

    def _passed(self, count: int) -> list[Ints]:
        passed = [self._waiting.popleft() for _ in range(count)]
        self._waiting_bytes -= sum(size_of(message) for message, _ in passed)
        return [rows for _, rows in passed]

    def _why(self) -> str:
        return (
            self.topic.faults.away or f'the memory topic "{self.topic.name}" has no room; read it, or raise max_bytes'
        )
