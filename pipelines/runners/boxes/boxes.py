"""Runs BOUNDING_BOX_FILTER and BOUNDING_BOX_TO_POINT."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import ClassVar, Final

from pipelines.data.data import Data
from pipelines.errors import DefinitionError, WrongTypeError
from pipelines.runners.images.fields import boxes_key, each
from pipelines.runners.runner import OpenContext, RowRunner
from pipelines.steps.boxes.boxes import BoundingBoxFilter, BoundingBoxToPoint
from pipelines.values import BoundingBox, Point, TypedList, ValueType

DETECTOR_KEYS: Final = ("detection_boxes", "detection_scores", "detection_classes")


class BoundingBoxFilterRunner(RowRunner):
    """The boxes of a list whose label is one of those to keep.

    Raises `DefinitionError` when it is opened without labels. Fails a row without a list of boxes.
    """

    opens_images: ClassVar[bool] = False
    keeps_rows: ClassVar[bool] = True
    writes: ClassVar[bool] = False

    def __init__(self, step: BoundingBoxFilter, context: OpenContext) -> None:
        if not step.classes_to_keep:
            raise DefinitionError("classesToKeep must name at least one label")
        self._step = step
        self._labels = frozenset(step.classes_to_keep)

    @property
    def reads(self) -> frozenset[str] | None:
        return None if self._step.input_name is None else frozenset([self._step.input_name])

    def run(self, data: Data) -> Data:
        step = self._step
        key = boxes_key(data, step.input_name)
        boxes = data[key]
        if not isinstance(boxes, list):
            raise WrongTypeError(f'Value has wrong type for key "{key}": a list of boxes is needed, not one box')
        kept = [box for box in boxes if box.label in self._labels]
        gone = (key, *DETECTOR_KEYS) if step.keep_other_values else tuple(data)
        for name in gone:
            data.pop(name, None)
        data[step.output_name] = kept or TypedList(ValueType.BOUNDING_BOX)
        return data


class BoundingBoxToPointRunner(RowRunner):
    """A corner or the centre of a box or of each box of a list."""

    opens_images: ClassVar[bool] = False
    keeps_rows: ClassVar[bool] = True
    writes: ClassVar[bool] = False

    def __init__(self, step: BoundingBoxToPoint, context: OpenContext) -> None:
        self._step = step
        self._coordinates = _COORDINATES[step.method]

    @property
    def reads(self) -> frozenset[str] | None:
        return None if self._step.bbox_name is None else frozenset([self._step.bbox_name])

    def run(self, data: Data) -> Data:
        step = self._step
        key = boxes_key(data, step.bbox_name)
        points = each(data[key], self._point, ValueType.POINT)
        for name in [key] if step.keep_other_fields else list(data):
            del data[name]
        data[step.output_name or key] = points
        return data

    def _point(self, box: BoundingBox) -> Point:
        return Point(self._coordinates(box), box.label, box.probability)


_COORDINATES: Mapping[str, Callable[[BoundingBox], tuple[float, float]]] = MappingProxyType(
    {
        "TOP_LEFT": lambda box: (box.x1, box.y1),
        "TOP_RIGHT": lambda box: (box.x2, box.y1),
        "BOTTOM_LEFT": lambda box: (box.x1, box.y2),
        "BOTTOM_RIGHT": lambda box: (box.x2, box.y2),
        "CENTER": lambda box: (box.cx, box.cy),
    }
)
