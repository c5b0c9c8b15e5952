"""`streamer new`: services that are right as they are written."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import onnx
import pytest
from detectors import save_detector
from onnx import TensorProto, helper

import streamer
from connectors.codecs.registry import CODECS

KINDS = ["kafka", "mqtt", "file", "memory"]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    before = set(sys.modules)
    yield
    # Modules of this name are others in the next test.
    for name in set(sys.modules) - before:
        if name.endswith("_steps"):
            del sys.modules[name]


@pytest.mark.parametrize(
    ("source", "sink"), [*product([*KINDS, "camera"], [None, *KINDS]), ("http", None), ("http", "kafka")]
)
@pytest.mark.slow
def test_a_new_service_passes_check_and_test(cli: Any, source: str, sink: str | None) -> None:
    name = f"s-{source}-{sink}"
    ended = cli("new", name, "--source", source, *(["--sink", sink] if sink else []))
    assert ended.code == 0, ended.err
    ended = cli("check", f"{name}/{name}.yaml")
    assert ended.code == 0, ended.out + ended.err
    assert f"source {source}" in ended.out
    assert f"sink {sink or ('file' if source == 'camera' else source)}" in ended.out
    ended = cli("test", f"{name}/{name}.yaml")
    assert ended.code == 0, ended.out + ended.err
    assert "3 cases: 3 ok, 0 wrong" in ended.out


def test_a_new_service_on_files_runs_as_its_readme_says(cli: Any) -> None:
    assert cli("new", "mine", "--source", "file").code == 0
    assert "streamer run mine.yaml" in Path("mine/README.md").read_text()
    ended = cli("run", "mine/mine.yaml")
    assert ended.code == 0, ended.err
    results = [json.loads(line) for line in Path("mine/output.jsonl").read_text().splitlines()]
    assert [(one["id"], one["label"]) for one in results] == [(1, "high"), (2, "low")]


def test_a_new_service_of_cameras_writes_results_until_it_is_stopped(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend("yard")
    assert cli("new", "yard", "--source", "camera").code == 0
    assert "input.jsonl" not in Path("yard/README.md").read_text()
    with streamer.load("yard/yard.yaml"):
        results = Path("yard/output.jsonl")
        deadline = time.monotonic() + 30
        while not (results.exists() and results.read_text().count("\n") > 1) and time.monotonic() < deadline:
            time.sleep(0.05)
    (first, *_) = [json.loads(line) for line in results.read_text().splitlines()]
    assert (first["camera"], first["label"]) == ("test", "dark" if first["mean"] <= 0.5 else "bright")
    assert abs(first["time"] / 1000 - time.time()) < 60


def test_every_file_that_the_readme_names_is_there_and_the_commands_are_of_this_service(cli: Any) -> None:
    ended = cli("new", "a_b", "--folder", "elsewhere", "--json")
    found = json.loads(ended.out)
    assert found["folder"] == "elsewhere"
    written = {str(path.relative_to("elsewhere")) for path in Path("elsewhere").rglob("*") if path.is_file()}
    assert written == set(found["files"])
    readme = Path("elsewhere/README.md").read_text()
    for path in ("a_b.yaml", "a_b.pipeline.yaml", "a_b_steps.py", "input.jsonl"):
        assert f"`{path}`" in readme
        assert path in written
    assert "$" not in readme
    assert "${KAFKA_BOOTSTRAP_SERVERS:-localhost:9092}" in Path("elsewhere/a_b.yaml").read_text()


def test_only_clients_of_a_new_service_can_be_answered(cli: Any) -> None:
    ended = cli("new", "mine", "--source", "kafka", "--sink", "http")
    assert ended.code == 2
    assert "--source http" in ended.err
    assert not Path("mine").exists()


def test_nothing_is_overwritten(cli: Any) -> None:
    Path("mine").mkdir()
    assert cli("new", "mine").code == 0
    Path("mine/mine.yaml").write_text("changed")
    ended = cli("new", "mine")
    assert ended.code == 1
    assert "mine exists already" in ended.err
    assert Path("mine/mine.yaml").read_text() == "changed"


@pytest.mark.parametrize("name", ["1a", "a b", "../a", "a/b", "-a", ""])
def test_an_invalid_service_name_is_refused_and_nothing_is_written(cli: Any, name: str) -> None:
    assert cli("new", "--source", "file", "--", name).code == 2
    assert list(Path().iterdir()) == []


def _model(
    path: Path, inputs: list[tuple[str, int, list[Any]]], nodes: list[Any], output: tuple[str, list[Any]]
) -> Path:
    made = [helper.make_tensor_value_info(*one) for one in inputs]
    graph = helper.make_graph(
        nodes, "g", made, [helper.make_tensor_value_info(output[0], TensorProto.FLOAT, output[1])]
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


@pytest.mark.parametrize("source", ["kafka", "mqtt", "file"])
@pytest.mark.parametrize(
    ("inputs", "keys"),
    [
        ([("X", 1, ["N", 3])], ["id", "f1", "f2", "f3"]),
        ([("temp", 1, ["N", 1]), ("n", 7, ["N", 1])], ["id", "temp", "n"]),
        ([("flat", 1, ["N"])], ["id", "flat"]),
        ([("deep", 1, [None, 2, "k"])], ["id", "deep"]),
        ([("id", 1, ["N", 70])], ["id"]),
    ],
)
@pytest.mark.slow
def test_a_service_around_a_model_fits_its_inputs(cli: Any, source: str, inputs: Any, keys: list[str]) -> None:
    nodes = [helper.make_node("Cast", [inputs[0][0]], ["y"], to=1)]
    model = _model(Path("fans.onnx"), inputs, nodes, ("y", inputs[0][2]))
    ended = cli("new", "fans", "--model", model, "--source", source)
    if inputs[0][0] == "id":
        assert 'the model has an input "id"' in ended.err
        assert not Path("fans").exists()
        return
    assert ended.code == 0, ended.err
    assert [list(json.loads(line)) for line in Path("fans/input.jsonl").read_text().splitlines()] == [keys] * 3
    assert cli("check", "fans/fans.yaml").code == 0
    ended = cli("test", "fans/fans.yaml")
    assert "3 cases: 3 ok, 0 wrong" in ended.out, ended.out + ended.err
    if source == "file":
        assert cli("run", "fans/fans.yaml").code == 0
        assert [json.loads(line)["id"] for line in Path("fans/output.jsonl").read_text().splitlines()] == [1, 2, 3]


@pytest.mark.parametrize(("kind", "value"), [(TensorProto.STRING, ["a", "b"]), (TensorProto.BOOL, [True, False])])
def test_a_service_around_a_model_with_inputs_that_are_no_numbers_has_a_key_for_each(
    cli: Any, kind: int, value: list[Any]
) -> None:
    inputs = [("size", 1, ["N", 2]), ("kind", kind, ["N", 1]), ("tags", kind, ["N", 3])]
    model = _model(Path("fans.onnx"), inputs, [helper.make_node("Identity", ["size"], ["y"])], ("y", ["N", 2]))
    ended = cli("new", "fans", "--model", model, "--codec", "json")
    assert ended.code == 0, ended.err
    for record in map(json.loads, Path("fans/input.jsonl").read_text().splitlines()):
        assert list(record) == ["id", "size_1", "size_2", "kind", "tags"]
        assert record["kind"] in value
        assert len(record["tags"]) == 3
        assert all(one in value for one in record["tags"])
    assert "3 cases: 3 ok, 0 wrong" in cli("test", "fans/fans.yaml").out


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("model.pkl", b"x", "an ONNX model is needed"),
        ("none.onnx", None, "none.onnx: no such file"),
        ("broken.onnx", b"broken", "it is not an ONNX model"),
    ],
)
def test_a_model_file_that_is_no_model_is_reported_and_nothing_is_written(
    cli: Any, name: str, content: bytes | None, said: str
) -> None:
    if content is not None:
        Path(name).write_bytes(content)
    ended = cli("new", "fans", "--model", name)
    assert ended.code == 2
    assert said in ended.err
    assert not Path("fans").exists()


@pytest.mark.parametrize("codec", CODECS.known)
def test_a_service_is_written_with_codecs_that_carry_its_records_and_no_others(cli: Any, codec: str) -> None:
    made = cli("new", "mine", "--codec", codec)
    if made.code == 0:
        tested = cli("test", "mine/mine.yaml")
        assert tested.code == 0, tested.err
        return
    assert made.err.startswith(f"error: --codec {codec}: by its name alone it does not carry such records (")
    assert "begin with --codec json" in made.err
    assert codec not in ("json", "msgpack", "protodata", "konduit-json", "compressed", "cloudevents")
    assert not Path("mine").exists()


def test_a_new_service_has_the_codec_that_is_asked_for(cli: Any) -> None:
    assert cli("new", "mine", "--codec", "msgpack").code == 0
    assert Path("mine/mine.yaml").read_text().count("codec: msgpack") == 2
    assert cli("check", "mine/mine.yaml").code == 0
    assert 'no codec of type "jsn"; did you mean "json"?' in cli("new", "other", "--codec", "jsn").err


def test_a_service_around_a_detector_shows_its_boxes_on_a_page(cli: Any) -> None:
    detector = save_detector(Path("yolo.onnx"), "yolo8", (96, 96))
    assert cli("new", "yard", "--model", detector).code == 0
    assert "test: lavfi:" in Path("yard/yard.yaml").read_text()
    assert "type: view" in Path("yard/yard.yaml").read_text()
    checked = cli("check", "yard/yard.yaml")
    assert checked.code == 0
    assert "yolo8 by its metadata (task detect)" in " ".join(checked.out.split())
    ended = cli("test", "yard/yard.yaml")
    assert (ended.code, "2 ok, 0 wrong" in ended.out) == (0, True)


def test_a_detector_takes_pictures_of_cameras_only(cli: Any) -> None:
    detector = save_detector(Path("yolo.onnx"), "yolo8", (96, 96))
    ended = cli("new", "yard", "--model", detector, "--source", "kafka")
    assert ended.code == 2
    assert "is a detector, which takes pictures: --source camera" in " ".join(ended.err.split())
    assert not Path("yard").exists()
