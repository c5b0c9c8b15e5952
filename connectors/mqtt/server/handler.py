"""What a server tells whoever does something with its clients' packets."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from connectors.mqtt.protocol.packets import Connect, Packet

if TYPE_CHECKING:
    from connectors.mqtt.server.connection import Connection


class Handler(ABC):
    """All methods are called by the server's thread. What one raises ends the connection it was about."""

    @abstractmethod
    def connected(self, connection: Connection, connect: Connect) -> None:
        """A client introduces itself: answer with a CONNACK, or `connection.refuse`."""

    @abstractmethod
    def received(self, connection: Connection, packet: Packet) -> None:
        """A packet of a client that was accepted; not PINGREQ, which is answered already."""

    @abstractmethod
    def gone(self, connection: Connection) -> None:
        """A connection that was accepted has ended; `connection.reason` says why."""

    def writable(self, connection: Connection) -> None:
        """A connection that had no `room` has some again."""

    def tick(self, now: float) -> None:
        """Called some times a second, with `time.monotonic()`."""
