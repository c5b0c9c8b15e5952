"""The example that finds objects: its model knows what is in photos, and its service counts what its film shows."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import onnxruntime
import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
EXAMPLE = EXAMPLES / "objects"


@pytest.fixture(scope="module")
def model() -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(EXAMPLE / "objects.onnx", options)


def test_the_model_finds_a_cup_and_a_person_on_photos_where_they_are(model: onnxruntime.InferenceSession) -> None:
    assert model.get_modelmeta().custom_metadata_map["layout"] == "boxes_scores"
    names = ast.literal_eval(model.get_modelmeta().custom_metadata_map["names"])
    assert list(names) == list(range(90))
    assert len(set(names.values())) == 81
    photos: list[Any] = [cv2.imread(str(EXAMPLES / "cameras" / name)) for name in ("table.jpg", "face.jpg")]
    pictures = np.stack([cv2.resize(photo, (300, 300))[:, :, ::-1] for photo in photos])
    boxes, scores = model.run(None, {"image": pictures})
    for row, (label, least, where) in enumerate([("cup", 0.9, (0.05, 0.3, 0.6, 0.7)), ("person", 0.7, (0, 0, 1, 1))]):
        anchor, number = np.unravel_index(np.argmax(scores[row]), scores[row].shape)
        assert names[number] == label
        assert scores[row][anchor, number] >= least
        assert np.abs(boxes[row][anchor] - where).max() < 0.06


def test_the_service_of_the_objects_passes_check_and_its_cases(cli: Any) -> None:
    ended = cli("check", EXAMPLE / "objects.yaml")
    assert ended.code == 0, ended.out + ended.err
    ended = cli("test", EXAMPLE / "objects.yaml")
    assert ended.code == 0, ended.out + ended.err
    assert "2 cases: 2 ok" in ended.out
