"""librdkafka's mock cluster: brokers inside this process, for quick tests and as a last resort for a first look."""

from __future__ import annotations

from typing import Any, Self

from pipelines.errors import MissingPackageError
from streamer.devbroker.errors import BrokerError
from streamer.devbroker.program import Started


class MockKafka(Started):
    """`nodes` mock brokers that live as long as the `with` block (or until `stop()`), reachable by TCP.

    Groups, transactions and idempotence work. Topics cannot be created, they appear on first use with four partitions
    each; some 5 MB of a partition are kept, older records vanish. So it proves no guarantee.

    Raises `MissingPackageError` without confluent-kafka.
    """

    kind = "mock"

    def __init__(self, nodes: int = 1) -> None:
        self.nodes = nodes
        self._holder: Any = None
        self._bootstrap = ""

    @property
    def bootstrap(self) -> str:
        """`host:port` of every mock broker, separated by commas."""
        if not self._bootstrap:
            raise BrokerError("this mock cluster is not running: call start() or use it in a with block")
        return self._bootstrap

    def describe(self) -> str:
        """A description in one line."""
        return (
            f"librdkafka's mock cluster in this process on {self._bootstrap or 'no port, not running'} (no real Kafka)"
        )

    def start(self) -> Self:
        """Start the brokers; returns at once."""
        try:
            from confluent_kafka import Producer
        except ImportError as error:
            raise MissingPackageError("confluent-kafka", "broker", "The mock cluster") from error
        # The client that requests the mock brokers owns them; it must stay open as long as they are used.
        self._holder = Producer({"test.mock.num.brokers": self.nodes, "log_level": 0})
        brokers = self._holder.list_topics(timeout=10.0).brokers.values()
        self._bootstrap = ",".join(f"{broker.host}:{broker.port}" for broker in brokers)
        return self

    def stop(self) -> None:
        """End the brokers."""
        self._bootstrap = ""
        self._holder = None
