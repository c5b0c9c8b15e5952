"""The broker that serves where mosquitto is missing: what `streamer broker --mqtt` and the sensors demo need of it."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from mqttclient import MqttClient

import streamer
from streamer.devbroker import BrokerError
from streamer.devbroker.mqtt import DevelopmentBroker


@pytest.fixture
def broker() -> Iterator[DevelopmentBroker]:
    with DevelopmentBroker() as started:
        yield started


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_messages_arrive_in_order(qos: int, broker: DevelopmentBroker) -> None:
    with MqttClient(broker.host, broker.port) as reader, MqttClient(broker.host, broker.port) as writer:
        assert reader.subscribe("t/+", qos) == qos
        for number in range(50):
            writer.publish(f"t/{number % 3}", b"%d" % number, qos)
        assert [message.payload for message in reader.take(50)] == [b"%d" % number for number in range(50)]


def test_a_client_that_subscribes_later_gets_what_was_retained(broker: DevelopmentBroker) -> None:
    with MqttClient(broker.host, broker.port) as client:
        client.publish("alerts/a", b"1", 1, retain=True)
        client.subscribe("alerts/#", 1)
        [message] = client.take(1)
    assert (message.payload, message.retain) == (b"1", True)


def test_messages_are_kept_for_a_session_that_is_away(broker: DevelopmentBroker) -> None:
    with MqttClient(broker.host, broker.port, "reader", clean=False) as reader:
        reader.subscribe("t", 1)
    with MqttClient(broker.host, broker.port) as writer:
        for number in range(20):
            writer.publish("t", b"%d" % number, 1)
    with MqttClient(broker.host, broker.port, "reader", clean=False) as reader:
        assert reader.session_present
        assert sorted(message.payload for message in reader.take(20)) == sorted(b"%d" % number for number in range(20))


def test_a_client_of_mqtt_5_is_refused_at_once_so_that_it_can_try_3_1_1(broker: DevelopmentBroker) -> None:
    # Clean start, 60 s of keep-alive, one property (session expiry), the client id "a".
    connect = b"\x10\x13\0\4MQTT\5\2\0\x3c\5\x11\0\0\0\x3c\0\1a"
    with socket.create_connection((broker.host, broker.port), timeout=5) as connection:
        connection.sendall(connect)
        received = b""
        while data := connection.recv(100):
            received += data
    assert received == b"\x20\2\0\1", "a CONNACK of 3.1.1, unacceptable protocol version, and the end"


def test_a_service_that_names_no_version_runs_on_it(broker: DevelopmentBroker) -> None:
    service = streamer.Service.model_validate(
        {
            "name": "echo",
            "source": {"type": "mqtt", "url": broker.url, "topics": "in", "client_id": "echo", "codec": "json"},
            "pipeline": [],
            "sink": {"type": "mqtt", "url": broker.url, "topic": "out", "codec": "json"},
        }
    )
    with MqttClient(broker.host, broker.port) as client:
        client.subscribe("out", 1)
        client.publish("in", b'{"a":1}', 1, retain=True)
        with service:
            assert client.take(1)[0].payload == b'{"a":1}'


@pytest.mark.parametrize(
    "data", [b"", b"\x10", b"GET / HTTP/1.1\r\n\r\n", b"\x10\xff\xff\xff\xff\xff", b"\x30\0\0\4MQTT\5"]
)
def test_what_is_no_connect_harms_no_other_client(data: bytes, broker: DevelopmentBroker) -> None:
    with MqttClient(broker.host, broker.port) as client:
        with socket.create_connection((broker.host, broker.port)) as connection:
            connection.sendall(data)
        client.publish("t", b"", 1)


def test_it_ends_with_its_connections_and_its_data(broker: DevelopmentBroker) -> None:
    with MqttClient(broker.host, broker.port, "reader", clean=False) as client:
        client.subscribe("t", 1)
        broker.stop()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((broker.host, broker.port))
    with DevelopmentBroker(broker.port), MqttClient(broker.host, broker.port, "reader", clean=False) as client:
        assert not client.session_present
    broker.stop()


def test_a_taken_port_is_said(broker: DevelopmentBroker) -> None:
    with pytest.raises(BrokerError, match=rf"127.0.0.1:{broker.port}(.|\n)* another port"):
        DevelopmentBroker(broker.port).start()
