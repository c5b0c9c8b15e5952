"""Transactions between memory topics: exactly-once without a broker."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from connectors.memory.sink import MemorySink
from connectors.memory.source import MemorySource
from connectors.memory.topic import MemoryTopic, memory_topic
from connectors.message import Message
from connectors.records import Ints, Lane
from connectors.sink import TransactionalSink
from connectors.source import Source
from pipelines.errors import ConnectorError

_committing = threading.Lock()


class MemoryTransactionalSink(MemorySink, TransactionalSink):
    """A `MemorySink` whose messages become visible when they are committed, together with acknowledged positions.

    `topic.faults.away` makes `commit` fail. Messages count as confirmed when the transaction has them.
    """

    def __init__(self, topic: MemoryTopic | None = None, *, name: str = "memory") -> None:
        super().__init__(topic, name=name)
        self._transaction: list[Message] | None = None

    def accepts(self, source: Source) -> str | None:
        """As `TransactionalSink.accepts`: sources of memory topics."""
        if isinstance(source, MemorySource):
            return None
        return f"{source.name} is no memory source"

    def begin(self) -> None:
        """As `TransactionalSink.begin`."""
        if self._transaction is not None:
            raise ConnectorError(f"{self.name}: a transaction has begun already; commit or abort it first")
        self._transaction = []

    def commit(self, positions: Mapping[Lane, int], token: object) -> None:
        """As `TransactionalSink.commit`. Not retriable if a lane has ended: it has another owner now."""
        if self._transaction is None or not isinstance(token, MemorySource):
            raise ConnectorError(f"{self.name}: no transaction has begun, or the source is no memory source")
        if self.topic.faults.away is not None:
            raise ConnectorError(f"{self.name}: the commit failed: {self.topic.faults.away}", retriable=True)
        # One commit at a time: each holds the locks of two topics.
        with _committing, token.topic.changed:
            ended = [lane for lane in positions if not token.owns(lane)]
            if ended:
                raise ConnectorError(f"{self.name}: the transaction is void, these lanes have ended: {ended}")
            with self.topic.changed:
                for message in self._transaction:
                    (memory_topic(message.topic) if message.topic else self.topic).append(message)
                token.acknowledge(positions)
        self._transaction = None

    def abort(self) -> None:
        """As `TransactionalSink.abort`."""
        self._transaction = None
        self._confirmed.clear()
        self._waiting.clear()
        self._waiting_bytes = 0
        self._lost.clear()

    def close(self) -> None:
        """What was not committed is gone."""
        super().close()
        self._transaction = None

    def _take(self, message: Message, rows: Ints, deadline: float) -> ConnectorError | None:
        if self._transaction is None:
            raise ConnectorError(f"{self.name}: begin a transaction before sending")
        return super()._take(message, rows, deadline)

    def _arrive(self, messages: list[Message]) -> int:
        assert self._transaction is not None
        self._transaction.extend(messages)
        return len(messages)
