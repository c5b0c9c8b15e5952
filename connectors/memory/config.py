"""The fields of memory connectors in a service file: `{type: memory, topic: NAME}` connects services of one process."""

from __future__ import annotations

from typing import ClassVar, Final, Literal

from pydantic import Field

from connectors.config import Addressing, SinkConfig, SourceConfig
from connectors.metadata.typedfields import TypedHeaders, TypedKeys

ANYTHING: Final = frozenset[Literal["bytes", "objects"]]({"bytes", "objects"})


class MemorySourceConfig(TypedKeys, TypedHeaders):
    """Records from a topic in this process."""

    built_by: ClassVar[str] = "connectors.memory.source:MemorySource.of"
    carries: ClassVar[frozenset[Literal["bytes", "objects"]]] = ANYTHING

    type: Literal["memory"] = "memory"
    """The type of connector."""
    topic: str
    """Name of the topic: `connectors.memory.memory_topic(name)` is the same one in Python."""
    partitions: int | None = Field(default=None, ge=1)
    """How many partitions the topic has if this connector is the first to use it; by default 1."""
    group: str = "default"
    """Sources of one group share the partitions and the acknowledged positions."""
    start: Literal["earliest", "latest"] = "earliest"
    """Where a group without acknowledged positions begins."""

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

    @property
    def undivided(self) -> str:
        """Its topic is in one process."""
        return "its topic is in the memory of one process; use another type of source"

    @property
    def outside_transactions(self) -> str | None:
        """`None`: a `MemoryTransactionalSink` commits its positions."""
        return None


class MemorySinkConfig(SinkConfig):
    """Messages to a topic in this process."""

    built_by: ClassVar[str] = "connectors.memory.sink:MemorySink.of"
    transactional_by: ClassVar[str] = "connectors.memory.transaction:MemoryTransactionalSink.first"
    carries: ClassVar[frozenset[Literal["bytes", "objects"]]] = ANYTHING

    type: Literal["memory"] = "memory"
    """The type of connector."""
    topic: str
    """Name of the topic: `connectors.memory.memory_topic(name)` is the same one in Python."""
    partitions: int | None = Field(default=None, ge=1)
    """How many partitions the topic has if this connector is the first to use it; by default 1."""

    @property
    def addressing(self) -> Addressing:
        """The topic and the record's headers, as the address of messages."""
        return Addressing(self.topic)

    @property
    def place(self) -> str:
        """Its topic."""
        return self.topic

    def outside_transactions(self, source: SourceConfig, first: SinkConfig) -> str | None:
        """As `SinkConfig.outside_transactions`: transactions are those of memory topics."""
        if isinstance(source, MemorySourceConfig) and isinstance(first, MemorySinkConfig):
            return None
        return "it writes to a topic of this process, and not all others do; use at_least_once"
