"""`MemoryTransactionalSink`: exactly-once between memory topics, without a broker."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Self

from connectors.config import SinkConfig
from connectors.memory.config import MemorySinkConfig, MemorySourceConfig
from connectors.memory.sink import PAUSE, MemorySink
from connectors.memory.source import MemorySource
from connectors.memory.topic import MemoryTopic, memory_topic
from connectors.memory.transactions import MemoryTransactions
from connectors.message import Message
from connectors.records import Ints, Lane
from connectors.sink import TransactionalSink
from connectors.source import Source, TransactionToken
from pipelines.errors import ConnectorError, DefinitionError


class MemoryTransactionalSink(MemorySink, TransactionalSink):
    """A `MemorySink` whose messages become visible when they are committed, together with acknowledged positions.

    Sinks that share `transactions` are siblings. Without it a sink has its own, with the faults of its topic.
    """

    def __init__(
        self,
        topic: MemoryTopic | None = None,
        *,
        transactions: MemoryTransactions | None = None,
        gathers: bool = False,
        max_in_flight: int = 16 * 2**20,
        name: str = "memory",
    ) -> None:
        super().__init__(topic, gathers=gathers, max_in_flight=max_in_flight, name=name)
        self.transactions = MemoryTransactions(self.topic.faults) if transactions is None else transactions
        self.transactions.sinks.append(self)

    @classmethod
    def first(cls, config: MemorySinkConfig, source: MemorySourceConfig, timeout: float) -> Self:
        """The first sink of a service, in transactions of at most `timeout` seconds; `sibling` makes others."""
        topic = memory_topic(config.topic, config.partitions)
        return cls(topic, transactions=MemoryTransactions(topic.faults, timeout=timeout), name=config.label)

    def accepts(self, source: Source) -> str | None:
        """As `TransactionalSink.accepts`: sources of memory topics."""
        if isinstance(source, MemorySource):
            return None
        return f"{source.name} is not a memory source"

    def sibling(self, config: SinkConfig) -> MemoryTransactionalSink:
        """As `TransactionalSink.sibling`."""
        if not isinstance(config, MemorySinkConfig):
            raise DefinitionError(f'sink "{config.label}": it cannot send in the transactions of memory topics')
        topic = memory_topic(config.topic, config.partitions)
        return MemoryTransactionalSink(topic, transactions=self.transactions, name=config.label)

    def open(self) -> None:
        """Get ready for transactions."""
        super().open()
        self.transactions.connect()

    def begin(self, deadline: float) -> None:
        """As `TransactionalSink.begin`."""
        self.transactions.begin(deadline)

    def add_positions(self, positions: Mapping[Lane, int], token: TransactionToken, deadline: float) -> None:
        """As `TransactionalSink.add_positions`."""
        self.transactions.add_positions(positions, token, deadline)

    def commit(self, positions: Mapping[Lane, int], token: TransactionToken, deadline: float) -> None:
        """As `TransactionalSink.commit`."""
        self.transactions.commit(positions, token, deadline)

    def abort(self, deadline: float) -> None:
        """As `TransactionalSink.abort`."""
        self.transactions.abort(deadline)

    def close(self) -> None:
        """Drop uncommitted messages."""
        super().close()
        self.transactions.close()

    def arrive_all(self, deadline: float) -> None:
        """Wait until the transaction has all sent messages. Raises a retriable `ConnectorError` at `deadline`."""
        self._flow(everything=True)
        while self._waiting:
            if time.monotonic() >= deadline:
                raise ConnectorError(f"{self.name}: {self._why()}", retriable=True)
            time.sleep(PAUSE)
            self._flow(everything=True)

    def look(self) -> None:
        """Learn which messages are confirmed or lost by now."""
        self._flow(everything=True)

    def forget(self) -> None:
        """Drop the state of all sent messages, also which were confirmed or lost."""
        self._confirmed.clear()
        self._waiting.clear()
        self._waiting_bytes = 0
        self._lost.clear()

    def _take(self, message: Message, rows: Ints, deadline: float) -> ConnectorError | None:
        if not self.transactions.is_open:
            raise ConnectorError(f"{self.name}: begin a transaction before sending")
        return super()._take(message, rows, deadline)

    def _flow(self, everything: bool = False) -> None:
        refuse = self.topic.faults.refuse_late
        if refuse is not None and self.topic.faults.away is None:
            whys = (refuse(message) for message, _ in self._waiting)
            why = next((why for why in whys if why is not None), None)
            if why is not None:
                # As Kafka's brokers do: the whole batch is refused.
                error = ConnectorError(f"{self.name}: {why}")
                self._lost.update((row, error) for rows in self._passed(len(self._waiting)) for row in rows.tolist())
        super()._flow(everything)
        if self._lost:
            self.transactions.void(str(next(iter(self._lost.values()))))

    def _arrive(self, messages: list[Message]) -> int:
        topic = messages[0].topic
        there = memory_topic(topic) if topic and not self._gathers else self.topic
        self.transactions.add(there, messages)
        return len(messages)
