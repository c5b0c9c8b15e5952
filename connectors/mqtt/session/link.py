"""`Link`: what a session needs of its connection, whatever carries it."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import Protocol, TypeAlias

from connectors.mqtt.address import Address
from connectors.mqtt.session.transport import Waiting


class Link(Protocol):
    """One connection: made step by step by `connect`, then read and written. Used by one thread."""

    @property
    def unsent(self) -> int:
        """Bytes that were given to `send` and have not left."""

    @property
    def wants_read(self) -> bool:
        """Whether it waits for something to read, before it is connected."""

    @property
    def wants_write(self) -> bool:
        """Whether it waits until something can be written."""

    @property
    def reads_all(self) -> bool:
        """Whether `receive` leaves nothing behind that has come when it does not fill its room."""

    def begin(self) -> None:
        """Begin to connect. Raises `TransportClosed`."""

    def connect(self) -> bool:
        """Go on with connecting; whether CONNECT can be sent. Raises `ConnectorError`."""

    def receive(self, into: memoryview) -> int:
        """Read what is there into `into`; the bytes read, 0 if there is nothing now. Raises `TransportClosed`."""

    def send(self, data: bytes | bytearray | memoryview) -> None:
        """Send whole packets, after all that were given before. Raises `TransportClosed`."""

    def flush(self) -> None:
        """Send of what is kept as much as can leave now. Raises `TransportClosed`."""

    def finish(self, seconds: float) -> None:
        """See that what is kept leaves, and wait for the other side to close, so long at most."""

    def close(self) -> None:
        """Let go of the connection, without waiting. Idempotent."""


MakeLink: TypeAlias = Callable[[Address, ssl.SSLContext | None, str | None, Waiting], Link]
"""Makes a link to an address, with TLS if there is a context, and the name that its certificate must have."""
