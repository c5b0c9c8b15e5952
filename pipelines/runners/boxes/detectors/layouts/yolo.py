"""The layouts of the YOLO family."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, ClassVar, Final

import numpy as np
import numpy.typing as npt

from pipelines.errors import DataError
from pipelines.runners.boxes.detectors.detector import Activation, BoxForm, Candidates, Detector, Task, Unit
from pipelines.runners.boxes.detectors.given import STRIDES, Given, Lengths, Size, cells_of
from pipelines.runners.boxes.detectors.layout import Layout, Misfit
from pipelines.runners.boxes.detectors.numbers import divided, prototypes_at
from pipelines.runners.boxes.detectors.reading import (
    Array,
    Numbers,
    candidates_of,
    check_scores,
    class_numbers,
    least,
    probabilities,
    reaching,
)

_BOX: Final = 4
_WITH_OBJECTNESS: Final = 5
_TRANSFORMER: Final = "RTDETRDecoder"
"""The metadata's `head` of RT-DETR, as Ultralytics exports it: boxes are in fractions, and need no suppression."""
_PICTURES: Final = 10_000
"""No call has so many pictures; half precision can hold the number."""
_FINAL: Final = 6
"""How many numbers come before the classes, or before further numbers."""


class Yolo8(Layout):
    """`[N, 4 + C + E, A]` (YOLOv8, v9, 11, 12): centre, width, height in pixels, C probabilities, E further numbers."""

    name: ClassVar[str] = "yolo8"

    def fit(self, given: Given) -> Detector | Misfit | None:
        """See `Layout`. RT-DETR as Ultralytics exports it is this layout with its axes exchanged, in fractions."""
        shape = _table(given)
        if shape is None:
            return None
        numbers, boxes = shape[1], shape[2]
        transformer = _is_transformer(given, shape)
        transposed = transformer or (
            boxes is not None and (numbers in given.cells or (numbers is None and given.asked.layout == self.name))
        )
        if transposed:
            numbers, boxes = boxes, numbers
        if numbers is None and transformer and given.labels is not None:
            # The axis is called open where only the number of pictures is.
            numbers = _BOX + len(given.labels)
        if numbers is None or numbers <= _BOX or given.metadata.suppressed:
            return None
        if not transformer and boxes is not None and boxes not in given.cells:
            wrong = f"the last axis is {boxes}, and an input of {_said(given)} has {given.cells[0]} places of boxes"
            return Misfit(wrong) if numbers < boxes else None
        if transposed and not transformer and given.asked.layout is None and given.labels is None:
            # As many rows of 5 + C numbers are YOLOX.
            return Misfit(f"{numbers - 4} labels would say that its axes are exchanged, {numbers - 5} that it is yolox")
        division = divided(given, numbers - _BOX)
        if isinstance(division, Misfit):
            return division
        protos = prototypes_at(given) if division.task == "segment" else None
        return Detector(
            layout=self.name,
            outputs=(0,) if protos is None else (0, protos),
            classes=division.classes,
            box=_form(given, division.task),
            unit=_unit(given, division.task, "fractions" if transformer else "pixels"),
            activation=_activation(given),
            suppress=not transformer,
            task=division.task,
            extra=division.extra,
            keypoints=division.keypoints,
            transposed=transposed,
        )

    def decode(self, detector: Detector, outputs: Sequence[Any], size: Size, threshold: float) -> Candidates:
        """See `Layout`."""
        table = outputs[0].swapaxes(1, 2) if detector.transposed else outputs[0]
        classes = detector.classes or table.shape[1] - _BOX
        scores = table[:, _BOX : _BOX + classes]
        # The maximum over classes is one pass over memory; which class it is matters for candidates only.
        highest = scores.max(axis=1)
        owner, place = reaching(highest, least(detector, threshold))
        rows = table[owner, :, place]
        number = rows[:, _BOX : _BOX + classes].argmax(axis=1)
        score = probabilities(detector, highest[owner, place])
        return candidates_of(detector, size, owner, rows[:, :_BOX], score, number, rows[:, _BOX + classes :])


class _WithObjectness(Layout):
    """Rows of 5 + C + E numbers: a box, the probability that it is an object, and those of its classes."""

    each: ClassVar[int]
    """How many boxes, which are rows, each cell has."""

    def fit(self, given: Given) -> Detector | Misfit | None:
        """See `Layout`."""
        shape = _table(given)
        if shape is None or shape[2] is None or shape[2] <= _WITH_OBJECTNESS:
            return None
        if shape[1] is None:
            if given.asked.layout != self.name and not (given.metadata.yolo5 and self.name == "yolo5"):
                return Misfit("the axis of its boxes is open: say the layout") if given.labels else None
        elif shape[1] not in [self.each * cells for cells in given.cells]:
            if shape[1] < shape[2]:
                return None
            return Misfit(f"it has {shape[1]} rows, and an input of {_said(given)} has {self.each * given.cells[0]}")
        if self.name == "yolox" and given.labels is None and given.asked.layout is None:
            numbers = shape[2]
            return Misfit(f"{numbers - 5} labels would say it, {numbers - 4} that it is yolo8 with its axes exchanged")
        division = divided(given, shape[2] - _WITH_OBJECTNESS)
        if isinstance(division, Misfit):
            return division
        protos = prototypes_at(given) if division.task == "segment" else None
        return Detector(
            layout=self.name,
            outputs=(0,) if protos is None else (0, protos),
            classes=division.classes,
            box=_form(given, division.task),
            unit=_unit(given, division.task, "pixels"),
            activation=_activation(given),
            task=division.task,
            extra=division.extra,
            keypoints=division.keypoints,
        )

    def decode(self, detector: Detector, outputs: Sequence[Any], size: Size, threshold: float) -> Candidates:
        """See `Layout`."""
        table = outputs[0]
        classes = detector.classes or table.shape[2] - _WITH_OBJECTNESS
        # Most rows show nothing: their classes are not looked at.
        owner, place = reaching(table[:, :, 4], least(detector, threshold))
        rows = table[owner, place]
        objectness = probabilities(detector, rows[:, 4])
        check_scores(owner, objectness)
        scores = rows[:, _WITH_OBJECTNESS : _WITH_OBJECTNESS + classes]
        number = scores.argmax(axis=1)
        with np.errstate(invalid="ignore"):
            score = objectness * probabilities(detector, scores[np.arange(len(rows)), number])
        # What is not a number stays, to be counted.
        stays = ~(score < threshold)
        owner, place, rows = owner[stays], place[stays], rows[stays]
        boxes = self.boxes(detector, rows[:, :_BOX], place, table.shape[1], size)
        extra = rows[:, _WITH_OBJECTNESS + classes :]
        return candidates_of(detector, size, owner, boxes, score[stays], number[stays], extra)

    def boxes(self, detector: Detector, boxes: Array, place: Numbers, rows: int, size: Size) -> Array:
        """The boxes `(n, 4)` of the rows at `place`, of so many rows, in the detector's form."""
        return boxes


class Yolo5(_WithObjectness):
    """`[N, 3 A, 5 + C + E]` (YOLOv5, v7): centre, width, height in pixels, objectness, C probabilities."""

    name: ClassVar[str] = "yolo5"
    each: ClassVar[int] = 3


class Yolox(_WithObjectness):
    """`[N, A, 5 + C]`: as `yolo5` with one box in each cell; raw ones are relative to their cells."""

    name: ClassVar[str] = "yolox"
    each: ClassVar[int] = 1

    def boxes(self, detector: Detector, boxes: Array, place: Numbers, rows: int, size: Size) -> Array:
        """See the base class. Raw centres are relative to their cell, in cells; sizes are logarithms of cells."""
        if not detector.raw:
            return boxes
        used = next((strides for strides in STRIDES if cells_of(size, strides) == rows), None)
        if used is None:
            raise DataError(
                f"layout yolox: {rows} rows are no grid of an input of {size[1]} x {size[0]} pixels, which has "
                f"{cells_of(size, STRIDES[0])} cells: say its size"
            )
        cells, strides = _grid(size, used)
        stride = strides[place][:, np.newaxis]
        numbers = boxes.astype(np.float64)
        with np.errstate(over="ignore"):
            return np.concatenate([(numbers[:, :2] + cells[place]) * stride, np.exp(numbers[:, 2:]) * stride], axis=1)


class EndToEnd(Layout):
    """`[N, K, 6 + E]` (YOLOv10, 26, exports with NMS): x1, y1, x2, y2 in pixels, score, class; zeros fill up."""

    name: ClassVar[str] = "end2end"

    def fit(self, given: Given) -> Detector | Misfit | None:
        """See `Layout`."""
        shape = _table(given)
        said = given.asked.layout == self.name or given.metadata.suppressed
        if shape is None or (shape[2] is None and not said) or (shape[2] is not None and shape[2] < _FINAL):
            return None
        transformer = given.metadata.head == _TRANSFORMER
        if not said and {shape[1], shape[2]} & {each * cells for each in (1, 3) for cells in given.cells}:
            return None
        if shape[1] is None and not said and given.metadata.task is None:
            # YOLOv5 of one class has 6 numbers, too.
            return None if given.metadata.yolo5 else Misfit("the axis of its boxes is open: say the layout")
        keypoints, protos = given.keypoints, prototypes_at(given)
        task: Task = "detect"
        wanted = 0
        if given.asked.keypoints is not None or given.metadata.task == "pose":
            task, wanted = "pose", (keypoints or (0, 0))[0] * (keypoints or (0, 0))[1]
        elif protos is not None:
            task, wanted = "segment", (given.shapes[protos] or ())[1] or 0
        elif given.metadata.task == "obb":
            task, wanted = "obb", 1
        if shape[2] not in (_FINAL + wanted, None):
            return Misfit(f"a box has {shape[2]} numbers, and {_FINAL + wanted} are needed") if said else None
        return Detector(
            layout=self.name,
            outputs=(0,) if protos is None else (0, protos),
            first_class=given.asked.first_class or 0,
            box=_form(given, task, "cxcywh" if transformer else "x1y1x2y2"),
            unit=_unit(given, task, "fractions" if transformer else "pixels"),
            suppress=False,
            task=task,
            extra=wanted,
            keypoints=keypoints if task == "pose" else None,
        )

    def decode(self, detector: Detector, outputs: Sequence[Any], size: Size, threshold: float) -> Candidates:
        """See `Layout`."""
        table = outputs[0]
        owner, place = reaching(table[:, :, 4], threshold)
        rows = table[owner, place]
        number = class_numbers(rows[:, 5], detector)
        return candidates_of(detector, size, owner, rows[:, :_BOX], rows[:, 4], number, rows[:, _FINAL:])


class Flat7(Layout):
    """`[n, 7]` of the whole batch (YOLOv7 --end2end): picture, x1, y1, x2, y2 in pixels, class, score."""

    name: ClassVar[str] = "flat7"

    def fit(self, given: Given) -> Detector | Misfit | None:
        """See `Layout`."""
        shape = given.shapes[0]
        if len(given.outputs) != 1 or shape is None or len(shape) != 2 or shape[1] != 7:
            return None
        if shape[0] is not None and given.asked.layout != self.name:
            return Misfit("its number of boxes is fixed: so it is a classifier of 7 classes, or say the layout")
        if given.outputs[0].name.endswith("flat_predictions"):
            # Class and score of YOLO-NAS have changed places.
            return Misfit("YOLO-NAS is read as it exports with output_predictions_format=BATCH_FORMAT, not FLAT_FORMAT")
        return Detector(
            layout=self.name,
            outputs=(0,),
            first_class=given.asked.first_class or 0,
            box=given.asked.box or "x1y1x2y2",
            unit=given.asked.unit or "pixels",
            suppress=False,
        )

    def decode(self, detector: Detector, outputs: Sequence[Any], size: Size, threshold: float) -> Candidates:
        """See `Layout`."""
        table = outputs[0]
        table = table[~(table[:, 6] < threshold) & (table[:, 0] >= 0) & (table[:, 0] < _PICTURES)]
        table = table[np.argsort(table[:, 0], kind="stable")]
        owner = table[:, 0].astype(np.int64)
        number = class_numbers(table[:, 5], detector)
        return candidates_of(detector, size, owner, table[:, 1:5], table[:, 6], number, None)


def is_raw(outputs: Sequence[Any]) -> bool:
    """Whether the outputs of a YOLOX for an empty picture are relative to cells.

    Raw widths and heights are logarithms, of which some are below 0; those in pixels never are.
    """
    return bool((outputs[0][..., 2:4] < 0).any())


def _table(given: Given) -> Lengths | None:
    """The shape of the first output, if it has three axes and any other output holds prototypes of masks."""
    shape = given.shapes[0] if given.shapes else None
    if shape is None or len(shape) != 3:
        return None
    # Old exports of YOLOv5 put out their three heads, of five axes, beside the boxes made of them.
    others = [other for other in given.shapes[1:] if other is None or len(other) not in (4, 5)]
    # YOLOv9 also puts out its second head: the first output has it all.
    return shape if not others or given.metadata.task is not None or given.metadata.yolo5 else None


def _is_transformer(given: Given, shape: Lengths) -> bool:
    """Whether rows of boxes and scores are those of RT-DETR: by the metadata's head, which old exports do not name.

    They have its task and labels, and 300 rows of 4 + C numbers where other models have columns, one for each cell.
    """
    metadata = given.metadata
    if metadata.head is not None or metadata.labels is None or metadata.task != "detect" or metadata.suppressed:
        return metadata.head == _TRANSFORMER
    return shape[2] == _BOX + len(metadata.labels) and shape[1] not in (*given.cells, None)


def _form(given: Given, task: Task, usual: BoxForm = "cxcywh") -> BoxForm:
    """What a box is; that of a turned one cannot be anything else."""
    return "cxcywh" if task == "obb" else given.asked.box or usual


def _unit(given: Given, task: Task, usual: Unit) -> Unit:
    """The unit of boxes; an angle has its meaning, and keypoints theirs, in pixels."""
    return usual if task in ("obb", "pose") else given.asked.unit or usual


def _activation(given: Given) -> Activation:
    """SIGMOID where it is said; the classes of a YOLO are no distribution."""
    return "SIGMOID" if given.asked.activation == "SIGMOID" else "NONE"


def _said(given: Given) -> str:
    """The size of the input in an error, which is only assumed where nothing says it."""
    text = f"{given.size[1]} x {given.size[0]} pixels"
    return text if None not in given.stated else f"{text}, which the model leaves open (size says it),"


@functools.lru_cache(maxsize=16)
def _grid(size: Size, strides: tuple[int, ...]) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Column and row `(A, 2)` and stride `(A,)` of all cells, those of the finest grid first."""
    cells, sides = [], []
    for stride in strides:
        rows, columns = np.mgrid[: size[0] // stride, : size[1] // stride]
        cells.append(np.stack([columns.ravel(), rows.ravel()], axis=1).astype(np.float64))
        sides.append(np.full(rows.size, float(stride)))
    return np.concatenate(cells), np.concatenate(sides)
