"""The fields of memory connectors in a service file: `{type: memory, topic: NAME}` connects services of one process."""

from __future__ import annotations

from typing import ClassVar, Final, Literal

from pydantic import Field

from connectors.config import Addressing, SinkConfig, SourceConfig
from connectors.memory.sink import MemorySink
from connectors.memory.source import MemorySource
from connectors.memory.topic import memory_topic
from connectors.memory.transaction import MemoryTransactionalSink

ANYTHING: Final = frozenset[Literal["bytes", "objects"]]({"bytes", "objects"})


class MemorySourceConfig(SourceConfig):
    """Records from a topic in this process."""

    carries: ClassVar[frozenset[Literal["bytes", "objects"]]] = ANYTHING

    type: Literal["memory"] = "memory"
    """Which connector this is."""
    topic: str
    """Name of the topic: `connectors.memory.memory_topic(name)` is the same one in Python."""
    partitions: int | None = Field(default=None, ge=1)
    """How many partitions the topic has when this is the first to use it; by default 1."""
    group: str = "default"
    """Sources of one group share the partitions and the acknowledged positions."""
    start: Literal["earliest", "latest"] = "earliest"
    """Where a group begins that has acknowledged nothing."""

    @property
    def topic_names(self) -> tuple[str, ...]:
        """Its topic."""
        return (self.topic,)

    @property
    def group_name(self) -> str | None:
        """Its group."""
        return self.group

    @property
    def place(self) -> str:
        """Its topic."""
        return self.topic

    def build(self) -> MemorySource:
        """The source, not yet open. `ConnectorError` if the topic has another number of partitions."""
        topic = memory_topic(self.topic, self.partitions)
        return MemorySource(topic=topic, group=self.group, start=self.start, name=self.label)


class MemorySinkConfig(SinkConfig):
    """Messages to a topic in this process."""

    carries: ClassVar[frozenset[Literal["bytes", "objects"]]] = ANYTHING

    type: Literal["memory"] = "memory"
    """Which connector this is."""
    topic: str
    """Name of the topic: `connectors.memory.memory_topic(name)` is the same one in Python."""
    partitions: int | None = Field(default=None, ge=1)
    """How many partitions the topic has when this is the first to use it; by default 1."""
    transactional: bool = False
    """Whether it takes part in `delivery: exactly_once`."""

    @property
    def addressing(self) -> Addressing:
        """Its topic, and the record's headers."""
        return Addressing(self.topic)

    @property
    def place(self) -> str:
        """Its topic."""
        return self.topic

    def build(self) -> MemorySink:
        """The sink, not yet open. `ConnectorError` if the topic has another number of partitions."""
        topic = memory_topic(self.topic, self.partitions)
        if self.transactional:
            return MemoryTransactionalSink(topic, name=self.label)
        return MemorySink(topic, name=self.label)
