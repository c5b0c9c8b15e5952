"""The models: small multilayer perceptrons with fixed random weights."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

LAYERS = {32: (32, 32, 32), 784: (784, 128, 10)}
"""Widths of the layers by the number of input floats."""


def write_model(folder: Path, floats: int, *, scores: bool = False) -> Path:
    """Write the model for `x: float32 (N, floats)`, which gives `y: float32 (N, last layer)`; returns its path.

    With `scores` that is one number for each, as models of sensors mostly give.
    """
    widths = (floats, 32, 1) if scores else LAYERS[floats]
    rng = np.random.default_rng(floats)
    nodes, weights, last = [], [], "x"
    for layer, (wide, narrow) in enumerate(itertools.pairwise(widths)):
        weight = (rng.standard_normal((wide, narrow)) / np.sqrt(wide)).astype(np.float32)
        weights.append(numpy_helper.from_array(weight, f"w{layer}"))
        weights.append(numpy_helper.from_array(np.zeros(narrow, np.float32), f"b{layer}"))
        final = layer == len(widths) - 2
        out = "y" if final else f"h{layer}"
        nodes.append(helper.make_node("Gemm", [last, f"w{layer}", f"b{layer}"], [out]))
        if not final:
            nodes.append(helper.make_node("Relu", [out], [f"r{layer}"]))
            last = f"r{layer}"
    graph = helper.make_graph(
        nodes,
        "mlp",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", floats])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", widths[-1]])],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    onnx.checker.check_model(model)
    path = model_path(folder, floats, scores=scores)
    onnx.save(model, str(path))
    return path


def model_path(folder: Path, floats: int, *, scores: bool = False) -> Path:
    """Where `write_model` puts it."""
    return folder / f"mlp-{floats}{'-scores' if scores else ''}.onnx"
