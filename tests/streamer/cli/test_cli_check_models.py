"""`streamer check` on steps that run models: what it says without a look at the network."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from addingmodels import adding
from detectors import save_detector
from onnx import TensorProto, helper, save

import streamer
import streamer.testing
from connectors.models.download import S3
from pipelines.plugins.requirements import Package

ROOT = Path(__file__).parents[3]

SERVICE = """
%s
source: {type: memory, topic: in}
sink: {type: memory, topic: out}
on_error: drop
pipeline:
  steps:
  - %s
"""


@pytest.fixture
def checked(cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """`checked(step)`: whether `streamer check` finds the step right, and what it says; beside the file is a model."""
    monkeypatch.setenv("STREAMER_CACHE", str(tmp_path / "cache"))
    shutil.copy(ROOT / "examples" / "digits" / "digits.onnx", tmp_path)

    def check(step: dict[str, Any], more: str = "") -> tuple[bool, str]:
        file = tmp_path / "service.yaml"
        file.write_text(SERVICE % (more, json.dumps(step)))
        ended = cli("check", file, "--json")
        (service,) = json.loads(ended.out)["services"]
        (found,) = [one for one in service["findings"] if one["part"].startswith("step 0:")]
        assert ended.code == (0 if service["ok"] else 2)
        return found["ok"], found["text"]

    return check


def save_same(path: Path, shape: list[Any]) -> None:
    """A model y = x."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "same", [x], [y])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


@pytest.mark.parametrize("step", ["ONNX", "TENSORRT"])
def test_a_model_is_told_by_its_inputs_and_outputs(checked: Any, step: str) -> None:
    ok, text = checked({"@type": step, "modelUri": "digits.onnx"})
    assert ok
    assert text == "onnxruntime, digits.onnx: image uint8 [N, 8, 8] -> probabilities float32 [N, 10]"


def test_a_model_whose_device_is_not_there_is_told_where_it_runs_instead(checked: Any) -> None:
    ok, text = checked({"@type": "ONNX", "modelUri": "digits.onnx", "providers": ["NopeProvider", "cpu"]})
    assert ok
    assert text.endswith("float32 [N, 10]; note: NopeProvider is not there: CPUExecutionProvider runs it")


def test_an_input_that_takes_more_numbers_than_values_are_named_for_it_is_wrong(checked: Any, tmp_path: Path) -> None:
    save_same(tmp_path / "same.onnx", ["N", 3])
    step = {"@type": "ONNX", "modelUri": "same.onnx"}
    ok, text = checked({**step, "inputs": {"x": ["temp", "vib"]}})
    assert not ok
    assert text.endswith(
        'the input "x" takes 3 numbers of a record, and temp, vib are 2; name the others too, or say which of these is '
        "an array or a list, and how long: {field: vib, size: 2}"
    )
    right: list[list[Any]] = [
        ["a", "b", "c"],
        ["a", {"field": "b", "oneHot": ["u", "v"]}],
        ["a", {"field": "b", "size": 2}],
    ]
    for taken in right:
        ok, text = checked({**step, "inputs": {"x": taken}})
        assert ok
        assert "note" not in text
    # One value alone can only be an array.
    ok, text = checked({**step, "inputs": {"x": [{"field": "a", "scale": 0.1}]}})
    assert ok
    assert text.endswith("takes 3 numbers of a record: a has to be a list or an array of them")


def test_a_model_behind_a_url_is_not_fetched_for_a_check(checked: Any) -> None:
    # Nobody listens there.
    ok, text = checked({"@type": "ONNX", "modelUri": "http://127.0.0.1:1/m.onnx"})
    assert ok
    assert text == "onnxruntime, its model is not in the cache yet: it is fetched when the service starts"


def test_a_url_whose_package_is_missing_is_wrong(checked: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(S3, "requires", Package("missing_package", extra="s3"))
    ok, text = checked({"@type": "ONNX", "modelUri": "s3://models/m.onnx"})
    assert not ok
    assert text.startswith("the model s3://models/m.onnx needs the package missing_package: pip install")
    assert "[s3]" in text


def test_a_url_that_nothing_can_fetch_is_wrong(checked: Any) -> None:
    ok, text = checked({"@type": "ONNX", "modelUri": "gopher://host/m.onnx"})
    assert not ok
    assert 'nothing can fetch the model "gopher://host/m.onnx" (there are az, file, gs, hf, http, https, s3)' in text
    ok, text = checked({"@type": "ONNX", "modelUri": "http://host/m.onnx#sha256=1"})
    assert not ok
    assert "64 hexadecimal digits" in text


@pytest.mark.parametrize("step", ["DEEPLEARNING4J", "SAMEDIFF", "SAMEDIFF_TRAINING"])
def test_a_model_that_only_java_reads_is_found_before_anything_connects(checked: Any, step: str) -> None:
    ok, text = checked({"@type": step, "modelUri": "m.zip"})
    assert not ok
    assert text.startswith(f"no runner for the step {step} is installed; only Java ")


def test_a_strict_step_is_found_wrong_without_tensorrt(checked: Any) -> None:
    import onnxruntime

    ok, text = checked({"@type": "TENSORRT", "modelUri": "digits.onnx", "strict": True})
    assert ok == ("TensorrtExecutionProvider" in onnxruntime.get_available_providers())
    assert ok or "is strict" in text


def test_an_input_that_the_model_lacks_is_wrong(checked: Any) -> None:
    ok, text = checked({"@type": "ONNX", "modelUri": "digits.onnx", "inputs": {"imag": "pixels"}})
    assert not ok
    assert 'the model has no input "imag"; did you mean "image"?; it has image' in text
    ok, text = checked({"@type": "ONNX", "modelUri": "digits.onnx", "outputNames": ["probs"]})
    assert not ok
    assert 'the model has no output "probs"; it has probabilities' in text


@pytest.mark.parametrize("step", ["ONNX", "TENSORRT"])
@pytest.mark.parametrize(
    ("batch", "note"),
    [
        ("", "; with batch: {type: hard, max_records: 4} no call is, but records wait until it is full"),
        ("batch: {max_records: 10}", ": batch.max_records 10 is not a multiple of that, 8 is"),
        ("batch: {type: hard, max_records: 3}", ": batch.max_records 3 is not a multiple of that, 4 is"),
        ("batch: {type: hard, max_records: 8}", None),
    ],
)
def test_a_fixed_batch_size_of_a_model_is_held_against_the_batches(
    checked: Any, tmp_path: Path, step: str, batch: str, note: str | None
) -> None:
    save_same(tmp_path / "same.onnx", [4, 3])
    ok, text = checked({"@type": step, "modelUri": "same.onnx"}, batch)
    assert ok
    told = f"; note: each call has 4 samples, and the last one of a batch is filled up{note}"
    assert text == "onnxruntime, same.onnx: x float32 [4, 3] -> y float32 [4, 3]" + (told if note else "")


@pytest.mark.parametrize("hot_path", ["native", "python"])
@pytest.mark.parametrize("type", ["hard", "soft"])
def test_a_service_runs_any_number_of_records_on_a_model_with_a_fixed_batch(
    tmp_path: Path, type: str, hot_path: str
) -> None:
    save_same(tmp_path / "same.onnx", [4, 3])
    file = tmp_path / "service.yaml"
    batch = f"hot_path: {hot_path}\nbatch: {{type: {type}, max_records: 4}}"
    file.write_text(SERVICE % (batch, json.dumps({"@type": "ONNX", "modelUri": "same.onnx"})))
    report = streamer.testing.run(streamer.load(file), [{"x": [row, 0, 1]} for row in range(7)])
    assert report.dead == []
    assert [data["y"].tolist() for data in report.results if data is not None] == [[row, 0, 1] for row in range(7)]


def save_scaled(path: Path) -> None:
    """A model with an optional input: `scale`, by default 10."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 2])
    scale = helper.make_tensor_value_info("scale", TensorProto.FLOAT, [1])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 2])
    ten = helper.make_tensor("scale", TensorProto.FLOAT, [1], [10.0])
    graph = helper.make_graph([helper.make_node("Mul", ["x", "scale"], ["y"])], "g", [x, scale], [y], [ten])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def test_an_optional_input_of_a_model_is_told_until_it_is_named(checked: Any, tmp_path: Path) -> None:
    save_scaled(tmp_path / "opt.onnx")
    step = {"@type": "ONNX", "modelUri": "opt.onnx"}
    assert checked(step)[1].endswith("fed by records that have a value of their name: scale float32 [1]")
    assert "scale float32 [1]" in checked({**step, "inputs": {"scale": "s"}})[1]


@pytest.mark.parametrize("hot_path", ["native", "python"])
def test_an_optional_input_is_fed_by_the_payloads_that_have_its_name(tmp_path: Path, hot_path: str) -> None:
    save_scaled(tmp_path / "opt.onnx")
    file = tmp_path / "service.yaml"
    file.write_text(SERVICE % (f"hot_path: {hot_path}", json.dumps({"@type": "ONNX", "modelUri": "opt.onnx"})))
    file.write_text(file.read_text().replace("topic: in}", "topic: in, codec: json}"))
    payloads = [b'{"x": [1, 2]}', b'{"x": [1, 2], "scale": [3]}', b'{"x": [1, 2], "scale": null}']
    report = streamer.testing.run(streamer.load(file), payloads)
    assert [data["y"].tolist() for data in report.results if data is not None] == [[10, 20], [3, 6], [10, 20]]


def test_a_detector_is_told_by_its_layout_its_labels_and_the_picture_that_it_gets(checked: Any, tmp_path: Path) -> None:
    save_detector(tmp_path / "yolo.onnx", "yolo8", (64, 96), batch=1)
    ok, text = checked({"@type": "DETECT", "modelUri": "yolo.onnx"})
    assert ok
    assert text == (
        "onnxruntime, yolo.onnx: images float32 [1, 3, 64, 96] -> output0 float32 [1, 7, 126]; yolo8 by its metadata "
        "(task detect); 3 labels from the file: red, green, ...; picture: letterbox 96 x 64, gray 114, RGB, 0..1; one "
        "picture a call"
    )
    save_detector(tmp_path / "yolox.onnx", "yolox", (64, 96), batch=4)
    step = {"@type": "DETECT", "modelUri": "yolox.onnx", "labels": ["a", "b", "c"], "padColor": [1, 2, 3]}
    ok, text = checked(step, "batch: {type: hard, max_records: 6}")
    assert ok
    assert "3 labels from the step: a, b, ...; picture: corner 96 x 64, color 1, 2, 3, BGR, 0..255; 4 pictures" in text
    assert "batch.max_records 6 is not a multiple of that, 8 is" in text


def test_a_detector_that_is_not_recognised_is_wrong_and_says_what_would_help(checked: Any, tmp_path: Path) -> None:
    save_detector(tmp_path / "yolox.onnx", "yolox", (64, 96))
    ok, text = checked({"@type": "DETECT", "modelUri": "yolox.onnx"})
    assert not ok
    assert "yolox.onnx: " in text
    assert "labels would say it" in text


@pytest.mark.parametrize(
    ("version", "says"),
    [
        (
            1,
            "current (version 3) weighs 80, next (version 1) weighs 20 at first, as a canary, "
            "shadow (version 2) gets a copy, and its results are compared",
        ),
        (7, "variants.next: there is no version 7"),
    ],
)
def test_versions_that_variants_name_are_opened(cli: Any, tmp_path: Path, version: int, says: str) -> None:
    for number in (1, 2, 3):
        adding(tmp_path / "models" / str(number) / "model.onnx", number)
    file = tmp_path / "service.yaml"
    file.write_text(
        f"""
source: {{type: memory, topic: in}}
pipeline: [{{"@type": ONNX, modelUri: models}}]
sink: {{type: memory, topic: out}}
on_error: drop
variants:
  next: {{version: {version}, canary: {{weights: [20, 50]}}}}
  shadow: {{version: 2}}
"""
    )
    ended = cli("check", file, "--json")
    (report,) = json.loads(ended.out)["services"]
    (found,) = [each for each in report["findings"] if each["part"] == "variants"]
    assert says in found["text"]
    assert (found["ok"], ended.code) == ((True, 0) if version == 1 else (False, 2))
