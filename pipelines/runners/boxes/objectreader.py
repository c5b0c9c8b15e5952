"""`ObjectReader`: the objects that a step asks for, from the outputs of a detection model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from pipelines.data.batch import Batch
from pipelines.data.columns import Column
from pipelines.errors import DataError, DefinitionError, RowsFailed, StreamerError, nearest
from pipelines.observe.meters import Counter
from pipelines.runners.boxes.detectors.candidates import best
from pipelines.runners.boxes.detectors.detector import Candidates, Detector
from pipelines.runners.boxes.detectors.given import Asked
from pipelines.runners.boxes.detectors.keypoints import keypoints
from pipelines.runners.boxes.detectors.outlines import outlines
from pipelines.runners.boxes.detectors.recognise import decode
from pipelines.runners.boxes.objects import Objects, lists_of
from pipelines.runners.models.model import Array
from pipelines.runners.runner import OpenContext
from pipelines.steps.boxes.detect import Detect, Detections
from pipelines.values import ValueType

LEFT_OUT: Final = "boxes_left_out"
"""Name of the metric of boxes that are not finite or have no area."""
_OVERLAP: Final = 0.5
"""Intersection over union above which one of two boxes of a class is left out where a step does not say."""


class ObjectReader:
    """Reads outputs of one detector for one step.

    Raises `DefinitionError` when it is made for labels to keep that the detector does not have, and for keypoints or
    outlines of a model that gives none.
    """

    def __init__(self, step: Detect | Detections, detector: Detector, left_out: Counter) -> None:
        self.detector = detector
        self._step = step
        self._left_out = left_out
        self._kept = _kept(step, detector)
        self._limit = step.nms_threshold
        if self._limit is None and detector.suppress:
            self._limit = _OVERLAP
        if step.keypoints_name is not None and detector.keypoints is None:
            raise DefinitionError(
                f"keypointsName: {step.keypoints_name}, but the model gives no keypoints (task {detector.task}); "
                '"keypoints" says how many a pose model has'
            )
        if step.outlines_name is not None and detector.task not in ("segment", "obb"):
            raise DefinitionError(
                f"outlinesName: {step.outlines_name}, but the model gives boxes alone (task {detector.task}): outlines "
                "need a segmentation model, or one of turned boxes"
            )

    def read(self, outputs: Sequence[Array], size: tuple[int, int], pictures: int) -> Objects:
        """The objects in the first `pictures` pictures of a call, in pixels of an input of `size`, height and width.

        Raises `RowsFailed` for pictures with scores that are no probabilities, `DataError` for outputs of other shapes.
        """
        step, detector = self._step, self.detector
        candidates = decode(detector, outputs, size, step.threshold)
        if candidates.left_out:
            self._left_out.add(candidates.left_out)
        if self._kept is not None:
            candidates = candidates.take(np.isin(candidates.number, self._kept))
        if len(candidates) and int(candidates.owner[-1]) >= pictures:
            # Of samples that a call was filled up with.
            candidates = candidates.take(candidates.owner < pictures)
        self._check_classes(candidates)
        chosen = best(
            candidates,
            classes=detector.classes or 1 + int(candidates.number.max(initial=0)),
            limit=self._limit,
            agnostic=step.agnostic,
            most=step.max_boxes,
            turned=detector.task == "obb",
        )
        return Objects(
            chosen.owner,
            chosen.corners,
            chosen.score,
            chosen.number,
            None if step.keypoints_name is None else keypoints(chosen, detector),
            None if step.outlines_name is None else outlines(chosen, detector, outputs, size),
        )

    def _check_classes(self, candidates: Candidates) -> None:
        """Raise `RowsFailed` for pictures with a class that has no label."""
        labels, first = self.detector.labels, self.detector.first_class
        wrong = candidates.number < 0
        if labels is not None:
            wrong |= candidates.number >= len(labels)
        failures: dict[int, Exception] = {}
        for place in np.flatnonzero(wrong).tolist():
            number = int(candidates.number[place]) + first
            there = "" if labels is None else f"; there are labels for {first} to {first + len(labels) - 1}"
            hint = ": set firstClass: 0 if the model counts from 0" if number < first else ""
            failures.setdefault(
                int(candidates.owner[place]), DataError(f"the model gives the class {number}{there}{hint}")
            )
        if failures:
            raise RowsFailed(failures)


def with_objects(batch: Batch, step: Detect | Detections, detector: Detector, objects: Objects) -> Batch:
    """The batch with boxes, and what else the step wants of objects, which are in fractions of each row's picture."""
    columns: dict[str, Column] = {}

    def put(key: str, values: Sequence[object], kind: ValueType) -> None:
        columns[key] = lists_of(values, objects.owner, batch.size, kind)

    put(step.output_name, objects.boxes(detector.labels), ValueType.BOUNDING_BOX)
    if step.keypoints_name is not None:
        put(step.keypoints_name, objects.points(), ValueType.LIST)
    if step.outlines_name is not None:
        put(step.outlines_name, objects.polygons(), ValueType.LIST)
    return batch.with_columns(columns)


def asked(step: Detect | Detections, context: OpenContext) -> Asked:
    """What the fields of a step say about its model. Raises `StreamerError` for labels that cannot be read."""
    number = step.keypoints
    axes = step.input.format if isinstance(step, Detect) and step.input is not None else None
    return Asked(
        layout=step.layout,
        labels=_labels(step, context),
        first_class=step.first_class,
        size=step.high_wide,
        activation=step.activation,
        box=step.box,
        unit=step.unit,
        keypoints=(number, 3) if isinstance(number, int) else number,
        channels_last=axes == "CHANNELS_LAST" if axes is not None else None,
    )


def written_keys(step: Detect | Detections) -> frozenset[str]:
    """The keys that a step writes."""
    keys = (step.output_name, step.keypoints_name, step.outlines_name)
    return frozenset(key for key in keys if key is not None)


def _labels(step: Detect | Detections, context: OpenContext) -> tuple[str, ...] | None:
    if not isinstance(step.labels, str):
        return step.labels
    path = context.path(step.labels)
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not a text in UTF-8"
        raise StreamerError(
            f"labels: {path}: {why}; name a text file with one label in each line, or list them"
        ) from None
    while lines and not lines[-1].strip():
        lines.pop()
    return tuple(line.strip() for line in lines)


def _kept(step: Detect | Detections, detector: Detector) -> list[int] | None:
    """The class numbers of the labels to keep; `None`: all."""
    if step.keep is None:
        return None
    labels = detector.labels
    if labels is None and detector.classes is None:
        # The classes of such a model are texts of any number.
        unknown = next((name for name in step.keep if not name.isdigit()), None)
        if unknown is None:
            return [int(name) for name in step.keep]
        raise DefinitionError(f'keep: the model names no labels, so that "{unknown}" is not known; give "labels"')
    names = list(labels if labels is not None else map(str, range(detector.classes or 0)))
    for name in step.keep:
        if name not in names:
            raise DefinitionError(f'keep: there is no label "{name}"{nearest(name, names)}; labels: {_few(names)}')
    wanted = set(step.keep)
    return [number for number, name in enumerate(names) if name in wanted]


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:20]) + (f" and {len(names) - 20} more" if len(names) > 20 else "")
