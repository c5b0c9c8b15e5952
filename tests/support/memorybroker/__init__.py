"""A small MQTT broker in this process, for tests: it can be looked into, and its behaviour changed."""

from memorybroker.running import MemoryBroker

__all__ = ["MemoryBroker"]
