"""paho-mqtt as an oracle: a client that tests talk to brokers with, one call at a time."""

from __future__ import annotations

import contextlib
import queue
import socket
import time
from types import TracebackType
from typing import Any

from paho.mqtt.client import Client, ConnectFlags, DisconnectFlags, MQTTMessage, MQTTv5, MQTTv311
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from waiting import PATIENCE

"""Seconds to wait for what should come at once."""


class MqttClient:
    """A connected paho client with its own network thread.

    `clean` false resumes the session of `client_id`; in MQTT 5 it then expires after `expiry` seconds.
    `manual`: what is received is acknowledged by `acknowledge` only. `will`: topic, payload, QoS, retain.
    `__enter__` raises `ConnectionError` with the server's reason.
    """

    def __init__(
        self,
        host: str,
        port: int,
        client_id: str = "",
        *,
        version: int = MQTTv311,
        clean: bool = True,
        expiry: int = 3600,
        keepalive: int = 60,
        properties: dict[str, Any] | None = None,
        will: tuple[str, bytes, int, bool] | None = None,
        manual: bool = False,
        login: tuple[str, str] | None = None,
        tls: str | None = None,
        seconds: float = PATIENCE,
    ) -> None:
        self.version = version
        self._seconds = seconds
        self.reconnects = False
        self.ended: queue.SimpleQueue[ReasonCode] = queue.SimpleQueue()
        self._address = (host, port, keepalive)
        fields: dict[str, Any] = {"clean_session": clean} if version == MQTTv311 else {}
        self.client = Client(
            CallbackAPIVersion.VERSION2,
            client_id,
            protocol=version,  # type: ignore[arg-type]
            manual_ack=manual,
            reconnect_on_failure=False,
            **fields,
        )
        self._connect: dict[str, Any] = {}
        if version == MQTTv5:
            asked = {} if clean else {"SessionExpiryInterval": expiry}
            self._connect = {"clean_start": clean, "properties": _properties(PacketTypes.CONNECT, properties, asked)}
        if will is not None:
            self.client.will_set(*will)
        if login is not None:
            self.client.username_pw_set(*login)
        if tls is not None:
            self.client.tls_set(ca_certs=tls)
        self._connected: queue.SimpleQueue[tuple[ConnectFlags, ReasonCode, Properties | None]] = queue.SimpleQueue()
        self._granted: queue.SimpleQueue[list[int]] = queue.SimpleQueue()
        self._messages: queue.SimpleQueue[MQTTMessage] = queue.SimpleQueue()
        self.client.on_connect = self._on_connect
        self.client.on_disconnect = self._on_disconnect
        self.client.on_subscribe = self._on_subscribe
        self.client.on_message = lambda client, userdata, message: self._messages.put(message)
        self.session_present = False
        self.connack: dict[str, Any] = {}

    def __enter__(self) -> MqttClient:
        self.client.connect(*self._address, **self._connect)
        self.client.loop_start()
        flags, reason, properties = self._wait_for_answer()
        if reason.is_failure:
            self.client.loop_stop()
            raise ConnectionError(str(reason))
        self.session_present = flags.session_present
        self.connack = {} if properties is None else properties.json()  # type: ignore[no-untyped-call]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.client.disconnect()
        # paho's thread may end by itself after DISCONNECT, and clear the name by which paho joins it just then.
        with contextlib.suppress(AttributeError):
            self.client.loop_stop()

    def _wait_for_answer(self) -> tuple[ConnectFlags, ReasonCode, Properties | None]:
        try:
            return self._connected.get(timeout=self._seconds)
        except queue.Empty:
            self.client.loop_stop()
            raise ConnectionError("no CONNACK") from None

    def subscribe(self, topic: str, qos: int = 0, **options: Any) -> int:
        """Returns the granted QoS, or the code of the failure."""
        if self.version == MQTTv5:
            from paho.mqtt.subscribeoptions import SubscribeOptions

            self.client.subscribe(topic, options=SubscribeOptions(qos, **options))
        else:
            self.client.subscribe(topic, qos)
        return self._granted.get(timeout=PATIENCE)[0]

    def publish(self, topic: str, payload: bytes, qos: int = 0, retain: bool = False, **properties: Any) -> None:
        """Publish and, for QoS 1 and 2, wait until the server has confirmed it."""
        told = _properties(PacketTypes.PUBLISH, properties, {}) if properties else None
        self.client.publish(topic, payload, qos, retain, told).wait_for_publish(PATIENCE)

    def published(self, topic: str, payload: bytes, qos: int, seconds: float) -> bool:
        """Publish; whether it was confirmed in so many seconds."""
        sent = self.client.publish(topic, payload, qos)
        sent.wait_for_publish(seconds)
        return sent.is_published()

    def take(self, count: int) -> list[MQTTMessage]:
        """The next messages; fails the test if they do not come."""
        deadline = time.monotonic() + PATIENCE
        found: list[MQTTMessage] = []
        while len(found) < count:
            try:
                found.append(self._messages.get(timeout=max(0.0, deadline - time.monotonic())))
            except queue.Empty:
                last = [message.payload[:100] for message in found[-20:]]
                raise AssertionError(f"{len(found)} messages of {count}, the last ones {last}") from None
        return found

    def arrived(self) -> list[MQTTMessage]:
        """What has come by now."""
        found: list[MQTTMessage] = []
        while not self._messages.empty():
            found.append(self._messages.get())
        return found

    def nothing(self, seconds: float = 0.3) -> bool:
        """Whether nothing comes for so long."""
        try:
            self._messages.get(timeout=seconds)
        except queue.Empty:
            return True
        return False

    def listen(self, seconds: float) -> list[MQTTMessage]:
        """What comes until nothing came for so long."""
        found: list[MQTTMessage] = []
        with contextlib.suppress(queue.Empty):
            while True:
                found.append(self._messages.get(timeout=seconds))
        return found

    def acknowledge(self, message: MQTTMessage) -> None:
        """Acknowledge a message, of a client with `manual`."""
        self.client.ack(message.mid, message.qos)

    def cut(self) -> None:
        """End the connection without a DISCONNECT, as a crash would."""
        connection = self.client.socket()
        if isinstance(connection, socket.socket):
            connection.shutdown(socket.SHUT_RDWR)
        self.client.loop_stop()

    def _on_connect(
        self, client: Client, userdata: Any, flags: ConnectFlags, reason: ReasonCode, properties: Properties | None
    ) -> None:
        self._connected.put((flags, reason, properties))

    def _on_disconnect(
        self, client: Client, userdata: Any, flags: DisconnectFlags, reason: ReasonCode, properties: Properties | None
    ) -> None:
        self.ended.put(reason)

    def _on_subscribe(
        self, client: Client, userdata: Any, mid: int, reasons: list[ReasonCode], properties: Properties | None
    ) -> None:
        self._granted.put([reason.value for reason in reasons])


def publish_properties(**values: Any) -> Properties:
    """Properties of a PUBLISH, by paho's names."""
    found = _properties(PacketTypes.PUBLISH, values)
    assert found is not None
    return found


def _properties(packet: int, *several: dict[str, Any] | None) -> Properties | None:
    found = Properties(packet)  # type: ignore[no-untyped-call]
    for some in several:
        for name, value in (some or {}).items():
            setattr(found, name, value)
    return found
