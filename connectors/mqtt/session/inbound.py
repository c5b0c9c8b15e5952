"""`Inbound`: turns the bytes that come into packets, one by one or in bulk."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from connectors.mqtt.protocol.packets import Packet, Version
from connectors.mqtt.protocol.reading import Reader, Role

Receive = Callable[[Packet], None]
_ROOM = 64 * 1024


class Inbound(ABC):
    """Where a session puts the bytes of its connection. Used by the session's thread."""

    @abstractmethod
    def begin(self, version: Version) -> None:
        """A connection begins: forget what is left of the one before."""

    @abstractmethod
    def room(self) -> memoryview:
        """Where the next bytes belong: not empty. What is longer than it comes later."""

    @abstractmethod
    def filled(self, count: int, receive: Receive) -> None:
        """So many bytes are in the room: hand the packets that are whole to `receive`, in order.

        Raises `ProtocolError` at the first packet that breaks the rules. What `receive` raises goes through.
        """


class PacketInbound(Inbound):
    """One packet after the other: for clients that get answers rather than messages. `max_packet` in bytes."""

    def __init__(self, max_packet: int) -> None:
        self._max_packet = max_packet
        self._room = memoryview(bytearray(_ROOM))
        self._reader: Reader

    def begin(self, version: Version) -> None:
        self._reader = Reader(Role.CLIENT, version, self._max_packet)

    def room(self) -> memoryview:
        return self._room

    def filled(self, count: int, receive: Receive) -> None:
        for packet in self._reader.feed(self._room[:count]):
            receive(packet)
