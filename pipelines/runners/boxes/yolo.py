"""Runs YOLO_BBOX."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt

from pipelines.data.batch import Batch
from pipelines.data.columns import Column
from pipelines.data.result import Result
from pipelines.data.views import Views
from pipelines.errors import DataError, DefinitionError, RowsFailed, WrongTypeError
from pipelines.runners.boxes.boxlists import BoxLists, fail_outside_range, float_array, label_of, narrow
from pipelines.runners.boxes.detectors.geometry import in_picture
from pipelines.runners.boxes.suppression import survivors
from pipelines.runners.models.arrays import array_column, array_named
from pipelines.runners.runner import OpenContext, Runner
from pipelines.steps.boxes.boxes import YoloToBoundingBox
from pipelines.values import BoundingBox, ValueType
from pipelines.values.casting import cast

Floats: TypeAlias = npt.NDArray[np.float32]

OUTPUT = "bounding_boxes"
ONLY = "array"
"""Key of the only array of each record, while it is looked at."""


class YoloToBoundingBoxRunner(Runner):
    """Centre-form boxes of each record: by image, column, line and prior; probability is that of the class.

    Raises `DefinitionError` when it is opened without a number of classes. Fails a row whose array is missing, no
    floats, of another shape, or shows a class that has no label.
    """

    opens_images: ClassVar[bool] = False
    keeps_rows: ClassVar[bool] = True
    needs_all: ClassVar[bool] = True

    def __init__(self, step: YoloToBoundingBox, context: OpenContext) -> None:
        classes = step.num_classes or len(step.class_labels or ())
        if not classes:
            raise DefinitionError("numClasses or classLabels must be given")
        self._step = step
        self._classes = classes
        self._own_geometry = context.own_geometry
        self._named = array_named(step.input)
        self.keeps_keys = step.keep_other_values  # type: ignore[misc]

    @property
    def reads(self) -> frozenset[str] | None:
        return None if self._step.input is None else frozenset([self._step.input])

    @property
    def gives(self) -> frozenset[str] | None:
        return frozenset([self._step.output or OUTPUT])

    @property
    def types(self) -> Mapping[str, ValueType]:
        return {self._step.output or OUTPUT: ValueType.LIST}

    def run_batch(self, batch: Batch) -> Result:
        step = self._step
        views = None if self._own_geometry else batch.views
        made = {step.output or OUTPUT: self._column(array_column(batch, step.input), views)}
        return Result((batch.with_columns(made) if step.keep_other_values else batch.select(made)).with_views(None))

    def _column(self, arrays: Column, views: Views | None) -> Column:
        key = self._step.input or ONLY
        lists = BoxLists(len(arrays))
        batch = Batch({key: arrays}, len(arrays), views=views)
        lists.put_groups(
            batch, [key], lambda part: self._boxes(*self._cells(float_array(part, key, named=self._named)), part.views)
        )
        return lists.column()

    def _cells(self, array: npt.NDArray[Any]) -> tuple[Floats, int]:
        """`(M * n, W, H, B, 5 + C)` in the order of the boxes, and n, the images of a row."""
        shape = array.shape[1:]
        if array.ndim == 4:
            array = array[:, np.newaxis]
        if array.ndim != 5:
            raise WrongTypeError(
                f"{self._named} has the shape {list(array.shape[1:])}; [n, B * (5 + C), H, W] is needed"
                f"{_other_layout(shape)}"
            )
        if not self._step.nchw:
            array = np.moveaxis(array, -1, 2)
        rows, images, channels, height, width = array.shape
        priors = channels // (self._classes + 5)
        if priors == 0 or channels % priors:
            raise WrongTypeError(
                f"{self._named} has {channels} channels; {self._classes} classes need a multiple of {self._classes + 5}"
                f"{_other_layout(shape)}"
            )
        single, misfits = cast(array, np.dtype(np.float32))
        if misfits is not None:
            error = DataError(f"{self._named} has values that float32 cannot hold")
            raise RowsFailed(dict.fromkeys(np.flatnonzero(misfits).tolist(), error))
        split = single.reshape(rows * images, priors, channels // priors, height, width)
        by_row = split.reshape(rows, images, *split.shape[1:])
        message = (
            f"{self._named} {list(shape)} has values outside 0..1 where positions in a cell and probabilities of YOLO "
            f"version 2, with its activations applied, are expected{_other_layout(shape)}"
        )
        fail_outside_range(by_row[:, :, :, 4:], message)
        # Networks that scale their positions reach a little into the next cell.
        fail_outside_range(by_row[:, :, :, :2], message, slack=0.1)
        return split.transpose(0, 4, 3, 1, 2), images

    def _boxes(
        self, cells: Floats, images: int, views: Views | None
    ) -> tuple[npt.NDArray[np.int64], list[BoundingBox]]:
        step = self._step
        _, width, height, _, _ = cells.shape
        image, x, y, prior = np.nonzero(cells[..., 4] >= step.threshold)
        chosen = cells[image, x, y, prior]
        classes = chosen[:, 5:].argmax(axis=1)
        probabilities = chosen[np.arange(len(chosen)), classes + 5]
        # As in Konduit Serving, a class counts only if its probability is above 0.
        classes = np.where(probabilities > 0, classes, 0)
        probabilities = np.where(probabilities > 0, probabilities, np.float32(0))
        size = np.array([width, height], np.float32)
        middle = (chosen[:, :2] + np.stack([x, y], axis=1).astype(np.float32)) / size
        extent = chosen[:, 2:4] / size
        if step.nms:
            corners = np.concatenate([middle - extent / 2, middle + extent / 2], axis=1)
            groups = image * cells.shape[-1] + classes
            stays = survivors(corners, chosen[:, 4] * probabilities, groups, step.nms_threshold)
            image, middle, extent = image[stays], middle[stays], extent[stays]
            classes, probabilities = classes[stays], probabilities[stays]
        owners = image // images
        labels = self._labels(owners, classes)
        if views is not None:
            corners = np.concatenate([middle - extent / 2, middle + extent / 2], axis=1).astype(np.float64)
            corners = in_picture(corners, owners, views).astype(np.float32)
            middle, extent = (corners[:, :2] + corners[:, 2:]) / 2, corners[:, 2:] - corners[:, :2]
        numbers = zip(middle.tolist(), extent.tolist(), labels, probabilities.tolist(), strict=True)
        made = (BoundingBox.center(cx, cy, h, w, label, p) for (cx, cy), (w, h), label, p in numbers)
        return owners, list(map(narrow, made))

    def _labels(self, owners: npt.NDArray[np.int64], classes: npt.NDArray[np.int64]) -> list[str]:
        labels = self._step.class_labels
        if not labels:
            return list(map(str, classes.tolist()))
        names: list[str] = []
        failures: dict[int, Exception] = {}
        for owner, index in zip(owners.tolist(), classes.tolist(), strict=True):
            try:
                names.append(label_of(labels, index, 0))
            except DataError as error:
                failures.setdefault(owner, error)
        if failures:
            raise RowsFailed(failures)
        return names


def _other_layout(shape: tuple[int, ...]) -> str:
    """The hint of the error about an array that is not of version 2: what its shape looks like instead."""
    if len(shape) not in (2, 3):
        return ""
    lines, columns = shape[-2:]
    if columns == 6:
        layout = "boxes after suppression (x1, y1, x2, y2, score, class), as models exported end-to-end give"
    elif lines < columns:
        layout = "the layout of YOLOv8 or 11 ([1, 4 + C, boxes])"
    elif lines > columns > 5:
        layout = "the layout of YOLOv5 or 7 ([1, boxes, 5 + C])"
    else:
        return ""
    return f"; this may be {layout}, which YOLO_BBOX does not read: DETECT in the model's place does, or DETECTIONS"
