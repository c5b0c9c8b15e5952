"""SSD_TO_BBOX, YOLO_BBOX, BOUNDING_BOX_FILTER, BOUNDING_BOX_TO_POINT: from a detector's arrays to boxes and points."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from pipelines.steps.base import RunBy, Step
from pipelines.steps.config import EXTENSION, Int, Key


class SsdToBoundingBox(Step):
    """Boxes from the output of a single shot detector (TensorFlow's detection models).

    Reads `detection_boxes` `[1, n, 4]` (y1, x1, y2, x2), `detection_scores` `[1, n]` and, if there are labels,
    `detection_classes` `[1, n]`, arrays of any float type, with or without the leading 1. Class numbers start at 1
    unless `firstClass` says otherwise, and may be of any integer type.
    """

    type_name: ClassVar[str] = "SSD_TO_BBOX"
    run_by: ClassVar[RunBy | None] = RunBy("numpy", "pipelines.runners.boxes.ssd:SsdToBoundingBoxRunner")

    class_labels: tuple[str, ...] | None = None
    """Labels of the classes 1, 2, ...; default: boxes have no label; empty: each has the label `no label provided`."""
    first_class: Annotated[Int, Field(ge=0), EXTENSION] = 1
    """The number of the first class: 0 for detectors that have none for the background, as those of TensorFlow Lite.
    With the wrong one each box has the label of the class beside its own."""
    keep_other_values: bool = True
    """Whether to keep the other keys; `detection_boxes` and `detection_scores` are always removed."""
    threshold: float = 0.5
    """Detections with a lower score are left out."""
    scale: float | None = None
    """By what width and height of each box are multiplied, around its centre; default: 1."""
    aspect_ratio: Annotated[float, Field(gt=0)] | None = None
    """Width / height: a box of another ratio is made wider or higher around its centre, before `scale`; default: none
    is."""
    output_name: Key = "bounding_boxes"
    """Key of the list of boxes."""


class YoloToBoundingBox(Step):
    """Boxes from the last layer of a YOLO (version 2) network whose activations are already applied.

    The array is `[n, B * (5 + C), H, W]` for B priors and C classes: x, y in the cell, width, height (in cells),
    confidence, class probabilities. The boxes of all n images go into one list.
    """

    type_name: ClassVar[str] = "YOLO_BBOX"
    run_by: ClassVar[RunBy | None] = RunBy("numpy", "pipelines.runners.boxes.yolo:YoloToBoundingBoxRunner")

    input: str | None = None
    """Key of the array; default: the record's only array."""
    output: Key | None = None
    """Key of the list of boxes; default: `bounding_boxes`."""
    nchw: bool = True
    """Whether the array is `[n, B * (5 + C), H, W]`; otherwise it is `[n, H, W, B * (5 + C)]`."""
    threshold: float = 0.5
    """Boxes with a lower confidence are left out."""
    nms_threshold: float = 0.5
    """With `nms`: of two boxes of a class whose intersection / union is larger, the less probable one is removed."""
    num_classes: Annotated[Int, Field(ge=1)] | None = None
    """Number of classes C; default: the number of `classLabels`. One of the two is needed."""
    class_labels: tuple[str, ...] | None = None
    """Labels of the classes 0, 1, ...; default: "0", "1", ..."""
    keep_other_values: bool = True
    """Whether to keep the other keys of the record, the array included."""
    nms: Annotated[bool, EXTENSION] = False
    """Whether to remove overlapping boxes of the same image and class (non-maximum suppression)."""


class BoundingBoxFilter(Step):
    """Keeps the boxes of a list that have one of the given labels."""

    type_name: ClassVar[str] = "BOUNDING_BOX_FILTER"
    run_by: ClassVar[RunBy | None] = RunBy("python", "pipelines.runners.boxes.boxes:BoundingBoxFilterRunner")

    keep_other_values: bool = True
    """Whether to keep the other keys; `detection_boxes`, `detection_scores`, `detection_classes` are always removed."""
    classes_to_keep: tuple[str, ...] | None = None
    """The labels to keep; at least one is needed."""
    input_name: str | None = "input"
    """Key of the list of boxes; `null`: the record's only one."""
    output_name: Key = "bounding_boxes"
    """Key of the boxes that are kept."""


class BoundingBoxToPoint(Step):
    """Replaces boxes by points, a corner or the centre of each, which keep label and probability.

    A list of boxes becomes a list of points.
    """

    type_name: ClassVar[str] = "BOUNDING_BOX_TO_POINT"
    run_by: ClassVar[RunBy | None] = RunBy("python", "pipelines.runners.boxes.boxes:BoundingBoxToPointRunner")

    bbox_name: str | None = None
    """Key of the box or list of boxes; default: the record's only one."""
    output_name: Key | None = None
    """Key of the point or list of points; default: the boxes' key."""
    keep_other_fields: bool = True
    """Whether to keep the other keys; the boxes are always removed."""
    method: Literal["TOP_LEFT", "TOP_RIGHT", "BOTTOM_LEFT", "BOTTOM_RIGHT", "CENTER"] = "CENTER"
    """Which point of the box."""
