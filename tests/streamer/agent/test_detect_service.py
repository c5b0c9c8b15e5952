"""A service of four lines that finds objects, hides some, and gives boxes that lie in the picture."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import numpy as np
import pytest
from detectors import save_detector
from rectangles import picture

import streamer
from pipelines import Image

SERVICE = """
name: gate
source: {type: file, path: photos, format: images}
pipeline:
  steps:
  - {"@type": DETECT, modelUri: yolo.onnx, keep: [red, blue]}
  - {"@type": BLUR, bboxName: boxes, labels: [red], method: FILL, color: white, grow: 0}
sink: {type: file, path: out.jsonl, format: jsonl}
"""


@pytest.mark.parametrize("fit", ["", "fit: CENTER_CROP"])
def test_boxes_in_json_and_what_is_hidden_lie_where_the_objects_are(tmp_path: Path, fit: str) -> None:
    (tmp_path / "photos").mkdir()
    save_detector(tmp_path / "yolo.onnx", "yolo8", (160, 192), batch=1)
    shown, truth = picture(640, 360, {0: (0.3, 0.3, 0.45, 0.6), 1: (0.2, 0.7, 0.3, 0.9), 2: (0.5, 0.2, 0.7, 0.8)})
    (tmp_path / "photos" / "a.png").write_bytes(Image(shown).get_as("png"))
    (tmp_path / "gate.yaml").write_text(SERVICE.replace("keep:", f"{fit}, keep:" if fit else "keep:"))
    streamer.load(tmp_path / "gate.yaml").run()
    (line,) = (tmp_path / "out.jsonl").read_text().splitlines()
    result = json.loads(line)
    boxes = {box["label"]: [box[key] for key in ("x1", "y1", "x2", "y2")] for box in result["boxes"]}
    assert boxes.keys() == {"red", "blue"}
    for label, corners in boxes.items():
        assert corners == pytest.approx(truth[label], abs=1.2 / 160)
    hidden = Image(base64.b64decode(result["image"]["base64"])).get_as("numpy")
    # What was red is white, but for the edge of a pixel of the model; the other object is as it was.
    changed = np.argwhere((hidden != shown).any(axis=2))
    (top, left), (bottom, right) = changed.min(axis=0), changed.max(axis=0) + 1
    assert (left / 640, top / 360, right / 640, bottom / 360) == pytest.approx(truth["red"], abs=1.2 / 160)
