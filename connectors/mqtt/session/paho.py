"""`PahoTransport`: paho-mqtt in the place of a socket, for WebSockets and proxies.

The session says to it what it would say to a broker, and hears the same answers: so connecting, login, versions, grants
and coming back are the session's own whatever is below. paho is driven by the session's thread, with no thread of its
own. A proxy is taken from the environment (`mqtt_proxy`) where PySocks is installed.
"""

from __future__ import annotations

import ssl
import time
from typing import Any, Final

from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties as PahoProperties
from paho.mqtt.subscribeoptions import SubscribeOptions

from connectors.mqtt.address import Address
from connectors.mqtt.protocol.packets import (
    V5,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Puback,
    Publish,
    Suback,
    Subscribe,
    Version,
)
from connectors.mqtt.protocol.properties import NONE, PROPERTIES, Kind, Properties
from connectors.mqtt.protocol.reading import Reader, Role
from connectors.mqtt.protocol.reasons import ReasonCode
from connectors.mqtt.protocol.writing import encode
from connectors.mqtt.session.transport import TransportClosed, Waiting
from pipelines.errors import ConnectorError

_CONNECT_WAIT: Final = 5.0
_AT_ONCE: Final = 64
"""Packets that are taken from paho before the session is given what came."""
_ASKED: Final = "streamer/alive"
"""A filter that nobody has subscribed to: paho has no ping of its own, and an UNSUBSCRIBE is answered, too."""


class PahoTransport:
    """As `session.transport.Transport`, on a paho client; the connection is made when CONNECT is sent.

    That waits, up to 5 s: paho connects, and shakes hands in TLS and for a WebSocket, without letting go.
    """

    def __init__(self, address: Address, tls: ssl.SSLContext | None, server_name: str | None, waiting: Waiting) -> None:
        self._address = address
        self._tls = tls
        self._waiting = waiting
        self._reader = Reader(Role.SERVER)
        self._version: Version = V5
        self._came = bytearray()
        self._client: Client | None = None
        self._ended: str | None = None
        self._subscribing: dict[int, int] = {}
        self._publishing: dict[int, int] = {}
        self.wants_read = True
        self.wants_write = False
        self.connected = True
        self.unsent = 0

    def begin(self) -> None:
        """Nothing is to be done before CONNECT."""

    def connect(self) -> bool:
        """It is ready to be sent CONNECT."""
        return True

    def receive(self, into: memoryview) -> int:
        """Packets that paho has received, as they travel; 0 if there are none. Raises `TransportClosed`."""
        if not self._came and self._client is not None:
            for _ in range(_AT_ONCE):
                before = len(self._came)
                self._client.loop_read()
                if len(self._came) == before:
                    break
            self._client.loop_misc()
        if not self._came:
            if self._ended is not None:
                raise TransportClosed(f"{self._address} {self._ended}")
            return 0
        count = min(len(into), len(self._came))
        into[:count] = self._came[:count]
        del self._came[:count]
        return count

    def send(self, data: bytes | bytearray | memoryview) -> None:
        """Have paho send these packets. Raises `TransportClosed` where it cannot connect."""
        for packet in self._reader.feed(data):
            self._say(packet)
        self.flush()

    def flush(self) -> None:
        """Send what waits, as far as it can leave now."""
        client = self._client
        if client is None:
            return
        for _ in range(_AT_ONCE):
            if not client.want_write():
                break
            client.loop_write()
        self.wants_write = client.want_write()

    def finish(self, seconds: float) -> None:
        """Wait, so long at most, until what was said has left and the other side has closed."""
        deadline = time.monotonic() + seconds
        scrap = memoryview(bytearray(65_536))
        while self._ended is None and (left := deadline - time.monotonic()) > 0:
            self.flush()
            if not self.receive(scrap):
                self._waiting.wait(min(left, 0.05), read=True, write=self.wants_write)

    def close(self) -> None:
        """Let go of the connection. Idempotent."""
        self._waiting.watch(None)
        client, self._client = self._client, None
        if client is not None:
            client.on_disconnect = None
            found = client.socket()
            client.disconnect()
            if found is not None:
                found.close()

    def _say(self, packet: Packet) -> None:
        client = self._client
        if isinstance(packet, Connect):
            self._open(packet)
        elif client is None:
            return
        elif isinstance(packet, Subscribe):
            self._subscribe(client, packet)
        elif isinstance(packet, Pingreq):
            client.unsubscribe(_ASKED)
        elif isinstance(packet, Puback):
            client.ack(packet.packet_id, 1)
        elif isinstance(packet, Publish):
            info = client.publish(
                packet.topic,
                packet.payload,
                packet.qos,
                packet.retain,
                self._asked(PacketTypes.PUBLISH, packet.properties),
            )
            if packet.qos:
                self._publishing[info.mid] = packet.packet_id
        elif isinstance(packet, Disconnect):
            client.disconnect(properties=self._asked(PacketTypes.DISCONNECT, packet.properties))
        else:
            raise ConnectorError(f"paho does not send {type(packet).__name__.upper()}; use QoS 0 or 1")

    def _open(self, connect: Connect) -> None:
        self._version = connect.version
        newer = self._version == V5
        client = Client(
            CallbackAPIVersion.VERSION2,
            connect.client_id,
            clean_session=None if newer else connect.clean_start,
            protocol=MQTTProtocolVersion.MQTTv5 if newer else MQTTProtocolVersion.MQTTv311,
            transport="websockets" if self._address.websocket else "tcp",
            reconnect_on_failure=False,
            manual_ack=True,
        )
        client.connect_timeout = _CONNECT_WAIT
        client.max_inflight_messages_set(65_535)
        client.on_connect, client.on_disconnect = self._on_connect, self._on_disconnect
        client.on_message, client.on_publish = self._on_message, self._on_publish
        client.on_subscribe, client.on_unsubscribe = self._on_subscribe, self._on_unsubscribe
        if self._address.websocket:
            client.ws_set_options(self._address.path or "/mqtt")
        if self._tls is not None:
            client.tls_set_context(self._tls)
        if connect.username is not None:
            client.username_pw_set(connect.username, None if connect.password is None else connect.password.decode())
        if connect.will is not None:
            will = connect.will
            asked = self._asked(PacketTypes.WILLMESSAGE, will.properties)
            client.will_set(will.topic, will.payload, will.qos, will.retain, asked)
        more: dict[str, Any] = {}
        if newer:
            more = {
                "clean_start": connect.clean_start,
                "properties": self._asked(PacketTypes.CONNECT, connect.properties),
            }
        try:
            client.connect(self._address.host, self._address.port, connect.keep_alive, **more)
        except ssl.SSLCertVerificationError as error:
            raise ConnectorError(f"{self._address}: its certificate is not believed: {error.verify_message}") from None
        except (OSError, ValueError) as error:
            raise TransportClosed(f"{self._address}: {error}") from None
        self._client = client
        found: Any = client.socket()
        if found is not None:
            # A WebSocket is no socket, but stands for one.
            self._waiting.watch(found)

    def _subscribe(self, client: Client, packet: Subscribe) -> None:
        asked: list[Any] = [
            (one.filter, SubscribeOptions(one.qos, one.no_local, one.retain_as_published, one.retain_handling))
            if self._version == V5
            else (one.filter, one.qos)
            for one in packet.subscriptions
        ]
        _, mid = client.subscribe(asked)
        if mid is not None:
            self._subscribing[mid] = packet.packet_id

    def _hear(self, packet: Packet) -> None:
        self._came += encode(packet, self._version)

    def _asked(self, kind: int, properties: Properties) -> PahoProperties | None:
        if self._version != V5 or properties == NONE:
            return None
        found = PahoProperties(kind)  # type: ignore[no-untyped-call]
        for one in PROPERTIES:
            value = getattr(properties, one.name)
            if value is not None and value != ():
                plain = list(value) if one.kind is Kind.PAIR else int(value) if one.kind is Kind.FLAG else value
                setattr(found, _paho_name(one.name), plain)
        return found

    def _told(self, properties: PahoProperties | None) -> Properties:
        if properties is None or self._version != V5:
            return NONE
        found: dict[str, Any] = {}
        for one in PROPERTIES:
            value = getattr(properties, _paho_name(one.name), None)
            if value is None:
                continue
            if one.repeats:
                value = tuple(value) if isinstance(value, list) else (value,)
            found[one.name] = bool(value) if one.kind is Kind.FLAG else value
        return Properties(**found)

    def _on_connect(
        self, client: Client, data: Any, flags: Any, reason: Any, properties: PahoProperties | None
    ) -> None:
        self._hear(
            Connack(flags.session_present and not reason.is_failure, ReasonCode(reason.value), self._told(properties))
        )

    def _on_disconnect(
        self, client: Client, data: Any, flags: Any, reason: Any, properties: PahoProperties | None
    ) -> None:
        if flags.is_disconnect_packet_from_server:
            self._hear(Disconnect(ReasonCode(reason.value), self._told(properties)))
        self._ended = f"closed the connection ({reason})"

    def _on_message(self, client: Client, data: Any, message: MQTTMessage) -> None:
        self._hear(
            Publish(
                message.topic,
                bytes(message.payload),
                message.qos,
                message.retain,
                message.dup,
                message.mid if message.qos else 0,
                self._told(message.properties),
            )
        )

    def _on_publish(self, client: Client, data: Any, mid: int, reason: Any, properties: PahoProperties | None) -> None:
        packet_id = self._publishing.pop(mid, None)
        if packet_id is not None:
            self._hear(Puback(packet_id, ReasonCode(reason.value) if self._version == V5 else ReasonCode.SUCCESS))

    def _on_subscribe(
        self, client: Client, data: Any, mid: int, reasons: list[Any], properties: PahoProperties | None
    ) -> None:
        granted = tuple(ReasonCode(one.value) for one in reasons)
        self._hear(Suback(self._subscribing.pop(mid, 0), granted, self._told(properties)))

    def _on_unsubscribe(
        self, client: Client, data: Any, mid: int, reasons: list[Any], properties: PahoProperties | None
    ) -> None:
        self._hear(Pingresp())


_NAMES: Final = {
    "user_properties": "UserProperty",
    "subscription_identifiers": "SubscriptionIdentifier",
    "maximum_qos": "MaximumQoS",
}


def _paho_name(name: str) -> str:
    return _NAMES.get(name) or name.title().replace("_", "")
