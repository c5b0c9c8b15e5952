"""`Inbound`: turns received bytes into packets, one by one or in bulk."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from connectors.mqtt.protocol.packets import Packet, Version
from connectors.mqtt.protocol.reading import PacketReader, Role

Receive = Callable[[Packet], None]
_ROOM = 64 * 1024


class Inbound(ABC):
    """Receives the bytes of a session's connection. Used by the session's thread."""

    @abstractmethod
    def begin(self, version: Version) -> None:
        """Reset for a new connection: drop bytes of the previous one."""

    @abstractmethod
    def room(self) -> memoryview:
        """Memory for the next bytes; not empty. Bytes that do not fit are received by a later call."""

    @abstractmethod
    def filled(self, count: int, receive: Receive) -> None:
        """`count` bytes were written into `room`: pass the complete packets to `receive`, in order.

        Raises `ProtocolError` at the first packet that breaks the rules, and the exceptions of `receive`.
        """


class PacketInbound(Inbound):
    """Passes packets on singly, for clients that get few packets. `max_packet` in bytes."""

    def __init__(self, max_packet: int) -> None:
        self._max_packet = max_packet
        self._room = memoryview(bytearray(_ROOM))
        self._reader: PacketReader

    def begin(self, version: Version) -> None:
        self._reader = PacketReader(Role.CLIENT, version, self._max_packet)

    def room(self) -> memoryview:
        return self._room

    def filled(self, count: int, receive: Receive) -> None:
        for packet in self._reader.feed(self._room[:count]):
            receive(packet)
