"""`Greeting`: reads the answer to CONNECT from a connection, and no byte beyond it."""

from __future__ import annotations

from connectors.mqtt.protocol.packets import V311, PacketType, Version
from connectors.mqtt.protocol.reasons import ProtocolError, ReasonCode

_LARGEST = 1 << 20
_TLS = (0x15, 0x16)
_HTTP = b"H"[0]


class Greeting:
    """The received bytes of the first packet. Later bytes are left to the reader of messages."""

    def __init__(self) -> None:
        self._raw = bytearray()
        self._asked = bytearray()

    def room(self) -> memoryview | None:
        """Memory for the next bytes; `None` when the packet is complete. Raises `ProtocolError`."""
        wanted = self._missing()
        if not wanted:
            return None
        self._asked = bytearray(wanted)
        return memoryview(self._asked)

    def filled(self, count: int) -> None:
        """`count` bytes were written into `room`."""
        self._raw += self._asked[:count]

    def packet(self, version: Version) -> tuple[bytes, Version]:
        """The packet and its version: brokers of 3.1.1 answer a newer CONNECT in their own version."""
        # A CONNACK of MQTT 5 always has a length of properties, so it is longer.
        return bytes(self._raw), V311 if len(self._raw) == 4 else version

    def _missing(self) -> int:
        raw = self._raw
        if raw and raw[0] >> 4 != PacketType.CONNACK:
            raise ProtocolError(ReasonCode.PROTOCOL_ERROR, _guess(raw[0]))
        length = shift = 0
        for at in range(1, len(raw)):
            length |= (raw[at] & 0x7F) << shift
            if raw[at] < 0x80:
                if length > _LARGEST:
                    raise ProtocolError(ReasonCode.PACKET_TOO_LARGE, f"CONNACK: it has {length} bytes")
                return at + 1 + length - len(raw)
            shift += 7
            if shift > 21:
                raise ProtocolError(ReasonCode.MALFORMED_PACKET, "CONNACK: its length has more than four bytes")
        return 2 - len(raw) if len(raw) < 2 else 1


def _guess(first: int) -> str:
    if first in _TLS:
        return "it answers in TLS: write mqtts:// instead of mqtt://"
    if first == _HTTP:
        return "it answers in HTTP: this is no port of MQTT; write ws:// and client: paho for a WebSocket"
    return f"the answer to CONNECT begins with 0x{first:02X}, which is no CONNACK; is this a port of MQTT?"
