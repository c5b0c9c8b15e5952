"""The MQTT source keeps the contract of sources, on mosquitto and on our own broker."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import pytest
from faultymqtt import FaultyMqtt, Window
from mqttclient import MqttClient
from tcpproxy import TcpProxy
from websocketbridge import WebSocketBridge

from connectors.contract import SessionBus, SessionContract, SourceContract
from connectors.message import Message
from connectors.mqtt.config import MqttSourceConfig
from connectors.mqtt.source import MqttSource
from connectors.source import Source
from streamer.devbroker.mqtt import LocalMosquitto

pytestmark = pytest.mark.slow

CANNOT = {
    "keys": "MQTT messages have no keys",
    "binary_keys": "MQTT messages have no keys",
    "same_key": "MQTT messages have no keys",
    "binary_headers": "user properties are text",
    "timestamps": "MQTT messages have no time",
    "tombstones": "a payload is never absent",
    "partitions": "a session is one lane",
    "positions": "positions are arrival numbers of this process",
    "revoke": "a session is not taken away and given back",
    "end": "topics do not end",
}


class MqttBus(SessionBus):
    """A topic of a broker, which the source reaches through a proxy."""

    held_at_most = 4 * 2**20

    def __init__(self, broker: LocalMosquitto, version: str, qos: int = 1, scheme: str = "", path: str = "") -> None:
        self.place = uuid.uuid4().hex
        self._version, self._qos = version, qos
        self._more = {"client": "paho"} if scheme else {}
        self._url = f"{scheme or 'mqtt'}://127.0.0.1:{{}}{path}"
        self._proxy = (WebSocketBridge if scheme == "ws" else TcpProxy)(broker.port).__enter__()
        self._feeder = MqttClient(broker.host, broker.port, version=5).__enter__()
        self._broker = broker
        make_session(self.source())

    def feed(self, messages: Sequence[Message]) -> None:
        for one in messages:
            more: dict[str, Any] = {}
            if one.headers:
                more["UserProperty"] = [(name, (value or b"").decode()) for name, value in one.headers]
            assert one.value is not None
            self._feeder.publish(f"{self.place}/{one.partition or 0}", one.value, self._qos, **more)

    def source(self) -> Source:
        url = self._url.format(self._proxy.port)
        return built(self._proxy.port, self.place, version=self._version, qos=self._qos, url=url, **self._more)

    def held_bytes(self, source: Source) -> int:
        assert isinstance(source, MqttSource)
        return source.held_bytes

    def drop(self, source: Source) -> None:
        self._proxy.cut()

    def forget(self, source: Source) -> None:
        self._proxy.cut()
        # It does not connect again before it is polled: meanwhile another client with its name wants no session.
        with MqttClient(self._broker.host, self._broker.port, self.place):
            pass

    def hears(self, source: Source) -> bool:
        assert isinstance(source, MqttSource)
        return source.connected

    def close(self) -> None:
        self._feeder.__exit__(None, None, None)
        self._proxy.__exit__(None, None, None)


class OwnBus(SessionBus):
    """A topic of our own broker, in the way of a broker that has a window of its own."""

    def __init__(self, broker: FaultyMqtt, window: int | None = None) -> None:
        self.window = window
        self.place = uuid.uuid4().hex
        self._broker = broker
        make_session(self.source())

    def feed(self, messages: Sequence[Message]) -> None:
        for one in messages:
            assert one.value is not None
            self._broker.publish(f"{self.place}/{one.partition or 0}", one.value)

    def source(self) -> Source:
        return built(self._broker.port, self.place)

    def drop(self, source: Source) -> None:
        self._broker.cut(self.place)

    def forget(self, source: Source) -> None:
        self._broker.forget(self.place)

    def hears(self, source: Source) -> bool:
        assert isinstance(source, MqttSource)
        return source.connected


def built(port: int, place: str, **more: object) -> MqttSource:
    """A source of this place's topics."""
    fields = {"url": f"mqtt://127.0.0.1:{port}", "topics": f"{place}/+", "client_id": place}
    return MqttSource(MqttSourceConfig.model_validate({**fields, **more}))


def make_session(source: Source) -> None:
    """Have the broker keep messages for this source from now on."""
    source.open()
    source.close()


@pytest.fixture
def mosquitto(start_mosquitto: Callable[..., LocalMosquitto]) -> LocalMosquitto:
    """A mosquitto that lets as many messages be unacknowledged as the source asks for."""
    return start_mosquitto(max_inflight_messages="0")


@pytest.fixture
def own() -> Iterator[FaultyMqtt]:
    """Our own broker."""
    broker = FaultyMqtt()
    with broker:
        yield broker


class Contracts(SourceContract, SessionContract):
    """Both contracts."""

    cannot = CANNOT
    # A source without a known window may take a pause of a busy machine for a full one: it is tested with a window.
    test_a_starved_source_goes_on_when_something_is_acknowledged = None  # type: ignore[assignment]


class TestOnMosquitto(Contracts):
    """MQTT 5, QoS 1."""

    @pytest.fixture
    def bus(self, mosquitto: LocalMosquitto) -> Iterator[MqttBus]:
        bus = MqttBus(mosquitto, "5")
        yield bus
        bus.close()


class TestOnMosquittoInTheOlderVersion(Contracts):
    """MQTT 3.1.1, QoS 1."""

    cannot: ClassVar = {**CANNOT, "headers": "there are no properties before MQTT 5"}

    @pytest.fixture
    def bus(self, mosquitto: LocalMosquitto) -> Iterator[MqttBus]:
        bus = MqttBus(mosquitto, "3.1.1")
        yield bus
        bus.close()


class TestOnMosquittoWithQos2(Contracts):
    """MQTT 5, QoS 2."""

    @pytest.fixture
    def bus(self, mosquitto: LocalMosquitto) -> Iterator[MqttBus]:
        bus = MqttBus(mosquitto, "5", qos=2)
        yield bus
        bus.close()


class TestOnMosquittoWithPaho(Contracts):
    """MQTT 5, QoS 1, by paho-mqtt over TCP."""

    @pytest.fixture
    def bus(self, mosquitto: LocalMosquitto) -> Iterator[MqttBus]:
        bus = MqttBus(mosquitto, "5", scheme="mqtt")
        yield bus
        bus.close()


class TestOnMosquittoWithPahoInTheOlderVersion(Contracts):
    """MQTT 3.1.1, QoS 1, by paho-mqtt over TCP."""

    cannot: ClassVar = {**CANNOT, "headers": "there are no properties before MQTT 5"}

    @pytest.fixture
    def bus(self, mosquitto: LocalMosquitto) -> Iterator[MqttBus]:
        bus = MqttBus(mosquitto, "3.1.1", scheme="mqtt")
        yield bus
        bus.close()


class TestOnMosquittoWithPahoInAWebSocket(Contracts):
    """MQTT 5, QoS 1, by paho-mqtt over a WebSocket."""

    @pytest.fixture
    def bus(self, mosquitto: LocalMosquitto) -> Iterator[MqttBus]:
        bus = MqttBus(mosquitto, "5", scheme="ws", path="/mqtt")
        yield bus
        bus.close()


class TestOnOurOwnBroker(Contracts):
    """MQTT 5, QoS 1."""

    cannot: ClassVar = {**CANNOT, "headers": "it is fed without", "held": "it is on mosquitto"}

    @pytest.fixture
    def bus(self, own: FaultyMqtt) -> OwnBus:
        return OwnBus(own)


class TestWindows:
    """A broker that allows 20 unacknowledged messages, ignoring the requested number."""

    test_window = SourceContract.test_a_starved_source_goes_on_when_something_is_acknowledged

    @pytest.fixture
    def bus(self, own: FaultyMqtt) -> OwnBus:
        own.faults.window = lambda connect: Window(20)
        return OwnBus(own, window=20)
