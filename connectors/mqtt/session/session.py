"""`Session`: what a source or a sink sees of its connection to a broker."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Protocol

from connectors.mqtt.protocol.packets import Packet
from connectors.mqtt.session.settings import Granted, Grants


class SessionClient(Protocol):
    """What a session serves. Everything here is called by `Session.turn`, in the thread that calls it."""

    def begun(self, granted: Granted) -> None:
        """The broker has accepted a connection. What is told next belongs to it."""

    def subscribed(self, grants: Grants) -> None:
        """It has granted the subscriptions; the first messages may have come before."""

    def received(self, packet: Packet) -> None:
        """A packet about messages came: PUBLISH, PUBACK, PUBREC, PUBREL or PUBCOMP."""

    def ended(self, reason: str) -> None:
        """The connection is gone, with all that was written and not answered."""


class Session(ABC):
    """One client of one broker: connects, says what it wants, gives signs of life, and comes back when it was cut off.

    It has no thread: nothing happens but in `turn`, which its owner's thread calls again and again, at least some
    times a second. All methods but `wake` are called by this thread. No method waits, but `turn` up to its timeout and
    `restart` and `close` for a second.

    What goes wrong for good raises `ConnectorError` from `turn`, and from every `turn` after it: a login or a topic
    filter that is refused before anything worked, a client id that another client took over. All else is a reason to
    connect again, after 0.25 to 30 s (`down` says why).
    """

    down: str | None = "not connected yet"
    """Why there is no connection; `None` while there is one."""
    granted: Granted | None = None
    """What the broker said last; stays when the connection is lost."""
    connection = 0
    """Number of the connection: rises with each that the broker accepted."""
    lost = 0
    """How many connections were lost so far."""
    rtt = 0.0
    """Seconds that the quickest answer of this connection took, that to CONNECT or to a ping."""

    drained = False
    """Whether the last `turn` has left nothing to read, as far as that can be known."""

    @property
    def connected(self) -> bool:
        """Whether there is a connection that the broker has accepted."""
        return self.down is None

    @property
    @abstractmethod
    def takes_bytes(self) -> bool:
        """Whether `write` can be used."""

    @property
    @abstractmethod
    def unsent(self) -> int:
        """Bytes that were given to it and have not left."""

    @abstractmethod
    def turn(self, timeout: float, *, read: bool = True) -> bool:
        """Do what is due: connect, send, give a sign of life, receive. Whether something was received.

        Waits until something comes or can go, at most `timeout` seconds; may return earlier. Without `read` nothing is
        received, and a connection is not given up for silence: what the broker sends is held up.
        """

    @abstractmethod
    def idle(self, seconds: float) -> None:
        """Wait so long, unless `wake` ends it, and read nothing: what comes meanwhile gathers."""

    @abstractmethod
    def send(self, packet: Packet) -> None:
        """Send a packet about messages. Raises `ValueError` for one that cannot be written; lost without connection."""

    @abstractmethod
    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send whole packets that are encoded already, for `granted.version`, which must not change afterwards.

        Lost without connection. Only where it `takes_bytes`.
        """

    @abstractmethod
    def ping(self) -> int:
        """Ask the broker for a sign of life behind everything that was sent; a ticket for `answered`.

        Brokers read packets in order: once it is answered, all that was sent before has arrived.
        """

    @abstractmethod
    def answered(self, ticket: int) -> bool:
        """Whether the question of this ticket was answered. Of connections that are gone nothing more will be."""

    @abstractmethod
    def restart(self, reason: str, *, subscribe: bool = False) -> None:
        """Leave, once what was written has left, and connect again at once: a kept session delivers again.

        `subscribe`: the subscriptions are asked for again even where the broker says that it has kept the session.
        """

    @abstractmethod
    def renew(self) -> None:
        """Ask for the subscriptions again on this connection, in case the broker has lost some of them. No message is
        lost or comes twice by that. Over MQTT 3.1.1 nothing happens: all retained messages would come again.

        A filter that is refused now ends the connection, and `down` names it.
        """

    @abstractmethod
    def close(self) -> None:
        """Leave the broker, which keeps the session as long as was asked. Idempotent."""

    @abstractmethod
    def wake(self) -> None:
        """Make a `turn` that waits, or the next that would, return soon. From any thread."""

    @abstractmethod
    def woken(self) -> bool:
        """Whether `wake` has ended a `turn` since this was last asked."""
