"""`Arrivals`: the bytes of a connection as blocks of messages, read in bulk."""

from __future__ import annotations

from collections.abc import Callable

from connectors.mqtt.passingby import PassingBy
from connectors.mqtt.protocol.packets import V5, Version
from connectors.mqtt.protocol.reading import LARGEST, Role
from connectors.mqtt.protocol.receiving import ReceiveBuffer
from connectors.mqtt.protocol.scan import Scanned, Stopped
from connectors.mqtt.session.inbound import Inbound, Receive

_BLOCK = 4 << 20
"""Bytes of one block of memory for received bytes: large, as payloads of a batch that lie in one block are not
copied."""
_AT_ONCE = 1 << 20
"""Bytes that are received, and scanned, at once."""


class Arrivals(Inbound):
    """Scans received bytes; `arrived` gets each block of messages, and `receive` the other packets between them, in
    order.

    No packet of more than `max_packet` bytes is kept. A broker of MQTT 5 is told this limit; one of 3.1.1 cannot be
    told, and its larger messages are discarded while they are received: `too_large` gets the size and a block of one
    message without topic and payload, to be acknowledged in its turn.
    """

    def __init__(
        self,
        max_packet: int,
        arrived: Callable[[Scanned], None],
        too_large: Callable[[int, Scanned], None],
    ) -> None:
        self._max_packet = max_packet
        self._arrived = arrived
        self._too_large = too_large
        self._buffer: ReceiveBuffer | None = None
        self._passing: PassingBy | None = None

    @property
    def held(self) -> int:
        """Received bytes that belong to an incomplete packet."""
        return 0 if self._buffer is None else self._buffer.pending

    def begin(self, version: Version) -> None:
        # If a large message ended the connection, a broker of 3.1.1 would send it again after every reconnect, for
        # ever.
        largest = self._max_packet if version == V5 else LARGEST
        self._passing = None
        self._buffer = ReceiveBuffer(Role.CLIENT, version, largest, strict=False, block=_BLOCK)

    def room(self) -> memoryview:
        return self._received.writable()[:_AT_ONCE]

    def filled(self, count: int, receive: Receive) -> None:
        buffer = self._received
        buffer.filled(count)
        while buffer.pending:
            if self._passing is not None and not self._pass_by(self._passing):
                return
            scanned = buffer.scan()
            if len(scanned):
                self._arrived(scanned)
            if scanned.needed > self._max_packet:
                self._passing = PassingBy.of(buffer.unread())
                if self._passing is None:
                    return
            elif scanned.stopped is Stopped.NEED_MORE:
                return
            if scanned.stopped is Stopped.OTHER_PACKET and (packet := buffer.packet()) is not None:
                receive(packet)

    def _pass_by(self, message: PassingBy) -> bool:
        """Discard the received bytes of the message; whether its end was reached."""
        buffer = self._received
        buffer.drop(message.passed(buffer.pending))
        if message.left:
            return False
        self._passing = None
        self._too_large(message.size, message.row())
        return True

    @property
    def _received(self) -> ReceiveBuffer:
        assert self._buffer is not None
        return self._buffer
