"""Brokers for tests that hold for every broker: a mosquitto, and our own that can be told to fail."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from faultymqtt import FaultyMqtt
from mqttclient import MqttClient
from paho.mqtt.client import MQTTv5
from waiting import until

from streamer.devbroker.mqtt import LocalMosquitto

MqttUnderTest = LocalMosquitto | FaultyMqtt
_SAVES = "Saving in-memory database"
_AT_ONCE = 5000
"""Messages that are published ahead of their acknowledgements: paho takes at most 65,535, and is slow with many."""


class StartMosquitto(Protocol):
    """`start_mosquitto(max_inflight_messages="20")` starts one with these lines in its configuration."""

    def __call__(self, data: Path | None = None, **settings: str | list[str]) -> LocalMosquitto: ...


class StartMqtt(Protocol):
    """`start_mqtt(window=8)` starts a broker that sends 8 messages ahead; other settings are mosquitto's alone.

    The fixture of `conftest`: the test runs once with each kind of broker.
    """

    def __call__(self, *, window: int | None = None, **settings: str) -> MqttUnderTest: ...


def publish(broker: MqttUnderTest, topic: str, *payloads: bytes, retain: bool = False) -> None:
    """Messages of QoS 1, each on its own topic where `topic` has a `%d`; returns when the broker has taken them."""
    with MqttClient(broker.host, broker.port, version=MQTTv5) as client:
        for start in range(0, len(payloads), _AT_ONCE):
            sent = [
                client.client.publish(topic % number if "%d" in topic else topic, payload, 1, retain)
                for number, payload in enumerate(payloads[start : start + _AT_ONCE], start)
            ]
            for one in sent:
                one.wait_for_publish(60)
                assert one.is_published()


def stored(broker: LocalMosquitto) -> None:
    """Wait until what this mosquitto has is in its store, which it writes once a second."""
    before = broker.log.count(_SAVES)
    # The first may have begun before.
    assert until(lambda: broker.log.count(_SAVES) >= before + 2)


def left_at(broker: MqttUnderTest, client_id: str) -> list[bytes]:
    """What the broker still has for this client, whose connection is gone. It stays there."""
    with MqttClient(broker.host, broker.port, client_id, version=MQTTv5, clean=False, manual=True) as client:
        assert client.session_present
        return [bytes(one.payload) for one in client.listen(0.3)]
