"""The steps that `benchmarks.steps` measures, and the records that they are given."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, get_args

import numpy as np

from pipelines import (
    ArgMax,
    BoundingBox,
    ClassifierOutput,
    Data,
    Ensemble,
    Graph,
    GraphBuilder,
    GrayScale,
    Image,
    ImageCrop,
    ImageNormalization,
    ImageResize,
    ImageToNDArray,
    ImageToNDArrayConfig,
    IntSwitch,
    Onnx,
    RegressionOutput,
    SsdToBoundingBox,
    Step,
    YoloToBoundingBox,
)
from pipelines.steps import CombineFunction

DIGITS = Path(__file__).parent.parent / "examples" / "digits" / "digits.onnx"
Record = Callable[[int], Data]
"""A record by its number."""


class Case(NamedTuple):
    """A step or a graph, and its input records; the cost of making these is not measured."""

    name: str
    step: Step | Graph
    record: Record


def image(width: int, height: int, encoded: str | None = None) -> Record:
    """Records with a picture of noise under `image`, all different; `encoded` as `png` or `jpeg`, not yet decoded."""

    def record(number: int) -> Data:
        pixels = np.random.default_rng(number).integers(0, 256, (height, width, 3), np.uint8)
        made = Image(pixels)
        return Data({"image": made if encoded is None else Image(made.get_as(encoded)), "id": number})

    return record


def array(*shape: int) -> Record:
    """Records with a float32 array of this shape under `y`."""
    return lambda number: Data({"y": np.random.default_rng(number).random(shape, np.float32), "id": number})


def detections(number: int) -> Data:
    """The output of a single shot detector: 100 boxes of 90 classes, ten of them above 0.5."""
    random = np.random.default_rng(number)
    scores = np.sort(random.random(100, np.float32))[::-1] * 0.5
    scores[:10] += 0.5
    return Data(
        {
            "detection_boxes": np.sort(random.random((1, 100, 4), np.float32)),
            "detection_scores": scores[None],
            "detection_classes": random.integers(1, 91, (1, 100)).astype("f4"),
        }
    )


def cells(number: int) -> Data:
    """The last layer of a YOLO network: 5 priors, 20 classes, 13 x 13 cells, some 17 above 0.98."""
    return Data({"layer": np.random.default_rng(number).random((1, 125, 13, 13), np.float32)})


def digit(number: int) -> Data:
    """Records for the digits model."""
    return Data({"image": np.random.default_rng(number).integers(0, 17, (8, 8), np.uint8)})


def to_array(**config: Any) -> Step:
    """IMAGE_TO_NDARRAY with this configuration."""
    return ImageToNDArray(config=ImageToNDArrayConfig(**config))


def normalized(kind: str) -> Step:
    """IMAGE_TO_NDARRAY with this normalisation."""
    numbers = {"meanRgb": (124.0, 117.0, 104.0), "stdRgb": (58.0, 57.0, 57.0)}
    given = numbers if kind in ("SUBTRACT_MEAN", "STANDARDIZE") else {}
    return to_array(normalization=ImageNormalization.model_validate({"type": kind, **given}))


def combined(function: CombineFunction) -> Graph:
    """Two regressions, and one record of theirs."""
    graph = GraphBuilder()
    branches = [graph.input.then(f"r{n}", RegressionOutput(names={"score": n})) for n in range(2)]
    return graph.build(graph.combine(function, *branches))


def switched() -> Graph:
    """Every second record to one of two regressions."""
    graph = GraphBuilder()
    even, odd = graph.input.switch("which", IntSwitch(field_name="which", num_outputs=2))
    branches = [stage.then(f"r{n}", RegressionOutput(names={"score": n})) for n, stage in enumerate((even, odd))]
    return graph.build(graph.any(*branches))


def which(number: int) -> Data:
    """Records for `switched`."""
    return Data({"y": np.random.default_rng(number).random(3, np.float32), "which": number % 2})


HALF = ImageCrop.model_validate({"cropBox": BoundingBox.corners(0, 0.5, 0, 1)})
LABELS = tuple(f"class {number}" for number in range(1000))

CASES: tuple[Case, ...] = (
    *(
        Case(f"IMAGE_TO_NDARRAY 28x28, {kind}", normalized(kind), image(28, 28))
        for kind in get_args(ImageNormalization.model_fields["type"].annotation)
    ),
    Case("IMAGE_TO_NDARRAY 28x28 uint8", to_array(data_type="UINT8", normalization=None), image(28, 28)),
    Case("IMAGE_TO_NDARRAY 224x224", to_array(), image(224, 224)),
    Case("IMAGE_TO_NDARRAY 640x480 to 224x224", to_array(height=224, width=224), image(640, 480)),
    Case("IMAGE_TO_NDARRAY 640x480 JPEG to 224x224", to_array(height=224, width=224), image(640, 480, "jpeg")),
    Case("IMAGE_RESIZE 56x56 to 28x28", ImageResize(height=28, width=28), image(56, 56)),
    Case("IMAGE_RESIZE 640x480 to 320x240", ImageResize(width=320), image(640, 480)),
    Case("IMAGE_CROP 56x56, half", HALF, image(56, 56)),
    Case("IMAGE_CROP 640x480, half", HALF, image(640, 480)),
    Case("GRAY_SCALE 28x28", GrayScale(), image(28, 28)),
    Case("GRAY_SCALE 640x480", GrayScale(), image(640, 480)),
    Case("SSD_TO_BBOX 100 boxes, 10 chosen", SsdToBoundingBox(class_labels=LABELS[:90]), detections),
    Case("YOLO_BBOX 13x13x5, 20 classes, 17 chosen", YoloToBoundingBox(num_classes=20, threshold=0.98), cells),
    Case("YOLO_BBOX the same with nms", YoloToBoundingBox(num_classes=20, threshold=0.98, nms=True), cells),
    Case("CLASSIFIER_OUTPUT 10 classes", ClassifierOutput(), array(1, 10)),
    Case("CLASSIFIER_OUTPUT 1000 classes with labels", ClassifierOutput(labels=LABELS), array(1, 1000)),
    Case("REGRESSION_OUTPUT 3 columns", RegressionOutput(names={"a": 0, "b": 1, "c": 2}), array(1, 3)),
    Case("ONNX digits, 8x8", Onnx(DIGITS), digit),
    Case("COMBINE ENSEMBLE of two REGRESSION_OUTPUT", combined(Ensemble()), array(3)),
    Case("COMBINE ARGMAX of the same", combined(ArgMax()), array(3)),
    Case("SWITCH to two REGRESSION_OUTPUT, ANY", switched(), which),
)
"""Every step that does arithmetic on columns, small and large."""
