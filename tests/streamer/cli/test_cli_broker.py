"""`streamer broker`: a real Kafka, or an MQTT broker, until Ctrl-C."""

from __future__ import annotations

import json
import signal
import socket
from pathlib import Path
from typing import Any

import pytest
import typer
from confluent_kafka.admin import AdminClient
from confluent_kafka.schema_registry import SchemaRegistryClient
from mqttclient import MqttClient

from streamer.cli.commands.broker import mqtt_broker
from streamer.devbroker.errors import BrokerError
from streamer.devbroker.mqtt import DevelopmentBroker, find_mosquitto
from streamer.devbroker.registry import unpacked


# The fixture is asked for so that this is skipped where no Kafka can be started, and runs beside no other cluster.
@pytest.mark.usefixtures("start_kafka")
def test_a_broker_with_topics_runs_until_ctrl_c(start: Any) -> None:
    process = start("broker", "--port", "0", "-t", "images:3", "-t", "predictions", "--json")
    told = json.loads(process.stdout.readline())
    admin = AdminClient({"bootstrap.servers": told["bootstrap"]})
    topics = admin.list_topics(timeout=60).topics
    assert len(topics["images"].partitions) == 3
    assert len(topics["predictions"].partitions) == 1
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0
    assert f"export KAFKA_BOOTSTRAP_SERVERS={told['bootstrap']}" in err
    assert err.splitlines()[-1] == "stopped"


@pytest.mark.slow
@pytest.mark.usefixtures("start_kafka")
def test_a_registry_stands_beside_the_broker_until_ctrl_c(start: Any) -> None:
    try:
        unpacked()
    except BrokerError as error:
        pytest.skip(str(error))
    process = start("broker", "--port", "0", "--registry", "--json")
    told = json.loads(process.stdout.readline())
    client = SchemaRegistryClient({"url": told["registry"]})
    assert client.get_subjects() == []
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0
    assert f"export SCHEMA_REGISTRY_URL={told['registry']}" in err
    host, port = told["registry"].split("/")[2].split(":")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)))


@pytest.mark.parametrize("topic", ["images:", "images:0", "images:x", ":3"])
def test_a_topic_is_a_name_or_a_name_with_its_partitions(cli: Any, topic: str) -> None:
    ended = cli("broker", "--topic", topic)
    assert ended.code == 2
    assert "NAME:PARTITIONS" in ended.err


def test_an_mqtt_broker_runs_until_ctrl_c(start: Any) -> None:
    process = start("broker", "--mqtt", "--port", "0", "--json")
    told = json.loads(process.stdout.readline())
    assert told["broker"] == ("development" if find_mosquitto() is None else "mosquitto")
    assert told["url"] == f"mqtt://{told['host']}:{told['port']}"
    with MqttClient(told["host"], told["port"]) as client:
        client.subscribe("t", 1)
        client.publish("t", b"x", 1)
        client.take(1)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0
    assert f"export MQTT_BROKER={told['host']}:{told['port']}" in err
    assert err.splitlines()[-1] == "stopped"
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((told["host"], told["port"]))


def test_without_mosquitto_it_is_a_development_broker_and_keeps_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("streamer.devbroker.mqtt.find_mosquitto", lambda: None)
    with mqtt_broker(None, 0) as running:
        assert isinstance(running, DevelopmentBroker)
        assert "all data in memory" in running.describe()
    with pytest.raises(typer.BadParameter, match="--data needs mosquitto"):
        mqtt_broker(tmp_path, 0)


def test_another_port_is_taken_where_the_usual_one_is_in_use(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = server.getsockname()[1]
        monkeypatch.setattr("streamer.cli.commands.broker.MQTT_PORT", taken)
        with mqtt_broker(None, None) as running:
            assert running.port != taken
        assert f"port {taken} is taken" in capsys.readouterr().err


@pytest.mark.parametrize("option", [["--topic", "t"], ["--nodes", "3"], ["--registry"]])
def test_kafka_options_are_refused_with_mqtt(option: list[str], cli: Any) -> None:
    ended = cli("broker", "--mqtt", *option)
    assert ended.code == 2
    assert "are Kafka's" in ended.err
