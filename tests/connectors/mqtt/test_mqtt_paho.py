"""`client: paho`: WebSockets, with all that the source does on its own connection."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import pytest
from faultymqtt import FaultyMqtt
from mqttclient import MqttClient

from connectors.contract import Reader
from connectors.mqtt.config import MqttSourceConfig
from connectors.mqtt.source import MqttSource
from pipelines.errors import ConnectorError
from streamer.devbroker.mqtt import LocalMosquitto
from streamer.devbroker.ports import ReservedPorts

pytestmark = pytest.mark.slow


@pytest.fixture
def ports(start_mosquitto: Callable[..., LocalMosquitto]) -> tuple[LocalMosquitto, int]:
    """A mosquitto, and its port for WebSockets."""
    reserved = ReservedPorts(1)
    port = reserved.numbers[0]
    reserved.close()
    broker = start_mosquitto(listener=[f"{port} 127.0.0.1\nprotocol websockets"])
    return broker, port


def source(url: str, client_id: str, **fields: object) -> MqttSource:
    usual = {"url": url, "topics": f"{client_id}/{{device}}", "client_id": client_id, "client": "paho"}
    return MqttSourceConfig.model_validate({**usual, **fields}).build()


@pytest.mark.parametrize("version", ["auto", "3.1.1"])
@pytest.mark.parametrize("scheme", ["ws", "mqtt"])
def test_messages_come_by_paho_and_are_acknowledged_when_they_are_done(
    ports: tuple[LocalMosquitto, int], scheme: str, version: str
) -> None:
    broker, port = ports
    place = uuid.uuid4().hex
    url = f"ws://127.0.0.1:{port}" if scheme == "ws" else f"mqtt://127.0.0.1:{broker.port}"
    with MqttClient(broker.host, broker.port, version=5) as client:
        with Reader(source(url, place, version=version)) as reader:
            for number in range(10):
                client.publish(f"{place}/7", b"%d" % number, 1, UserProperty=[("trace", "abc")])
            received = reader.take(10)
            assert [one.message.value for one in received] == [b"%d" % number for number in range(10)]
            assert dict(received[0].message.extras)["levels.device"] == "7"
            assert received[0].message.headers == ((("trace", b"abc"),) if version == "auto" else ())
            reader.acknowledge(received[:4])
        with Reader(source(url, place, version=version)) as reader:
            again = reader.take(6)
            assert [one.message.value for one in again] == [b"%d" % number for number in range(4, 10)]
            reader.source.rewind([again[0].lane])
            reader.acknowledge(reader.take(6))
        with Reader(source(url, place, version=version)) as reader:
            assert reader.listen(0.3) == []


def test_a_session_that_is_taken_over_ends_it() -> None:
    """On our own broker: older ones of mosquitto do not say it."""
    broker = FaultyMqtt()
    with (
        broker,
        Reader(source(f"mqtt://127.0.0.1:{broker.port}", "x")) as reader,
        MqttClient(broker.host, broker.port, "x", version=5),
        pytest.raises(ConnectorError, match="taken over"),
    ):
        reader.until(lambda r: False)


def test_a_port_that_is_no_websocket_is_down_and_no_error(ports: tuple[LocalMosquitto, int]) -> None:
    broker, _ = ports
    found = source(f"ws://127.0.0.1:{broker.port}", "x")
    found._connect_wait = 0.3
    found.open()
    assert not found.connected
    assert found.down is not None
    found.close()
