"""Konduit Serving over MQTT: the process is the server, and a client gets on T-out the answer to what it sent on T."""

from __future__ import annotations

import base64
import json
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mqttclient import MqttClient
from paho.mqtt.client import MQTTv5, MQTTv311
from waiting import PATIENCE, until

import streamer
from connectors.mqtt.endpoint.endpoint import Endpoint
from pipelines.errors import ConnectorError
from streamer.definition.konduit import KonduitWarning

Serve = Callable[..., int]

STEP = """
def step(data):
    if "fail" in data:
        raise ValueError("no such luck")
    data["seen"] = True
    return data
"""


@pytest.fixture
def serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    """`serve(useSsl=True)` runs a configuration with these fields and returns its port."""
    (tmp_path / "konduit_step.py").write_text(STEP)
    monkeypatch.syspath_prepend(str(tmp_path))
    running: list[Any] = []

    def begin(name: str = "konduit", **fields: Any) -> int:
        pipeline = {"steps": [{"@type": "FUNCTION", "function": "konduit_step:step"}]}
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps({"protocol": "MQTT", "pipeline": pipeline, **fields}))
        with pytest.warns(KonduitWarning):
            service = streamer.load(path)
        service.__enter__()
        running.append(service)
        endpoint = Endpoint.of(f"{name}/mqtt_endpoint")
        assert until(lambda: endpoint.server is not None)
        assert endpoint.server is not None
        return endpoint.server.port

    yield begin
    for service in running:
        service.__exit__(None, None, None)


@pytest.mark.slow
@pytest.mark.parametrize("version", [MQTTv311, MQTTv5], ids=["3.1.1", "5.0"])
def test_the_answer_comes_on_out_with_qos_2_whether_subscribed_or_not(version: int, serve: Serve) -> None:
    port = serve()
    with MqttClient("127.0.0.1", port, "device", version=version) as client:
        client.publish("any/topic", b'{"x": 1.5, "s": "text"}', 1)
        (answer,) = client.take(1)
        assert (answer.topic, answer.qos, answer.retain) == ("any/topic-out", 2, False)
        assert json.loads(answer.payload) == {"x": 1.5, "s": "text", "seen": True}
        assert b"\n" in answer.payload, "it is pretty-printed"
        assert client.subscribe("other-out", 2) == 2
        assert client.subscribe("other-out", 1) == 1
        for qos in (0, 1, 2):
            client.publish("other", b'{"n": %d}' % qos, qos)
        assert [json.loads(m.payload)["n"] for m in client.take(3)] == [0, 1, 2]
        assert client.nothing()


@pytest.mark.slow
def test_each_client_gets_its_own_answers_and_no_others(serve: Serve) -> None:
    port = serve()
    clients = [MqttClient("127.0.0.1", port, f"device-{number}") for number in range(5)]
    try:
        for client in clients:
            client.__enter__()
            client.subscribe("#", 2)
        for turn in range(20):
            for number, client in enumerate(clients):
                client.client.publish("t", b'{"from": %d, "round": %d}' % (number, turn), 1)
        for number, client in enumerate(clients):
            answers = [json.loads(m.payload) for m in client.take(20)]
            assert [(a["from"], a["round"]) for a in answers] == [(number, turn) for turn in range(20)]
            assert client.nothing(0.05)
    finally:
        for client in clients:
            client.__exit__(None, None, None)


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        (b"no json", "JSON"),
        (b"", "JSON"),
        (b"[1, 2]", ""),
        (b'{"x": {"@NDArrayShape": [2], "@NDArrayType": "FLOAT", "@NDArrayData": "AAAA"}}', ""),
        (b'{"fail": 1}', "no such luck"),
        (b"\xff\xfe", ""),
    ],
)
def test_a_failure_is_an_error_message_to_the_same_client_and_is_acknowledged(
    payload: bytes, text: str, serve: Serve
) -> None:
    port = serve()
    with MqttClient("127.0.0.1", port, "device") as client:
        client.publish("t", payload, 1)
        (answer,) = client.take(1)
        assert (answer.topic, answer.qos, answer.retain) == ("t-out", 2, False)
        told = json.loads(answer.payload)
        assert list(told) == ["errorMessage"]
        assert text in told["errorMessage"]
        assert b"\n" in answer.payload
        client.publish("t", b'{"ok": 1}', 1)
        assert json.loads(client.take(1)[0].payload)["ok"] == 1


@pytest.mark.slow
def test_a_thousand_failures_do_not_stop_the_service(serve: Serve) -> None:
    port = serve()
    with MqttClient("127.0.0.1", port, "device") as client:
        # As many at once as the client sends without an acknowledgement: more wait in it, where some were once left.
        for _ in range(50):
            for sent in [client.client.publish("t", b"bad", 1) for _ in range(20)]:
                sent.wait_for_publish(PATIENCE)
        assert all(b"errorMessage" in m.payload for m in client.take(1000))
        client.publish("t", b'{"ok": 1}', 1)
        assert json.loads(client.take(1)[0].payload)["ok"] == 1


def test_arrays_are_little_endian(serve: Serve) -> None:
    port = serve()
    data = base64.b64encode(np.array([1, 2, 3], "<f4").tobytes()).decode()
    array = {"@NDArrayShape": [3], "@NDArrayType": "FLOAT", "@NDArrayDataBase64": data}
    with MqttClient("127.0.0.1", port, "device") as client:
        client.publish("t", json.dumps({"x": array}).encode(), 1)
        answer = json.loads(client.take(1)[0].payload)
        found = next(value for key, value in answer["x"].items() if "Base64" in key or "Data" in key)
        assert found == data


@pytest.mark.slow
def test_tls_with_a_certificate_that_is_made_on_the_spot(serve: Serve, tmp_path: Path) -> None:
    pytest.importorskip("cryptography")
    port = serve(useSsl=True)
    certificate = tmp_path / "server.pem"
    certificate.write_text(ssl.get_server_certificate(("127.0.0.1", port)))
    with MqttClient("localhost", port, "device", tls=str(certificate)) as client:
        client.publish("t", b'{"x": 1}', 2)
        assert json.loads(client.take(1)[0].payload)["x"] == 1
    with pytest.raises((OSError, ConnectionError)):
        MqttClient("127.0.0.1", port, "plain", seconds=2).__enter__()


def test_the_environment_names_the_port(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    first = serve("first")
    monkeypatch.setenv("KONDUIT_SERVING_PORT", str(first))
    with pytest.raises(ConnectorError, match=f"cannot listen on localhost:{first}"):
        serve("second", port=0)
