"""Commands at the control port: who may give them, and what they answer."""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from typing import Any

import pytest
from pydantic import SecretStr

from streamer.definition.loading import loads
from streamer.observe.configuration import configuration
from streamer.observe.endpoint import Endpoint
from tests.streamer.observe.test_control_port import TOKEN, Service, served

__all__ = ["served"]

BEARER: Mapping[str, Any] = {"Authorization": f"Bearer {TOKEN}".encode()}


def sent(
    endpoint: Endpoint,
    path: str,
    headers: Mapping[str, Any] | None = None,
    method: str = "POST",
    body: str | None = None,
) -> tuple[int, Any]:
    connection = http.client.HTTPConnection(*endpoint.address, timeout=30)
    connection.request(method, path, body, dict(headers or {}))
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    return answer.status, json.loads(text)


def test_a_source_is_paused_and_resumed_by_name(served: Any) -> None:
    service = Service()
    endpoint = served(service, TOKEN)
    paused = {"service": "one", "source": "in", "state": "paused"}
    assert sent(endpoint, "/sources/in/pause", BEARER) == (200, paused)
    assert sent(endpoint, "/sources/in/resume?service=one", BEARER) == (200, {**paused, "state": "running"})
    assert service.commands == ["pause", "resume"]


def test_a_variant_gets_another_weight_and_new_files_are_looked_for(served: Any) -> None:
    service = Service()
    endpoint = served(service, TOKEN)
    weighed = sent(endpoint, "/variants/next", BEARER, body='{"weight": 2.5}')
    assert weighed == (200, {"service": "one", "variant": "next", "weight": 2.5})
    assert sent(endpoint, "/models/reload", BEARER)[0] == 200
    assert service.commands == ["next 2.5", "reload"]


@pytest.mark.parametrize(
    "body",
    [
        "",
        "5",
        '{"weight": 1' + "0" * 400 + "}",
        '{"weight": true}',
        '{"weight": "5"}',
        '{"weight": 5, "service": "x"}',
        "{}",
    ],
)
def test_a_weight_that_is_none_says_how_it_is_sent(served: Any, body: str) -> None:
    service = Service()
    status, answer = sent(served(service, TOKEN), "/variants/next", BEARER, body=body)
    assert (status, service.commands) == (400, [])
    assert answer["error"].startswith('a weight is sent as JSON, {"weight": 5}')


@pytest.mark.parametrize(
    ("path", "headers", "status", "why"),
    [
        ("/sources/in/pause", {}, 401, "Authorization: Bearer TOKEN"),
        ("/sources/in/pause", {**BEARER, "Origin": "http://evil.example"}, 403, "add the host to control.hosts"),
        ("/sources/out/pause", BEARER, 400, 'there is no source "out"; there are in'),
        ("/sources/in/stop", BEARER, 404, "POST /sources/NAME/pause"),
        ("/sources/in/pause?service=two", BEARER, 404, 'there is no service "two" here; there are one'),
        ("/metrics", BEARER, 405, "there is no such command"),
    ],
)
def test_a_command_that_is_not_carried_out_says_what_to_do(
    served: Any, path: str, headers: dict[str, Any], status: int, why: str
) -> None:
    service = Service()
    got, answer = sent(served(service, TOKEN), path, headers)
    assert (got, why in answer["error"]) == (status, True), answer
    assert service.commands == []


def test_pages_of_the_port_itself_and_of_listed_hosts_may_command() -> None:
    service = Service()
    endpoint = Endpoint.join("127.0.0.1:0", "one", service, SecretStr(TOKEN), ["digits.example"])
    try:
        for origin in ("http://127.0.0.1:{1}".format(*endpoint.address), "https://digits.example"):
            assert sent(endpoint, "/sources/in/pause", {**BEARER, "Origin": origin})[0] == 200
    finally:
        endpoint.leave("one")


def test_without_a_configured_token_there_are_no_commands(served: Any) -> None:
    service = Service()
    status, answer = sent(served(service), "/sources/in/pause", BEARER)
    assert (status, service.commands) == (403, [])
    assert "set control.token" in answer["error"]


def test_a_command_is_not_carried_out_by_a_get(served: Any) -> None:
    service = Service()
    status, answer = sent(served(service, TOKEN), "/sources/in/pause", BEARER, "GET")
    assert (status, service.commands) == (405, [])
    assert "POST" in answer["error"]


def test_of_several_services_a_command_names_one(served: Any) -> None:
    first, second = Service(), Service()
    endpoint = served(first, TOKEN)
    # As `Endpoint.join` does for a port that is not 0.
    endpoint._observed["two"] = second
    status, answer = sent(endpoint, "/sources/in/pause", BEARER)
    assert (status, answer["error"]) == (400, "say which service: ?service=NAME, one of one, two")
    assert sent(endpoint, "/sources/in/pause?service=two", BEARER)[0] == 200
    assert (first.commands, second.commands) == ([], ["pause"])
    del endpoint._observed["two"]


def test_the_configuration_needs_the_token_like_metrics(served: Any) -> None:
    endpoint = served(None, TOKEN)
    assert sent(endpoint, "/config", method="GET")[0] == 401
    assert sent(endpoint, "/config", BEARER, "GET") == (200, {"one": {"name": "one"}})


def test_the_configuration_is_what_was_given_without_secrets() -> None:
    service = loads(
        "name: fans\n"
        'source: {type: kafka, topics: a, bootstrap: "h:9092", client: {sasl.password: hunter22}}\n'
        'pipeline: [{"@type": ONNX, modelUri: "https://me:s3cret@host/a.onnx"}]\n'
        "set: {ONNX.inputNames: [x]}\n"
        "sink: {type: kafka, topic: b}\n"
        'control: {listen: "127.0.0.1:0", token: "${PORT_TOKEN}"}\n',
        environment={"PORT_TOKEN": TOKEN},
    )
    shown = configuration(service)
    assert shown["source"][0]["topics"] == ["a"]
    assert shown["source"][0]["client"] == {"sasl.password": "**********"}
    assert shown["pipeline"]["steps"][0] == {
        "@type": "ONNX",
        "modelUri": "https://**********@host/a.onnx",
        "inputNames": ["x"],
    }
    assert "limits" not in shown
    for secret in ("hunter22", "s3cret", TOKEN):
        assert secret not in json.dumps(shown, ensure_ascii=False)
