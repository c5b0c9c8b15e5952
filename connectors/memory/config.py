"""The fields of memory connectors in a service file: `{type: memory, topic: NAME}` connects services of one process."""

from __future__ import annotations

from typing import ClassVar, Final, Literal

from pydantic import Field

from connectors.config import Addressing, SinkConfig, SourceConfig
from connectors.memory.sink import MemorySink
from connectors.memory.source import MemorySource
from connectors.memory.topic import memory_topic
from connectors.memory.transaction import MemoryTransactionalSink
from connectors.memory.transactions import MemoryTransactions

ANYTHING: Final = frozenset[Literal["bytes", "objects"]]({"bytes", "objects"})


class MemorySourceConfig(SourceConfig):
    """Records from a topic in this process."""

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
    def outside_transactions(self) -> str | None:
        """`None`: a `MemoryTransactionalSink` commits its positions."""
        return None

    def build(self) -> MemorySource:
        """The source, not yet open. `ConnectorError` if the topic has another number of partitions."""
        topic = memory_topic(self.topic, self.partitions)
        return MemorySource(topic=topic, group=self.group, start=self.start, name=self.label)


class MemorySinkConfig(SinkConfig):
    """Messages to a topic in this process."""

    carries: ClassVar[frozenset[Literal["bytes", "objects"]]] = ANYTHING

    type: Literal["memory"] = "memory"
    """The type of connector."""
    topic: str
    """Name of the topic: `connectors.memory.memory_topic(name)` is the same one in Python."""
    partitions: int | None = Field(default=None, ge=1)
    """How many partitions the topic has if this connector is the first to use it; by default 1."""

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
        return MemorySink(memory_topic(self.topic, self.partitions), name=self.label)

    def outside_transactions(self, source: SourceConfig, first: SinkConfig) -> str | None:
        """As `SinkConfig.outside_transactions`: transactions are those of memory topics."""
        if isinstance(source, MemorySourceConfig) and isinstance(first, MemorySinkConfig):
            return None
        return "it writes to a topic of this process, and not all others do; use at_least_once"

    def build_transactional(self, source: SourceConfig, timeout: float) -> MemoryTransactionalSink:
        """As `SinkConfig.build_transactional`."""
        topic = memory_topic(self.topic, self.partitions)
        transactions = MemoryTransactions(topic.faults, timeout=timeout)
        return MemoryTransactionalSink(topic, transactions=transactions, name=self.label)
