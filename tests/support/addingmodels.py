"""Models that add a number to `x`: `y = x + n`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def adding(file: Path, number: int, output: str = "y", weights: int = 0) -> Path:
    """Write a model for `x: int64 (N,)`, whole at once as by a rename. `weights`: numbers that make it larger."""
    tensors = [numpy_helper.from_array(np.array(number, np.int64), "n")]
    if weights:
        tensors.append(numpy_helper.from_array(np.arange(weights, dtype=np.float32), "unused"))
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "n"], [output])],
        "adding",
        [helper.make_tensor_value_info("x", TensorProto.INT64, ["N"])],
        [helper.make_tensor_value_info(output, TensorProto.INT64, ["N"])],
        tensors,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    file.parent.mkdir(parents=True, exist_ok=True)
    beside = file.with_name(f".{file.name}")
    onnx.save(model, beside)
    beside.rename(file)
    return file
