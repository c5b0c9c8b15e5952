"""`streamer models`: the models of a running server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from repositoryserving import free, model, served

from connectors.http.exchange import Answer, HttpRequest
from connectors.http.port import HttpPort


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = model(tmp_path_factory.mktemp("models") / "adds.onnx").parent
    with served(folder) as repository:
        yield "http://{}:{}".format(*repository.address)


@pytest.fixture
def token(tmp_path: Path) -> tuple[str, str]:
    file = tmp_path / "token.txt"
    file.write_text("sesame\n")
    return "--token-file", str(file)


def test_models_are_listed_loaded_and_unloaded(url: str, token: tuple[str, str], cli: Any) -> None:
    assert "adds   1        ready" in cli("models", url, *token).out
    loaded = cli("models", url, "load", "adds", "--set", "ONNX.maxBatch=4", *token)
    assert (loaded.code, loaded.out) == (0, "adds-0: loaded\n")
    assert json.loads(cli("models", url, "load", "adds", "--no-share", "--json", *token).out)["name"] == "adds"
    for name in ("adds", "adds-0", "adds"):
        assert cli("models", url, "unload", name, *token).code == 0
    entry = {"name": "adds", "version": "", "state": "UNAVAILABLE", "reason": "unloaded"}
    assert json.loads(cli("models", url, "--json", *token).out) == {"models": [entry]}
    assert cli("models", url, "reload", "adds", *token).out == "adds: looked for new files\n"


def test_a_control_port_lists_reloads_and_weighs(cli: Any) -> None:
    asked = []

    def answer(request: HttpRequest) -> Answer:
        asked.append((request.method, request.path, request.query, request.body))
        if request.path == "/models":
            version = {"version": "3", "state": "READY"}
            return Answer(200, json.dumps({"digits": {"current": "3", "versions": [version]}}).encode())
        known = request.path in ("/models/reload", "/variants/next")
        return Answer(200, b"{}") if known else Answer(405, b'{"error": "there is no such command"}')

    port = HttpPort("127.0.0.1", 0, answer, methods=("GET", "HEAD", "POST"))
    try:
        url = "http://{}:{}".format(*port.address)
        assert "digits  3        ready" in cli("models", url).out
        assert cli("models", url, "reload", "digits").code == 0
        assert cli("models", url, "weight", "digits", "next", "25").out == "digits: next has the weight 25\n"
    finally:
        port.close()
    assert ("POST", "/models/reload", "service=digits", b"") in asked
    assert ("POST", "/variants/next", "service=digits", b'{"weight":25.0}') in asked


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["load"], 2, "load needs the name of a model"),
        (["weight", "adds"], 2, "weight needs a variant and a number"),
        (["unload", "adds", "--set", "a.b=1"], 2, "are for load"),
        (["load", "adds", "--set", "a=1"], 2, "takes STEP.FIELD=VALUE"),
        (["load", "ads"], 1, 'did you mean "adds"'),
        (["weight", "adds", "next", "25"], 1, "control port (control.listen, with a control.token)"),
    ],
)
def test_what_cannot_be_done_is_told(
    arguments: list[str], code: int, said: str, url: str, token: tuple[str, str], cli: Any
) -> None:
    ended = cli("models", url, *arguments, *token)
    assert ended.code == code
    assert said in " ".join(ended.err.split())


def test_a_server_that_is_not_there_and_a_missing_token_are_told(url: str, cli: Any) -> None:
    assert "does not answer" in cli("models", f"http://{free()}").err
    assert "give the token by --token-file" in " ".join(cli("models", url).err.split())
