"""A profile of a whole service."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import pipelines
from pipelines import Data
from streamer import testing
from streamer.agent.runloop import RunLoop
from streamer.definition.service import Service

STAGES = ["poll", "decode", "run", "encode", "send"]


def twice(data: Data) -> Data:
    return Data({"y": data["x"] * 2})


def spans(path: Path) -> list[dict[str, Any]]:
    return [event for event in json.loads(path.read_text()) if event["ph"] == "X"]


def test_a_profile_has_the_stages_and_steps_of_each_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Batches that wait would be run together, on a busy machine.
    monkeypatch.setattr(RunLoop, "_may_join", lambda loop: False)
    settings: dict[str, Any] = {
        "source": {"type": "memory", "topic": "in"},
        "sink": {"type": "memory", "topic": "out"},
        "batch": {"max_records": 10},
        "profile": {"file": str(tmp_path / "run.json")},
    }
    service = Service(name="digits", pipeline=pipelines.Sequence([twice]), **settings)
    testing.run(service, [Data({"x": x}) for x in range(30)])
    events = json.loads((tmp_path / "run.json").read_text())
    assert events[0]["args"] == {"name": "digits"}
    threads = {event["args"]["name"]: event["tid"] for event in events if event["name"] == "thread_name"}
    assert threads.keys() == {"intake memory", "run digits"}
    found = spans(tmp_path / "run.json")
    for name in (*STAGES, "0:FUNCTION"):
        own = [span for span in found if span["name"] == name]
        # The first record of all is run by itself.
        rows = [10, 10, 10] if name in ("poll", "decode") else [1, 9, 10, 10]
        assert [span["args"]["rows"] for span in own] == rows, name
        thread = "intake memory" if name in ("poll", "decode") else "run digits"
        assert {span["tid"] for span in own} == {threads[thread]}
    for step, run in zip(named(found, "0:FUNCTION"), named(found, "run"), strict=True):
        assert run["ts"] <= step["ts"]
        assert step["ts"] + step["dur"] <= run["ts"] + run["dur"] + 0.01


def named(found: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    return [span for span in found if span["name"] == name]


def test_the_command_line_writes_a_profile_for_each_service_and_traces(tmp_path: Path, cli: Any) -> None:
    (tmp_path / "in.jsonl").write_text('{"x": 1}\n{"x": 2}\n')
    text = """name: {name}
source: {{type: file, path: in.jsonl, format: jsonl}}
sink: {{type: file, path: {name}.jsonl, format: jsonl, codec: konduit-json}}
pipeline: {{steps: [{{"@type": LOGGING}}]}}
"""
    for name in ("a", "b"):
        (tmp_path / f"{name}.yaml").write_text(text.format(name=name))
    profile = tmp_path / "run.json"
    ended = cli("run", tmp_path / "a.yaml", "--profile", profile, "--trace")
    assert ended.code == 0, ended.err
    assert {span["name"] for span in spans(profile)} == {*STAGES, "0:LOGGING"}
    traces = [one for one in map(json.loads, ended.err.splitlines()) if one["event"] == "trace"]
    assert "0:LOGGING" in {one["step"] for one in traces}
    first = json.loads((tmp_path / "a.jsonl").read_text().splitlines()[0])
    assert first["@Metadata"]["trace"]["steps"][0]["step"] == "0:LOGGING"
    ended = cli("run", tmp_path / "a.yaml", tmp_path / "b.yaml", "--profile", profile)
    assert ended.code == 0, ended.err
    assert spans(tmp_path / "run-a.json")
    assert spans(tmp_path / "run-b.json")


def test_a_profile_that_cannot_be_written_stops_the_service_before_it_begins(tmp_path: Path, cli: Any) -> None:
    (tmp_path / "in.jsonl").write_text('{"x": 1}\n')
    (tmp_path / "a.yaml").write_text(
        "source: {type: file, path: in.jsonl, format: jsonl}\nsink: {type: file, path: out.jsonl, format: jsonl}\n"
        "pipeline: {steps: []}\nprofile: {file: nowhere/run.json}\n"
    )
    ended = cli("run", tmp_path / "a.yaml")
    assert ended.code == 1
    assert "nowhere/run.json cannot be written: No such file or directory" in ended.err
