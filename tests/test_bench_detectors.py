"""DETECT costs no more beside its model than is told: what is compared does the same, and the page has the figures."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from benchmarks.detectors import byhand, ours
from benchmarks.detectors.run import LIMITS, RESULTS, SUPERVISION, Costs, text
from pipelines import BoundingBox, Data

ROOT = Path(__file__).parents[1]
MISSED = [("DETECT, 600 boxes", SUPERVISION)]
"""Dearer than was meant, as the page says."""


def test_detect_and_the_work_by_hand_give_the_same_boxes(tmp_path: Path) -> None:
    pixels, output = byhand.picture(), byhand.output(100)
    with ours.detect(ours.write_detector(tmp_path / "detector.onnx")).open() as executor, ours.answer(output):
        (result,) = executor.run_many(ours.pictures(pixels)())
    assert isinstance(result, Data)
    boxes: list[BoundingBox] = result["boxes"]
    by_hand = byhand.batched(pixels, output)
    assert len(boxes) == len(by_hand) > 5
    assert [box.label for box in boxes] == [f"class {number}" for *_, number, _ in by_hand]
    corners = [[box.x1, box.y1, box.x2, box.y2] for box in boxes]
    assert np.allclose(corners, [row[:4] for row in by_hand], atol=1e-6)
    # In whole pixels, as its boxes are.
    looped = sorted(byhand.looped(pixels, output), key=lambda row: -row[5])
    assert np.allclose(corners, np.clip([row[:4] for row in looped], 0, 1), atol=3 / 1080)


def test_the_page_shows_the_results_of_the_file() -> None:
    costs = Costs(**json.loads(RESULTS.read_text(encoding="utf-8")))
    assert text(costs) in (ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8")


def test_the_results_are_within_the_limits_that_were_set_beforehand_but_for_one() -> None:
    costs = Costs(**json.loads(RESULTS.read_text(encoding="utf-8")))
    ratios = {
        (what, other): mine / theirs for what, others in costs.pairs.items() for other, (mine, theirs) in others.items()
    }
    assert {other for _, other in ratios} == set(LIMITS)
    assert [pair for pair, ratio in ratios.items() if round(ratio, 2) > LIMITS[pair[1]]] == MISSED
