"""Runs SSD_TO_BBOX."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from pipelines.data.batch import Batch
from pipelines.data.result import Result
from pipelines.data.views import Views
from pipelines.errors import DataError, RowsFailed, WrongTypeError
from pipelines.runners.boxes.boxlists import BoxLists, fail_outside_range, float_array, label_of, narrow
from pipelines.runners.boxes.detectors.geometry import in_picture
from pipelines.runners.models.arrays import array_column
from pipelines.runners.runner import OpenContext, Runner
from pipelines.steps.boxes.boxes import SsdToBoundingBox
from pipelines.values import BoundingBox, ValueType

Doubles: TypeAlias = npt.NDArray[np.float64]

BOXES: Final = "detection_boxes"
SCORES: Final = "detection_scores"
CLASSES: Final = "detection_classes"
NO_LABEL: Final = "no label provided"


class SsdToBoundingBoxRunner(Runner):
    """Corner-form boxes of each record, in the detector's order, under `outputName`.

    Of an array with several samples the first is used, as in Konduit Serving. Fails a row whose arrays are missing,
    no numbers, of other shapes, or name a class that has no label.
    """

    opens_images: ClassVar[bool] = False
    keeps_rows: ClassVar[bool] = True

    def __init__(self, step: SsdToBoundingBox, context: OpenContext) -> None:
        self._step = step
        self._own_geometry = context.own_geometry
        self._keys = [BOXES, SCORES, CLASSES] if step.class_labels else [BOXES, SCORES]

    @property
    def reads(self) -> frozenset[str] | None:
        return frozenset(self._keys)

    @property
    def needs(self) -> frozenset[str]:
        return frozenset(self._keys)

    @property
    def gives(self) -> frozenset[str] | None:
        return None if self._step.keep_other_values else frozenset([self._step.output_name])

    @property
    def types(self) -> Mapping[str, ValueType]:
        return {self._step.output_name: ValueType.LIST}

    def run_batch(self, batch: Batch) -> Result:
        step = self._step
        for key in self._keys:
            array_column(batch, key)  # names the rows that lack it
        lists = BoxLists(batch.size)
        lists.put_groups(
            batch,
            self._keys,
            lambda part: self._boxes(
                None if self._own_geometry else part.views,
                *[float_array(part, key, integers=key == CLASSES) for key in self._keys],
            ),
        )
        made = {step.output_name: lists.column()}
        if not step.keep_other_values:
            return Result(batch.select(made).with_views(None))
        return Result(batch.without([BOXES, SCORES]).with_columns(made).with_views(None))

    def _boxes(self, views: Views | None, *arrays: npt.NDArray[Any]) -> tuple[npt.NDArray[np.int64], list[BoundingBox]]:
        boxes, scores, *more = map(_sample, arrays, self._keys)
        classes = more[0] if more else None
        if boxes.shape != (*scores.shape, 4) or (classes is not None and classes.shape != scores.shape):
            raise WrongTypeError(
                f"the arrays {', '.join(self._keys)} do not belong together: [1, n, 4], [1, n] and [1, n] are needed"
            )
        fail_outside_range(
            scores,
            f'"{SCORES}" has values outside 0..1, which are not probabilities: does the model give logits, or its '
            "outputs in another order? outputNames of the step before it renames them",
        )
        rows, places = np.nonzero(scores >= self._step.threshold)
        adjusted = self._adjusted(boxes[rows, places])
        corners = (adjusted if views is None else in_picture(adjusted[:, ::-1], rows, views)[:, ::-1]).tolist()
        labels = self._labels(rows, classes[rows, places] if classes is not None else None)
        probabilities = scores[rows, places].tolist()
        made = [
            BoundingBox.corners(x1, x2, y1, y2, label, probability)
            for (y1, x1, y2, x2), label, probability in zip(corners, labels, probabilities, strict=True)
        ]
        single = all(array.dtype == np.float32 for array in arrays[:2])
        return rows, list(map(narrow, made)) if single else made

    def _adjusted(self, boxes: Doubles) -> Doubles:
        step = self._step
        if step.aspect_ratio is None and step.scale in (None, 1.0):
            return boxes
        middle = (boxes[:, :2] + boxes[:, 2:]) / 2
        size = boxes[:, 2:] - boxes[:, :2]
        if step.aspect_ratio is not None:
            height, width = size[:, 0], size[:, 1]
            # The smaller side grows; a box without height is as wide as it is.
            size = np.stack(
                [np.maximum(height, width / step.aspect_ratio), np.maximum(width, height * step.aspect_ratio)], axis=1
            )
        half = size / 2 * (1.0 if step.scale is None else step.scale)
        return np.concatenate([middle - half, middle + half], axis=1)

    def _labels(self, rows: npt.NDArray[np.int64], classes: Doubles | None) -> list[Any]:
        labels = self._step.class_labels
        if classes is None or not labels:
            return [None if labels is None else NO_LABEL] * len(rows)
        names: list[Any] = []
        failures: dict[int, Exception] = {}
        for row, index in zip(rows.tolist(), classes.tolist(), strict=True):
            try:
                names.append(label_of(labels, _class(index), self._step.first_class))
            except DataError as error:
                failures.setdefault(row, error)
        if failures:
            raise RowsFailed(failures)
        return names


def _class(index: float) -> int:
    if not math.isfinite(index):
        raise DataError(f'"{CLASSES}" has {index}, which is not a class number')
    return int(index)


def _sample(array: npt.NDArray[Any], key: str) -> Doubles:
    wanted = 2 if key != BOXES else 3  # with the rows' own axis
    if array.ndim == wanted + 1 and array.shape[1] > 0:
        array = array[:, 0]
    if array.ndim != wanted:
        raise WrongTypeError(
            f'the array "{key}" has the shape {list(array.shape[1:])}; '
            f"{'[1, n, 4]' if key == BOXES else '[1, n]'} is needed"
        )
    return array.astype(np.float64)
