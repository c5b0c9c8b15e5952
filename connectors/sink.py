"""`Sink`: the interface of connectors that messages are sent to, and the guarantees that they must keep."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from connectors.measures import Measure
from connectors.records import Ints, Lane, Messages
from connectors.source import Source, TransactionToken
from pipelines.definitions.pipeline import Pipeline
from pipelines.errors import ConnectorError
from pipelines.hotpath import NO_COMPILED_FORM, HotPathReport

Refused = Mapping[int, ConnectorError]
"""Index of a message in its block to why it was refused. `error.retriable` tells whether to try again."""
Lost = Mapping[int, ConnectorError]
"""Row number to why a message of it was lost after the sink had accepted it."""


class Sink(ABC):
    """A connector that messages are sent to. `send`, `barrier`, `confirmed` and `close` are called by one thread.

    Confirmation: a message is *confirmed* once it is where the sink puts it for good (Kafka: acknowledged by
    the brokers as `acks` says; a file: synced to disk; MQTT: PUBACK). A message that is not confirmed may be lost.
    Messages with the same key (or all, where there are no keys) arrive in the order they were sent.

    A destination that is gone: when the topic or file that the sink writes to is deleted while the sink is open, no
    message is to blame. The sink refuses messages as retriable until the destination is back; after a time that its
    documentation states, or at once, `send` and `barrier` raise. A missing topic that a message itself names is a
    failure of that message.

    Dead letters: a dead letter that the sink refuses, as too large for instance, is sent again with less of the record
    in it. A sink accepts any message with a key, headers and one line of JSON, 9 KB together: so no record can stop a
    service.
    """

    name: str

    @property
    def hot_path(self) -> HotPathReport:
        """Which hot path it takes, and why it is plain Python if it is. Known from the start, without `open`."""
        return NO_COMPILED_FORM

    @property
    def page(self) -> tuple[str, int] | None:
        """Host and port of a page for people that it serves while it is open; `None`: none."""
        return None

    service: str | None = None
    """The name of the service that it belongs to; set before `attach`, for sinks that show it."""
    pipeline: Pipeline | None = None
    """The definition of the pipeline whose results it gets; set before `attach`, for sinks that show its zones."""

    others: Sequence[Sink] = ()
    """The other sinks of the service; set before `attach`, for sinks that show what these write."""

    def attach(self, sources: Sequence[Source]) -> None:
        """Called once, before `open`, with the service's sources.

        For a sink that needs more of a record than its result, such as the data that it was decoded from.
        """

    @abstractmethod
    def open(self) -> None:
        """Connect. A peer that is absent is not an error.

        Raises:
            ConnectorError: Waiting does not mend it, such as wrong credentials.
        """

    @abstractmethod
    def send(self, messages: Messages, deadline: float) -> Refused:
        """Accept these messages for sending. Waits while the sink is full: that is back-pressure.

        Args:
            messages: M messages; `messages.rows` tells which records they answer.
            deadline: Seconds on `time.monotonic`, at which it gives up and refuses the rest as retriable.

        Returns:
            The errors of refused messages, by index in the block.
        """

    @abstractmethod
    def barrier(self, deadline: float) -> Lost:
        """Wait until every message sent before is confirmed or lost.

        Args:
            deadline: Seconds on `time.monotonic`.

        Returns:
            The errors of lost messages, by row number.

        Raises:
            ConnectorError: Retriable: it is not known at `deadline`. Then nothing sent since the last barrier may be
                acknowledged.
        """

    @abstractmethod
    def confirmed(self) -> list[Ints]:
        """Row numbers known to be confirmed, without waiting, since the last call; `[]` if the sink cannot say.

        A row stands once for each of its messages. After a `barrier` returns this gives all that it confirmed.
        """

    @abstractmethod
    def close(self) -> None:
        """Disconnect, without waiting for confirmations. Idempotent."""

    def push(self) -> None:
        """Send at once the messages that wait for others, to be sent together (`linger`).

        The run thread calls this whenever it has nothing to send for the moment, so it may be called often, and returns
        within milliseconds. A sink that sends each message at once does nothing here.
        """

    def make_room(self) -> None:
        """Called when records in flight have reached their limit.

        A sink that answers clients gives up, soon and without waiting, those that have not taken their answers for a
        second and hold the most. Other sinks do nothing here.
        """

    def behind(self) -> float:
        """Seconds since the oldest message was sent that is not known to be confirmed; 0 if there is none.

        As long as this is short, positions are acknowledged by the rows that `confirmed` returns, without a `barrier`.
        Infinite (the default) for a sink that learns only at a barrier which messages are confirmed or lost.
        """
        return math.inf

    def metrics(self) -> Sequence[Measure]:
        """Its own counters and gauges, for `/metrics`; the same ones at each call.

        Called from any thread, also before `open` and after `close`: it reads plain numbers, and waits for nothing.
        """
        return ()

    def down(self) -> str | None:
        """Why the sink cannot reach its peer at present; `None` if it can. It keeps trying to connect."""
        return None


class Voided(ConnectorError):
    """The transaction cannot be committed any more: abort it, then have its records delivered again."""


class TransactionalSink(Sink):
    """A sink that makes messages and acknowledged positions visible as one, or not at all.

    Its siblings send in the same transactions, which one of them begins, commits and aborts. A message is confirmed, by
    `barrier` and `confirmed`, when it is part of the transaction. A message that is lost voids the transaction:
    `barrier` names it, and where no message is to blame `send` and `barrier` raise `Voided`. Sending without a
    transaction raises another `ConnectorError`.

    `begin`, `add_positions`, `commit` and `abort` may be called by another thread than the other methods, but not
    during `send`. Each of them

    - returns: it is done;
    - or raises a retriable `ConnectorError`: it is not known whether it is done. The same call is to be made again,
      until it ends in another way. A commit that ended so is never aborted: it may have been carried out;
    - or raises `Voided`: the transaction is to be aborted, `abort` called until it returns;
    - or raises another error, which stops the service.
    """

    @abstractmethod
    def accepts(self, source: Source) -> str | None:
        """Why positions of this source cannot be part of a transaction here; `None` if they can."""

    @abstractmethod
    def sibling(self, config: Any) -> TransactionalSink:
        """Another sink, not open, that sends in the same transactions.

        Args:
            config: The other sink's `SinkConfig`.

        Raises:
            DefinitionError: This sink cannot send in them: it writes to another bus, or in another way.
        """

    @abstractmethod
    def begin(self, deadline: float) -> None:
        """Start a transaction: all messages that siblings send from now on belong to it.

        Args:
            deadline: Seconds on `time.monotonic`.
        """

    def add_positions(self, positions: Mapping[Lane, int], token: TransactionToken, deadline: float) -> None:
        """Do the part of `commit` that need not wait until messages are confirmed; by default nothing.

        The same positions are committed next. Arguments and errors are those of `commit`.
        """

    @abstractmethod
    def commit(self, positions: Mapping[Lane, int], token: TransactionToken, deadline: float) -> None:
        """Make all messages visible and commit these positions, as one.

        Args:
            positions: The next position to deliver, by lane.
            token: From the source that delivered the records.
            deadline: Seconds on `time.monotonic`.

        Raises:
            Voided: A lane is not one of the token's, the bus has given one to another consumer, or refused or lost a
                message, or another process has taken the transactional identity over.
        """

    @abstractmethod
    def abort(self, deadline: float) -> None:
        """Undo everything sent since `begin`, and forget which of its messages were confirmed or lost.

        If another process has taken the transactional identity over, or the bus has given up waiting for the commit,
        the client is replaced under the same identity: three times in ten minutes at most, then it raises.
        """
