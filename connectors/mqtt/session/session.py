"""`Session`: the interface of a source's or sink's connection to a broker."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Protocol

from connectors.mqtt.protocol.packets import Packet
from connectors.mqtt.session.settings import Granted, Grants


class SessionClient(Protocol):
    """The callbacks of a session's owner. `Session.turn` calls them, in its caller's thread."""

    def begun(self, granted: Granted) -> None:
        """The broker has accepted a connection. The following calls concern this connection."""

    def subscribed(self, grants: Grants) -> None:
        """The broker has granted the subscriptions; the first messages may have come before."""

    def received(self, packet: Packet) -> None:
        """A packet about messages came: PUBLISH, PUBACK, PUBREC, PUBREL or PUBCOMP."""

    def ended(self, reason: str) -> None:
        """The connection is gone, with all packets that were written and not answered."""


class Session(ABC):
    """One client of one broker: connects, subscribes, sends pings, and reconnects when the connection is lost.

    It has no thread: all work is done in `turn`, which its owner's thread calls again and again, at least some times a
    second. All methods but `wake` are called by this thread. No method waits, but `turn` up to its timeout and
    `restart` and `close` for a second.

    Permanent errors raise `ConnectorError` from `turn`, and from every later `turn`: a login or a topic filter that is
    refused at the first connection, a client id that another client took over. After all other errors it connects
    again, after 0.25 to 30 s (`down` says why).
    """

    down: str | None = "not connected yet"
    """Why there is no connection; `None` while there is one."""
    granted: Granted | None = None
    """The broker's grants for the last connection; kept when the connection is lost."""
    connection = 0
    """Number of the connection: rises with each that the broker accepted."""
    lost = 0
    """The number of lost connections so far."""
    rtt = 0.0
    """Seconds of the quickest answer on this connection, to CONNECT or to a ping."""

    drained = False
    """Whether the last `turn` has read all bytes, as far as that can be known."""

    @property
    def connected(self) -> bool:
        """Whether there is a connection that the broker has accepted."""
        return self.down is None

    @property
    @abstractmethod
    def unsent(self) -> int:
        """Bytes that were given to it and not sent yet."""

    @abstractmethod
    def turn(self, timeout: float, *, read: bool = True) -> bool:
        """Do all due work: connect, send, ping, receive. Returns whether something was received.

        Waits until the socket can be read or written, at most `timeout` seconds; may return earlier. Without `read`
        nothing is received, TCP holds the broker up, and the connection is not given up for silence.
        """

    @abstractmethod
    def idle(self, seconds: float) -> None:
        """Wait so long, unless `wake` ends it, without reading: messages gather meanwhile."""

    @abstractmethod
    def send(self, packet: Packet) -> None:
        """Send a packet about messages; dropped without a connection. Raises `ValueError` for an invalid packet."""

    @abstractmethod
    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send complete, encoded packets of `granted.version`. The buffer must not change afterwards.

        Lost without connection.
        """

    @abstractmethod
    def ping(self) -> int:
        """Send a ping after all earlier packets; returns a ticket for `answered`.

        Brokers read packets in order: once it is answered, all that was sent before has arrived.
        """

    @abstractmethod
    def answered(self, ticket: int) -> bool:
        """Whether the ping of this ticket was answered. Pings of lost connections will never be."""

    @abstractmethod
    def restart(self, reason: str, *, subscribe: bool = False) -> None:
        """Disconnect, once all written bytes are sent, and connect again at once: a kept session delivers
        unacknowledged messages again.

        `subscribe`: send SUBSCRIBE again even if the broker says that it has kept the session.
        """

    @abstractmethod
    def renew(self) -> None:
        """Send SUBSCRIBE again on this connection, in case the broker has lost some subscriptions. No message is lost
        or comes twice by that. Over MQTT 3.1.1 nothing happens: all retained messages would come again.

        A filter that is refused now ends the connection, and `down` names it.
        """

    @abstractmethod
    def close(self) -> None:
        """Disconnect. The broker keeps the session for the requested time. Idempotent."""

    @abstractmethod
    def wake(self) -> None:
        """Make a waiting `turn`, or the next one, return soon. From any thread."""

    @abstractmethod
    def woken(self) -> bool:
        """Whether `wake` has ended a `turn` since the last call."""
