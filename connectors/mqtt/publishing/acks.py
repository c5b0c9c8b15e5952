"""`AckInbound`: takes acknowledgements out of the bytes of a connection, many at once."""

from __future__ import annotations

from collections.abc import Callable

from connectors.mqtt.protocol.acknowledgements import ScannedAcks
from connectors.mqtt.protocol.packets import Version
from connectors.mqtt.protocol.reading import Role
from connectors.mqtt.protocol.receiving import ReceiveBuffer
from connectors.mqtt.protocol.scan import Stopped
from connectors.mqtt.session.inbound import Inbound, Receive

BLOCK = 64 << 10
"""Bytes of one block of memory for received bytes."""


class AckInbound(Inbound):
    """Hands acknowledgements to `acknowledged`, in blocks, and every other packet to the session's `receive`."""

    def __init__(self, max_packet: int, acknowledged: Callable[[ScannedAcks], None]) -> None:
        self._max_packet = max_packet
        self._acknowledged = acknowledged
        self._buffer: ReceiveBuffer

    def begin(self, version: Version) -> None:
        """See `Inbound.begin`."""
        self._buffer = ReceiveBuffer(Role.CLIENT, version, self._max_packet, block=BLOCK)

    def room(self) -> memoryview:
        """See `Inbound.room`."""
        return self._buffer.writable()

    def filled(self, count: int, receive: Receive) -> None:
        """See `Inbound.filled`."""
        self._buffer.filled(count)
        while True:
            acks = self._buffer.acks()
            if len(acks):
                self._acknowledged(acks)
            if acks.stopped is Stopped.NEED_MORE:
                return
            if acks.stopped is Stopped.OTHER_PACKET:
                packet = self._buffer.packet()
                if packet is None:
                    return
                receive(packet)
