"""`Handler`: the interface by which a server passes on its clients' packets."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from connectors.mqtt.protocol.packets import Connect, Packet
from connectors.mqtt.protocol.scan import Scanned

if TYPE_CHECKING:
    from connectors.mqtt.server.connection import Connection


class Handler(ABC):
    """All methods are called by the server's thread. An exception in one ends the connection that it was called for."""

    @abstractmethod
    def connected(self, connection: Connection, connect: Connect) -> None:
        """A client has sent CONNECT: answer by `connection.accept` or `connection.refuse`."""

    @abstractmethod
    def received(self, connection: Connection, packet: Packet) -> None:
        """A packet of a client that was accepted; not PINGREQ, which is answered already."""

    def messages(self, connection: Connection, block: Scanned) -> None:
        """Messages of an accepted client that came together. By default `received` is called with each."""
        for packet in block.publishes():
            if connection.closing:
                return
            self.received(connection, packet)

    @abstractmethod
    def gone(self, connection: Connection) -> None:
        """A connection that was accepted has ended; `connection.reason` says why."""

    def sent_away(self, client_id: str, address: str, reason: str) -> None:
        """The server has ended a connection, or refused it: the client broke a rule, or exceeded a limit. `client_id`
        is empty if it is not known."""

    def writable(self, connection: Connection) -> None:
        """A connection that had no `room` has some again."""

    def tick(self, now: float) -> None:
        """Called some times a second, with `time.monotonic()`."""
