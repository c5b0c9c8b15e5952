"""Make the model, `ringing.onnx`: `python examples/vibration/model.py`.

It is a formula and not trained: the effective value of the acceleration between 200 and 380 Hz, where the housing of a
fan rings when a damaged bearing hits it, divided by a limit. A trained model with the same input and output may take
its place (examples/sensors has one).
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

SAMPLES: Final = 256
RATE: Final = 800.0
BAND: Final = (200.0, 380.0)
LIMIT: Final = 0.1
"""g at which the score is 1; healthy devices have a third of it."""
LICENCE: Final = "Apache-2.0, the licence of the repository"


def model() -> onnx.ModelProto:
    """`samples` float32 `(N, 256)` in g in, `score` float32 `(N,)` out."""
    frequencies = np.fft.rfftfreq(SAMPLES, 1.0 / RATE)
    inside = np.flatnonzero((frequencies >= BAND[0]) & (frequencies <= BAND[1]))
    turns = 2.0 * np.pi * np.outer(np.arange(SAMPLES), inside) / SAMPLES
    hann = np.hanning(SAMPLES)[:, None]
    # The squares of all products sum up to twice the mean square of what is in the band.
    scale = 2.0 / np.sqrt(SAMPLES * np.sum(hann**2))
    waves = scale * hann * np.concatenate([np.cos(turns), np.sin(turns)], axis=1)
    numbers = {"waves": waves, "limit": np.array(np.sqrt(2.0) * LIMIT)}
    nodes = [
        helper.make_node("MatMul", ["samples", "waves"], ["parts"]),
        helper.make_node("ReduceSumSquare", ["parts"], ["power"], axes=[1], keepdims=0),
        helper.make_node("Sqrt", ["power"], ["amplitude"]),
        helper.make_node("Div", ["amplitude", "limit"], ["score"]),
    ]
    graph = helper.make_graph(
        nodes,
        "ringing",
        [helper.make_tensor_value_info("samples", TensorProto.FLOAT, ["N", SAMPLES])],
        [helper.make_tensor_value_info("score", TensorProto.FLOAT, ["N"])],
        [numpy_helper.from_array(np.asarray(value, np.float32), name) for name, value in numbers.items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    made.metadata_props.add(key="licence", value=LICENCE)
    onnx.checker.check_model(made)
    return made


if __name__ == "__main__":
    onnx.save(model(), Path(__file__).parent / "ringing.onnx")
