"""DETECTIONS: the boxes in arrays that a model gave, in the picture if its input was made in the same pipeline."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from detectors import LABELS, save_detector
from rectangles import HIGH, SIZE, WIDE, corners, off, picture

import pipelines
from pipelines import Detections, Image
from pipelines.errors import StepError

Records = list[dict[str, Any]]


def run(pipeline: pipelines.Pipeline, records: Records) -> list[Any]:
    with pipeline.open() as executor:
        return list(executor.run_many(records))


def detections(records: Records, **fields: Any) -> list[Any]:
    return run(pipelines.Sequence([Detections(**fields)]), records)


CONFIG = {
    "detr": "normalization: {type: STANDARDIZE, meanRgb: [123.675, 116.28, 103.53], stdRgb: [58.395, 57.12, 57.375]}",
    "yolox": "channelLayout: BGR, normalization: {type: NONE}",
    "tf": "format: CHANNELS_LAST, dataType: UINT8, normalization: {type: NONE}",
}


@pytest.mark.parametrize("layout", ["yolo8", "yolo5", "yolox-raw", "end2end", "detr", "mmdet", "tf", "efficient_nms"])
def test_boxes_behind_a_model_lie_in_the_picture_whatever_was_done_to_it(tmp_path: Path, layout: str) -> None:
    name = layout.partition("-")[0]
    save_detector(tmp_path / "model.onnx", layout, SIZE)
    how = CONFIG.get(name, "normalization: {type: SCALE_01}")
    sizes = [(639, 359), (333, 999)]
    drawn = [picture(*size) for size in sizes]
    for fit in ("PAD", "CENTER_CROP", "LETTERBOX"):
        steps = f"""
steps:
- "@type": IMAGE_TO_NDARRAY
  outputNames: [images]
  config: {{height: {HIGH}, width: {WIDE}, aspectRatioHandling: {fit}, {how}}}
- {{"@type": ONNX, modelUri: model.onnx}}
- {{"@type": DETECTIONS, layout: {name}, labels: [red, green, blue]}}
"""
        results = run(pipelines.loads(steps, base=tmp_path), [{"image": Image(shown)} for shown, _ in drawn])
        for result, (_, truth), size in zip(results, drawn, sizes, strict=True):
            assert list(result) == ["boxes"]
            (box,) = result["boxes"]
            assert box.label == "red"
            assert off(box, truth["red"], size, fit) <= 1.0, (fit, size)


FINAL = np.zeros((1, 5, 6), "f4")
FINAL[0, 1] = (16, 20, 48, 60, 0.8, 2)


def test_without_a_picture_boxes_are_in_fractions_of_the_array_of_a_given_size() -> None:
    both = detections([{"output0": FINAL, "id": 1}, {"output0": FINAL[0], "id": 2}], layout="end2end", size=(80, 64))
    for number, result in enumerate(both, 1):
        assert list(result) == ["id", "boxes"]
        assert result["id"] == number
        (box,) = result["boxes"]
        assert (corners(box), box.label) == ((0.25, 0.25, 0.75, 0.75), "2")


def test_pictures_of_a_batch_may_have_other_numbers_of_boxes() -> None:
    def record(count: int) -> dict[str, Any]:
        lines = np.array([[0, 8, 8, 32, 32, 1, 0.9]] * count, "f4").reshape(count, 7)
        return {"output": lines}

    results = detections([record(2), record(1), record(0), record(2)], size=64, max_boxes=9)
    assert [len(result["boxes"]) for result in results] == [2, 1, 0, 2]


def test_a_record_whose_arrays_cannot_be_read_fails_alone() -> None:
    wrong = FINAL.copy()
    wrong[0, 1, 4] = 14.6
    results = detections(
        [
            {"a": FINAL},
            {"a": wrong},
            {"a": np.zeros((1, 2), "f4")},
            {"a": np.concatenate([FINAL, FINAL])},
            {"x": 1},
            {"a": FINAL},
        ],
        layout="end2end",
        labels=LABELS,
        size=64,
    )
    assert [isinstance(result, StepError) for result in results] == [False, True, True, True, True, False]
    assert "14.6 is no probability" in str(results[1])
    assert "not in the layout end2end" in str(results[2])
    assert "2 samples; DETECTIONS takes those of one picture" in str(results[3])
    assert "the record has no array" in str(results[4])


def test_boxes_in_pixels_need_the_size_of_the_input() -> None:
    (result,) = detections([{"a": FINAL}], layout="end2end")
    assert 'whose size is not known, as no IMAGE_TO_NDARRAY of this pipeline made it: give "size"' in str(result)


def test_a_definition_that_puts_boxes_right_itself_gets_them_in_fractions_of_the_array(tmp_path: Path) -> None:
    save_detector(tmp_path / "model.onnx", "end2end", SIZE)
    config = f"{{height: {HIGH}, width: {WIDE}, aspectRatioHandling: PAD, normalization: {{type: SCALE_01}}}}"
    steps = f"""
steps:
- {{"@type": IMAGE_TO_NDARRAY, outputNames: [images], config: {config}}}
- {{"@type": ONNX, modelUri: model.onnx}}
- {{"@type": DETECTIONS, layout: end2end, labels: [red, green, blue]}}
- {{"@type": RELATIVE_TO_ABSOLUTE, imageH: 359, imageW: 639, toConvert: [boxes]%s}}
"""
    shown, truth = picture(639, 359)
    for own in ("", f", imageToNDArrayConfig: {config}"):
        (result,) = run(pipelines.loads(steps % own, base=tmp_path), [{"image": Image(shown)}])
        (box,) = result["boxes"]
        scaled = (box.x1 / 639, box.y1 / 359, box.x2 / 639, box.y2 / 359)
        assert scaled == pytest.approx(truth["red"], abs=0.01), own
