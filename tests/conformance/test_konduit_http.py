"""Konduit Serving over HTTP: `POST /predict` with JSON, ProtoData or a form."""

from __future__ import annotations

import json
from collections.abc import Iterator

import httpx2
import pytest

from connectors.http.endpoint.source import HttpSource
from pipelines import Data
from streamer.agent.agent import Agent
from streamer.definition.konduit import KonduitWarning
from streamer.definition.loading import loads

KIND = "content-type"
JSON = "application/json"
BINARY = "application/octet-stream"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """The address of a service whose definition is Konduit's."""
    pipeline = {"steps": [{"@type": "LOGGING"}]}
    with pytest.warns(KonduitWarning):
        agent = Agent(loads(json.dumps({"protocol": "HTTP", "pipeline": pipeline})))
    agent.start()
    (source,) = agent.sources
    assert isinstance(source, HttpSource)
    yield f"http://localhost:{source.address[1]}/predict"
    agent.stop()
    agent.join(30)


def test_json_is_answered_with_json_and_protodata_with_what_is_accepted(url: str) -> None:
    data = Data({"a": 1, "b": [1.5, 2.5]})
    answer = httpx2.post(url, content=data.to_json(), headers={KIND: JSON, "accept": JSON})
    assert (answer.status_code, answer.headers[KIND], answer.json()) == (200, JSON, {"a": 1, "b": [1.5, 2.5]})
    answer = httpx2.post(url, content=data.to_bytes(), headers={KIND: BINARY, "accept": BINARY})
    assert (answer.status_code, answer.headers[KIND], answer.content) == (200, BINARY, data.to_bytes())


def test_a_form_is_answered(url: str) -> None:
    answer = httpx2.post(url, data={"text": "a", "list": "[1, 2]"}, files={"f": ("f.bin", b"\x00\xff")})
    assert answer.status_code == 200
    assert Data.from_json(answer.text) == Data({"text": "a", "list": [1, 2], "f": b"\x00\xff"})


def test_errors_have_konduits_codes(url: str) -> None:
    answers = [
        httpx2.post(url, content="{", headers={KIND: JSON}),
        httpx2.post(url, content="{}", headers={KIND: "text/csv"}),
        httpx2.post(url, content="{}", headers={KIND: JSON, "accept": "text/html"}),
    ]
    codes = ["DATA_PARSING_ERROR", "INVALID_CONTENT_TYPE_HEADER", "INVALID_ACCEPT_HEADER"]
    assert [answer.status_code for answer in answers] == [500] * 3
    assert [answer.json()["errorCode"] for answer in answers] == codes
