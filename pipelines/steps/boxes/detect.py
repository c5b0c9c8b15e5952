"""DETECT and DETECTIONS: boxes from pictures, or from the arrays of a detection model, whatever its layout is."""

from __future__ import annotations

import os
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import BeforeValidator, Field, model_validator

from pipelines.steps.base import RunBy, Step
from pipelines.steps.config import Config, Int, Key
from pipelines.steps.images.imagetondarray import Fit, ImageNormalization, PadColor
from pipelines.steps.models.executionoptions import PROVIDERS
from pipelines.steps.models.model import MaxBatch, ModelUri, Place, WarmUp, placed
from pipelines.steps.models.onnx import SessionOptions
from pipelines.steps.shapes import BoxField

Fraction: TypeAlias = Annotated[float, Field(ge=0, le=1)]
Side: TypeAlias = Annotated[Int, Field(gt=0)]


def _path_text(value: Any) -> Any:
    return os.fspath(value) if isinstance(value, os.PathLike) else value


class DetectorInput(Config):
    """What a detector's input holds, where it is not what models of its layout take: fields of `IMAGE_TO_NDARRAY`.

    What is left out is as the layout has it. Size and fit are fields of the step itself.
    """

    yaml_case: ClassVar[Literal["snake", "camel"]] = "camel"

    data_type: Literal["DOUBLE", "FLOAT", "FLOAT16", "INT32", "UINT8"] | None = None
    """Element type; default: the model's."""
    format: Literal["CHANNELS_FIRST", "CHANNELS_LAST"] | None = None
    """Order of the axes; default: the model's."""
    channel_layout: Literal["RGB", "RGBA", "BGR", "BGRA", "GRAYSCALE"] | None = None
    """Channels and their order."""
    normalization: ImageNormalization | None = None
    """How the channels' values, 0 to 255, are normalised."""


class _Detecting(Step):
    """The fields that say how boxes are read from a model's outputs."""

    yaml_case: ClassVar[Literal["snake", "camel"]] = "camel"
    file_fields: ClassVar[tuple[str, ...]] = ("model_uri", "labels")

    output_name: Key = "boxes"
    """Key of the list of boxes, in fractions of the picture, the most probable first."""
    layout: str | None = None
    """What the outputs mean: `yolo8`, `yolo5`, `yolox`, `end2end`, `flat7`, `detr`, `rtdetr`, `tf`, `tflite`,
    `torchvision`, `mmdet`, `boxes_scores`, `efficient_nms`, or the name of a plug-in's; default: recognised."""
    labels: Annotated[tuple[str, ...] | str | None, BeforeValidator(_path_text)] = None
    """Labels of the classes in their order, or the path of a text file with one in each line; default: those in the
    model's file, else class numbers."""
    first_class: Annotated[Int, Field(ge=0)] | None = None
    """The number by which the model names the first class, `1` where one for the background comes before; default: as
    the layout has it, mostly 0."""
    keep: tuple[str, ...] | None = None
    """Labels of the boxes to keep; default: all."""
    threshold: Fraction = 0.25
    """Boxes with a lower probability are left out."""
    nms_threshold: Fraction | None = None
    """Of two boxes of a class whose intersection / union is larger, the less probable one is left out (turned boxes
    overlap as probabilistic distributions do, ProbIoU); default: 0.5 for layouts whose models give several boxes of one
    object, none for others."""
    agnostic: bool = False
    """Whether boxes of different classes are compared too."""
    max_boxes: Annotated[Int, Field(ge=1)] = 300
    """The most boxes of a picture; the most probable ones are kept."""
    size: Side | tuple[Side, Side] | None = None
    """Height and width of the model's input in pixels where the model leaves them open, `640` or `[384, 640]`."""
    activation: Literal["NONE", "SIGMOID", "SOFTMAX"] | None = None
    """What makes probabilities of the model's scores; default: as the layout has it."""
    box: Literal["x1y1x2y2", "y1x1y2x2", "cxcywh", "xywh"] | None = None
    """What the four numbers of a box are; default: as the layout has it. `boxes_scores` needs it."""
    unit: Literal["pixels", "fractions"] | None = None
    """Whether boxes are in pixels of the model's input or fractions of it; default: as the layout has it.
    `boxes_scores` needs it."""
    keypoints: Annotated[Int, Field(ge=1)] | tuple[Annotated[Int, Field(ge=1)], Literal[2, 3]] | None = None
    """How many keypoints a box has, `17`, or `[17, 2]` where they have no visibility; default: as the model's file
    says."""
    keypoints_name: Key | None = None
    """Key of the boxes' keypoints: for each box a list of points, whose probability is the visibility; default: they
    are not read."""
    outlines_name: Key | None = None
    """Key of the boxes' outlines: for each box a list of points, a polygon around its mask, or the four corners of a
    turned box; default: they are not read."""

    @property
    def high_wide(self) -> tuple[int, int] | None:
        """`size` as height and width."""
        return (self.size, self.size) if isinstance(self.size, int) else self.size

    @model_validator(mode="after")
    def _check_keys(self) -> _Detecting:
        named = [key for key in (self.output_name, self.keypoints_name, self.outlines_name) if key is not None]
        twice = next((key for key in named if named.count(key) > 1), None)
        if twice is not None:
            raise ValueError(f'two results have the key "{twice}"; give each its own')
        return self


class Detect(_Detecting):
    """Finds objects in pictures with a detection model: `Detect("yolo11n.onnx", keep=["person", "car"])`.

    It makes the picture fit the model, runs it, and puts the boxes into fractions of the picture. What the outputs mean
    is recognised by the model's file (docs/detectors.md). Other values stay.
    """

    type_name: ClassVar[str] = "DETECT"
    run_by: ClassVar[RunBy | None] = RunBy(
        "onnxruntime", "pipelines.runners.boxes.detect:DetectRunner", ("cv2", "onnxruntime"), extra="image,onnx"
    )

    model_uri: ModelUri = None
    """Path of the ONNX model, relative to the definition's folder, or a `file:`, `http:` or `https:` URI."""
    image_name: str | None = None
    """Key of the picture; default: the record's only image."""
    fit: Fit | None = None
    """How a picture of other proportions is made to fit the model's input; default: as the layout's models were
    trained, mostly `LETTERBOX`."""
    pad_color: PadColor | None = None
    """What is around a picture that does not fill the input: gray 0 to 255, or red, green, blue; default: as the
    layout has it, mostly 114."""
    input: DetectorInput | None = None
    """Element type, axes, channels and scale of the model's input, where they are not the layout's."""
    region: BoxField | None = None
    """The part of each picture that is looked at, a box in fractions of it: objects in it are larger for the model."""
    regions: str | None = None
    """Key of a list of boxes, or one: the model looks at each of these parts of the picture."""
    parents_name: Key | None = None
    """With `regions`, key of a list that says for each box in which part it was seen, counted from 0; default: it is
    not told."""
    providers: Annotated[tuple[str | dict[str, dict[str, Any]], ...] | None, PROVIDERS] = None
    """Execution providers of onnxruntime, the preferred first, each a name or `{name: options}`; default: its CPU
    provider."""
    session_options: SessionOptions = SessionOptions()
    """Threads and graph optimisation of onnxruntime."""
    warm_up: WarmUp = False
    """Run the model on gray pictures when it is opened, so that the first records need not wait: `true` for one, a
    number for that many."""
    max_batch: MaxBatch = None
    """The most pictures in one call of the model; default: the whole batch."""

    @model_validator(mode="after")
    def _check_regions(self) -> Detect:
        if self.region is not None and self.regions is not None:
            raise ValueError('"region" is the part of every picture and "regions" the key of parts: keep one')
        if self.parents_name is not None and self.regions is None:
            raise ValueError('"parentsName" tells the part of "regions" that a box was seen in: set "regions"')
        return self

    def __init__(self, model_uri: Place = None, /, **fields: Any) -> None:
        super().__init__(**placed(model_uri, fields))


class Detections(_Detecting):
    """Boxes from the arrays that a detection model gave, behind `TENSORRT`, `TENSORFLOW`, `TVM` or `ONNX`.

    What the arrays mean is recognised by their names and shapes, unless `layout` says it (docs/detectors.md). Boxes
    come in fractions of the picture if `IMAGE_TO_NDARRAY` made the model's input in this pipeline, else of that input.
    Other values stay, except for the arrays.
    """

    type_name: ClassVar[str] = "DETECTIONS"
    run_by: ClassVar[RunBy | None] = RunBy(
        "opencv", "pipelines.runners.boxes.detections:DetectionsRunner", ("cv2",), extra="image"
    )

    input_names: tuple[str, ...] | None = None
    """Keys of the model's outputs, in the model's order; default: all arrays of the record."""
    keep_other_values: bool = True
    """Whether to keep the other keys; the arrays are always removed."""
