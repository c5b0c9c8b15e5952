"""`Bus` and its kinds: how the contract's tests feed and read a connector's bus. A connector's tests implement one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from connectors.message import Message
from connectors.sink import Sink
from connectors.source import Source


class Bus(ABC):  # noqa: B024 - the two below are what is derived from
    """One fresh place on the bus (a topic, a folder) for one test."""

    patience: float = 30.0
    """Seconds after which an expected event counts as missing."""
    quiet: float = 0.3
    """Seconds without a record after which no more will come."""

    def payload(self, number: int, size: int = 0) -> Any:
        """A payload that holds its number, padded to about `size` bytes, in the connector's format if it has one.

        Where the connector carries objects it is one; these can be compared, sorted and hashed.
        """
        return (b"record-%08d" % number).ljust(size, b".")

    def key(self, number: int) -> bytes | None:
        """A plain key; `None` where the bus has none."""
        return b"key-%d" % number


class SourceBus(Bus):
    """Feeds a source.

    The tests feed before they open a source. A bus that keeps records only for sessions which it knows has the session
    made beforehand: the fixture opens a source and closes it. That goes for a `LoopBus` too.
    """

    partitions: int = 1
    """How many lanes the source has."""
    window: int | None = None
    """Unacknowledged records after which the bus gives no more to this source; `None`: it always gives more."""
    held_at_most: int = 64 * 2**20
    """Bytes that the source may hold fetched and undelivered; set it low on the source, so that it can be tested."""

    @abstractmethod
    def feed(self, messages: Sequence[Message]) -> None:
        """Put these on the bus, each in its `partition`; return when a source can get them."""

    @abstractmethod
    def source(self) -> Source:
        """A source of this place, not open. A later one is the same consumer, started again in another process."""

    def end(self) -> None:
        """Nothing more will be fed: the source may end. Capability `end`."""
        raise NotImplementedError

    def take_away(self, source: Source) -> None:
        """Begin to take at least one lane away from the open source; it is polled until it says so. `revoke`."""
        raise NotImplementedError

    def give_back(self, source: Source) -> None:
        """Begin to give it back; the source is polled until it says so. `revoke`."""
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
        """Cut the connection of the open source, and have the bus forget the session and all that is in it."""

    def hears(self, source: Source) -> bool:
        """Whether the open source gets what is fed from now on: after `forget` it may first have to subscribe again."""
        return True


class LiveBus(Bus):
    """Feeds a source whose newer records replace those that nobody has polled. It has `streams` streams, 0, 1, ..."""

    streams: int = 2

    @abstractmethod
    def source(self) -> Source:
        """A source of all streams, not open."""

    @abstractmethod
    def show(self, source: Source, stream: int, number: int) -> None:
        """Give the open source a record of this stream; return when it is what a poll would deliver of the stream."""

    @abstractmethod
    def number(self, value: object) -> int:
        """The number that `show` put into the record with this value."""

    @abstractmethod
    def drop(self, source: Source, stream: int) -> None:
        """End the stream's connection; return when the source knows it. `connect` brings it back, also by itself."""

    @abstractmethod
    def connect(self, source: Source, stream: int) -> None:
        """Return when the stream is connected again."""


class SinkBus(Bus):
    """Reads what a sink wrote, and disturbs the sink. Its place has one partition, so that there is one order."""

    in_flight_at_most: int = 64 * 2**20
    """Bytes that the sink may hold unconfirmed; set it low on the sink, so that it can be tested."""

    @abstractmethod
    def sink(self) -> Sink:
        """A sink to this place, not open."""

    @abstractmethod
    def read_back(self, count: int, topic: str | None = None) -> list[Message]:
        """Everything that arrived, in order, as soon as there are `count`; fewer if they do not come in `patience`.

        `topic`: there instead of the sink's own place.
        """

    def too_large(self) -> Message:
        """A message that the sink must refuse whatever happens. Capability `limit`."""
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
        """Take away the place that the sink writes to: delete its topic, file or folder. Capability `vanish`."""
        raise NotImplementedError

    def restore(self) -> None:
        """Put it back, empty, if the sink has not done so itself. Capability `vanish`."""
        raise NotImplementedError

    def lose(self, sink: Sink, number: int) -> None:
        """Cause the message with `payload(number)` to be accepted and then lost. Capability `lose`."""
        raise NotImplementedError


class LoopBus(SourceBus, SinkBus):
    """A bus on which a source reads what a sink writes."""

    def feed(self, messages: Sequence[Message]) -> None:
        """Not used: the sink feeds the source."""
        raise NotImplementedError

    def read_back(self, count: int, topic: str | None = None) -> list[Message]:
        """Not used: the source reads back."""
        raise NotImplementedError
