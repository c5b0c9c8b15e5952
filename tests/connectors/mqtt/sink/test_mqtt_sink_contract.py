"""MQTT sinks keep the contract of sinks, on mosquitto, in both versions of MQTT and with every QoS."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest
from cuttable import CuttablePort
from faultymqtt import FaultyMqtt
from mqttclient import MqttClient
from paho.mqtt.client import MQTTMessage, MQTTv5

from connectors.contract import SinkBus, SinkContract
from connectors.message import Message
from connectors.mqtt.sinkconfig import MqttSinkConfig
from connectors.sink import Sink
from streamer.devbroker.mqtt import MqttBroker

NUMBERS = itertools.count()


class MqttSinkBus(SinkBus):
    """A topic of mosquitto behind a port that can be cut, and paho, which has subscribed to it."""

    patience = 30.0
    quiet = 0.2
    in_flight_at_most = 300_000

    def __init__(self, reader: MqttClient, port: CuttablePort, fields: dict[str, Any]) -> None:
        self._topic = f"contract/{os.getpid()}/{next(NUMBERS)}"
        self._reader = reader
        self._port = port
        self._fields = fields
        self._seen: list[MQTTMessage] = []
        reader.subscribe(f"{self._topic}/#", 1)

    def sink(self) -> Sink:
        config = MqttSinkConfig(
            url=f"mqtt://127.0.0.1:{self._port.port}",
            topic=f"{self._topic}/own",
            client_id=f"sink-{self._topic}",
            buffer=f"{self.in_flight_at_most}B",
            **self._fields,
        )
        return config.build()

    def read_back(self, count: int, topic: str | None = None) -> list[Message]:
        wanted = topic or f"{self._topic}/own"
        deadline = time.monotonic() + self.patience
        while sum(one.topic == wanted for one in self._seen) < count and time.monotonic() < deadline:
            self._seen += self._reader.listen(0.05)
        self._seen += self._reader.listen(0.05)
        return [_message(one) for one in self._seen if one.topic == wanted]

    def too_large(self) -> Message:
        return Message(b"x", topic="no/+/name")

    def other_topic(self) -> str:
        return f"{self._topic}/other"

    def cut(self) -> None:
        self._port.cut()

    def mend(self) -> None:
        self._port.mend()


class RoomyBus(MqttSinkBus):
    in_flight_at_most = 16 << 20


def _message(one: MQTTMessage) -> Message:
    said = one.properties.json() if one.properties is not None else {}  # type: ignore[no-untyped-call]
    key = said.get("CorrelationData")
    headers = tuple((name, value.encode()) for name, value in said.get("UserProperty", ()))
    return Message(one.payload, None if key is None else bytes.fromhex(key), headers)


CANNOT = {
    "timestamps": "an MQTT message has no time",
    "tombstones": "a message without payload is one with an empty payload",
    "binary_headers": "a user property is text",
    "lose": "it publishes unacknowledged messages again",
    "vanish": "a topic is not a place that could be taken away",
    "override": "a broker hands on every message",
    "huge": "the buffer of these tests is small",
    "empty": "an empty payload is all that MQTT has",
}


@pytest.fixture
def port(mqtt_broker: MqttBroker) -> Iterator[CuttablePort]:
    with CuttablePort(mqtt_broker.port) as port:
        yield port


class OnMosquitto(SinkContract):
    """The bus of a sink with these fields."""

    fields: ClassVar[dict[str, Any]]
    kind = MqttSinkBus

    @pytest.fixture
    def bus(self, mqtt_broker: MqttBroker, port: CuttablePort) -> Iterator[SinkBus]:
        with MqttClient(mqtt_broker.host, mqtt_broker.port, version=MQTTv5) as reader:
            yield self.kind(reader, port, self.fields)


class TestQoS1(OnMosquitto):
    cannot = CANNOT
    fields: ClassVar = {"qos": 1}


class TestQoS2(OnMosquitto):
    cannot = CANNOT
    fields: ClassVar = {"qos": 2}


class TestQoS0(OnMosquitto):
    cannot = CANNOT
    fields: ClassVar = {"qos": 0}


class TestMqtt311(OnMosquitto):
    cannot = CANNOT | {"keys": "MQTT 3.1.1 has no correlation data", "headers": "MQTT 3.1.1 has no user properties"}
    fields: ClassVar = {"version": "3.1.1"}


class TestPaho(OnMosquitto):
    cannot = CANNOT
    fields: ClassVar = {"client": "paho"}


class TestPahoWithQoS0(OnMosquitto):
    cannot = CANNOT
    fields: ClassVar = {"client": "paho", "qos": 0}


class TestPahoOverMqtt311(OnMosquitto):
    cannot = CANNOT | {"keys": "MQTT 3.1.1 has no correlation data", "headers": "MQTT 3.1.1 has no user properties"}
    fields: ClassVar = {"client": "paho", "version": "3.1.1"}


class TestRoomyBuffer(OnMosquitto):
    cannot: ClassVar = {**{k: v for k, v in CANNOT.items() if k != "huge"}, "cut": "see the others"}
    fields: ClassVar = {"qos": 1}
    kind = RoomyBus


class TestOnOurOwnBroker(SinkContract):
    cannot = CANNOT

    @pytest.fixture
    def bus(self) -> Iterator[SinkBus]:
        with (
            FaultyMqtt() as broker,
            CuttablePort(broker.port) as port,
            MqttClient("127.0.0.1", broker.port, version=MQTTv5) as reader,
        ):
            yield MqttSinkBus(reader, port, {"qos": 2})
