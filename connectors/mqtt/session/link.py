"""`Link`: the interface of a session's connection: TCP or TLS, or by paho."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import Protocol, TypeAlias

from connectors.mqtt.address import BrokerAddress
from connectors.mqtt.session.transport import Waiter


class Link(Protocol):
    """A connection, set up by repeated calls of `connect`, then read and written. Used by one thread."""

    @property
    def unsent(self) -> int:
        """Bytes that were given to `send` and not sent yet."""

    @property
    def wants_read(self) -> bool:
        """Whether it waits for its socket to become readable, before it is connected."""

    @property
    def wants_write(self) -> bool:
        """Whether it waits for its socket to become writable."""

    @property
    def reads_all(self) -> bool:
        """Whether all received bytes were read when `receive` did not fill its memory."""

    def begin(self) -> None:
        """Begin to connect. Raises `TransportClosed`."""

    def connect(self) -> bool:
        """Go on with connecting. Returns whether CONNECT can be sent. Raises `ConnectorError`."""

    def receive(self, into: memoryview) -> int:
        """Read available bytes into `into`; returns their number, 0 if there are none now. Raises `TransportClosed`."""

    def send(self, data: bytes | bytearray | memoryview) -> None:
        """Send complete packets, after all earlier ones. Raises `TransportClosed`."""

    def flush(self) -> None:
        """Send kept bytes, as many as the socket accepts now. Raises `TransportClosed`."""

    def finish(self, seconds: float) -> None:
        """Send kept bytes, and wait for the other side to close, at most `seconds`."""

    def close(self) -> None:
        """Close the connection, without waiting. Idempotent."""


MakeLink: TypeAlias = Callable[[BrokerAddress, ssl.SSLContext | None, str | None, Waiter], Link]
"""Makes a link to an address, with TLS if there is a context, and the name that its certificate must have."""
