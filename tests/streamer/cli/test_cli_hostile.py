"""Whatever files, records and brokers hold: a terminal obeys none of it, and secrets are not shown."""

from __future__ import annotations

import json
import traceback
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Producer

from pipelines import Data
from pipelines.errors import DefinitionError
from streamer.definition.loading import load
from streamer.devbroker import Broker
from streamer.observe import shown

EVIL = "\x1b]0;owned\x07\x1b[2J\nerror: \u202egnp\u2066 \x9b31m\x7f\r"
MARKS = ("\x1b", "\x07", "\x9b", "\x7f", "\r", "\u202e", "\u2066", "\nerror: \u202e")
SECRET = "hunter22-of-the-test"


UNKNOWN: dict[str, Any] = {f"no{EVIL}": 1}


@pytest.fixture(autouse=True)
def _forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shown, "_known", frozenset())


def harmless(ended: Any) -> Any:
    for mark in MARKS:
        assert mark not in ended.out
        assert mark not in ended.err
    return ended


def written(folder: Path, name: str = "a.yaml", **fields: Any) -> Path:
    service = {
        "source": {"type": "memory", "topic": f"in{EVIL}", "name": f"from{EVIL}"},
        "pipeline": [{"@type": "LOGGING", "name": f"step{EVIL}"}, {"@type": "ONNX", "modelUri": f"{EVIL}.onnx"}],
        "sink": {"type": "memory", "topic": f"out{EVIL}", "name": f"to{EVIL}"},
        **fields,
    }
    file = folder / name
    file.write_text(yaml.safe_dump(service))
    return file


@pytest.mark.parametrize("options", [(), ("--json",), ("--connect",)])
def test_a_file_that_is_checked_steers_no_terminal(cli: Any, tmp_path: Path, options: tuple[str, ...]) -> None:
    ended = harmless(cli("check", written(tmp_path, name=f"s{EVIL.replace('/', '')}"), *options))
    assert ended.code == 2
    assert "step" in ended.out
    assert harmless(cli("check", written(tmp_path, **UNKNOWN), *options)).code == 2
    assert harmless(cli("check", written(tmp_path, keep=f"x{EVIL}"), *options)).code == 2
    assert harmless(cli("check", written(tmp_path, sink={"type": f"x{EVIL}"}), *options)).code == 2
    assert harmless(cli("check", tmp_path / f"none{EVIL}", *options)).code == 2


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_the_page_of_doctor_steers_no_terminal(cli: Any, tmp_path: Path, options: tuple[str, ...]) -> None:
    ended = harmless(cli("doctor", written(tmp_path, name=f"s{EVIL.replace('/', '')}"), *options))
    assert ended.code == 2
    assert ".onnx" in ended.out
    assert harmless(cli("doctor", tmp_path / f"none{EVIL}", *options)).code == 2


def test_json_says_exactly_what_is_in_the_file(cli: Any, tmp_path: Path) -> None:
    (report,) = json.loads(cli("check", written(tmp_path, name=f"s{EVIL}"), "--json").out)["services"]
    assert f"source from{EVIL}" in [one["part"] for one in report["findings"]]


@pytest.mark.parametrize("options", [(), ("--log-json",), ("--no-log-json",)])
def test_a_file_that_is_run_steers_no_terminal(cli: Any, tmp_path: Path, options: tuple[str, ...]) -> None:
    fields = {"source": {"type": "file", "path": f"in{EVIL}.jsonl", "format": "jsonl"}, "pipeline": []}
    (tmp_path / f"in{EVIL}.jsonl").write_text('{"x": 1}\n')
    ended = harmless(cli("run", written(tmp_path, name=f"s{EVIL}.yaml", **fields), "--json", *options))
    assert ended.code == 0, ended.err
    assert harmless(cli("run", written(tmp_path), *options)).code == 2
    assert harmless(cli("--debug", "run", written(tmp_path, **UNKNOWN), *options)).code == 2


def test_cases_steer_no_terminal(cli: Any, tmp_path: Path) -> None:
    (tmp_path / "cases").mkdir()
    values = {f"key{EVIL}": f"value{EVIL}"}
    for name, case in (("a", {"input": values}), (f"b{EVIL}", {"input": values, "expect": {f"x{EVIL}": EVIL}})):
        (tmp_path / "cases" / f"{name}.json").write_text(json.dumps(case))
    for options in ((), ("--json",)):
        ended = harmless(cli("test", written(tmp_path, pipeline=[]), *options))
        assert ended.code == 1
        assert "value" in ended.out


@pytest.mark.parametrize("options", [(), ("--json",), ("--json", "--full")])
def test_records_and_dead_letters_that_are_watched_steer_no_terminal(
    cli: Any, topics: Any, kafka: Broker, options: tuple[str, ...]
) -> None:
    topic, evil = topics(), EVIL.encode()
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    letter = [(f"streamer-{name}", evil) for name in ("topic", "step", "error", "text", "service", "time")]
    metadata = {f"m{EVIL}": EVIL, "trace": {"text": f"one\n{EVIL}"}}
    payload = Data({f"key{EVIL}": EVIL, "nested": Data({EVIL: [EVIL]})}, metadata=metadata).to_bytes()
    producer.produce(topic, payload, evil, headers=[(f"name{EVIL}", evil), ("empty", None)])
    producer.produce(topic, b"\xff no protobuf" + evil, evil, headers=[*letter, (f"own{EVIL}", evil)])
    producer.produce(topic, None, b"\xff")
    assert producer.flush(60) == 0
    ended = harmless(cli("tap", topic, "--from", "earliest", "--count", "3", "-b", kafka.bootstrap, *options))
    assert ended.code == 0, ended.err
    if not options:
        assert r"name\x1b]0;owned\x07" in ended.out
        return
    record, dead, _ = map(json.loads, ended.out.splitlines())
    assert (record["key"], record["headers"][0]) == (EVIL, [f"name{EVIL}", EVIL])
    assert (dead["dead_letter"]["topic"], dead["dead_letter"]["step"]) == (EVIL, EVIL)


SECRETS: list[Any] = [
    pytest.param({"limits": {"in_flight": "${file:secret}"}}, id="of a file, in an error"),
    pytest.param({"delivery": "${file:secret}"}, id="of a file, as a choice"),
    pytest.param({"batch": {"max_wait": "${API_TOKEN}"}}, id="of a variable, in an error"),
    pytest.param({"source": {"type": "memory", "topic": "${file:secret}"}}, id="of a file, as a topic"),
    pytest.param({"source": {"type": "memory", "topic": f"http://me:{SECRET}@host/x?y=1"}}, id="in a URL"),
    pytest.param({"source": {"type": "memory", "topic": f"http://host/?access_token={SECRET}"}}, id="in a query"),
    pytest.param({"source": {"type": "memory", "topic": "a", "password": SECRET}}, id="in a field that there is not"),
    pytest.param({"source": {"type": f"http://u:{SECRET}@h"}}, id="in a type"),
    pytest.param({"sink": {"type": "file", "path": "x", "codec": "${file:secret}"}}, id="as a codec"),
    pytest.param({"sink": {"type": "memory", "topic": "o", "codec": {"type": "${API_TOKEN}"}}}, id="as a codec's type"),
    pytest.param({"pipeline": [{"@type": "ONNX", "modelUri": f"http://u:{SECRET}@h/m?key={SECRET}"}]}, id="of a model"),
    pytest.param({"pipeline": "${file:secret}.yaml"}, id="as the pipeline's file"),
    pytest.param({"name": "${file:secret}"}, id="as the name"),
    pytest.param(
        {"source": {"type": "kafka", "topics": "t", "client": {"sasl.password": SECRET, "no.such": SECRET}}},
        id="of a client",
    ),
    pytest.param(
        {"sink": {"type": "kafka", "bootstrap": "${file:secret}:1", "topic": "t"}, "name": "s"}, id="as brokers"
    ),
]


@pytest.mark.parametrize("fields", SECRETS)
@pytest.mark.parametrize("command", [("check",), ("check", "--json"), ("--debug", "check", "--connect"), ("run",)])
@pytest.mark.slow
def test_secrets_are_shown_nowhere(
    cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any], command: tuple[str, ...]
) -> None:
    monkeypatch.setenv("API_TOKEN", SECRET)
    monkeypatch.setattr("connectors.kafka.client.answers.PATIENCE", 0.2)
    monkeypatch.setattr("connectors.models.download._ATTEMPTS", 1)
    (tmp_path / "secret").write_text(f"{SECRET}\n")
    plain = {
        "source": {"type": "file", "path": "in.jsonl", "format": "jsonl"},
        "sink": {"type": "memory", "topic": "o"},
    }
    (tmp_path / "in.jsonl").write_text("")
    if command == ("run",) and fields.get("source", {}).get("type") in ("memory", "kafka"):
        # It would wait for records.
        fields = {**fields, "pipeline": "none.yaml"}
    ended = cli(*command, written(tmp_path, **{**plain, "pipeline": [], **fields}))
    assert ended.out + ended.err
    assert SECRET not in ended.out + ended.err


def test_secrets_are_not_in_what_python_raises(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(SECRET)
    with pytest.raises(DefinitionError) as caught:
        load(written(tmp_path, limits={"in_flight": "${file:secret}"}))
    assert SECRET not in "".join(traceback.format_exception(caught.value))
    assert "in_flight" in str(caught.value)
