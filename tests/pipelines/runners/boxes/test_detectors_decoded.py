"""The boxes that decoders read from models of every layout, and which of them stay."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import detectors
import hypothesis.strategies as st
import numpy as np
import pytest
from detectors import COLORS, LABELS, MEAN, SCORE, STD, save_detector
from hypothesis import given

from pipelines.errors import RowsFailed
from pipelines.runners.boxes.detectors.candidates import best
from pipelines.runners.boxes.detectors.detector import Candidates, Detector
from pipelines.runners.boxes.detectors.geometry import upright
from pipelines.runners.boxes.detectors.given import Asked
from pipelines.runners.boxes.detectors.keypoints import keypoints
from pipelines.runners.boxes.detectors.layouts.yolo import is_raw
from pipelines.runners.boxes.detectors.outlines import outlines
from pipelines.runners.boxes.detectors.recognise import decode, recognise
from pipelines.runners.boxes.detectors.turned import distributions_of
from pipelines.runners.boxes.detectors.turned import overlap as overlap_of_turned
from pipelines.runners.models.model import Port
from pipelines.runners.models.onnxmodel import OnnxModel
from pipelines.runners.runner import OpenContext
from pipelines.steps.models.onnx import Onnx

HIGH, WIDE = SIZE = (160, 192)
RECTANGLES = {0: (20, 25, 60, 45), 2: (100, 50, 155, 150)}
"""x1, y1, x2, y2 of the classes that the second picture shows; the first shows none."""


def pictures() -> Any:
    shown = np.full((2, HIGH, WIDE, 3), 114, np.uint8)
    for number, (x1, y1, x2, y2) in RECTANGLES.items():
        shown[1, y1:y2, x1:x2] = COLORS[number]
    return shown


def arrays_for(layout: str, shown: Any) -> list[Any]:
    """The inputs of the detector of this layout."""
    if layout in detectors.BYTES:
        return [shown]
    planes = shown.transpose(0, 3, 1, 2).astype("f4")
    if layout.startswith("yolox"):
        return [np.ascontiguousarray(planes[:, ::-1])]
    planes /= 255
    if layout == "detr":
        planes = ((planes - np.reshape(MEAN, (1, 3, 1, 1))) / np.reshape(STD, (1, 3, 1, 1))).astype("f4")
    return [planes, np.array([[WIDE, HIGH]] * len(shown))] if layout == "rtdetr" else [planes]


def run(folder: Path, layout: str) -> tuple[Detector, list[Any], Candidates]:
    model = OnnxModel(Onnx(save_detector(folder / "detector.onnx", layout, SIZE)), OpenContext())
    metadata = model.session.get_modelmeta().custom_metadata_map
    detector = recognise(model.inputs, model.outputs, metadata, Asked(labels=LABELS))
    shown = pictures()[1:] if layout == "torchvision" else pictures()
    outputs = model.run(arrays_for(layout, shown))
    if detector.layout == "yolox":
        detector = replace(detector, raw=is_raw(outputs))
    candidates = decode(detector, outputs, SIZE, 0.25)
    return detector, outputs, best(candidates, classes=3, limit=0.5, agnostic=False, most=300)


@pytest.mark.parametrize(
    "layout",
    [
        *(
            "yolo8",
            "yolo8-turned",
            "yolo8-pose",
            "yolo8-segment",
            "yolo8-obb",
            "yolo5",
            "yolox",
            "yolox-raw",
            "end2end",
        ),
        *(
            "end2end-head",
            "flat7",
            "detr",
            "rtdetr",
            "tf",
            "tflite",
            "torchvision",
            "mmdet",
            "efficient_nms",
            "boxes_scores",
        ),
    ],
)
def test_the_boxes_are_where_the_rectangles_are(tmp_path: Path, layout: str) -> None:
    detector, outputs, boxes = run(tmp_path, layout)
    assert detector.layout == layout.partition("-")[0]
    assert boxes.owner.tolist() == ([0, 0] if layout == "torchvision" else [1, 1])
    assert dict(zip(boxes.number.tolist(), boxes.corners.tolist(), strict=True)) == {
        number: pytest.approx(corners, abs=0.01) for number, corners in RECTANGLES.items()
    }
    assert boxes.score == pytest.approx([SCORE, SCORE])
    assert boxes.left_out == 0
    if layout == "yolo8-pose":
        for (first, second), corners in zip(keypoints(boxes, detector), boxes.corners, strict=True):
            assert [*first, *second] == pytest.approx([*corners[:2], 1.0, *corners[2:], 0.5], abs=0.01)
    if layout in ("yolo8-segment", "yolo8-obb"):
        for outline, corners in zip(outlines(boxes, detector, outputs, SIZE), boxes.corners, strict=True):
            assert [*outline.min(axis=0), *outline.max(axis=0)] == pytest.approx(corners, abs=1.0)


def overlap(a: Any, b: Any) -> float:
    wide, high = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    shared = max(wide, 0) * max(high, 0)
    return float(shared) / float((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - shared)


boxes_drawn = st.lists(
    st.tuples(
        *(st.integers(0, 30), st.integers(0, 30), st.integers(1, 20), st.integers(1, 20)),
        st.integers(1, 5),
        st.integers(0, 2),
        st.integers(0, 2),
    ),
    max_size=40,
)


@given(boxes_drawn, st.sampled_from([0.3, 0.45, 0.7]), st.booleans(), st.sampled_from([3, 300]))
def test_of_boxes_that_overlap_the_most_probable_stays(
    drawn: list[tuple[int, ...]], limit: float, agnostic: bool, most: int
) -> None:
    drawn = sorted(drawn, key=lambda box: box[6])
    corners = np.array([(x, y, x + w, y + h) for x, y, w, h, *_ in drawn], float).reshape(-1, 4)
    candidates = Candidates(
        np.array([box[6] for box in drawn], np.int64),
        corners,
        np.array([box[4] / 5 for box in drawn], np.float32),
        np.array([box[5] for box in drawn], np.int64),
        np.arange(len(drawn), dtype=np.float32).reshape(-1, 1),
    )
    known: list[int] = []
    for picture in range(3):
        stays: list[int] = []
        for at in sorted(range(len(drawn)), key=lambda at: -drawn[at][4]):
            rivals = [other for other in stays if agnostic or drawn[other][5] == drawn[at][5]]
            if drawn[at][6] == picture and all(overlap(corners[at], corners[other]) <= limit for other in rivals):
                stays.append(at)
        known += stays[:most]
    chosen = best(candidates, classes=3, limit=limit, agnostic=agnostic, most=most)
    assert chosen.extra[:, 0].astype(int).tolist() == known


def turned(*boxes: tuple[float, ...]) -> Candidates:
    """Turned boxes: centre, width, height, angle in radians, score."""
    table = np.array(boxes)
    return Candidates(
        np.zeros(len(table), np.int64),
        upright(table[:, :4], table[:, 4]),
        table[:, 5].astype(np.float32),
        np.zeros(len(table), np.int64),
        table[:, 2:5].astype(np.float32),
    )


def test_turned_boxes_side_by_side_stay_and_of_those_that_overlap_the_best() -> None:
    # Ships at a pier: upright boxes around them would overlap by more than half.
    aslant = math.pi / 4
    ships = turned(
        (100, 100, 100, 12, aslant, 0.9),
        (110, 90, 100, 12, aslant, 0.8),
        # The first again: a little off, and by its other side, a quarter turn further.
        (101, 101, 100, 12, aslant, 0.7),
        (100, 100, 12, 100, aslant + math.pi / 2, 0.6),
        # Across the first.
        (100, 100, 100, 12, -aslant, 0.5),
    )
    scores = best(ships, classes=1, limit=0.5, agnostic=False, most=300, turned=True).score
    assert scores.tolist() == pytest.approx([0.9, 0.8, 0.5])
    measures = distributions_of(ships)
    assert overlap_of_turned(measures[0], measures)[[0, 3]] == pytest.approx([1.0, 1.0], abs=1e-3)


def ports(*given: tuple[str, Any]) -> list[Port]:
    return [Port(name, np.dtype(np.float32), tuple(shape)) for name, shape in given]


IMAGES = ports(("images", (1, 3, 64, 64)))
"""84 cells."""


def read(layout: str, outputs: list[Any], names: tuple[str, ...], labels: int = 2, **said: Any) -> Candidates:
    described = ports(*((name, array.shape) for name, array in zip(names, outputs, strict=True)))
    asked = Asked(layout=layout, labels=tuple("abcdefgh"[:labels]), **said)
    return decode(recognise(IMAGES, described, {}, asked), outputs, (64, 64), 0.25)


def test_boxes_that_are_not_finite_or_have_no_area_are_left_out_and_counted() -> None:
    table = np.zeros((1, 6, 84), np.float32)
    table[0, :, :4] = np.transpose(
        [(9, 9, 4, 4, 1, 0), (np.nan, 9, 4, 4, 1, 0), (9, 9, 0, 4, 1, 0), (9, np.inf, 1, 1, 1, 0)]
    )
    boxes = read("yolo8", [table], ("output0",))
    assert boxes.corners.tolist() == [[7, 7, 11, 11]]
    assert boxes.left_out == 3


def test_what_comes_after_the_count_of_a_picture_is_not_read() -> None:
    boxes = np.full((2, 3, 4), (1, 2, 30, 40), np.float32)
    scores, classes = np.full((2, 3), 0.5, np.float32), np.array([[1, 0, 9], [0, 9, 9]], np.float32)
    outputs = [np.array([[2], [1]], np.int32), boxes, scores, classes]
    made = read("efficient_nms", outputs, ("num_dets", "det_boxes", "det_scores", "det_classes"))
    assert (made.owner.tolist(), made.number.tolist()) == ([0, 0, 1], [1, 0, 0])
    assert made.corners.tolist() == [[1, 2, 30, 40]] * 3


def test_a_score_that_is_no_probability_fails_its_picture_only() -> None:
    table = np.zeros((3, 6, 84), np.float32)
    table[:, :4, 0] = 8
    table[1, 4, 0] = 14.6
    with pytest.raises(RowsFailed) as failed:
        read("yolo8", [table], ("output0",))
    assert {row: str(error) for row, error in failed.value.failures.items()} == {
        1: "14.6 is no probability: another layout, or activation"
    }


@pytest.mark.parametrize("layout", ["yolo8", "yolo5", "end2end", "boxes_scores"])
def test_a_score_that_is_not_a_number_is_left_out_and_counted(layout: str) -> None:
    if layout == "boxes_scores":
        outputs = [np.ones((1, 3, 4), np.float32), np.full((1, 3, 2), np.nan, np.float32)]
        made = read(layout, outputs, ("boxes", "scores"), box="x1y1x2y2", unit="pixels")
    else:
        shape = {"yolo8": (1, 6, 84), "yolo5": (1, 252, 7), "end2end": (1, 9, 6)}[layout]
        made = read(layout, [np.full(shape, np.nan, np.float32)], ("output0",))
    assert len(made) == 0
    assert made.left_out == {"yolo8": 84, "yolo5": 252, "end2end": 9, "boxes_scores": 3}[layout]


def test_logits_become_probabilities_by_the_activation() -> None:
    boxes = np.full((1, 5, 4), 0.5, np.float32)
    scores = np.array([[[0, -9], [2, 1], [-1, -1.2], [-2, -3], [9, 9.5]]], np.float32)
    sigmoid = read("detr", [boxes, scores], ("dets", "labels"))
    assert sigmoid.score == pytest.approx([0.5, 0.880797, 0.268941, 0.999925], abs=1e-5)
    assert sigmoid.number.tolist() == [0, 0, 0, 1]
    none = np.array([[[9], [0], [-9], [-9], [0]]], np.float32)
    softmax = read("detr", [boxes, np.concatenate([scores, none], axis=2)], ("dets", "labels"), activation="SOFTMAX")
    assert softmax.score == pytest.approx([0.665, 0.550, 0.731, 0.622], abs=1e-3)
    assert softmax.number.tolist() == [0, 0, 0, 1]


@given(
    st.lists(
        st.tuples(st.integers(0, 40), st.integers(0, 40), st.integers(1, 20), st.integers(1, 20), st.integers(0, 1)),
        min_size=1,
        max_size=12,
    ),
    st.sampled_from(["yolo8", "yolo5", "yolox", "end2end", "detr", "tf", "flat7", "boxes_scores"]),
)
def test_what_an_exporter_writes_of_boxes_is_read_as_these_boxes(drawn: list[tuple[int, ...]], layout: str) -> None:
    corners = np.array([(x, y, x + w, y + h) for x, y, w, h, _ in drawn], float)
    numbers = np.array([number for *_, number in drawn])
    count, scores = len(drawn), np.linspace(0.3, 0.9, len(drawn))
    centred = np.concatenate([(corners[:, :2] + corners[:, 2:]) / 2, corners[:, 2:] - corners[:, :2]], axis=1)
    hot = np.zeros((count, 2))
    hot[np.arange(count), numbers] = scores
    said: dict[str, Any] = {}
    names: tuple[str, ...] = ("output0",)
    outputs: list[Any]
    if layout == "yolo8":
        outputs = [np.zeros((1, 6, 84))]
        outputs[0][0, :, :count] = np.concatenate([centred, hot], axis=1).T
    elif layout in ("yolo5", "yolox"):
        outputs = [np.zeros((1, 252 if layout == "yolo5" else 84, 7))]
        outputs[0][0, :count] = np.concatenate([centred, np.ones((count, 1)), hot], axis=1)
    elif layout == "end2end":
        outputs = [np.zeros((1, 50, 6))]
        outputs[0][0, :count] = np.concatenate([corners, scores[:, None], numbers[:, None]], axis=1)
    elif layout == "flat7":
        outputs = [np.concatenate([np.zeros((count, 1)), corners, numbers[:, None], scores[:, None]], axis=1)]
    elif layout == "detr":
        names = ("pred_boxes", "logits")
        with np.errstate(divide="ignore"):
            outputs = [centred[np.newaxis] / 64, np.log(hot / (1 - hot))[np.newaxis].clip(-50)]
    elif layout == "tf":
        names = ("detection_boxes", "detection_scores", "detection_classes")
        outputs = [corners[np.newaxis][:, :, [1, 0, 3, 2]] / 64, scores[np.newaxis], numbers[np.newaxis] + 1]
    else:
        names = ("boxes", "scores")
        said = {"box": "xywh", "unit": "pixels"}
        outputs = [np.concatenate([corners[:, :2], centred[:, 2:]], axis=1)[np.newaxis], hot[np.newaxis]]
    made = read(layout, [array.astype("f4") for array in outputs], names, **said)
    assert made.corners == pytest.approx(corners, abs=1e-3)
    assert made.number.tolist() == numbers.tolist()
    assert made.score == pytest.approx(scores, abs=1e-5)


def test_classes_before_the_first_are_left_out() -> None:
    boxes = np.full((1, 2, 4), (4, 4, 20, 20), np.float32)
    scores = np.array([[[9, 1, -9], [9, -9, 10]]], np.float32)
    ssd: dict[str, Any] = {"box": "x1y1x2y2", "unit": "pixels", "first_class": 1}
    shares = read("boxes_scores", [boxes, scores], ("boxes", "scores"), activation="SOFTMAX", **ssd)
    assert shares.number.tolist() == [1]
    assert shares.score == pytest.approx([0.731059])
    detr = read("detr", [boxes / 64, scores], ("dets", "labels"), first_class=1)
    assert detr.number.tolist() == [0, 1]
    assert detr.score == pytest.approx([0.731059, 0.999955])


def test_boxes_are_read_as_the_fields_say_where_a_layout_has_it_otherwise() -> None:
    table = np.zeros((1, 6, 84), np.float32)
    table[0, :, 0] = 0.25, 0.5, 0.125, 0.25, 0.9, 0
    assert read("yolo8", [table], ("output0",), unit="fractions").corners.tolist() == [[12, 24, 20, 40]]
    table[0, :4, 0] = 16, 32, 8, 16
    assert read("yolo8", [table], ("output0",), box="xywh").corners.tolist() == [[16, 32, 24, 48]]


@given(
    st.sampled_from(["yolo8", "yolo5", "yolox", "end2end", "flat7", "detr", "boxes_scores"]),
    st.sampled_from(["f2", "f4"]),
    st.lists(st.sampled_from([0, 0.5, 1, -1, -1000, np.nan, np.inf, -np.inf, 65000, 1e-5]), min_size=7, max_size=7),
)
def test_whatever_a_model_gives_its_boxes_are_finite_or_its_picture_fails(
    layout: str, dtype: str, numbers: list[float]
) -> None:
    line = np.array(numbers, dtype)
    shape = {"yolo8": (1, 6, 84), "yolo5": (1, 252, 7), "yolox": (1, 84, 7), "end2end": (1, 9, 6), "flat7": (9, 7)}
    said: dict[str, Any] = {"box": "xywh", "unit": "pixels"} if layout == "boxes_scores" else {}
    if layout in shape:
        names: tuple[str, ...] = ("output0",)
        outputs = [np.resize(line, shape[layout])]
    else:
        names = ("dets", "labels") if layout == "detr" else ("boxes", "scores")
        outputs = [np.resize(line, (1, 9, 4)), np.resize(line, (1, 9, 2))]
    try:
        boxes = read(layout, outputs, names, **said)
    except RowsFailed:
        return
    assert np.isfinite(boxes.corners).all()
    assert ((boxes.score >= 0.25) & (boxes.score <= 1.001)).all()
