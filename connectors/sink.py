"""`Sink`: where messages go, and what it must guarantee."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping

from connectors.records import Ints, Lane, Messages
from connectors.source import Source
from pipelines.errors import ConnectorError
from pipelines.hotpath import NO_COMPILED_FORM, HotPathReport

Refused = Mapping[int, ConnectorError]
"""Index of a message in its block to why it was refused. `error.retriable` says whether to try again."""
Lost = Mapping[int, ConnectorError]
"""Row number to why a message of it was lost after the sink had taken it."""


class Sink(ABC):
    """A connector that takes messages. `send`, `barrier`, `confirmed` and `close` are called by one thread.

    Confirmation: a message is *confirmed* once it is where the sink puts it for good (Kafka: acknowledged by
    the brokers as `acks` says; a file: synced to disk; MQTT: PUBACK). Nothing else may be counted on.
    Messages with the same key (or all, where there are no keys) arrive in the order they were sent.

    A place that is gone: when what the sink writes to (a topic, a file) is taken away while it is open, that is no
    fault of the messages. The sink says "retriable" until it is back, and after a time that its documentation states
    `send` and `barrier` raise; or they raise at once. A topic that a message names itself is that message's fault.

    Dead letters: what a sink refuses as too large, or not of its kind, is sent again with less of the record. So that
    no record stops a service, it takes any message with a key, headers and one line of JSON of 9 KB altogether.
    """

    name: str

    @property
    def hot_path(self) -> HotPathReport:
        """Which hot path it takes, and why it is plain Python if it is. Known from the start, without `open`."""
        return NO_COMPILED_FORM

    @abstractmethod
    def open(self) -> None:
        """Connect. Raises `ConnectorError` for what will not get better; an absent peer is not an error."""

    @abstractmethod
    def send(self, messages: Messages, deadline: float) -> Refused:
        """Take these messages; returns those refused, by index, the others are on their way.

        Waits while the sink is full: that is back-pressure. At `deadline` (seconds on `time.monotonic`) it
        gives up and refuses the rest as retriable.
        """

    @abstractmethod
    def barrier(self, deadline: float) -> Lost:
        """Wait until everything sent before this is confirmed or lost; returns what was lost, by row number.

        Raises `ConnectorError` (retriable) if that is not known at `deadline`: then nothing sent since the
        last barrier may be acknowledged.
        """

    @abstractmethod
    def confirmed(self) -> list[Ints]:
        """Row numbers known to be confirmed, without waiting, since the last call; `[]` if the sink cannot say.

        A row stands once for each of its messages. After a `barrier` returns this gives all that it confirmed.
        """

    @abstractmethod
    def close(self) -> None:
        """Leave, without waiting for what is not confirmed. Idempotent."""

    def push(self) -> None:
        """Told when nothing more is to be sent for now, again and again: what waits for company need not.

        Returns within milliseconds. A sink that sends at once has nothing to do.
        """

    def behind(self) -> float:
        """Seconds since the oldest message was sent that is not known to be confirmed; 0 if there is none.

        A sink that confirms while others are on their way need not be brought to a barrier as long as this is short.
        Infinite where a barrier is needed: for the sink to learn what is confirmed, or to tell what is lost.
        """
        return math.inf

    def down(self) -> str | None:
        """Why the sink's peer cannot be reached at present; `None` when all is well. It goes on trying."""
        return None


class TransactionalSink(Sink):
    """A sink that can make messages and acknowledged positions visible as one."""

    @abstractmethod
    def accepts(self, source: Source) -> str | None:
        """Why positions of this source cannot be part of a transaction here; `None` if they can."""

    @abstractmethod
    def begin(self) -> None:
        """Start a transaction: what is sent from now on belongs to it."""

    @abstractmethod
    def commit(self, positions: Mapping[Lane, int], token: object) -> None:
        """Make all of it visible and acknowledge `positions`. Raises `ConnectorError`; then `abort`."""

    @abstractmethod
    def abort(self) -> None:
        """Undo everything sent since `begin`."""
