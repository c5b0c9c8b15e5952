"""`PahoLink`: a connection that paho-mqtt makes, reads and writes: over TCP, TLS, WebSockets and proxies.

A session uses it like a socket: each packet that it sends becomes a call of paho, and each packet that paho receives is
encoded again. So all else is as without paho: checks, timeouts, reconnecting. The cost is that each packet is decoded
and encoded twice, in Python.
"""

from __future__ import annotations

import logging
import ssl
import time
from collections.abc import Callable
from typing import Any, Final

from paho.mqtt.client import Client, ConnectFlags, DisconnectFlags, MQTTMessage, MQTTv5, MQTTv311
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties as PahoProperties
from paho.mqtt.reasoncodes import ReasonCode as PahoReason
from paho.mqtt.subscribeoptions import SubscribeOptions

from connectors.mqtt.address import BrokerAddress
from connectors.mqtt.protocol.fields import Fields, written_varint
from connectors.mqtt.protocol.packets import (
    V5,
    Connack,
    Connect,
    Disconnect,
    Packet,
    PacketType,
    Pingreq,
    Puback,
    Publish,
    Suback,
    Subscribe,
    Version,
)
from connectors.mqtt.protocol.properties import NONE, Place, Properties, encode_properties, read_properties
from connectors.mqtt.protocol.reading import PacketReader, Role
from connectors.mqtt.protocol.reasons import ReasonCode
from connectors.mqtt.protocol.writing import PINGRESP, encode
from connectors.mqtt.session.transport import TransportClosed, Waiter, no_tls
from pipelines.errors import ConnectorError

NEVER_SUBSCRIBED: Final = "streamer/is/never/subscribed"
"""The topic filter of an UNSUBSCRIBE that is sent as a ping: paho has no call to send a PINGREQ."""

_log = logging.getLogger(__name__)
_AT_ONCE = 256 * 1024
"""Received bytes that were not taken, above which the connection is not read."""
_PATH = "/mqtt"
"""The default path of a WebSocket, at which brokers listen."""
_WRONG_TOPIC = b"\xff"
"""An invalid topic, in place of one that is not UTF-8, which paho does not return."""


class PahoLink:
    """A connection by paho-mqtt, without a thread of paho's. See `Link`.

    It connects when CONNECT is sent, and waits then: at most 5 s each for TCP, TLS and the WebSocket. `send` raises
    `ConnectorError` for features that paho lacks: QoS 2, a password without a user name.
    """

    wants_read = True
    reads_all = False

    def __init__(
        self, address: BrokerAddress, tls: ssl.SSLContext | None, server_name: str | None, waiting: Waiter
    ) -> None:
        self._address = address
        self._tls = tls
        self._server_name = server_name
        self._waiting = waiting
        self._reader = PacketReader(Role.SERVER)
        self._client: Client | None = None
        self._version: Version = V5
        self._incoming = bytearray()
        self._given = 0
        self._ended: str | None = None
        self._subscribed: dict[int, int] = {}
        self._published: dict[int, int] = {}
        self._warned = False

    @property
    def unsent(self) -> int:
        """Bytes given to `send` since its queue was last empty: paho does not report how many are queued."""
        if not self.wants_write:
            self._given = 0
            return 0
        return max(self._given, 1)

    @property
    def wants_write(self) -> bool:
        """Whether paho waits until something can be written."""
        return self._client is not None and self._client.want_write()

    def begin(self) -> None:
        """Does nothing: paho connects when it gets the CONNECT."""

    def connect(self) -> bool:
        """See `begin`."""
        return True

    def receive(self, into: memoryview) -> int:
        """See `Link.receive`. The bytes of packets are as the broker sent them, except for the order of properties."""
        if not self._incoming:
            self._read()
        if not self._incoming and self._ended is not None:
            raise TransportClosed(self._ended)
        count = min(len(into), len(self._incoming))
        into[:count] = self._incoming[:count]
        del self._incoming[:count]
        return count

    def send(self, data: bytes | bytearray | memoryview) -> None:
        """See `Link.send`. Raises `ConnectorError` for features that paho lacks, and for a certificate that is not
        trusted."""
        for packet in self._reader.feed(data):
            if isinstance(packet, Connect):
                self._connect(packet)
            elif self._client is not None and self._ended is None:
                self._call(self._client, packet)
        self._given += len(data)
        self._raise_if_ended()

    def flush(self) -> None:
        """See `Link.flush`."""
        if self._client is not None and self._client.want_write():
            self._client.loop_write()
        self._raise_if_ended()

    def finish(self, seconds: float) -> None:
        """Send all waiting bytes, within `seconds`; paho closes the connection after a DISCONNECT."""
        deadline = time.monotonic() + seconds
        while self._client is not None and self._ended is None and (left := deadline - time.monotonic()) > 0:
            self.flush()
            self._read()
            self._incoming.clear()
            if self._ended is None:
                self._waiting.wait(min(left, 0.1), read=True, write=self.wants_write)

    def close(self) -> None:
        """See `Link.close`."""
        client, self._client = self._client, None
        self._waiting.watch(None)
        if client is None:
            return
        # paho calls these when the client is garbage collected, and then another socket may be watched.
        client.on_socket_open = client.on_socket_close = None
        if (sock := client.socket()) is not None:
            sock.close()

    def _raise_if_ended(self) -> None:
        # Packets that came before the end, such as the reason, are read first.
        if self._ended is not None and not self._incoming:
            raise TransportClosed(self._ended)

    def _read(self) -> None:
        client = self._client
        while client is not None and self._ended is None and len(self._incoming) < _AT_ONCE:
            before = len(self._incoming)
            client.loop_read()
            if len(self._incoming) == before and not _decrypted(client):
                return

    def _connect(self, packet: Connect) -> None:
        self._version = packet.version
        client = self._made(packet)
        self._client = client
        more: dict[str, Any] = {}
        if packet.version == V5:
            properties = _for_paho(packet.properties, Place.CONNECT, PacketTypes.CONNECT)
            more = {"clean_start": packet.clean_start, "properties": properties}
        address = self._address
        try:
            client.connect(address.host, address.port, packet.keep_alive, **more)
        except ssl.SSLError as error:
            raise no_tls(address, error) from None
        except (OSError, ValueError, IndexError) as error:
            # The last two are raised for an answer that is no WebSocket's, and for an invalid host name.
            raise TransportClosed(f"{address}: {getattr(error, 'strerror', None) or error}") from None

    def _made(self, packet: Connect) -> Client:
        address = self._address
        if packet.password is not None and packet.username is None:
            raise ConnectorError(f"{address}: client: paho sends no password without a user name; add username")
        if self._server_name is not None and self._server_name != address.host:
            raise ConnectorError(
                f"{address}: client: paho compares the broker's certificate with the host of url, not with "
                f'tls.server_name "{self._server_name}"; write that name in url, or leave out client: paho'
            )
        client = Client(
            CallbackAPIVersion.VERSION2,
            packet.client_id,
            clean_session=None if packet.version == V5 else packet.clean_start,
            protocol=MQTTv5 if packet.version == V5 else MQTTv311,
            transport="websockets" if address.websocket else "tcp",
            # By default paho tries MQTT 3.1, and reconnects, by itself.
            reconnect_on_failure=False,
            manual_ack=True,
        )
        if address.websocket:
            client.ws_set_options(path=address.path or _PATH)
        if self._tls is not None:
            client.tls_set_context(self._tls)
        if packet.username is not None:
            password: Any = packet.password
            client.username_pw_set(packet.username, password)
        if packet.will is not None:
            will, kind = packet.will, PacketTypes.WILLMESSAGE
            properties = _for_paho(will.properties, Place.WILL, kind) if packet.version == V5 else None
            client.will_set(will.topic, will.payload, will.qos, will.retain, properties)
        # The sink itself limits the messages in flight.
        client.max_inflight_messages_set(65_535)
        client.on_socket_open = self._on_socket_open
        client.on_socket_close = self._on_socket_close
        client.on_connect = self._on_connect
        client.on_disconnect = self._on_disconnect
        client.on_subscribe = self._on_subscribe
        client.on_unsubscribe = self._on_unsubscribe
        client.on_message = self._on_message
        client.on_publish = self._on_publish
        return client

    def _call(self, client: Client, packet: Packet) -> None:
        match packet:
            case Puback():
                client.ack(packet.packet_id, 1)
            case Publish():
                self._publish(client, packet)
            case Subscribe():
                self._subscribe(client, packet)
            case Pingreq():
                client.unsubscribe(NEVER_SUBSCRIBED)
            case Disconnect():
                self._disconnect(client, packet)
            case _:
                raise ConnectorError(f"{self._address}: client: paho cannot send {type(packet).__name__.upper()}")

    def _publish(self, client: Client, packet: Publish) -> None:
        if packet.qos == 2:
            raise ConnectorError(f"{self._address}: client: paho does not do QoS 2 here; write qos: 1")
        properties = _for_paho(packet.properties, Place.PUBLISH, PacketTypes.PUBLISH)
        sent = client.publish(packet.topic, packet.payload, packet.qos, packet.retain, properties)
        if packet.qos:
            # paho numbers messages itself.
            self._published[sent.mid] = packet.packet_id

    def _subscribe(self, client: Client, packet: Subscribe) -> None:
        filters: list[Any] = []
        for subscription in packet.subscriptions:
            if subscription.qos == 2:
                raise ConnectorError(
                    f"{self._address}: client: paho acknowledges messages of QoS 2 before they are done; write qos: 1, "
                    "or leave out client: paho"
                )
            if self._version == V5:
                options = SubscribeOptions(
                    subscription.qos,
                    subscription.no_local,
                    subscription.retain_as_published,
                    subscription.retain_handling,
                )
                filters.append((subscription.filter, options))
            else:
                filters.append((subscription.filter, subscription.qos))
        _, mid = client.subscribe(filters)
        if mid is not None:
            self._subscribed[mid] = packet.packet_id

    def _disconnect(self, client: Client, packet: Disconnect) -> None:
        # paho closes the connection at once; with unread bytes, TCP would drop those that the broker has not read yet.
        self._read()
        self._incoming.clear()
        if self._version != V5:
            client.disconnect()
            return
        reason = PahoReason(PacketTypes.DISCONNECT, identifier=int(packet.reason))
        client.disconnect(reason, _for_paho(packet.properties, Place.DISCONNECT, PacketTypes.DISCONNECT))

    # Callbacks of paho, called within `connect`, `loop_read` and `loop_write`.

    def _on_socket_open(self, _: Client, __: object, sock: Any) -> None:
        self._waiting.watch(sock)

    def _on_socket_close(self, *_: object) -> None:
        self._waiting.watch(None)

    def _on_connect(self, _: Client, __: object, flags: ConnectFlags, reason: PahoReason, said: Any) -> None:
        properties = self._of_paho(said, Place.CONNACK)
        self._take(Connack(flags.session_present, ReasonCode(reason.value), properties))

    def _on_subscribe(self, _: Client, __: object, mid: int, reasons: list[PahoReason], said: Any) -> None:
        packet_id = self._subscribed.pop(mid, 0)
        if packet_id:
            codes = tuple(ReasonCode(reason.value) for reason in reasons)
            self._take(Suback(packet_id, codes, self._of_paho(said, Place.SUBACK)))

    def _on_unsubscribe(self, *_: object) -> None:
        self._incoming += PINGRESP

    def _on_publish(self, _: Client, __: object, mid: int, reason: PahoReason, said: Any) -> None:
        packet_id = self._published.pop(mid, 0)
        if packet_id:
            code = ReasonCode(reason.value) if self._version == V5 else ReasonCode.SUCCESS
            self._take(Puback(packet_id, code, self._of_paho(said, Place.PUBACK)))

    def _on_message(self, client: Client, _: object, message: MQTTMessage) -> None:
        qos, packet_id = message.qos, message.mid
        if qos == 2:
            self._warn_of_qos_2()
            client.ack(packet_id, 2)
            qos = 0
        try:
            topic = message.topic.encode()
        except UnicodeDecodeError:
            topic = _WRONG_TOPIC
        parts: list[bytes | bytearray] = [len(topic).to_bytes(2, "big"), topic]
        if qos:
            parts.append(packet_id.to_bytes(2, "big"))
        if self._version == V5:
            properties: Any = message.properties
            parts.append(properties.pack() if properties is not None else b"\0")
        parts.append(message.payload)
        flags = (message.dup << 3 if qos else 0) | qos << 1 | message.retain
        self._incoming.append(PacketType.PUBLISH << 4 | flags)
        self._incoming += written_varint(sum(map(len, parts)))
        for part in parts:
            self._incoming += part

    def _on_disconnect(self, _: Client, __: object, flags: DisconnectFlags, reason: PahoReason, said: Any) -> None:
        if flags.is_disconnect_packet_from_server:
            self._take(Disconnect(ReasonCode(reason.value), self._of_paho(said, Place.DISCONNECT)))
        self._ended = f"{self._address} closed the connection"

    def _take(self, packet: Packet) -> None:
        self._incoming += encode(packet, self._version)

    def _of_paho(self, said: Any, place: Place) -> Properties:
        if self._version != V5 or said is None or said.isEmpty():
            return NONE
        raw: bytes = said.pack()
        return read_properties(Fields(memoryview(raw), 0, len(raw), place.value), place)

    def _warn_of_qos_2(self) -> None:
        if not self._warned:
            self._warned = True
            _log.warning(
                "%s: messages of QoS 2 come, by subscriptions of an earlier configuration; paho has acknowledged them "
                "already, so that unfinished ones are lost if this process is killed",
                self._address,
            )


def _for_paho(properties: Properties, place: Place, kind: int) -> Any:
    if properties == NONE:
        return None
    made: Any = PahoProperties
    paho_properties = made(kind)
    paho_properties.unpack(encode_properties(properties, place))
    return paho_properties


def _decrypted(client: Client) -> bool:
    """Whether TLS has decrypted bytes that were not read: waiting for the socket does not notice them."""
    pending: Callable[[], int] | None = getattr(client.socket(), "pending", None)
    return pending is not None and pending() > 0
