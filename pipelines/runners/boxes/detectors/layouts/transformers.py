"""The layouts of DETR and its descendants."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from pipelines.runners.boxes.detectors.detector import Candidates, Detector
from pipelines.runners.boxes.detectors.given import SIZES_INPUT, Given, Size
from pipelines.runners.boxes.detectors.layout import Layout, Misfit
from pipelines.runners.boxes.detectors.layouts.listed import listed
from pipelines.runners.boxes.detectors.reading import candidates_of, least, probabilities, reaching, softmax

_NAMES = (("dets", "labels"), ("pred_boxes", "pred_logits"), ("pred_boxes", "logits"), ("boxes", "logits"))


class Detr(Layout):
    """Boxes `[N, Q, 4]`, centre and size in fractions, and logits `[N, Q, C]` (DETR, RF-DETR, models of Hugging Face).

    The activation is SIGMOID; with SOFTMAX the last class is "none". Classes before the first one are left out.
    """

    name: ClassVar[str] = "detr"
    evidence: ClassVar[str] = "names"

    def fit(self, given: Given) -> Detector | Misfit | None:
        """See `Layout`."""
        places = next((at for names in _NAMES if (at := given.named(*names)) is not None), None)
        if places is None:
            return None
        boxes, scores = given.shapes[places[0]], given.shapes[places[1]]
        if scores is not None and len(scores) != 3:
            return None
        if boxes is None or scores is None or len(boxes) != 3 or boxes[2] not in (4, None):
            return Misfit("boxes [N, Q, 4] and logits [N, Q, C] are needed")
        activation, first = given.asked.activation or "SIGMOID", given.asked.first_class or 0
        classes = None if scores[2] is None else scores[2] - (activation == "SOFTMAX") - first
        if given.labels is not None and classes not in (None, len(given.labels)):
            more = classes == len(given.labels) + 1
            hint = "; with activation: SOFTMAX the last is none, with firstClass: 1 the first" if more else ""
            return Misfit(f"there are {len(given.labels)} labels, and the model has {classes} classes{hint}")
        return Detector(
            layout=self.name,
            outputs=places,
            classes=classes,
            first_class=first,
            box=given.asked.box or "cxcywh",
            unit=given.asked.unit or "fractions",
            activation=activation,
            suppress=False,
        )

    def decode(self, detector: Detector, outputs: Sequence[Any], size: Size, threshold: float) -> Candidates:
        """See `Layout`."""
        boxes, scores = outputs
        if detector.activation == "SOFTMAX":
            scores = softmax(scores)[:, :, :-1]
        scores = scores[:, :, detector.first_class :]
        highest = scores.max(axis=2)
        owner, place = reaching(highest, least(detector, threshold))
        number = scores[owner, place].argmax(axis=1)
        score = probabilities(detector, highest[owner, place])
        return candidates_of(detector, size, owner, boxes[owner, place], score, number, None)


class RtDetr(Layout):
    """`labels`, `boxes` and `scores` (RT-DETR, D-FINE), in pixels of the size that a second input gives."""

    name: ClassVar[str] = "rtdetr"
    evidence: ClassVar[str] = "names"

    def fit(self, given: Given) -> Detector | Misfit | None:
        """See `Layout`."""
        places = given.named("boxes", "scores", "labels")
        sizes = any(port.name == SIZES_INPUT for port in given.inputs)
        if places is None or not sizes:
            return Misfit(f"it needs the input {SIZES_INPUT} and the outputs labels, boxes, scores") if sizes else None
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
        return listed(detector, outputs, size, threshold)
