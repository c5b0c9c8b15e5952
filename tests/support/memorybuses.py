"""Memory topics as buses of the connector contract."""

from __future__ import annotations

from collections.abc import Sequence

from connectors.contract import SinkBus, SourceBus
from connectors.memory import MemorySink, MemorySource, MemoryTopic, memory_topic
from connectors.message import Message
from connectors.sink import Sink
from connectors.source import Source


class MemorySourceBus(SourceBus):
    """A topic, and sources of this class."""

    patience = 10.0
    quiet = 0.05

    def __init__(self, partitions: int = 3, kind: type[MemorySource] = MemorySource) -> None:
        self.partitions = partitions
        self._kind = kind
        self.topic = MemoryTopic("contract", partitions)
        self._other = MemorySource(topic=self.topic, name="other")

    def feed(self, messages: Sequence[Message]) -> None:
        self.topic.extend(messages)

    def source(self) -> Source:
        return self._kind(topic=self.topic, name="one")

    def end(self) -> None:
        self.topic.end()

    def take_away(self, source: Source) -> None:
        self._other.open()

    def give_back(self, source: Source) -> None:
        self._other.close()


class MemorySinkBus(SinkBus):
    """A topic, and sinks of this class to it."""

    patience = 10.0
    quiet = 0.05
    in_flight_at_most = 200_000

    def __init__(self, kind: type[MemorySink] = MemorySink) -> None:
        self._kind = kind
        self.topic = MemoryTopic("contract")
        self._lost: set[bytes] = set()
        self.topic.faults.refuse = lambda message: "it is poison" if message.value == b"poison" else None

    def sink(self) -> Sink:
        return self._kind(self.topic, max_in_flight=self.in_flight_at_most)

    def read_back(self, count: int, topic: str | None = None) -> list[Message]:
        return (self.topic if topic is None else memory_topic(topic)).messages()

    def too_large(self) -> Message:
        return Message(b"poison")

    def other_topic(self) -> str:
        return f"other than {id(self)}"

    def cut(self) -> None:
        self.topic.faults.cut()

    def mend(self) -> None:
        self.topic.faults.mend()

    def lose(self, sink: Sink, number: int) -> None:
        self._lost.add(self.payload(number))
        self.topic.faults.lose = lambda message: message.value in self._lost
