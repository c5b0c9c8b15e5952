"""Topics, sources and sinks inside one process: for tests, notebooks, and services that are connected in memory."""

from connectors.memory.config import MemorySinkConfig, MemorySourceConfig
from connectors.memory.faults import Faults
from connectors.memory.livesource import MemoryLiveSource
from connectors.memory.session import MemorySession
from connectors.memory.sessionsource import MemorySessionSource
from connectors.memory.sink import MemorySink
from connectors.memory.source import MemorySource
from connectors.memory.topic import MemoryTopic, forget_memory_topic, memory_topic
from connectors.memory.transaction import MemoryTransactionalSink
from connectors.memory.transactions import MemoryTransactions
from connectors.message import Message

__all__ = [
    "Faults",
    "MemoryLiveSource",
    "MemorySession",
    "MemorySessionSource",
    "MemorySink",
    "MemorySinkConfig",
    "MemorySource",
    "MemorySourceConfig",
    "MemoryTopic",
    "MemoryTransactionalSink",
    "MemoryTransactions",
    "Message",
    "forget_memory_topic",
    "memory_topic",
]
