"""The endpoint keeps the contracts of sources and sinks; paho is its client, and sends unacknowledged messages
again."""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

import pytest
from mqttclient import MqttClient
from paho.mqtt.client import Client, MQTTv5
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from connectors.contract import SinkBus, SinkContract, SourceBus, SourceContract
from connectors.message import Message, block_of
from connectors.mqtt.endpoint import MqttEndpointSinkConfig, MqttEndpointSourceConfig
from connectors.mqtt.endpoint.sink import MAX_IN_FLIGHT
from connectors.mqtt.endpoint.source import MqttEndpointSource
from connectors.sink import Sink
from connectors.source import Source
from streamer.devbroker.ports import ReservedPorts

WINDOW = 500


class EndpointBus(SourceBus):
    """A device that connects whenever the service runs, and keeps unacknowledged messages."""

    window = WINDOW
    held_at_most = 2 << 20

    def __init__(self, port: int) -> None:
        self._port = port
        self._name = f"endpoint-{uuid.uuid4().hex}"
        self._client = Client(CallbackAPIVersion.VERSION2, "device", protocol=MQTTv5)
        self._client.max_inflight_messages_set(WINDOW)
        # Whole seconds, says paho; it would wait for one in each test, and as long at its end.
        self._client.reconnect_delay_set(0.05, 0.05)  # type: ignore[arg-type]
        # When paho connects it sends all messages queued meanwhile at once, ignoring the limit in flight.
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


class AnswersBus(SinkBus):
    """A device that keeps its answers. It is the only one, so that every message is for it."""

    in_flight_at_most = MAX_IN_FLIGHT

    def __init__(self) -> None:
        self.config = MqttEndpointSourceConfig(name=f"endpoint-{uuid.uuid4().hex}", listen="127.0.0.1:0")
        self.endpoint = MqttEndpointSource(self.config)
        self.endpoint.open()
        self._device = MqttClient(*self.endpoint.address, "device", version=MQTTv5)
        self._device.__enter__()
        self._arrived: list[Message] = []

    def close(self) -> None:
        self._device.__exit__(None, None, None)
        self.endpoint.close()

    def key(self, number: int) -> bytes | None:
        return b"device"

    def sink(self) -> Sink:
        return MqttEndpointSinkConfig(topic="answers", qos=2).in_service("", [self.config]).build()

    def other_topic(self) -> str:
        return "others"

    def read_back(self, count: int, topic: str | None = None) -> list[Message]:
        deadline = time.monotonic() + self.patience
        while True:
            self._arrived += [
                Message(
                    m.payload,
                    b"device",
                    tuple((n, v.encode()) for n, v in getattr(m.properties, "UserProperty", ())),
                    topic=m.topic,
                )
                for m in self._device.arrived()
            ]
            found = [one for one in self._arrived if one.topic == (topic or "answers")]
            if len(found) >= count or time.monotonic() > deadline:
                return found
            time.sleep(0.02)


class TestMqttEndpointSink(SinkContract):
    """The endpoint as a sink."""

    cannot: ClassVar[Mapping[str, str]] = {
        "keys": "a message's key is the id of its client, and does not travel",
        "headers": "the contract's messages with headers have no key, so they have no receiver",
        "binary_headers": "user properties are text",
        "topics": "the contract's messages with a topic have no key, so they have no receiver",
        "timestamps": "MQTT has none",
        "tombstones": "a payload of MQTT may be empty, but not absent",
        "limit": "a message that is too large for its client counts as confirmed",
        "override": "keys are clients",
        "cut": "there is no peer but the clients, and one that is gone needs no answer",
        "vanish": "a topic of MQTT is there when it is used",
        "lose": "each message is acknowledged, or its client is gone",
    }

    def test_a_shortened_dead_letter_is_always_accepted(self, bus: SinkBus) -> None:
        """It sends failures to clients, or drops them if there is no client; it refuses none."""
        assert isinstance(bus, AnswersBus)
        letters = MqttEndpointSinkConfig().for_dead_letters().in_service("", [bus.config]).build()
        letters.open()
        headers = (("streamer-topic", b"images"), ("streamer-text", "\u00fc".encode() * 2200))
        nowhere = (("streamer-topic", b"a/#"), ("streamer-text", b"x"))
        for message in (
            Message(b"x", b"images-3-41", headers),
            Message(b"x", None, headers),
            Message(b"x", None),
            Message(b"x", b"device", nowhere),
            Message(b"x", b"device", headers),
        ):
            assert letters.send(block_of([message]), time.monotonic() + 30) == {}
        assert letters.barrier(time.monotonic() + 30) == {}
        (told,) = bus.read_back(1, "images-out")
        assert json.loads(told.value) == {"errorMessage": "\u00fc" * 2200}

    @pytest.fixture
    def bus(self) -> Iterator[AnswersBus]:
        bus = AnswersBus()
        yield bus
        bus.close()
