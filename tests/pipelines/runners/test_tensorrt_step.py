"""TENSORRT where there is no GPU: the options that are made, and what happens without TensorRT."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from outcomes import results_of

from pipelines import Data, DefinitionError, Sequence, StepError, StreamerError, TensorRt, loads
from pipelines.runners.models.tensorrt import onnx_step, provider_options


def named(*lengths: int, name: str = "x") -> list[dict[str, Any]]:
    return [{"name": name, "dimensions": list(lengths)}]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """y = x + x, float32 `[N, 2]`, `N` open."""
    port = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 2]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Add", ["x", "x"], ["y"])], "g", port[:1], port[1:])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    made.ir_version = 8
    onnx.save(made, tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


def test_a_plain_step_leaves_tensorrt_its_defaults() -> None:
    assert provider_options(TensorRt("m.onnx")) == {}
    step = onnx_step(TensorRt("m.onnx"))
    assert step.providers == ({"TensorrtExecutionProvider": {}}, "cuda", "cpu")
    assert step.max_batch is None


def test_the_fields_are_options_of_onnxruntimes_provider() -> None:
    step = TensorRt(
        "m.onnx",
        use_fp16=True,
        max_workspace_size=1 << 30,
        min_dimensions=named(1, 3, 224, 224) + named(1, 4, name="y"),
        optimal_dimensions=named(8, 3, 224, 224) + named(8, 4, name="y"),
        max_dimensions=named(32, 3, 640, 640) + named(16, 4, name="y"),
        provider_options={"trt_engine_cache_enable": True, "trt_max_workspace_size": 5},
    )
    assert provider_options(step) == {
        "trt_fp16_enable": True,
        "trt_max_workspace_size": 5,
        "trt_profile_min_shapes": "x:1x3x224x224,y:1x4",
        "trt_profile_opt_shapes": "x:8x3x224x224,y:8x4",
        "trt_profile_max_shapes": "x:32x3x640x640,y:16x4",
        "trt_engine_cache_enable": True,
    }


@pytest.mark.parametrize(
    ("size", "largest", "most"), [(0, None, None), (4, None, 4), (0, 16, 16), (4, 16, 4), (64, 16, 16)]
)
def test_a_batch_is_no_larger_than_the_step_and_its_profile_say(size: int, largest: int | None, most: int) -> None:
    shapes = {} if largest is None else {"min_dimensions": named(1, 2), "optimal_dimensions": named(1, 2)}
    if largest is not None:
        shapes["max_dimensions"] = named(largest, 2)
    assert onnx_step(TensorRt("m.onnx", batch_size=size, **shapes)).max_batch == most


@pytest.mark.parametrize(
    ("shapes", "text"),
    [
        ({"min_dimensions": named(1, 2)}, "go together, for the same inputs; they name x, none and none"),
        (
            {"min_dimensions": named(1), "optimal_dimensions": named(1), "max_dimensions": named(1, name="y")},
            "they name x, x and y",
        ),
        (
            {"min_dimensions": named(4, 2), "optimal_dimensions": named(2, 2), "max_dimensions": named(8, 2)},
            r'"x" is \[4, 2\] at least, \[8, 2\] at most and \[2, 2\] at best',
        ),
        (
            {"min_dimensions": named(1, 2), "optimal_dimensions": named(2), "max_dimensions": named(8, 2)},
            "the numbers of axes be equal",
        ),
    ],
)
def test_dimensions_that_do_not_fit_together_are_an_error(shapes: dict[str, Any], text: str) -> None:
    with pytest.raises(StreamerError, match=text):
        provider_options(TensorRt("m.onnx", **shapes))


def test_an_input_that_is_named_twice_or_has_an_empty_axis_does_not_load() -> None:
    text = """
    steps:
    - "@type": TENSORRT
      minDimensions: [{name: x, dimensions: [1]}, {name: x, dimensions: [2]}]
    """
    with pytest.raises(DefinitionError, match=r"minDimensions: an input is named twice"):
        loads(text)
    with pytest.raises(DefinitionError, match=r"dimensions\[0\]"):
        loads(text.replace("[1]", "[0]"))


def without_tensorrt() -> bool:
    import onnxruntime

    return "TensorrtExecutionProvider" not in onnxruntime.get_available_providers()


needs_none = pytest.mark.skipif(not without_tensorrt(), reason="this onnxruntime has TensorRT")


@needs_none
def test_without_tensorrt_the_model_runs_on_what_is_there_with_one_warning(
    model: Path, caplog: pytest.LogCaptureFixture
) -> None:
    step = TensorRt(model, input_names={"x": "photo"}, output_names=["y"], batch_size=2, use_fp16=True, warm_up=True)
    with caplog.at_level(logging.WARNING), Sequence([step]).open() as executor:
        found = executor.run_many([Data({"photo": np.full(2, n, "f4")}) for n in range(5)])
    assert [data["y"].tolist() for data in results_of(found)] == [[2 * n, 2 * n] for n in range(5)]
    (warning,) = [record.getMessage() for record in caplog.records]
    assert "TensorrtExecutionProvider" in warning
    assert warning.endswith("using CPUExecutionProvider")


@needs_none
def test_a_strict_step_does_not_run_without_tensorrt(model: Path) -> None:
    with pytest.raises(StepError, match=r"0:TENSORRT: the TENSORRT step is strict, but this onnxruntime has .* only"):
        Sequence([TensorRt(model, strict=True)]).open()


def test_a_step_without_a_model_is_an_error_that_names_it() -> None:
    with pytest.raises(StepError, match='0:TENSORRT: the step has no model; set "modelUri"'):
        Sequence([TensorRt()]).open()
