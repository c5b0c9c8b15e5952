"""`Bus` and its kinds: how the contract's tests feed and read a connector's bus. A connector's tests implement one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from connectors.message import Message
from connectors.sink import Sink
from connectors.source import Source


class Bus(ABC):  # noqa: B024 - connectors derive from the classes below
    """A fresh place on the bus (a topic, a folder), for one test."""

    patience: float = 30.0
    """Seconds after which an expected event counts as missing."""
    quiet: float = 0.3
    """Seconds without a record after which no more will come."""

    def payload(self, number: int, size: int = 0) -> Any:
        """A payload that holds its number, padded to about `size` bytes, in the connector's format if it has one.

        An object, if the connector carries objects; these can be compared, sorted and hashed.
        """
        return (b"record-%08d" % number).ljust(size, b".")

    def key(self, number: int) -> bytes | None:
        """A plain key; `None` where the bus has none."""
        return b"key-%d" % number


class SourceBus(Bus):
    """Feeds a source.

    The tests feed before they open a source. If the bus keeps records only for known sessions, the fixture makes the
    session beforehand: it opens a source and closes it. That holds for a `LoopBus` too.
    """

    partitions: int = 1
    """How many lanes the source has."""
    window: int | None = None
    """Unacknowledged records after which the bus delivers no more to this source; `None`: no limit."""
    held_at_most: int = 64 * 2**20
    """Bytes that the source may hold fetched and undelivered; set it low on the source, so that it can be tested."""

    @abstractmethod
    def feed(self, messages: Sequence[Message]) -> None:
        """Put these messages on the bus, each in its `partition`; return when a source can get them."""

    @abstractmethod
    def source(self) -> Source:
        """A source of this place, not open. A later one is the same consumer, started again in another process."""

    def end(self) -> None:
        """No more messages will be fed: the source may end. Capability `end`."""
        raise NotImplementedError

    def take_away(self, source: Source) -> None:
        """Begin to take at least one lane away from the open source, which is polled until it reports that.

        Capability `revoke`.
        """
        raise NotImplementedError

    def give_back(self, source: Source) -> None:
        """Begin to give it back; the source is polled until it reports that. Capability `revoke`."""
        raise NotImplementedError

    def held_bytes(self, source: Source) -> int:
        """Bytes that the source or its client fetched and has not delivered. Capability `held`."""
        raise NotImplementedError


class SessionBus(SourceBus):
    """Feeds a source that replays a session, and cuts its connection."""

    @abstractmethod
    def drop(self, source: Source) -> None:
        """Cut the connection of the open source. The bus keeps the session, and the source may connect again."""

    @abstractmethod
    def forget(self, source: Source) -> None:
        """Cut the connection of the open source, and have the bus drop the session with its messages."""

    def hears(self, source: Source) -> bool:
        """Whether the open source gets messages that are fed from now on.

        After `forget` it may have to subscribe again first.
        """
        return True


class LiveBus(Bus):
    """Feeds a perishable source, whose newer records replace unpolled ones. It has `streams` streams, 0, 1, ..."""

    streams: int = 2

    @abstractmethod
    def source(self) -> Source:
        """A source of all streams, not open."""

    @abstractmethod
    def show(self, source: Source, stream: int, number: int) -> None:
        """Feed the open source a record of this stream; return when a poll would deliver this record."""

    @abstractmethod
    def number(self, value: object) -> int:
        """The number that `show` put into the record with this value."""

    @abstractmethod
    def drop(self, source: Source, stream: int) -> None:
        """End the stream's connection; return when the source has noticed.

        It may reconnect by itself; `connect` waits for that.
        """

    @abstractmethod
    def connect(self, source: Source, stream: int) -> None:
        """Return when the stream is connected again."""


class SinkBus(Bus):
    """Reads the messages of a sink, and causes its faults. Its place has one partition, so that there is one order."""

    in_flight_at_most: int = 64 * 2**20
    """Bytes that the sink may hold unconfirmed; set it low on the sink, so that it can be tested."""

    @abstractmethod
    def sink(self) -> Sink:
        """A sink to this place, not open."""

    @abstractmethod
    def read_back(self, count: int, topic: str | None = None) -> list[Message]:
        """All messages that arrived, in order, as soon as there are `count`; fewer if they do not come in `patience`.

        `topic`: read this one instead of the sink's own place.
        """

    def too_large(self) -> Message:
        """A message that the sink must refuse in any case. Capability `limit`."""
        raise NotImplementedError

    def other_topic(self) -> str:
        """Another topic that the sink may write to. Capability `topics`."""
        raise NotImplementedError

    def cut(self) -> None:
        """Make the peer unreachable. Capability `cut`."""
        raise NotImplementedError

    def mend(self) -> None:
        """Make it reachable again. Capability `cut`."""
        raise NotImplementedError

    def vanish(self) -> None:
        """Delete the place that the sink writes to: its topic, file or folder. Capability `vanish`."""
        raise NotImplementedError

    def restore(self) -> None:
        """Create it again, empty, if the sink has not done so itself. Capability `vanish`."""
        raise NotImplementedError

    def lose(self, sink: Sink, number: int) -> None:
        """Cause the message with `payload(number)` to be accepted and then lost. Capability `lose`."""
        raise NotImplementedError


class LoopBus(SourceBus, SinkBus):
    """A bus on which a source reads the messages of a sink."""

    def feed(self, messages: Sequence[Message]) -> None:
        """Not used: the sink feeds the source."""
        raise NotImplementedError

    def read_back(self, count: int, topic: str | None = None) -> list[Message]:
        """Not used: the source reads back."""
        raise NotImplementedError
