"""The layouts of models that list final boxes, scores and class numbers, and of SSD's boxes with scores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Final, get_args

import numpy as np

from pipelines.runners.boxes.detectors.detector import BoxForm, Candidates, Detector, Unit
from pipelines.runners.boxes.detectors.given import SIZES_INPUT, Given, Size
from pipelines.runners.boxes.detectors.layout import Layout, Misfit
from pipelines.runners.boxes.detectors.reading import (
    candidates_of,
    class_numbers,
    least,
    probabilities,
    reaching,
    softmax,
)

_COUNTED: Final = (
    ("det_boxes", "det_scores", "det_classes", "num_dets"),
    ("boxes", "scores", "labels", "num_dets"),
)
"""Names of the outputs of models that count what they list."""
_ENDINGS: Final = ("_pred_boxes", "_pred_scores", "_pred_classes", "_num_predictions")
"""How these names end in exports of YOLO-NAS, which begin with `graph2`."""


def listed(detector: Detector, outputs: Sequence[Any], size: Size, threshold: float) -> Candidates:
    """Boxes `[N, K, 4]`, scores `[N, K]` and class numbers `[N, K]`, or the same of one picture without first axis."""
    boxes, scores, classes = outputs
    if boxes.ndim == 2:
        boxes, scores, classes = boxes[np.newaxis], scores[np.newaxis], classes[np.newaxis]
    owner, place = reaching(scores, threshold)
    number = class_numbers(classes[owner, place], detector)
    return candidates_of(detector, size, owner, boxes[owner, place], scores[owner, place], number, None)


class _Listed(Layout):
    """Layouts with these three outputs."""

    box: ClassVar[BoxForm] = "x1y1x2y2"
    unit: ClassVar[Unit] = "pixels"
    first: ClassVar[int] = 0

    def places(self, given: Given) -> tuple[int, ...] | Misfit | None:
        """Positions of boxes, scores and classes."""
        raise NotImplementedError

    def fit(self, given: Given) -> Detector | Misfit | None:
        """See `Layout`."""
        places = self.places(given)
        if not isinstance(places, tuple):
            return places
        first = self.first if given.asked.first_class is None else given.asked.first_class
        return Detector(
            layout=self.name,
            outputs=places,
            first_class=first,
            box=given.asked.box or self.box,
            unit=given.asked.unit or self.unit,
            suppress=False,
        )

    def decode(self, detector: Detector, outputs: Sequence[Any], size: Size, threshold: float) -> Candidates:
        """See `Layout`."""
        return listed(detector, outputs, size, threshold)


class Tf(_Listed):
    """`detection_boxes`, `detection_scores`, `detection_classes` of TensorFlow: y1, x1, y2, x2 in fractions, from 1."""

    name: ClassVar[str] = "tf"
    evidence: ClassVar[str] = "names"
    box: ClassVar[BoxForm] = "y1x1y2x2"
    unit: ClassVar[Unit] = "fractions"
    first: ClassVar[int] = 1

    def places(self, given: Given) -> tuple[int, ...] | Misfit | None:
        """See the base class."""
        return given.named("detection_boxes", "detection_scores", "detection_classes")


class TfLite(_Listed):
    """`TFLite_Detection_PostProcess` and its `:1`, `:2`, `:3`: boxes, classes, scores, count; classes from 0."""

    name: ClassVar[str] = "tflite"
    evidence: ClassVar[str] = "names"
    box: ClassVar[BoxForm] = "y1x1y2x2"
    unit: ClassVar[Unit] = "fractions"

    def places(self, given: Given) -> tuple[int, ...] | Misfit | None:
        """See the base class."""
        outputs = {port.name: place for place, port in enumerate(given.outputs) if "PostProcess" in port.name}
        if not outputs:
            return None
        base = min(outputs, key=len).removesuffix(":0")
        boxes = outputs.get(base, outputs.get(f"{base}:0"))
        classes, scores = outputs.get(f"{base}:1"), outputs.get(f"{base}:2")
        if boxes is None or classes is None or scores is None:
            return Misfit(f"it needs the outputs {base}, {base}:1 and {base}:2")
        return boxes, scores, classes


class Torchvision(_Listed):
    """`boxes` `[n, 4]`, `labels` and `scores` `[n]` of one picture (torchvision): in pixels, classes from 1."""

    name: ClassVar[str] = "torchvision"
    evidence: ClassVar[str] = "names"
    first: ClassVar[int] = 1

    def places(self, given: Given) -> tuple[int, ...] | Misfit | None:
        """See the base class."""
        places = given.named("boxes", "scores", "labels")
        if places is None or any(port.name == SIZES_INPUT for port in given.inputs):
            return None
        if given.named("num_dets") is not None:
            return None
        shape = given.shapes[places[0]]
        if shape is not None and len(shape) != 2 and given.asked.layout != self.name:
            return Misfit("boxes [n, 4] of one picture are needed")
        return places


class EfficientNms(_Listed):
    """Counts `[N, 1]`, boxes `[N, K, 4]`, scores and class numbers `[N, K]`: in pixels, classes from 0.

    TensorRT's plug-in of this name (exports of YOLOv6, v7, PP-YOLOE with suppression), YOLO-NAS (BATCH_FORMAT) and
    MMYOLO do. What comes after a picture's count means nothing.
    """

    name: ClassVar[str] = "efficient_nms"
    evidence: ClassVar[str] = "names"

    def places(self, given: Given) -> tuple[int, ...] | Misfit | None:
        """See the base class; the position of the counts is the last."""
        places = next((at for names in _COUNTED if (at := given.named(*names)) is not None), None)
        return places or given.ending(*_ENDINGS)

    def decode(self, detector: Detector, outputs: Sequence[Any], size: Size, threshold: float) -> Candidates:
        """See `Layout`."""
        boxes, scores, classes, counts = outputs
        counted = np.arange(scores.shape[1]) < counts.reshape(-1, 1)
        return listed(detector, (boxes, np.where(counted, scores, -np.inf), classes), size, threshold)


class MmDet(Layout):
    """`dets` `[N, n, 5]` (a box and its score) and `labels` `[N, n]` (MMDetection): in pixels, classes from 0."""

    name: ClassVar[str] = "mmdet"
    evidence: ClassVar[str] = "names"

    def fit(self, given: Given) -> Detector | Misfit | None:
        """See `Layout`."""
        places = given.named("dets", "labels")
        if places is None:
            return None
        boxes, labels = given.shapes[places[0]], given.shapes[places[1]]
        if boxes is not None and boxes[-1] not in (5, None):
            return None
        if labels is not None and boxes is not None and len(labels) != len(boxes) - 1:
            return Misfit("dets [N, n, 5] and labels [N, n] are needed")
        return Detector(
            layout=self.name,
            outputs=places,
            first_class=given.asked.first_class or 0,
            box=given.asked.box or "x1y1x2y2",
            unit=given.asked.unit or "pixels",
            suppress=False,
        )

    def decode(self, detector: Detector, outputs: Sequence[Any], size: Size, threshold: float) -> Candidates:
        """See `Layout`."""
        boxes, classes = outputs
        return listed(detector, (boxes[..., :4], boxes[..., 4], classes), size, threshold)


class BoxesScores(Layout):
    """`boxes` `[N, A, 4]` and `scores` `[N, A, C]` (SSD, YOLO-NAS): what a box is has to be said (`box`, `unit`).

    Classes before the first one, mostly a class for the background, are left out.
    """

    name: ClassVar[str] = "boxes_scores"
    evidence: ClassVar[str] = "names"

    def fit(self, given: Given) -> Detector | Misfit | None:
        """See `Layout`."""
        places = given.named("boxes", "scores") or self._by_shape(given)
        if places is None or len(given.outputs) != 2:
            return None
        boxes, scores = given.shapes[places[0]], given.shapes[places[1]]
        if boxes is None or scores is None or len(boxes) != 3 or boxes[2] != 4 or len(scores) != 3:
            return Misfit("boxes [N, A, 4] and scores [N, A, C] are needed")
        box = given.asked.box or next((form for form in get_args(BoxForm) if form == given.metadata.box), None)
        unit = given.asked.unit or next((unit for unit in get_args(Unit) if unit == given.metadata.unit), None)
        if box is None or unit is None:
            return Misfit(
                f"the model does not say what its boxes are: give box ({', '.join(get_args(BoxForm))}) and unit "
                f"({', '.join(get_args(Unit))})"
            )
        first = given.asked.first_class or 0
        classes = None if scores[2] is None else scores[2] - first
        if given.labels is not None and classes not in (None, len(given.labels)):
            hint = "; with firstClass: 1 the first is the background" if classes == len(given.labels) + 1 else ""
            return Misfit(f"there are {len(given.labels)} labels, and the model has {classes} classes{hint}")
        return Detector(
            layout=self.name,
            outputs=places,
            classes=classes,
            first_class=first,
            box=box,
            unit=unit,
            activation=given.asked.activation or "NONE",
        )

    def _by_shape(self, given: Given) -> tuple[int, ...] | None:
        """Of two outputs under other names, that of four numbers has the boxes; only if the layout is asked for."""
        if given.asked.layout != self.name or len(given.shapes) != 2:
            return None
        boxes = [place for place, shape in enumerate(given.shapes) if shape is not None and shape[-1] == 4]
        return (boxes[0], 1 - boxes[0]) if len(boxes) == 1 else None

    def decode(self, detector: Detector, outputs: Sequence[Any], size: Size, threshold: float) -> Candidates:
        """See `Layout`."""
        boxes, scores = outputs
        if detector.activation == "SOFTMAX":
            scores = softmax(scores)
        scores = scores[:, :, detector.first_class :]
        highest = scores.max(axis=2)
        owner, place = reaching(highest, least(detector, threshold))
        number = scores[owner, place].argmax(axis=1)
        score = probabilities(detector, highest[owner, place])
        return candidates_of(detector, size, owner, boxes[owner, place], score, number, None)
