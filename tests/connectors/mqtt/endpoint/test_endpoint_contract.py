"""The endpoint keeps the contract of sources; a paho client feeds it, which sends again what is not acknowledged."""

from __future__ import annotations

import threading
import uuid
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

import pytest
from paho.mqtt.client import Client, MQTTv5
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from connectors.contract import SourceBus, SourceContract
from connectors.message import Message
from connectors.mqtt.endpoint import MqttEndpointSourceConfig
from connectors.mqtt.endpoint.source import MqttEndpointSource
from connectors.source import Source
from streamer.devbroker.ports import ReservedPorts

WINDOW = 500


class EndpointBus(SourceBus):
    """A device that connects whenever the service is there, and keeps what it was not acknowledged."""

    window = WINDOW
    held_at_most = 2 << 20

    def __init__(self, port: int) -> None:
        self._port = port
        self._name = f"endpoint-{uuid.uuid4().hex}"
        self._client = Client(CallbackAPIVersion.VERSION2, "device", protocol=MQTTv5)
        self._client.max_inflight_messages_set(WINDOW)
        self._client.reconnect_delay_set(1, 1)
        # What it is given while it is not connected paho sends all at once, whatever may be in flight.
        self._later: deque[Message] = deque()
        self._lock = threading.Lock()
        self._client.on_connect = lambda *_: self._catch_up()
        self._client.connect_async("127.0.0.1", port)
        self._client.loop_start()

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()

    def feed(self, messages: Sequence[Message]) -> None:
        with self._lock:
            self._later += messages
        if self._client.is_connected():
            self._catch_up()

    def _catch_up(self) -> None:
        with self._lock:
            messages = list(self._later)
            self._later.clear()
        for message in messages:
            told = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
            if message.headers:
                told.UserProperty = [(name, (value or b"").decode()) for name, value in message.headers]
            self._client.publish("t", message.value, 1, properties=told)

    def source(self) -> Source:
        config = MqttEndpointSourceConfig(
            name=self._name, listen=f"127.0.0.1:{self._port}", window=WINDOW, max_held=self.held_at_most // 2
        )
        return config.build()

    def held_bytes(self, source: Source) -> int:
        assert isinstance(source, MqttEndpointSource)
        return source.held


class TestMqttEndpointSource(SourceContract):
    """The endpoint as a source."""

    cannot: ClassVar[Mapping[str, str]] = {
        "keys": "a record's key is the id of its client",
        "binary_headers": "user properties are text",
        "timestamps": "MQTT has none",
        "tombstones": "a payload of MQTT may be empty, but not absent",
        "partitions": "there is one lane a client",
        "positions": "they are counted by the process",
        "revoke": "a client belongs to the process that it is connected to",
        "end": "clients can always come",
    }

    @pytest.fixture
    def bus(self) -> Iterator[EndpointBus]:
        ports = ReservedPorts(1)
        bus = EndpointBus(ports.numbers[0])
        yield bus
        bus.close()
        ports.close()
