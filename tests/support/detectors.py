"""Detectors that find rectangles by their colour, as ONNX graphs that answer in the layout of any exporter.

A model looks for a rectangle in each of the colours red, green and blue (classes 0, 1, 2) and answers at the full size
of its layout: what is no rectangle is zeros, as of a model that sees nothing there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper, save

LABELS = ("red", "green", "blue")
COLORS = ((255, 0, 0), (0, 255, 0), (0, 0, 255))
"""Red, green and blue of the classes."""
SCORE = 0.9
"""The probability of each box."""
FAR = 1e6
PLACES = (3, 70, 99)
"""Which of the model's boxes show the three classes."""
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
Shape = list[int | str]
Output = tuple[str, int, Shape]

_NAMES = str(dict(enumerate(LABELS)))
_METADATA: dict[str, dict[str, str]] = {
    "yolo8": {"names": _NAMES, "task": "detect"},
    "yolo8-turned": {"names": _NAMES},
    "yolo8-pose": {"names": _NAMES, "task": "pose", "kpt_shape": "[2, 3]"},
    "yolo8-segment": {"names": _NAMES, "task": "segment"},
    "yolo8-obb": {"names": _NAMES, "task": "obb"},
    "yolo5": {"names": _NAMES, "stride": "32"},
    "end2end": {"names": _NAMES, "task": "detect", "end2end": "True"},
    "end2end-head": {"names": _NAMES, "task": "detect", "head": "RTDETRDecoder"},
    "boxes_scores": {"names": _NAMES, "box": "y1x1y2x2", "unit": "fractions"},
}
BYTES = ("tf", "tflite", "boxes_scores")
"""Layouts whose models take `[N, H, W, 3]` uint8; the others take `[N, 3, H, W]` float32."""


def save_detector(
    path: Path,
    layout: str,
    size: tuple[int, int] = (320, 320),
    *,
    batch: int | str = "N",
    open_size: bool = False,
    metadata: Mapping[str, str] | None = None,
) -> Path:
    """Save a detector whose outputs are in `layout`, for an input of `size`, height and width.

    Args:
        path: Where.
        layout: A name of DETECT's layouts, or one of `yolo8-turned`, `yolo8-pose`, `yolo8-segment`, `yolo8-obb`,
            `yolox-raw`, `end2end-head`.
        size: Of the input; multiples of 32.
        batch: The first length of the input, a number or a symbol.
        open_size: Whether height and width of the input are symbols, too.
        metadata: In place of what the layout's exporter writes.
    """
    model = Made(layout, size, batch, open_size=open_size).model()
    helper.set_model_props(model, dict(_METADATA.get(layout, {}) if metadata is None else metadata))
    save(model, path)
    return path


class Made:
    """A graph while it is made."""

    def __init__(self, layout: str, size: tuple[int, int], batch: int | str, *, open_size: bool) -> None:
        self.layout, self.high, self.wide, self.batch = layout, *size, batch
        self.nodes: list[NodeProto] = []
        self.constants: list[Any] = []
        sides: Shape = ["H", "W"] if open_size else [self.high, self.wide]
        shape = [batch, *sides, 3] if layout in BYTES else [batch, 3, *sides]
        kind = TensorProto.UINT8 if layout in BYTES else TensorProto.FLOAT
        self.inputs = [helper.make_tensor_value_info("images", kind, shape)]

    def model(self) -> ModelProto:
        """The whole model."""
        self._find()
        outputs = _OUTPUTS[self.layout.partition("-")[0]](self)
        infos = [helper.make_tensor_value_info(*output) for output in outputs]
        graph = helper.make_graph(self.nodes, "detector", self.inputs, infos, self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)

    @property
    def cells(self) -> int:
        """How many cells the grids of strides 8, 16 and 32 have."""
        return sum((self.high // stride) * (self.wide // stride) for stride in (8, 16, 32))

    def constant(self, value: Any, dtype: str = "f4") -> str:
        """The name of a constant."""
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def add(self, operator: str, *inputs: str | Any, to: str | None = None, **attributes: Any) -> str:
        """The name of an operator's output; inputs that are no names become constants."""
        name = to or f"n{len(self.nodes)}"
        names = [given if isinstance(given, str) else self.constant(given) for given in inputs]
        self.nodes.append(helper.make_node(operator, names, [name], **attributes))
        return name

    def cast(self, name: str, kind: int, to: str | None = None) -> str:
        """Another element type."""
        output = to or f"n{len(self.nodes)}"
        self.nodes.append(helper.make_node("Cast", [name], [output], to=kind))
        return output

    def axes(self, operator: str, name: str, *axes: int) -> str:
        """`Unsqueeze` or `Squeeze` at these axes."""
        return self.add(operator, name, self.constant(axes, "i8"))

    def _find(self) -> None:
        """Corners `[N, 3, 4]` in pixels of the input, and whether each class is there, 1 or 0, `[N, 3]`."""
        masks = self.masks = self._masks()
        edges = {}
        for axis, at in ((3, "x"), (2, "y")):
            shape = self.add("Shape", masks)
            length = self.add("Gather", shape, self.constant(axis, "i8"))
            numbers = self.add("Range", self.constant(0, "i8"), length, self.constant(1, "i8"))
            places = self.cast(numbers, TensorProto.FLOAT)
            places = self.axes("Unsqueeze", places, *((0, 1, 2) if axis == 3 else (0, 1, 3)))
            least = self.add("Where", masks, places, FAR)
            most = self.add("Where", masks, self.add("Add", places, 1.0), -FAR)
            edges[at, 1] = self.add("ReduceMin", least, axes=[2, 3], keepdims=0)
            edges[at, 2] = self.add("ReduceMax", most, axes=[2, 3], keepdims=0)
        here = self.add("Greater", edges["x", 2], edges["x", 1])
        self.there = self.cast(here, TensorProto.FLOAT)
        self.edges = {key: self.add("Where", here, edge, 0.0) for key, edge in edges.items()}

    def _masks(self) -> str:
        """Where the input has the colour of each class, bool `[N, 3, H, W]`."""
        pixels = "images"
        if self.layout in BYTES:
            pixels = self.add("Transpose", self.cast(pixels, TensorProto.FLOAT), perm=[0, 3, 1, 2])
            pixels = self.add("Div", pixels, 255.0)
        if self.layout == "detr":
            std, mean = np.reshape(STD, (1, 3, 1, 1)), np.reshape(MEAN, (1, 3, 1, 1))
            pixels = self.add("Add", self.add("Mul", pixels, std), mean)
        backwards = self.layout.startswith("yolox")
        if backwards:
            pixels = self.add("Div", pixels, 255.0)
        order = (2, 1, 0) if backwards else (0, 1, 2)
        red, green, blue = (self.add("Gather", pixels, self.constant([channel], "i8"), axis=1) for channel in order)
        differences = [
            self.add("Sub", channel, self.add("Max", *others))
            for channel, others in ((red, (green, blue)), (green, (red, blue)), (blue, (red, green)))
        ]
        return self.add("Greater", self.add("Concat", *differences, axis=1), 0.5)

    def boxes(self, form: str, *, fractions: bool = False) -> str:
        """The boxes `[N, 3, 4]` in a form: `xyxy`, `yxyx`, `cxcywh`."""
        scale = (self.wide, self.high) if fractions else (1, 1)
        x1, y1, x2, y2 = (
            self.add("Div", self.edges[at, side], float(scale[at == "y"])) for side in (1, 2) for at in ("x", "y")
        )
        if form == "cxcywh":
            middle = [self.add("Div", self.add("Add", a, b), 2.0) for a, b in ((x1, x2), (y1, y2))]
            numbers = [*middle, self.add("Sub", x2, x1), self.add("Sub", y2, y1)]
        else:
            numbers = [x1, y1, x2, y2] if form == "xyxy" else [y1, x1, y2, x2]
        return self.add("Concat", *(self.axes("Unsqueeze", number, 2) for number in numbers), axis=2)

    def rows(self, values: str, count: int) -> str:
        """Values `[N, 3, k]` of the classes as those of the boxes of a model `[N, count, k]`."""
        return self.add("MatMul", _placement(count), values)

    def scores(self, count: int, value: float = SCORE) -> str:
        """Probabilities `[N, count, 3]`: of each class at its place."""
        return self.add("Mul", self.axes("Unsqueeze", self.there, 1), _placement(count)[np.newaxis] * value)

    def column(self, values: Any) -> str:
        """Numbers of the three classes `[N, 3, 1]`, 0 where the class is not there."""
        return self.axes("Unsqueeze", self.add("Mul", self.there, np.asarray(values, "f4")), 2)


def _placement(count: int) -> Any:
    placement = np.zeros((count, 3), np.float32)
    placement[PLACES, (0, 1, 2)] = 1
    return placement


def _yolo8(made: Made) -> list[Output]:
    parts = [made.rows(made.boxes("cxcywh"), made.cells), made.scores(made.cells)]
    outputs: list[Output] = []
    extra = 0
    if made.layout == "yolo8-pose":
        named = [made.axes("Unsqueeze", edge, 2) for edge in made.edges.values()]
        x1, x2, y1, y2 = named
        points = made.add("Concat", x1, y1, made.column([1] * 3), x2, y2, made.column([0.5] * 3), axis=2)
        parts.append(made.rows(points, made.cells))
        extra = 6
    if made.layout == "yolo8-obb":
        x, y, wide, high = (
            made.add("Gather", made.boxes("cxcywh"), made.constant([number], "i8"), axis=2) for number in range(4)
        )
        # A quarter turn, so that width and height change places.
        parts[0] = made.rows(made.add("Concat", x, y, high, wide, axis=2), made.cells)
        parts.append(made.rows(made.column([math.pi / 2] * 3), made.cells))
        extra = 1
    if made.layout == "yolo8-segment":
        # The prototypes are the masks of the classes, -1 outside and 1 inside.
        eye = np.concatenate([np.eye(3), np.zeros((3, 29))], axis=1)[np.newaxis]
        here = made.axes("Unsqueeze", made.there, 2)
        parts.append(made.rows(made.add("Mul", here, eye), made.cells))
        masks = made.cast(made.masks, TensorProto.FLOAT)
        pooled = made.add("AveragePool", masks, kernel_shape=[4, 4], strides=[4, 4])
        protos = made.add("Sub", made.add("Mul", pooled, 2.0), 1.0)
        made.add("Pad", protos, made.constant([0, 0, 0, 0, 0, 29, 0, 0], "i8"), to="output1")
        outputs.append(("output1", TensorProto.FLOAT, [made.batch, 32, made.high // 4, made.wide // 4]))
        extra = 32
    joined = made.add("Concat", *parts, axis=2, to="output0" if made.layout == "yolo8-turned" else None)
    if made.layout == "yolo8-turned":
        return [("output0", TensorProto.FLOAT, [made.batch, made.cells, 7])]
    made.add("Transpose", joined, perm=[0, 2, 1], to="output0")
    return [("output0", TensorProto.FLOAT, [made.batch, 7 + extra, made.cells]), *outputs]


def _with_objectness(made: Made, boxes: str, count: int) -> list[Output]:
    objectness = made.rows(made.column([1.0] * 3), count)
    made.add("Concat", boxes, objectness, made.scores(count), axis=2, to="output0")
    return [("output0", TensorProto.FLOAT, [made.batch, count, 8])]


def _yolo5(made: Made) -> list[Output]:
    return _with_objectness(made, made.rows(made.boxes("cxcywh"), 3 * made.cells), 3 * made.cells)


def _yolox(made: Made) -> list[Output]:
    if made.layout == "yolox":
        return _with_objectness(made, made.rows(made.boxes("cxcywh"), made.cells), made.cells)
    # The places are in the grid of stride 8.
    columns = made.wide // 8
    cells = np.array([[[place % columns, place // columns] for place in PLACES]], "f4")
    numbers = made.add("Div", made.boxes("cxcywh"), 8.0)
    middle = made.add("Slice", numbers, *(made.constant(at, "i8") for at in ([0], [2], [2])))
    size = made.add("Slice", numbers, *(made.constant(at, "i8") for at in ([2], [4], [2])))
    logarithms = made.add("Log", made.add("Max", size, 1e-3))
    rows = made.rows(made.add("Concat", made.add("Sub", middle, cells), logarithms, axis=2), made.cells)
    return _with_objectness(made, rows, made.cells)


def _end2end(made: Made) -> list[Output]:
    head = made.layout == "end2end-head"
    boxes = made.boxes("cxcywh", fractions=True) if head else made.boxes("xyxy")
    rows = made.add("Concat", boxes, made.column([SCORE] * 3), made.column([0, 1, 2]), axis=2)
    made.nodes.append(helper.make_node("Identity", [made.rows(rows, 100)], ["output0"]))
    return [("output0", TensorProto.FLOAT, [made.batch, 100, 6])]


def _flat7(made: Made) -> list[Output]:
    boxes = made.add("Concat", made.boxes("xyxy"), made.column([0, 1, 2]), made.column([SCORE] * 3), axis=2)
    at = made.add("Transpose", made.add("NonZero", made.there), perm=[1, 0])
    picture = made.add("Gather", made.cast(at, TensorProto.FLOAT), made.constant([0], "i8"), axis=1)
    made.add("Concat", picture, made.add("GatherND", boxes, at), axis=1, to="output")
    return [("output", TensorProto.FLOAT, ["n", 7])]


def _detr(made: Made) -> list[Output]:
    made.nodes.append(helper.make_node("Identity", [made.rows(made.boxes("cxcywh", fractions=True), 100)], ["dets"]))
    logit = math.log(SCORE / (1 - SCORE))
    made.add("Sub", made.scores(100, 10 + logit), 10.0, to="labels")
    return [("dets", TensorProto.FLOAT, [made.batch, 100, 4]), ("labels", TensorProto.FLOAT, [made.batch, 100, 3])]


def _listed(made: Made, boxes: str, first: int) -> tuple[str, str, str]:
    """Boxes `[N, 100, 4]`, scores and classes `[N, 100]`."""
    scores, classes = (
        made.axes("Squeeze", made.rows(made.column(numbers), 100), 2)
        for numbers in ([SCORE] * 3, [first, first + 1, first + 2])
    )
    return made.rows(boxes, 100), scores, classes


def _named(made: Made, **outputs: str) -> None:
    made.nodes.extend(helper.make_node("Identity", [value], [name]) for name, value in outputs.items())


def _rtdetr(made: Made) -> list[Output]:
    sizes: Shape = [made.batch, 2]
    made.inputs.append(helper.make_tensor_value_info("orig_target_sizes", TensorProto.INT64, sizes))
    scale = made.cast("orig_target_sizes", TensorProto.FLOAT)
    scale = made.axes("Unsqueeze", made.add("Concat", scale, scale, axis=1), 1)
    boxes = made.add("Mul", made.boxes("xyxy", fractions=True), scale)
    boxes, scores, classes = _listed(made, boxes, 0)
    _named(made, labels=made.cast(classes, TensorProto.INT64), boxes=boxes, scores=scores)
    return [
        ("labels", TensorProto.INT64, [made.batch, 100]),
        ("boxes", TensorProto.FLOAT, [made.batch, 100, 4]),
        ("scores", TensorProto.FLOAT, [made.batch, 100]),
    ]


def _tf(made: Made) -> list[Output]:
    boxes, scores, classes = _listed(made, made.boxes("yxyx", fractions=True), 1)
    names = ["detection_boxes", "detection_classes", "detection_scores"]
    _named(made, **dict(zip(names, (boxes, classes, scores), strict=True)))
    return [(name, TensorProto.FLOAT, [made.batch, 100, 4][: 3 if name == names[0] else 2]) for name in names]


def _tflite(made: Made) -> list[Output]:
    boxes, scores, classes = _listed(made, made.boxes("yxyx", fractions=True), 0)
    names = [f"TFLite_Detection_PostProcess{at}" for at in ("", ":1", ":2")]
    _named(made, **dict(zip(names, (boxes, classes, scores), strict=True)))
    return [(name, TensorProto.FLOAT, [made.batch, 100, 4][: 3 if name == names[0] else 2]) for name in names]


def _torchvision(made: Made) -> list[Output]:
    at = made.add("Transpose", made.add("NonZero", made.there), perm=[1, 0])
    boxes, labels, scores = (
        made.add("GatherND", values, at)
        for values in (made.boxes("xyxy"), made.column([1, 2, 3]), made.column([SCORE] * 3))
    )
    labels = made.cast(made.axes("Squeeze", labels, 1), TensorProto.INT64)
    _named(made, boxes=boxes, labels=labels, scores=made.axes("Squeeze", scores, 1))
    return [
        ("boxes", TensorProto.FLOAT, ["n", 4]),
        ("labels", TensorProto.INT64, ["n"]),
        ("scores", TensorProto.FLOAT, ["n"]),
    ]


def _mmdet(made: Made) -> list[Output]:
    boxes, scores, classes = _listed(made, made.boxes("xyxy"), 0)
    dets = made.add("Concat", boxes, made.axes("Unsqueeze", scores, 2), axis=2)
    _named(made, dets=dets, labels=made.cast(classes, TensorProto.INT64))
    return [("dets", TensorProto.FLOAT, [made.batch, 100, 5]), ("labels", TensorProto.INT64, [made.batch, 100])]


def _efficient_nms(made: Made) -> list[Output]:
    boxes, scores, classes = _listed(made, made.boxes("xyxy"), 0)
    none = made.add("Mul", made.add("ReduceMax", made.there, axes=[1], keepdims=1), 0.0)
    counts = made.cast(made.add("Add", none, 100.0), TensorProto.INT32)
    classes = made.cast(classes, TensorProto.INT32)
    _named(made, num_dets=counts, det_boxes=boxes, det_scores=scores, det_classes=classes)
    return [
        ("num_dets", TensorProto.INT32, [made.batch, 1]),
        ("det_boxes", TensorProto.FLOAT, [made.batch, 100, 4]),
        ("det_scores", TensorProto.FLOAT, [made.batch, 100]),
        ("det_classes", TensorProto.INT32, [made.batch, 100]),
    ]


def _boxes_scores(made: Made) -> list[Output]:
    _named(made, boxes=made.rows(made.boxes("yxyx", fractions=True), 1917), scores=made.scores(1917))
    return [("boxes", TensorProto.FLOAT, [made.batch, 1917, 4]), ("scores", TensorProto.FLOAT, [made.batch, 1917, 3])]


_OUTPUTS: dict[str, Callable[[Made], list[Output]]] = {
    "yolo8": _yolo8,
    "yolo5": _yolo5,
    "yolox": _yolox,
    "end2end": _end2end,
    "flat7": _flat7,
    "detr": _detr,
    "rtdetr": _rtdetr,
    "tf": _tf,
    "tflite": _tflite,
    "torchvision": _torchvision,
    "mmdet": _mmdet,
    "efficient_nms": _efficient_nms,
    "boxes_scores": _boxes_scores,
}
