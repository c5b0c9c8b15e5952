"""The mosquitto that tests and `streamer broker --mqtt` start: what it promises to whoever ill-treats it."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
import uuid
from pathlib import Path

import pytest
from certificates import certificate_in
from mqttbrokers import StartMosquitto
from mqttclient import MqttClient

from streamer.devbroker import BrokerError
from streamer.devbroker.mqtt import LocalMosquitto, MqttBroker, find_mosquitto, open_mqtt_broker


def test_the_shared_broker_takes_what_is_published(mqtt_broker: MqttBroker) -> None:
    topic = f"test/{uuid.uuid4().hex}"
    with (
        MqttClient(mqtt_broker.host, mqtt_broker.port) as reader,
        MqttClient(mqtt_broker.host, mqtt_broker.port) as one,
    ):
        reader.subscribe(topic, 1)
        one.publish(topic, b"payload", 1)
        assert [message.payload for message in reader.take(1)] == [b"payload"]


def test_a_killed_mosquitto_keeps_what_it_confirmed_for_a_session_that_is_away(start_mosquitto: StartMosquitto) -> None:
    broker = start_mosquitto()
    with MqttClient(broker.host, broker.port, "reader", clean=False) as reader:
        reader.subscribe("t", 1)
    with MqttClient(broker.host, broker.port) as writer:
        for number in range(20):
            writer.publish("t", b"%d" % number, 1)
    store = broker.folder / "mosquitto.db"
    written = store.stat().st_mtime_ns if store.exists() else 0
    # Its store is written once a second; what is confirmed before is lost by a crash.
    deadline = time.monotonic() + 30
    while (not store.exists() or store.stat().st_mtime_ns == written) and time.monotonic() < deadline:
        time.sleep(0.05)
    port, pid = broker.port, broker.pid
    broker.kill()
    assert broker.pid is None
    broker.restart()
    assert (broker.port == port, broker.pid != pid) == (True, True)
    with MqttClient(broker.host, broker.port, "reader", clean=False) as reader:
        assert [message.payload for message in reader.take(20)] == [b"%d" % number for number in range(20)]


def test_a_frozen_mosquitto_answers_nothing_and_ends_all_the_same(start_mosquitto: StartMosquitto) -> None:
    broker = start_mosquitto()
    folder, pid = broker.folder, broker.pid
    with MqttClient(broker.host, broker.port) as client:
        broker.freeze()
        assert not client.published("t", b"", 1, seconds=0.5)
        broker.thaw()
        assert client.published("t", b"", 1, seconds=30)
        broker.freeze()
        broker.stop()
    assert not folder.exists()
    assert pid is not None
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    with pytest.raises(BrokerError, match="not running"):
        _ = broker.port


def test_its_settings_are_lines_of_its_configuration(start_mosquitto: StartMosquitto) -> None:
    broker = start_mosquitto(allow_anonymous="false")
    with pytest.raises(ConnectionError, match=r"(?i)not authori[sz]ed"):
        MqttClient(broker.host, broker.port).__enter__()


def test_a_mosquitto_that_cannot_start_says_why(start_mosquitto: StartMosquitto) -> None:
    with pytest.raises(BrokerError, match=r"ended with code 3(.|\n)*Unknown configuration variable.*colour"):
        start_mosquitto(colour="blue")


def test_a_missing_mosquitto_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("streamer.devbroker.mqtt.mosquitto._SYSTEM_FOLDERS", ())
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("MQTT_BROKER", raising=False)
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    assert find_mosquitto() is None
    with pytest.raises(BrokerError, match="apt-get install mosquitto"):
        LocalMosquitto().start()
    with pytest.raises(BrokerError, match=r"MQTT_BROKER: not set\n.*mosquitto: .*apt-get(.|\n)*docker: "):
        open_mqtt_broker("the test").__enter__()


@pytest.mark.parametrize("text", ["localhost:x", ":1883", "localhost:0", "localhost:70000"])
def test_a_variable_that_names_no_broker_is_said_to(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MQTT_BROKER", text)
    with pytest.raises(BrokerError, match="names no broker: write host:port"):
        open_mqtt_broker("the test").__enter__()


def test_the_variable_goes_before_all_else(start_mosquitto: StartMosquitto, monkeypatch: pytest.MonkeyPatch) -> None:
    own = start_mosquitto()
    monkeypatch.setenv("MQTT_BROKER", f"localhost:{own.port}")
    with open_mqtt_broker("the test") as broker:
        assert (broker.kind, broker.port, broker.url) == ("environment", own.port, f"mqtt://localhost:{own.port}")
    assert own.pid is not None
    own.stop()
    monkeypatch.setenv("MQTT_BROKER", "localhost:1")
    with pytest.raises(BrokerError, match="does not answer"):
        open_mqtt_broker("the test").__enter__()


def test_it_speaks_tls_with_a_certificate_that_the_test_made(start_mosquitto: StartMosquitto, tmp_path: Path) -> None:
    made = certificate_in(tmp_path)
    broker = start_mosquitto(certfile=str(made.certificate), keyfile=str(made.key))
    assert broker.url == f"mqtts://127.0.0.1:{broker.port}"
    with MqttClient("localhost", broker.port, tls=str(made.certificate)) as client:
        client.subscribe("t", 1)
        client.publish("t", b"x", 1)
        assert client.take(1)[0].payload == b"x"


def test_it_asks_for_passwords_where_it_has_a_file_of_them(start_mosquitto: StartMosquitto, tmp_path: Path) -> None:
    program = shutil.which("mosquitto_passwd")
    if program is None:
        pytest.skip("mosquitto_passwd is not installed")
    subprocess.run([program, "-c", "-b", tmp_path / "passwords", "me", "secret"], check=True, capture_output=True)
    broker = start_mosquitto(allow_anonymous="false", password_file=str(tmp_path / "passwords"))
    with pytest.raises(ConnectionError):
        MqttClient(broker.host, broker.port, login=("me", "wrong")).__enter__()
    with MqttClient(broker.host, broker.port, login=("me", "secret")) as client:
        client.publish("t", b"", 1)


def test_where_mosquitto_is_missing_amqtt_serves_if_that_is_allowed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("streamer.devbroker.mqtt.mosquitto._SYSTEM_FOLDERS", ())
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("MQTT_BROKER", raising=False)
    with open_mqtt_broker("the test", allow_development=True) as broker:
        assert broker.kind == "development"
        assert broker.address == f"{broker.host}:{broker.port}"
        with MqttClient(broker.host, broker.port) as client:
            assert client.published("t", b"", 1, seconds=30)
