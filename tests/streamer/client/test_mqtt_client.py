"""`streamer.Client` over MQTT 5: response topics, correlation data, and what brokers say."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import pytest
from faultymqtt import FaultyMqtt

import pipelines
import streamer
from connectors.mqtt.protocol.packets import V5, Connack, Puback
from connectors.mqtt.session.settings import Granted
from pipelines import Data
from pipelines.errors import DefinitionError
from streamer.client.errors import RequestError, RequestTimeout
from streamer.client.mqtt import MqttTransport
from streamer.devbroker.mqtt import MqttBroker


@pytest.fixture
def broker() -> Iterator[FaultyMqtt]:
    with FaultyMqtt() as running:
        yield running


def halved(data: Data) -> Data:
    if data["x"] < 0:
        raise ValueError("x is negative")
    return Data({"y": data["x"] / 2})


def service(url: str, topic: str, source: dict[str, Any], sink: dict[str, Any]) -> streamer.Service:
    return streamer.Service(
        name=topic.replace("/", "-"),
        source={"type": "mqtt", "url": url, "topics": topic, "codec": "json", **source},
        pipeline=pipelines.Sequence([halved]),
        keep=[*source.get("into", {}).values()],
        sink={
            "type": "mqtt",
            "topic": "{record.response_topic}",
            "topics": [f"^{topic}/replies/"],
            "codec": "json",
            "errors": True,
            **sink,
        },
        dead_letter={"type": "memory", "topic": "client-dead"},
        errors={"stop_ratio": 1, "first": 0},
    )


@pytest.mark.parametrize(
    ("source", "sink"),
    [({}, {}), ({"into": {"correlation": "id"}}, {"correlation": "id", "drop": ["id"], "headers": False})],
    ids=["by user properties", "by correlation data"],
)
def test_a_service_answers_with_results_and_errors(
    broker: FaultyMqtt, source: dict[str, Any], sink: dict[str, Any]
) -> None:
    with (
        service(broker.url, "ask/halves", source, sink),
        streamer.Client(f"{broker.url}/ask/halves", codec="json", timeout=20) as client,
    ):
        client.wait_ready()
        assert dict(client(x=3)) == {"y": 1.5}
        assert [result["y"] for result in client.map({"x": n} for n in range(50))] == [n / 2 for n in range(50)]
        if not sink:
            with pytest.raises(RequestError, match="x is negative"):
                client(x=-1)


def test_clients_of_a_real_broker_get_their_own_answers(mqtt_broker: MqttBroker) -> None:
    with service(mqtt_broker.url, "ask/real", {}, {}):
        clients = [streamer.Client(f"{mqtt_broker.url}/ask/real", codec="json", timeout=30) for _ in range(4)]
        asked = [(n, client.submit(x=n)) for n in range(30) for client in clients]
        assert [future.result()["y"] for _, future in asked] == [n / 2 for n, _ in asked]
        assert [client.strangers for client in clients] == [0] * 4
        for client in clients:
            client.close()


def test_a_topic_that_nobody_reads_is_an_error_at_once(mqtt_broker: MqttBroker) -> None:
    with (
        streamer.Client(f"{mqtt_broker.url}/ask/nobody", codec="json", timeout=30) as client,
        pytest.raises(RequestError, match='nobody reads the topic "ask/nobody"'),
    ):
        client(x=1)


def test_a_lost_connection_is_made_again_and_calls_go_on(broker: FaultyMqtt) -> None:
    with (
        service(broker.url, "ask/lost", {}, {}),
        streamer.Client(f"{broker.url}/ask/lost", codec="json", timeout=20) as client,
    ):
        assert client(x=2)["y"] == 1
        broker.cut()
        assert client(x=4)["y"] == 2


def test_no_more_requests_are_published_ahead_than_the_broker_allows() -> None:
    transport = MqttTransport("mqtt://nowhere/ask", codec="json", reply_to=None, options=None, pending=9, timeout=20)
    link = Mock(down=None)
    transport._session = link
    transport.begun(replace(Granted.of(Connack(), transport._config.settings(), V5), receive_maximum=2))
    for number in range(5):
        transport.submit(Data({"x": number}), time.monotonic() + 20)
    transport._publish(link)
    sent = [call.args[0].packet_id for call in link.send.call_args_list]
    assert len(sent) == 2
    transport.received(Puback(sent[0]))
    transport._publish(link)
    assert link.send.call_count == 3
    # What is not acknowledged when the connection is lost is sent first on the next.
    transport.ended("lost")
    transport._publish(link)
    payloads = [call.args[0].payload for call in link.send.call_args_list]
    assert payloads[3:] == payloads[1:3]


def test_a_broker_that_is_not_there_is_named_by_each_call() -> None:
    with streamer.Client("mqtt://localhost:1/ask", timeout=0.3, pending=1) as client:
        for call in (client.submit, client):
            with pytest.raises(RequestError, match="mqtt://localhost:1 does not answer"):
                call(x=1)
        with pytest.raises(RequestTimeout, match="not ready: mqtt://localhost:1 does not answer"):
            client.wait_ready(0.1)


@pytest.mark.parametrize(
    ("url", "arguments", "text"),
    [
        ("mqtt://host", {}, "names no topic"),
        ("mqtt://host/a/+", {}, "no request can be published"),
        ("mqtt://host/a", {"reply_to": "a/#"}, "no answer can be published"),
        ("mqtt://host/a", {"options": {"usrname": "x"}}, 'did you mean "username"'),
        ("mqtt://me:pw@host/a", {}, "options"),
        ("mqtt://host/a", {"version": "2"}, "version is nothing"),
    ],
)
def test_an_argument_that_cannot_be_used_is_refused_at_once(url: str, arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(DefinitionError, match=text) as error:
        streamer.Client(url, **arguments)
    assert "pw" not in str(error.value)
