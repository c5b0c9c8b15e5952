"""`streamer serve`, and what `streamer check` says of requests."""

from __future__ import annotations

import json
import shlex
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import httpx2
import pytest
from onnx import TensorProto, helper, save
from pageblocks import ROOT

MODEL = ROOT / "examples" / "digits" / "digits.onnx"
SERVICE = """\
name: digits
source: {type: http, listen: "%s", codec: json, token: "${TOKEN:-}"}
pipeline: [{"@type": ONNX, modelUri: %s}]
sink: {type: http, codec: json}
"""


@pytest.mark.slow
def test_models_of_a_folder_are_served_with_a_token_and_the_printed_lines_ask_them(start: Any, tmp_path: Path) -> None:
    shutil.copy(MODEL, tmp_path)
    given, gives = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 3, 32]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "large", [given], [gives])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "large.onnx")
    (tmp_path / "token.txt").write_text("open sesame\n")
    options = ("--listen", "127.0.0.1:0", "--token-file", "token.txt", "--no-log-json")
    process = start("serve", ".", *options)
    digits, large = ([process.stdout.readline().strip() for _ in range(3)] for _ in range(2))
    assert digits[1] == "takes image uint8 [N, 8, 8]; gives probabilities float32 [N, 10]"
    assert large[0].rpartition("/")[0] == digits[0].rpartition("/")[0].replace("digits: ", "large: ")
    assert "sesame" not in "".join(digits + large)
    outputs = [
        json.loads(subprocess.run(line, shell=True, cwd=tmp_path, capture_output=True, check=True, timeout=60).stdout)[
            "outputs"
        ]
        for line in (digits[2], large[2])
    ]
    assert outputs[0][0]["shape"] == [1, 10]
    assert outputs[1] == [{"name": "y", "shape": [1, 3, 32], "datatype": "FP32", "data": [0] * 96}]
    assert httpx2.post(f"{digits[0].removeprefix('digits: ')}/infer", content="{}").status_code == 401
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert err.count("1 ok") == 2
    assert "sesame" not in out + err


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--token-file", "gone"], "--token-file gone cannot be read"),
        (["--token-file", "empty"], "is empty, so everybody could send requests"),
        (["--control-token-file", "empty"], "the token of the address of --control; name that, too"),
        (["--control", "127.0.0.1:0", "--control-token-file", "gone"], "--control-token-file gone cannot be read"),
        (["--key", "key.pem"], "name that with --cert"),
        (["--listen", "8000"], "host:port is needed"),
    ],
)
def test_wrong_options_are_told(
    options: list[str], text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").touch()
    ended = cli("serve", MODEL, "--codec", "json", *options)
    assert ended.code == 2
    assert text in " ".join(ended.err.split())


def checked(tmp_path: Path, listen: str, cli: Any, *options: str) -> str:
    file = tmp_path / "digits.yaml"
    file.write_text(SERVICE % (listen, MODEL))
    ended = cli("check", file, *options)
    assert ended.code == 0
    return str(ended.out)


def test_check_says_where_a_service_answers_what_it_takes_and_how_to_ask_it(tmp_path: Path, cli: Any) -> None:
    out = checked(tmp_path, "127.0.0.1:8000", cli)
    assert "http://127.0.0.1:8000/v1/digits; takes image uint8 [N, 8, 8]; gives probabilities float32 [N, 10]" in out
    (line,) = [line for line in out.splitlines() if line.startswith("a first request: ")]
    words = shlex.split(line.removeprefix("a first request: "))
    assert words[:2] == ["curl", "http://127.0.0.1:8000/v1/digits"]
    assert json.loads(words[-1]) == {"image": [[0] * 8] * 8}


def test_check_of_a_service_for_the_network_says_who_may_ask(
    tmp_path: Path, cli: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    without = " ".join(checked(tmp_path, "0.0.0.0:8000", cli).split())
    assert "every machine that reaches 0.0.0.0:8000 can send requests; add a token" in without
    monkeypatch.setenv("TOKEN", "open sesame")
    (service,) = json.loads(checked(tmp_path, "0.0.0.0:8000", cli, "--connect", "--json"))["services"]
    (source,) = [finding["text"] for finding in service["findings"] if finding["part"] == "source http"]
    assert "their token are not encrypted; add tls" in source
    (request,) = service["requests"]
    assert request["url"] == "http://127.0.0.1:8000/v1/digits"
    assert request["curl"].endswith('-H "authorization: Bearer $TOKEN"')
