"""`client: paho` on mosquitto: its features and limits. The contracts' tests run with it, too."""

from __future__ import annotations

import importlib.util
import threading
import time
import uuid
from pathlib import Path
from typing import Any

import pytest
from certificates import certificate_in
from mqttbrokers import StartMosquitto
from mqttclient import MqttClient
from mqttserver import PlayedServer
from paho.mqtt.client import MQTTv5
from proxies import HttpProxy, Proxy, SocksProxy
from waiting import PATIENCE, until
from websocketbridge import WebSocketBridge

from connectors.mqtt.address import BrokerAddress
from connectors.mqtt.config import MqttSourceConfig
from connectors.mqtt.protocol.packets import Packet, Publish, Subscription
from connectors.mqtt.session.choose import session
from connectors.mqtt.session.inbound import PacketInbound
from connectors.mqtt.session.session import Session
from connectors.mqtt.session.settings import Granted, Grants, Settings
from connectors.mqtt.source import MqttSource
from connectors.records import Records
from pipelines.errors import ConnectorError, MissingPackageError
from streamer.devbroker.mqtt import LocalMosquitto, MqttBroker


class Deaf:
    """A client of a session that is interested in nothing."""

    def begun(self, granted: Granted) -> None:
        pass

    def subscribed(self, grants: Grants) -> None:
        pass

    def received(self, packet: Packet) -> None:
        pass

    def ended(self, reason: str) -> None:
        pass


def built(url: str, **more: Any) -> MqttSource:
    """A source by paho."""
    fields = {"url": url, "topics": f"{uuid.uuid4().hex}/#", "client_id": uuid.uuid4().hex, "client": "paho"}
    return MqttSource(MqttSourceConfig.model_validate({**fields, **more}))


def values(source: MqttSource, count: int) -> list[bytes | None]:
    """The payloads of so many messages."""
    found: list[bytes | None] = []
    deadline = time.monotonic() + PATIENCE
    while len(found) < count and time.monotonic() < deadline:
        records: Records = source.poll(100, 1 << 20, 0.1)
        found += records.values
    return found


def session_of(broker: MqttBroker, **more: Any) -> Session:
    """A session by paho."""
    fields: dict[str, Any] = {"name": "source a", "address": BrokerAddress.parse(f"{broker.host}:{broker.port}")}
    return session("paho", Settings(**{**fields, "client_id": uuid.uuid4().hex, **more}), Deaf(), PacketInbound(1000))


def failure(link: Session) -> ConnectorError:
    """Why the session fails for good."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        try:
            link.turn(0.1)
        except ConnectorError as error:
            link.close()
            return error
    raise AssertionError("it did not fail")


@pytest.mark.slow
def test_messages_come_over_tls(start_mosquitto: StartMosquitto, tmp_path: Path) -> None:
    made = certificate_in(tmp_path)
    broker = start_mosquitto(certfile=str(made.certificate), keyfile=str(made.key))
    topic = uuid.uuid4().hex
    source = built(f"mqtts://localhost:{broker.port}", topics=topic, tls={"ca": str(made.certificate)})
    source.open()
    assert source.connected
    large = bytes(300_000)
    sender = session("paho", _sender(broker, made.certificate), Deaf(), PacketInbound(1000))
    while not sender.connected:
        sender.turn(0.1)
    for number in range(20):
        sender.send(Publish(topic, b"%d" % number if number else large))
    while sender.unsent:
        sender.turn(0.1)
    assert values(source, 20) == [large, *(b"%d" % number for number in range(1, 20))]
    sender.close()
    source.close()


def _sender(broker: LocalMosquitto, ca: Path) -> Settings:
    config = MqttSourceConfig.model_validate(
        {"url": f"mqtts://localhost:{broker.port}", "topics": "x", "client_id": "s", "tls": {"ca": str(ca)}}
    )
    return Settings("sender", **config.connection())


@pytest.mark.slow
def test_an_untrusted_certificate_stops_the_source(start_mosquitto: StartMosquitto, tmp_path: Path) -> None:
    made = certificate_in(tmp_path)
    broker = start_mosquitto(certfile=str(made.certificate), keyfile=str(made.key))
    with pytest.raises(ConnectorError, match=r"certificate is not trusted.*tls\.ca"):
        built(f"mqtts://localhost:{broker.port}").open()
    unchecked = built(f"mqtts://127.0.0.1:{broker.port}", tls={"verify": False})
    unchecked.open()
    assert unchecked.connected
    unchecked.close()


@pytest.mark.slow
@pytest.mark.parametrize(("path", "asked"), [("", "/mqtt"), ("/edge/broker", "/edge/broker")])
def test_a_websocket_has_the_path_of_the_url(mqtt_broker: MqttBroker, path: str, asked: str) -> None:
    with WebSocketBridge(mqtt_broker.port) as bridge:
        source = built(f"ws://127.0.0.1:{bridge.port}{path}")
        source.open()
        assert source.connected
        assert bridge.path == asked
        source.close()


@pytest.mark.slow
def test_a_source_opens_and_says_that_its_port_speaks_no_websocket(mqtt_broker: MqttBroker) -> None:
    source = built(f"ws://127.0.0.1:{mqtt_broker.port}")
    source._connect_wait = 1.0
    source.open()
    assert not source.connected
    assert "WebSocket" in str(source.down)
    source.close()


@pytest.mark.slow
@pytest.mark.parametrize("version", ["auto", "3.1.1"])
def test_a_refused_login_stops_the_source(start_mosquitto: StartMosquitto, version: str) -> None:
    broker = start_mosquitto(allow_anonymous="false")
    source = built(f"mqtt://{broker.host}:{broker.port}", username="me", password="wrong", version=version)
    with pytest.raises(ConnectorError, match="check username and password"):
        source.open()


@pytest.mark.slow
def test_a_ping_is_answered_behind_all_that_was_sent(mqtt_broker: MqttBroker) -> None:
    link = session_of(mqtt_broker, keep_alive=1)
    deadline = time.monotonic() + PATIENCE
    while not link.connected and time.monotonic() < deadline:
        link.turn(0.1)
    ticket = link.ping()
    assert not link.answered(ticket)
    while not link.answered(ticket) and time.monotonic() < deadline:
        link.turn(0.1)
    assert link.answered(ticket)
    until = time.monotonic() + 3
    while time.monotonic() < until:
        # Three times the keep-alive without a message: neither side gives up.
        link.turn(0.1)
    assert (link.connection, link.lost) == (1, 0)
    link.close()


@pytest.mark.slow
def test_qos_2_is_refused(mqtt_broker: MqttBroker) -> None:
    link = session_of(mqtt_broker, subscriptions=(Subscription("a", 2),), expiry=60)
    assert "write qos: 1, or leave out client: paho" in str(failure(link))


@pytest.mark.slow
def test_settings_that_paho_would_silently_ignore_are_refused(mqtt_broker: MqttBroker, tmp_path: Path) -> None:
    url = f"{mqtt_broker.host}:{mqtt_broker.port}"
    with pytest.raises(ConnectorError, match="add username"):
        built(url, version="5", password="secret").open()
    tls = {"server_name": "other", "verify": False}
    with pytest.raises(ConnectorError, match=r"tls\.server_name"):
        built(f"mqtts://{url}", tls=tls).open()


def test_without_paho_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *more: None if name == "paho" else found(name, *more))
    with pytest.raises(MissingPackageError, match=r"client: paho.*mqtt\]"):
        built("ws://localhost").open()


@pytest.mark.slow
def test_messages_of_qos_2_that_an_earlier_configuration_left_are_taken(
    mqtt_broker: MqttBroker, caplog: pytest.LogCaptureFixture
) -> None:
    url = f"mqtt://{mqtt_broker.host}:{mqtt_broker.port}"
    fields = {"topics": uuid.uuid4().hex, "client_id": uuid.uuid4().hex}
    earlier = built(url, **fields, client="builtin", qos=2)
    earlier.open()
    earlier.close()
    with MqttClient(mqtt_broker.host, mqtt_broker.port, version=MQTTv5) as sender:
        for number in range(5):
            sender.publish(fields["topics"], b"%d" % number, 2)
    source = built(url, **fields)
    source.open()
    assert values(source, 5) == [b"%d" % number for number in range(5)]
    assert "subscriptions of an earlier configuration" in caplog.text
    source.acknowledge({}, wait=True)
    source.close()


@pytest.mark.slow
def test_a_topic_that_is_no_utf_8_is_delivered_with_its_payload() -> None:
    with PlayedServer() as server:
        source = built(server.url)
        opened = threading.Thread(target=source.open)
        opened.start()
        server.drive = lambda: time.sleep(0.01)
        server.connect()
        opened.join()
        server.connection.sendall(b"\x32\x09\x00\x02\xc3\x28\x00\x07\x00hi")
        assert values(source, 1) == [b"hi"]
        server.hang_up()
        source.close()


@pytest.mark.slow
@pytest.mark.parametrize("kind", [HttpProxy, SocksProxy])
@pytest.mark.parametrize("websocket", [False, True])
def test_the_proxy_of_the_environment_is_used_where_pysocks_is_installed(
    mqtt_broker: MqttBroker, monkeypatch: pytest.MonkeyPatch, kind: type[Proxy], websocket: bool
) -> None:
    pytest.importorskip("socks", reason="PySocks is not installed")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    topic = uuid.uuid4().hex
    with kind() as proxy, WebSocketBridge(mqtt_broker.port) as bridge:
        monkeypatch.setenv("mqtt_proxy", proxy.url)
        port = bridge.port if websocket else mqtt_broker.port
        source = built(f"{'ws' if websocket else 'mqtt'}://127.0.0.1:{port}", topics=topic)
        source.open()
        assert source.connected
        # The sender is paho, too.
        monkeypatch.delenv("mqtt_proxy")
        with MqttClient(mqtt_broker.host, mqtt_broker.port, version=MQTTv5) as sender:
            sender.publish(topic, b"1", 1)
        assert values(source, 1) == [b"1"]
        source.close()
        assert proxy.asked == [("127.0.0.1", port)]


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["http", "socks"])
def test_a_proxy_that_is_away_is_tried_again(
    mqtt_broker: MqttBroker, monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    pytest.importorskip("socks", reason="PySocks is not installed")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("mqtt_proxy", f"{scheme}://127.0.0.1:1")
    source = built(f"mqtt://127.0.0.1:{mqtt_broker.port}")
    source._connect_wait = 0.5
    source.open()
    assert not source.connected
    assert source.down is not None
    monkeypatch.delenv("mqtt_proxy")
    assert until(lambda: len(source.poll(1, 1, 0.05)) == 0 and source.connected)
    source.close()
