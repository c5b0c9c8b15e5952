"""`Handshake`: CONNECT and its answer, which shows the version of MQTT."""

from __future__ import annotations

import time

from connectors.mqtt.protocol.packets import V5, V311, Connack, Connect, PacketType, Version
from connectors.mqtt.protocol.properties import NONE, Properties
from connectors.mqtt.protocol.reading import LARGEST, PacketReader, Role
from connectors.mqtt.protocol.reasons import Outcome, ProtocolError, ReasonCode, of_connect
from connectors.mqtt.protocol.writing import encode
from connectors.mqtt.session.link import Link
from connectors.mqtt.session.settings import Settings
from connectors.mqtt.session.transport import Transport, TransportClosed
from pipelines.errors import ConnectorError

GREETING_WAIT = 10.0
"""Seconds within which the broker has to answer CONNECT, and SUBSCRIBE."""
_LOGIN = (ReasonCode.BAD_USER_NAME_OR_PASSWORD, ReasonCode.NOT_AUTHORIZED)
_LARGEST = 1 << 20
_TLS = (0x15, 0x16)
_HTTP = b"H"[0]


class Handshake:
    """Greets the broker at the beginning of each connection of a client.

    A broker that refuses MQTT 5, or closes two connections in a row at its CONNECT, is greeted in 3.1.1 the next time.
    """

    def __init__(self, settings: Settings) -> None:
        self.version: Version = settings.version or V5
        """The version of this connection, or of the next."""
        self.met = False
        """Whether the broker has ever accepted a connection."""
        self._settings = settings
        self._version_known = settings.version is not None
        self._closed = 0
        self._login_asked_again = False
        self._greeting = Greeting()
        self._sent_at = 0.0

    def begin(self, link: Link) -> None:
        """Send CONNECT. Raises `ConnectorError`."""
        self._greeting = Greeting()
        hello = encode(self._connect(), self.version)
        try:
            link.send(hello)
        except ConnectorError as error:
            # paho makes the connection only here.
            if not error.retriable or not isinstance(link, Transport):
                raise
            raise self._ended(error) from None
        self._sent_at = time.monotonic()

    def hear(self, link: Link) -> Connack | None:
        """Read CONNACK; `None` if it has not arrived yet. Raises `TransportClosed` and `ProtocolError`."""
        try:
            link.flush()
            while (room := self._greeting.room()) is not None:
                count = link.receive(room)
                if not count:
                    return None
                self._greeting.filled(count)
        except TransportClosed as error:
            self._note_closed()
            raise self._ended(error) from None
        raw, version = self._greeting.packet(self.version)
        answer = next(PacketReader(Role.CLIENT, version).feed(raw), None)
        if not isinstance(answer, Connack):
            raise ProtocolError(ReasonCode.PROTOCOL_ERROR, "the answer to CONNECT is not a CONNACK")
        return answer

    def check_time(self) -> None:
        """Raise `TransportClosed` if the broker has not answered for too long."""
        if time.monotonic() >= self._sent_at + GREETING_WAIT:
            raise TransportClosed(f"{self._settings.address} does not answer CONNECT within {GREETING_WAIT:.0f} s")

    def accepted(self) -> float:
        """The answer has accepted the connection. Returns the seconds that it took."""
        self._version_known = self.met = True
        self._closed = 0
        self._login_asked_again = False
        return time.monotonic() - self._sent_at

    def refused(self, connack: Connack) -> str:
        """The reason, if another attempt at once may succeed: in the older version, or with a new token.

        Raises `ConnectorError` otherwise.
        """
        settings, reason = self._settings, connack.reason
        said = connack.properties.reason_string
        text = f"{settings.address} refuses the connection: {reason.text}{f': {said}' if said else ''}"
        if reason is ReasonCode.UNSUPPORTED_PROTOCOL_VERSION and self.version == V5 and not self._version_known:
            self.version = V311
            return text
        if reason in _LOGIN:
            text += f'; check username and password, and the rights of client id "{settings.client_id}"'
            if settings.login.token is not None and not self._login_asked_again:
                self._login_asked_again = True
                return text
        # After a first success a refusal is retriable: the broker may be under maintenance.
        raise ConnectorError(f"{settings.name}: {text}", retriable=self.met or of_connect(reason) is Outcome.RETRIABLE)

    def _connect(self) -> Connect:
        settings = self._settings
        username, password = settings.login.credentials()
        properties = NONE
        if self.version == V5:
            properties = Properties(
                session_expiry_interval=settings.expiry or None,
                receive_maximum=settings.receive_maximum if settings.receive_maximum < 65_535 else None,
                maximum_packet_size=settings.max_packet if settings.max_packet < LARGEST else None,
                user_properties=settings.user_properties,
            )
        return Connect(
            settings.client_id,
            clean_start=not settings.expiry
            or not (settings.takes_over or self.met)
            or (self.version == V311 and not settings.lasts),
            keep_alive=settings.keep_alive,
            username=username,
            password=password,
            will=settings.will,
            properties=properties,
            version=self.version,
        )

    def _ended(self, error: ConnectorError) -> TransportClosed:
        """The error for a connection that ended before CONNACK; with advice if no CONNACK ever came."""
        text = f"{error} at the CONNECT of MQTT {'5.0' if self.version == V5 else '3.1.1'}"
        if not self.met and not self._settings.address.websocket:
            text += (
                "; if this port speaks TLS, write mqtts://"
                if self._settings.tls is None
                else "; does the broker ask for a certificate of the client (tls.cert, tls.key)?"
            )
        return TransportClosed(text)

    def _note_closed(self) -> None:
        """A server that does not know MQTT 5 may close without an answer: try the older version the second time."""
        if self._version_known:
            return
        self._closed += 1
        if self._closed >= 2:
            self.version = V311 if self.version == V5 else V5
            self._closed = 0


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
        return "it answers in HTTP: this is not a port of MQTT; write ws:// and client: paho for a WebSocket"
    return f"the answer to CONNECT begins with 0x{first:02X}, which is not a CONNACK; is this a port of MQTT?"
