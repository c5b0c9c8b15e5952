"""Layouts of detectors that other distributions add."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pipelines.plugins.catalog import Catalog, class_of
from pipelines.runners.boxes.detectors import recognise as recognising
from pipelines.runners.boxes.detectors.given import Asked
from pipelines.runners.boxes.detectors.layout import LAYOUTS, Layout
from pipelines.runners.models.model import Port
from streamer.definition.plugins import GROUPS

PLUGIN = """
from pipelines.runners.boxes.detectors.detector import Detector
from pipelines.runners.boxes.detectors.layout import Layout
from pipelines.runners.boxes.detectors.reading import candidates_of

class Faces(Layout):
    name = "faces"
    def fit(self, given):
        places = given.named("faces")
        return None if places is None else Detector("faces", places, labels=("face",), box="xywh")
    def decode(self, detector, outputs, size, threshold):
        rows = outputs[0][outputs[0][:, :, 4] >= threshold]
        zeros = (0 * rows[:, 0]).astype(int)
        return candidates_of(detector, size, zeros, rows[:, :4], rows[:, 4], zeros, None)
"""


def test_a_plugin_adds_a_layout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "plugin_faces.py").write_text(PLUGIN)
    info = tmp_path / "faces-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: faces\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{LAYOUTS.group}]\nfaces = plugin_faces:Faces\n")
    monkeypatch.syspath_prepend(tmp_path)
    fresh: Catalog[type[Layout]] = Catalog(
        LAYOUTS.kind,
        LAYOUTS.group,
        class_of(Layout),
        lambda layout: (layout.name,),
        "pipelines.runners.boxes.detectors",
    )
    monkeypatch.setattr(recognising, "LAYOUTS", fresh)
    outputs = [Port("other", np.dtype(np.float32), (1, 9)), Port("faces", np.dtype(np.float32), (1, 2, 5))]
    detector = recognising.recognise([], outputs, {}, Asked())
    assert (detector.layout, detector.outputs, detector.classes) == ("faces", (1,), 1)
    arrays = [np.zeros((1, 9)), np.array([[[10, 20, 30, 40, 0.9], [0, 0, 0, 0, 0]]])]
    assert recognising.decode(detector, arrays, (320, 320), 0.25).corners.tolist() == [[10, 20, 40, 60]]
    assert LAYOUTS.group in GROUPS
