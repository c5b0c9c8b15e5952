"""SSD_TO_BBOX, YOLO_BBOX, BOUNDING_BOX_FILTER, BOUNDING_BOX_TO_POINT: from a detector's arrays to boxes and points."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from pipelines.steps.base import RunBy, Step
from pipelines.steps.config import EXTENSION, Int, Key


class SsdToBoundingBox(Step):
    """Boxes from the output of a single shot detector (TensorFlow's detection models).

    Reads `detection_boxes` `[1, n, 4]` (y1, x1, y2, x2), `detection_scores` `[1, n]` and, if there are labels,
    `detection_classes` `[1, n]`, arrays of any float type, with or without the leading 1. Class numbers start at 1.
    """

    type_name: ClassVar[str] = "SSD_TO_BBOX"
    run_by: ClassVar[RunBy | None] = RunBy("numpy", "pipelines.runners.boxes.ssd:SsdToBoundingBoxRunner")

    class_labels: tuple[str, ...] | None = None
    """One label a class, the first for class 1; none: boxes have no label; empty: all have `no label provided`."""
    keep_other_values: bool = True
    """Whether to keep the other keys of the record; boxes and scores of the detector go in any case."""
    threshold: float = 0.5
    """Detections with a lower score are left out."""
    scale: float | None = None
    """Factor on width and height of each box, about its centre."""
    aspect_ratio: Annotated[float, Field(gt=0)] | None = None
    """Width / height to which each box is widened or heightened about its centre, before `scale`."""
    output_name: Key = "bounding_boxes"
    """Key of the list of boxes."""


class YoloToBoundingBox(Step):
    """Boxes from the last layer of a YOLO (version 2) network whose activations are already applied.

    The array is `[n, B * (5 + C), H, W]` for B priors and C classes: x, y in the cell, width, height (in cells),
    confidence, class probabilities. All images of an array go into one list.
    """

    type_name: ClassVar[str] = "YOLO_BBOX"
    run_by: ClassVar[RunBy | None] = RunBy("numpy", "pipelines.runners.boxes.yolo:YoloToBoundingBoxRunner")

    input: str | None = None
    """Key of the array; none: the only array."""
    output: Key | None = None
    """Key of the list of boxes; none: `bounding_boxes`."""
    nchw: bool = True
    """False: the array is `[n, H, W, B * (5 + C)]`."""
    threshold: float = 0.5
    """Cells with a lower confidence are left out."""
    nms_threshold: float = 0.5
    """With `nms`: of two boxes of a class that overlap by more (intersection / union), the weaker goes."""
    num_classes: Annotated[Int, Field(ge=1)] | None = None
    """Number of classes C; none: that of the labels."""
    class_labels: tuple[str, ...] | None = None
    """One label a class; none: "0", "1", ..."""
    keep_other_values: bool = True
    """Whether to keep the other keys of the record, the array included."""
    nms: Annotated[bool, EXTENSION] = False
    """Whether to suppress overlapping boxes of the same image and class. Konduit never does."""


class BoundingBoxFilter(Step):
    """Keeps the boxes of some labels."""

    type_name: ClassVar[str] = "BOUNDING_BOX_FILTER"
    run_by: ClassVar[RunBy | None] = RunBy("python", "pipelines.runners.boxes.boxes:BoundingBoxFilterRunner")

    keep_other_values: bool = True
    """Whether to keep the other keys; `detection_boxes`, `detection_scores`, `detection_classes` go in any case."""
    classes_to_keep: tuple[str, ...] | None = None
    """The labels to keep, at least one."""
    input_name: str | None = "input"
    """Key of the list of boxes; null: the only one."""
    output_name: Key = "bounding_boxes"
    """Key of the boxes that are kept."""


class BoundingBoxToPoint(Step):
    """A corner or the centre of each box, with its label and probability. One box gives one point, a list a list."""

    type_name: ClassVar[str] = "BOUNDING_BOX_TO_POINT"
    run_by: ClassVar[RunBy | None] = RunBy("python", "pipelines.runners.boxes.boxes:BoundingBoxToPointRunner")

    bbox_name: str | None = None
    """Key of the box or list of boxes; none: the only one."""
    output_name: Key | None = None
    """Key of the point or points; none: that of the boxes."""
    keep_other_fields: bool = True
    """Whether to keep the other keys; the boxes go in any case."""
    method: Literal["TOP_LEFT", "TOP_RIGHT", "BOTTOM_LEFT", "BOTTOM_RIGHT", "CENTER"] = "CENTER"
    """Which point of the box."""
