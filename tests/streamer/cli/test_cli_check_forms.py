"""What `streamer check` says when the arrays of a step are none that the model behind it takes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, save

import pipelines
from pipelines import Data, Image
from pipelines.errors import StepError

CAMERA = {"type": "camera", "cameras": {"gate": "lavfi:testsrc2=size=64x48:rate=5"}}
NET = {"@type": "ONNX", "modelUri": "net.onnx"}
PIXELS = {"dataType": "UINT8", "normalization": {"type": "NONE"}, "format": "CHANNELS_LAST"}
ARRIVES = 'takes uint8 [1, 8, 8, 3], but key "input_tensor" holds float32 [1, 3, 8, 8]; send that type: for pictures, '
SET = "IMAGE_TO_NDARRAY with dataType: UINT8, normalization: {type: NONE}, format: CHANNELS_LAST"


def to_array(**more: Any) -> dict[str, Any]:
    config = {"height": 8, "width": 8, **more.pop("config", {})}
    return {"@type": "IMAGE_TO_NDARRAY", "config": config, "keys": ["image"], "outputNames": ["input_tensor"], **more}


@pytest.fixture
def net(tmp_path: Path) -> Any:
    """`net(dtype, shape)` saves a model with one input `input_tensor`, and so many elements as its result."""

    def saved(dtype: int, shape: list[Any], name: str = "net", key: str = "input_tensor", made: str = "y") -> None:
        taken = helper.make_tensor_value_info(key, dtype, shape)
        given = helper.make_tensor_value_info(made, TensorProto.FLOAT, ["N", 1])
        nodes = [
            helper.make_node("Cast", [key], ["f"], to=TensorProto.FLOAT),
            helper.make_node("Flatten", ["f"], ["flat"], axis=1),
            helper.make_node("ReduceSum", ["flat", "axis"], [made], keepdims=1),
        ]
        axis = helper.make_tensor("axis", TensorProto.INT64, [1], [1])
        graph = helper.make_graph(nodes, name, [taken], [given], [axis])
        made_of = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        save(made_of, tmp_path / f"{name}.onnx")

    saved(TensorProto.UINT8, [1, 8, 8, 3])
    return saved


@pytest.fixture
def told(cli: Any, tmp_path: Path) -> Any:
    """`told(pipeline)`: the texts of what `streamer check` finds wrong, by part, and all notes on steps."""

    def check(pipeline: Any, **fields: Any) -> tuple[dict[str, str], str]:
        file = tmp_path / "service.yaml"
        sink = {"type": "memory", "topic": "out"}
        service = {"source": CAMERA, "pipeline": pipeline, "sink": sink, "on_error": "drop", **fields}
        file.write_text(json.dumps(service))
        ended = cli("check", file, "--json")
        (found,) = json.loads(ended.out)["services"]
        wrong = {one["part"]: one["text"] for one in found["findings"] if not one["ok"]}
        assert ended.code == (2 if wrong else 0), ended.out
        notes = [one["text"].partition("; note: ")[2] for one in found["findings"] if one["part"].startswith("step")]
        return wrong, "".join(notes)

    return check


def test_pictures_of_another_type_and_order_than_the_models_are_found_with_the_settings_that_fit(
    told: Any, net: Any
) -> None:
    wrong, _ = told([to_array(), NET])
    assert list(wrong) == ["step 1:ONNX"]
    assert ARRIVES + SET in wrong["step 1:ONNX"]
    assert "castInputs" not in wrong["step 1:ONNX"]
    assert told([to_array(config=PIXELS), NET]) == ({}, "")


def test_a_record_that_fails_is_told_the_same_as_by_the_check(net: Any, tmp_path: Path) -> None:
    picture = Image.create(np.zeros((48, 64, 3), np.uint8))
    (tmp_path / "p.json").write_text(json.dumps({"steps": [to_array(), NET]}))
    with pipelines.load(tmp_path / "p.json").open() as executor, pytest.raises(StepError, match="UINT8") as failed:
        executor.run(Data({"image": picture}))
    assert ARRIVES + SET in str(failed.value)


def test_a_size_order_or_number_of_channels_that_the_model_does_not_take_is_found(told: Any, net: Any) -> None:
    net(TensorProto.FLOAT, ["N", 3, 16, 16])
    text = told([to_array(config={"format": "CHANNELS_LAST"}), NET])[0]["step 1:ONNX"]
    assert text.endswith("for pictures, IMAGE_TO_NDARRAY with format: CHANNELS_FIRST, height: 16, width: 16")
    net(TensorProto.FLOAT, ["N", 1, "h", "w"])
    text = told([to_array(), NET])[0]["step 1:ONNX"]
    assert text.endswith("axis 1 must have the length 1: for pictures, IMAGE_TO_NDARRAY with channelLayout: GRAYSCALE")
    assert told([to_array(config={"channelLayout": "GRAYSCALE"}), NET]) == ({}, "")


def test_a_mismatch_is_found_in_a_graph_and_in_a_pipeline_inside(told: Any, net: Any) -> None:
    graph = {
        "outputStep": "both",
        "steps": {
            "array": {**to_array(keepOtherValues=False), "@input": "input"},
            "net": {**NET, "@input": "array"},
            "both": {"@type": "MERGE", "@input": ["input", "net"]},
        },
    }
    assert ARRIVES in told(graph)[0]["step net"]
    inside = {"@type": "PIPELINE", "pipeline": {"steps": [to_array(), NET]}}
    assert ARRIVES in told([inside])[0]["step 0:PIPELINE"]
    after = {"@type": "PIPELINE", "pipeline": {"steps": [NET]}}
    assert ARRIVES in told([to_array(), after])[0]["step 1:PIPELINE"]


def test_the_only_picture_of_a_camera_is_followed_without_keys(told: Any, net: Any) -> None:
    plain = {"@type": "IMAGE_TO_NDARRAY", "config": {"height": 8, "width": 8}}
    assert 'but key "image" holds float32 [1, 3, 8, 8]' in told([plain, NET])[0]["step 1:ONNX"]
    assert ARRIVES in told([{**plain, "outputNames": ["input_tensor"]}, NET])[0]["step 1:ONNX"]


def test_what_another_model_or_stacked_values_give_is_followed_too(told: Any, net: Any) -> None:
    net(TensorProto.INT64, ["N", 1], "next", "y", "z")
    wrong, _ = told([to_array(config=PIXELS), NET, {**NET, "modelUri": "next.onnx"}])
    assert 'input "y" takes int64 [N, 1], but key "y" holds float32 of any shape' in wrong["step 2:ONNX"]
    three = {"@type": "FEATURES", "fields": [{"field": one, "size": 1} for one in "abc"], "output": "y"}
    four = {"@type": "ONNX", "modelUri": "four.onnx"}
    net(TensorProto.FLOAT, ["N", 4], "four", "y", "z")
    source = {"type": "memory", "topic": "in", "codec": "json"}
    assert "axis 1 must have the length 4" in told([three, four], source=source)[0]["step 1:ONNX"]


def test_nothing_is_said_where_records_may_have_what_the_model_takes(told: Any, net: Any, tmp_path: Path) -> None:
    source = {"type": "memory", "topic": "in", "codec": "protodata"}
    plain = {"@type": "IMAGE_TO_NDARRAY"}
    # The record may have an array "input_tensor" of its own.
    assert told([to_array(outputNames=["x"]), NET], source=source) == ({}, "")
    assert told([plain, NET], source=source) == ({}, "")
    # A function in between, any size, a branch that may have been taken instead.
    (tmp_path / "between.py").write_text("def f(data):\n    return data\n")
    assert told([to_array(), {"@type": "FUNCTION", "function": "between:f"}, NET]) == ({}, "")
    assert told([to_array(config={**PIXELS, "height": None, "width": None}), NET]) == ({}, "")
    assert told([to_array(config={"format": "CHANNELS_LAST"}), {**NET, "castInputs": True}]) == ({}, "")
    net(TensorProto.FLOAT, [4, 3, 8, 8])
    assert told([to_array(), NET])[0] == {}


@pytest.mark.parametrize("normalization", [None, {"type": "SCALE_01"}, {"type": "INCEPTION"}])
def test_fractions_as_whole_numbers_are_noted(told: Any, normalization: Any) -> None:
    config = {"dataType": "UINT8", **({} if normalization is None else {"normalization": normalization})}
    wrong, notes = told([to_array(config=config)])
    assert wrong == {}
    assert "of which UINT8 keeps whole numbers only" in notes
    assert "set normalization: {type: NONE}" in notes


@pytest.mark.parametrize(
    "config",
    [
        PIXELS,
        {"dataType": "INT8", "normalization": {"type": "SUBTRACT_MEAN", "meanRgb": [128, 128, 128]}},
        {"dataType": "INT32", "normalization": {"type": "SCALE_01", "maxValue": 1}},
        {},
    ],
)
def test_settings_that_keep_the_picture_are_not_noted(told: Any, config: dict[str, Any]) -> None:
    assert told([to_array(config=config)]) == ({}, "")
