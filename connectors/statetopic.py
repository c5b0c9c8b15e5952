"""`StateTopic`: a compacted topic that keeps what the steps of a service remember, in transactions with positions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from connectors.records import Lane
from connectors.sink import TransactionalSink
from connectors.source import TransactionToken


class StateRecord(NamedTuple):
    """One record of the topic."""

    partition: int
    """Its partition: the `StateTopic.number` of one of the source."""
    key: bytes
    value: bytes | None
    """`None`: the key is gone."""


class StateTopic(ABC):
    """The topic, as one process uses it. One thread calls its methods; errors are `ConnectorError`s.

    Each partition of the source has one of its own in it. `open` creates the topic if it does not exist, and raises
    `DefinitionError` for one with another number of partitions, or whose records are not kept by key.
    """

    name: str
    """The name of the topic."""
    id: str
    """The id of the topic, once it is open: a topic that is deleted and created again has another one."""
    partitions: Sequence[str]
    """The partitions of the source, by the names that its lanes have, each at the `number` of its own, once it is open.
    """
    longest: int
    """Bytes of the longest record that it takes, key and value together, once it is open."""

    @abstractmethod
    def share(self, first: TransactionalSink) -> None:
        """Called before `open`: its records go into the transactions of this sink, by `sending` in place of `write`.

        Raises `DefinitionError` for the sink of another bus.
        """

    @abstractmethod
    def open(self) -> None:
        """Connect. Waits up to half a minute for brokers."""

    @abstractmethod
    def look(self) -> None:
        """Connect as `open` does, for somebody who looks into it: nothing is created, and `write` is not possible."""

    @abstractmethod
    def checked(self) -> str:
        """The text of `streamer check --connect` for it, which is not open. Creates nothing, and raises as `open`."""

    @abstractmethod
    def close(self) -> None:
        """Disconnect. Idempotent."""

    @abstractmethod
    def number(self, partition: str) -> int:
        """The partition with the state of one of the source, by the name that its lanes have.

        Raises `DefinitionError` for one that the source did not have when the topic was opened.
        """

    @abstractmethod
    def read(self, partition: int, tell: Callable[[], None]) -> dict[bytes, bytes]:
        """The last value of each key of a partition, as all committed transactions have left it.

        To be called when the source has the position of the partition: no transaction that moves it is open then.
        Waits for brokers however long: `tell` is called again and again meanwhile; what it raises ends the reading.
        Raises `DefinitionError` if the topic was deleted and created again.
        """

    @abstractmethod
    def write(
        self,
        records: Sequence[StateRecord],
        positions: Mapping[Lane, int],
        token: TransactionToken,
        wait: Callable[[], None],
    ) -> None:
        """Write these records and commit these positions, in one transaction.

        `wait` is called again and again while the outcome is not known; what it raises ends that, and the outcome stays
        unknown. A retriable `ConnectorError`: nothing was written, as when a partition went to another consumer.
        """

    @abstractmethod
    def sending(self, records: Sequence[StateRecord]) -> Callable[[float], None]:
        """A call that sends these records in the transaction that is open, with its deadline on `time.monotonic`.

        Only for a topic that shares transactions; another thread may make the call. A retriable `ConnectorError`: some
        are not sent yet, and the next call sends these. `Voided`: the transaction has to be aborted.
        """

    @abstractmethod
    def forget(self) -> None:
        """Drop what is known of records that were sent, once the transaction with them has ended."""

    @abstractmethod
    def each(self, partition: int) -> Iterator[tuple[bytes, bytes | None]]:
        """Keys and values of the committed records of a partition, in order: the last one of a key is its state.

        `None`: the key is gone. It ends with the last transaction that has begun when it is called. Raises
        `ConnectorError` if the brokers send nothing for a minute.
        """

    @abstractmethod
    def check_unused(self) -> None:
        """Raise `ConnectorError`, naming its processes, while a service uses the topic."""

    @abstractmethod
    def clear(self, partition: int, keys: Sequence[bytes]) -> None:
        """Delete these keys in one transaction, which moves no position. Raises as `check_unused`, having done nothing.

        A service that starts meanwhile reads what the transaction has left.
        """
