"""Sources and sinks over TLS, and by paho over encrypted WebSockets, on our own broker."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from certificates import Certificate, certificate_in, server_context
from faultymqtt import FaultyMqtt
from mqttclient import MqttClient
from paho.mqtt.client import MQTTv5
from tcpproxy import TcpProxy
from waiting import until
from websocketbridge import WebSocketBridge

import streamer
from connectors.backoff import Backoff
from connectors.contract import Reader
from connectors.mqtt.config import MqttSourceConfig
from connectors.mqtt.endpoint.source import MqttEndpointSource
from connectors.mqtt.source import MqttSource
from pipelines.errors import ConnectorError
from streamer.agent.running import agent_of

pytestmark = pytest.mark.slow

CLIENT = "secret"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    """The certificate of the broker."""
    return certificate_in(tmp_path_factory.mktemp("broker"))


@pytest.fixture
def broker(made: Certificate) -> Iterator[FaultyMqtt]:
    """A broker that speaks TLS alone."""
    with FaultyMqtt(tls=server_context(made)) as broker:
        yield broker


def source(port: int, host: str = "localhost", **fields: Any) -> MqttSource:
    usual = {"url": f"mqtts://{host}:{port}", "topics": "in/#", "client_id": CLIENT}
    return MqttSource(MqttSourceConfig.model_validate({**usual, **fields}))


def trusting(made: Certificate, **more: str) -> dict[str, str]:
    return {"ca": str(made.certificate), **more}


SERVICE = """
name: sealed
source:
  type: mqtt
  url: {url}
  topics: in/+
  codec: raw
  client: {client}
  tls: {{ca: "{ca}"}}
pipeline: []
sink: {{type: mqtt, topic: out, codec: raw}}
"""


def answers(text: str, broker: FaultyMqtt, payloads: list[bytes]) -> list[bytes]:
    """The results of a service for these messages."""
    # The listener is of the test's own and not encrypted: it asks the broker itself.
    found: list[bytes] = []
    broker.faults.refuse = lambda packet: found.append(packet.payload) if packet.topic == "out" else None
    with streamer.loads(text):
        assert until(lambda: any(name.startswith("sealed") and "out" not in name for name in broker.subscribers))
        broker.publish("in/1", *payloads)
        assert until(lambda: len(found) >= len(payloads))
        assert until(lambda: all(not broker.unacknowledged(name) for name in broker.clients))
    return found


def test_a_service_reads_and_writes_over_tls(broker: FaultyMqtt, made: Certificate) -> None:
    """Messages that are larger than a TLS record, and many small ones after them."""
    payloads = [bytes(3_000_000), *(b"%d" % number for number in range(2000)), bytes(100_000)]
    text = SERVICE.format(url=f"mqtts://localhost:{broker.port}", client="builtin", ca=made.certificate)
    assert answers(text, broker, payloads) == payloads
    assert len(broker.connects) == 2


def test_a_service_reads_and_writes_over_an_encrypted_websocket(made: Certificate) -> None:
    payloads = [bytes(300_000), *(b"%d" % number for number in range(200)), bytes(100_000)]
    with FaultyMqtt() as broker, WebSocketBridge(broker.port, tls=server_context(made)) as bridge:
        text = SERVICE.format(url=f"wss://localhost:{bridge.port}/edge", client="paho", ca=made.certificate)
        assert answers(text, broker, payloads) == payloads
        assert bridge.path == "/edge"


def test_a_connection_that_ends_anywhere_in_what_is_encrypted_loses_nothing(
    broker: FaultyMqtt, made: Certificate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the handshake as well."""
    monkeypatch.setattr(Backoff, "wait", lambda backoff: 0.01)
    with TcpProxy(broker.port) as proxy, Reader(source(proxy.port, tls=trusting(made))) as reader:
        reader.listen(0.05)
        for at in range(0, 4000, 250):
            broker.publish("in/1", b"%d" % at, b"%d" % (at + 1))
            proxy.cut_after("to client", 100 + at)
            proxy.cut()
            received = reader.take(2)
            assert [one.message.value for one in received] == [b"%d" % at, b"%d" % (at + 1)]
            reader.acknowledge(received)
            assert broker.in_flight(CLIENT) == 0


def test_the_certificate_has_to_be_that_of_the_name(broker: FaultyMqtt, made: Certificate) -> None:
    with pytest.raises(ConnectorError, match=r"certificate is not trusted"):
        source(broker.port).open()
    with pytest.raises(ConnectorError, match="certificate is not trusted"):
        source(broker.port, tls=trusting(made, server_name="other.example.com")).open()
    named = source(broker.port, "127.0.0.1", tls=trusting(made, server_name="localhost"))
    named.open()
    assert named.connected
    named.close()


def test_a_client_shows_the_certificate_that_the_broker_asks_for(made: Certificate, tmp_path: Path) -> None:
    own = certificate_in(tmp_path)
    with FaultyMqtt(tls=server_context(made, clients=own)) as broker:
        known = source(broker.port, tls=trusting(made, cert=str(own.certificate), key=str(own.key)))
        known.open()
        assert known.connected
        known.close()
        unknown = source(broker.port, tls=trusting(made))
        unknown._connect_wait = 0.5
        try:
            unknown.open()
        except ConnectorError as error:
            assert "tls.cert" in str(error)  # noqa: PT017 - told in the handshake or behind it
        else:
            assert "tls.cert" in str(unknown.down)
        assert not unknown.connected
        unknown.close()
        assert len(broker.connects) == 1


def test_a_port_of_the_other_kind_is_said_to_be_one(broker: FaultyMqtt, made: Certificate) -> None:
    with FaultyMqtt() as plain:
        for port, scheme, words in ((broker.port, "mqtt", "write mqtts://"), (plain.port, "mqtts", "speak TLS")):
            wrong = source(port, url=f"{scheme}://localhost:{port}")
            wrong._connect_wait = 1.0
            try:
                wrong.open()
            except ConnectorError as error:
                assert words in str(error)  # noqa: PT017 - a TLS error of the other side ends it, an end does not
            else:
                assert words in str(wrong.down)
            wrong.close()


def test_certificates_that_are_renewed_while_the_service_runs_are_read_anew(tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    made, renewed = certificate_in(tmp_path), certificate_in(tmp_path / "new")
    with FaultyMqtt(tls=server_context(made)) as broker, Reader(source(broker.port, tls=trusting(made))) as reader:
        broker.publish("in/1", b"1")
        received = reader.take(1)
        broker._tls = server_context(renewed)
        broker.restart()
        # Not believed, which is no reason to stop: it was right before.
        reader.until(lambda one: "certificate" in str(source_of(one).down))
        shutil.copy(renewed.certificate, made.certificate)
        reader.until(lambda one: source_of(one).connected)
        reader.acknowledge(received)
        broker.publish("in/1", b"2")
        assert [one.message.value for one in reader.take(1)] == [b"2"]


def source_of(reader: Reader) -> MqttSource:
    assert isinstance(reader.source, MqttSource)
    return reader.source


def test_an_endpoint_over_tls_answers(made: Certificate) -> None:
    service = streamer.loads(f"""
name: endpoint
source:
  type: mqtt_endpoint
  listen: "127.0.0.1:0"
  codec: raw
  tls: {{cert: "{made.certificate}", key: "{made.key}"}}
pipeline: []
sink: {{type: mqtt_endpoint, codec: raw}}
""")
    with service:
        agent = agent_of(service)
        assert agent is not None
        source = agent._loop.intakes[0].source
        assert isinstance(source, MqttEndpointSource)
        port = source.address[1]
        began = time.monotonic()
        with MqttClient("localhost", port, version=MQTTv5, tls=str(made.certificate)) as client:
            client.publish("ask", bytes(1_000_000), 1)
            (answer,) = client.take(1)
        assert answer.payload == bytes(1_000_000)
        assert time.monotonic() - began < 30
