"""The models of these measurements, with random weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

WIDE = 3162
"""Inputs and outputs of `wide`, whose weights so have 38 MiB."""


def convolution(path: Path) -> Path:
    """A model for `x: float32 (N, 8, 32, 32)` whose call with 4 samples takes about 5 ms on a core."""
    weight = np.random.default_rng(1).standard_normal((256, 8, 9, 9)).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"]),
        helper.make_node("GlobalAveragePool", ["c"], ["y"]),
    ]
    return _saved(path, nodes, [numpy_helper.from_array(weight, "w")], ["N", 8, 32, 32], ["N", 256, 1, 1])


def wide(path: Path, width: int = WIDE, results: int | None = None) -> Path:
    """A model for `x: float32 (N, width)` of one matrix, which costs as much for one sample as for a few.

    Its `y` has as many numbers, or `results` of them.
    """
    results = width if results is None else results
    weight = np.random.default_rng(2).standard_normal((width, results)).astype(np.float32)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    return _saved(path, nodes, [numpy_helper.from_array(weight, "w")], ["N", width], ["N", results])


def _saved(
    path: Path, nodes: list[onnx.NodeProto], weights: list[onnx.TensorProto], given: list[object], made: list[object]
) -> Path:
    graph = helper.make_graph(
        nodes,
        "flow",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, given)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, made)],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    onnx.save(model, str(path))
    return path
