"""The work of DETECT, of IMAGE_TO_NDARRAY and of a model of batch 4, as a pipeline does it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import pipelines
from benchmarks.detectors.byhand import CLASSES, SIDE
from pipelines import Data, Detect, Image, ImageToNDArray, ImageToNDArrayConfig, Onnx, StepError
from pipelines.runners.models.onnxmodel import OnnxModel

CALL = 4
"""Samples in a call of the model of `write_batch_model`."""

Work = Callable[[], object]


def answer(output: Any) -> AbstractContextManager[Any]:
    """While this is entered, models give the same output whatever they are shown."""
    return patch.object(OnnxModel, "run", lambda model, arrays: [output])


def detect(model: Path) -> pipelines.Pipeline:
    """DETECT with a model's file."""
    return pipelines.Sequence([Detect(str(model))])


def padded() -> pipelines.Pipeline:
    """IMAGE_TO_NDARRAY to a square with black bars, from 0 to 1."""
    config = ImageToNDArrayConfig(
        height=SIDE, width=SIDE, aspect_ratio_handling="PAD",
        normalization=pipelines.ImageNormalization(type="SCALE_01"),
    )  # fmt: skip
    return pipelines.Sequence([ImageToNDArray(config=config)])


def work(executor: Any, records: Callable[[], Sequence[Data]]) -> Work:
    """A call that runs records, made anew each time."""

    def run() -> object:
        results = executor.run_many(records())
        for result in results:
            if isinstance(result, StepError):
                raise result
        return results

    return run


def pictures(pixels: Any) -> Callable[[], list[Data]]:
    """A record with a picture; nothing that was made of it is kept from call to call."""
    return lambda: [Data({"image": Image(pixels)})]


def write_detector(path: Path) -> Path:
    """A model with the inputs, outputs and metadata of a YOLO11 for COCO, which gives zeros."""
    zeros = numpy_helper.from_array(np.zeros((1, 4 + CLASSES, 8400), np.float32), "zeros")
    names = str({number: f"class {number}" for number in range(CLASSES)})
    return _save(
        path, [helper.make_node("Identity", ["zeros"], ["output0"])], ("images", [1, 3, SIDE, SIDE]),
        ("output0", [1, 4 + CLASSES, 8400]), [zeros], {"names": names, "task": "detect", "imgsz": f"[{SIDE}, {SIDE}]"},
    )  # fmt: skip


def write_batch_model(path: Path) -> Path:
    """A convolutional network `x: float32 (4, 3, 160, 160)` to `y: float32 (4, 48)`, of random weights.

    It has about as many multiplications for each pixel as the smallest YOLO models.
    """
    rng = np.random.default_rng(7)
    weights = [
        numpy_helper.from_array((rng.standard_normal((48, 3, 3, 3)) / 5).astype(np.float32), "w0"),
        numpy_helper.from_array((rng.standard_normal((48, 48, 3, 3)) / 20).astype(np.float32), "w1"),
    ]
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["a"], strides=[2, 2]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "w1"], ["c"]),
        helper.make_node("GlobalAveragePool", ["c"], ["d"]),
        helper.make_node("Flatten", ["d"], ["y"]),
    ]
    return _save(path, nodes, ("x", [CALL, 3, 160, 160]), ("y", [CALL, 48]), weights, {})


def batch_model(path: Path) -> pipelines.Pipeline:
    """ONNX with the model of `write_batch_model`, which runs in one thread by default."""
    return pipelines.Sequence([Onnx(str(path))])


def _save(
    path: Path,
    nodes: list[Any],
    takes: tuple[str, list[int]],
    gives: tuple[str, list[int]],
    weights: list[Any],
    metadata: dict[str, str],
) -> Path:
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in (takes, gives)]
    graph = helper.make_graph(nodes, "made", ports[:1], ports[1:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    helper.set_model_props(model, metadata)
    onnx.checker.check_model(model)
    onnx.save(model, str(path))
    return path
