"""Clients of MQTT 5 that have sent all that they may are served at once."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from mqttclient import MqttClient
from paho.mqtt.client import MQTTv5, MQTTv311

from connectors.mqtt.endpoint import MqttEndpointSourceConfig, source
from connectors.mqtt.endpoint.source import MqttEndpointSource

WINDOW = 20


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[MqttEndpointSource]:
    """One to which silence says nothing, with a window of 20."""
    monkeypatch.setattr(source, "SILENCE", 1000.0)
    built = MqttEndpointSource(MqttEndpointSourceConfig(listen="127.0.0.1:0", window=WINDOW))
    built.open()
    yield built
    built.close()


def client(endpoint: MqttEndpointSource, name: str, version: int = MQTTv5) -> MqttClient:
    host, port = endpoint.address
    return MqttClient(host, port, name, version=version)


def taken(endpoint: MqttEndpointSource, count: int) -> None:
    """Poll for more than can come, until so many came, and acknowledge them."""
    deadline = time.monotonic() + 60
    while count > 0:
        records = endpoint.poll(1000, 1 << 30, max(deadline - time.monotonic(), 0.0))
        assert time.monotonic() < deadline, f"{count} messages are missing"
        count -= len(records)
        endpoint.acknowledge({lane: int(records.positions[stop - 1]) + 1 for lane, _, stop in records.spans})


def test_a_full_window_is_given_at_once_and_not_after_a_silence(endpoint: MqttEndpointSource) -> None:
    with client(endpoint, "device") as device:
        for number in range(5 * WINDOW):
            device.client.publish("t", b"%d" % number, 1)
        assert len(endpoint.poll(1000, 1 << 30, 60)) == WINDOW
        assert endpoint.starved()
        records = endpoint.poll(1000, 1 << 30, 0.0)
        assert not len(records)


def test_each_of_several_clients_has_a_window_of_its_own(endpoint: MqttEndpointSource) -> None:
    with client(endpoint, "one") as one, client(endpoint, "two") as two:
        for number in range(2 * WINDOW):
            one.client.publish("t", b"%d" % number, 1)
            two.client.publish("t", b"%d" % number, 2)
        taken(endpoint, 4 * WINDOW)
    with client(endpoint, "three") as three:
        for number in range(2 * WINDOW):
            three.client.publish("t", b"%d" % number, 1)
        taken(endpoint, 2 * WINDOW)


def test_a_client_may_send_many_windows_one_after_the_other(endpoint: MqttEndpointSource) -> None:
    with client(endpoint, "device") as device:
        for number in range(5 * WINDOW):
            device.client.publish("t", b"%d" % number, 1)
        taken(endpoint, 5 * WINDOW)


def test_a_window_that_is_not_full_says_nothing(endpoint: MqttEndpointSource) -> None:
    with client(endpoint, "device") as device:
        for number in range(WINDOW - 1):
            device.client.publish("t", b"%d" % number, 1)
        records = endpoint.poll(WINDOW - 1, 1 << 30, 60)
        assert len(records) == WINDOW - 1
        assert not endpoint.starved()


def test_how_much_a_client_of_the_older_version_sends_ahead_is_not_known(endpoint: MqttEndpointSource) -> None:
    with client(endpoint, "device", MQTTv311) as device:
        for number in range(WINDOW):
            device.client.publish("t", b"%d" % number, 1)
        assert len(endpoint.poll(WINDOW, 1 << 30, 60)) == WINDOW
        assert not endpoint.starved()


def test_nobody_is_taken_to_stand_whose_messages_are_acknowledged(endpoint: MqttEndpointSource) -> None:
    with client(endpoint, "device") as device:
        for number in range(WINDOW):
            device.client.publish("t", b"%d" % number, 1)
        taken(endpoint, WINDOW)
        assert not endpoint.starved()
