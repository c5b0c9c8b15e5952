"""Films and the model that the programs run."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

SIDE = 320


def write_film(path: Path, width: int, height: int, pictures: int) -> Path:
    """A film as cameras send them: H.264, 30 pictures a second, a key frame a second, no B-frames, some noise.

    Two seconds of it are encoded, and repeated.
    """
    rate = next(bits for least, bits in ((1080, "6M"), (720, "3M"), (0, "100k")) if height >= least)
    options = {"preset": "superfast", "tune": "zerolatency", "g": "30", "bf": "0", "b": rate}
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=30, options=options)
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        packets = [packet for shown in _pictures(width, height) for packet in stream.encode(shown)]
        packets += stream.encode(None)
        for number in range(pictures):
            kept = packets[number % len(packets)]
            packet = av.Packet(bytes(kept))
            packet.pts = packet.dts = number
            packet.time_base, packet.is_keyframe, packet.stream = Fraction(1, 30), kept.is_keyframe, stream
            container.mux(packet)
    return path


def _pictures(width: int, height: int) -> Iterator[av.VideoFrame]:
    rng = np.random.default_rng(height)
    scene = np.kron(rng.integers(0, 200, (height // 40, width // 40 + 8, 3)), np.ones((40, 40, 1))).astype(np.uint8)
    noise = [rng.integers(0, 12, (height, width, 3), np.uint8) for _ in range(4)]
    for number in range(60):
        left = abs(30 - number) * 8
        shown = np.ascontiguousarray(scene[:height, left : left + width]) + noise[number % 4]
        yield av.VideoFrame.from_ndarray(shown, format="rgb24")


def write_model(path: Path) -> Path:
    """A small convolutional network, `picture: float32 (N, 3, 320, 320)` to `y: float32 (N, 16)`, of random weights."""
    rng = np.random.default_rng(7)
    weights = [
        numpy_helper.from_array((rng.standard_normal((8, 3, 3, 3)) / 5).astype(np.float32), "w0"),
        numpy_helper.from_array((rng.standard_normal((16, 8, 3, 3)) / 9).astype(np.float32), "w1"),
    ]
    nodes = [
        helper.make_node("Conv", ["picture", "w0"], ["a"], strides=[4, 4]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "w1"], ["c"], strides=[4, 4]),
        helper.make_node("GlobalAveragePool", ["c"], ["d"]),
        helper.make_node("Flatten", ["d"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("picture", TensorProto.FLOAT, ["N", 3, SIDE, SIDE])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 16])],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    onnx.checker.check_model(model)
    onnx.save(model, str(path))
    return path
