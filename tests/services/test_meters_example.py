"""The example on meters reads what they show, each of its pictures."""

from __future__ import annotations

import importlib.util
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

import streamer

pytest.importorskip("rapidocr")
pytestmark = pytest.mark.slow

EXAMPLE = Path(__file__).parents[2] / "examples" / "meters"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the example."""
    folder = tmp_path / "meters"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("__pycache__", "power", "water", "heat", "*.jsonl"))
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, "reader", raising=False)
    return folder


@pytest.fixture(scope="module")
def meters() -> Any:
    """The module that draws the meters."""
    spec = importlib.util.spec_from_file_location("examples_drawmeters", EXAMPLE / "drawmeters.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_reading_is_right_and_a_picture_without_one_is_a_dead_letter(folder: Path, meters: Any) -> None:
    import cv2
    import numpy as np

    meters.write(folder, count=3)
    (folder / "water" / "0003.jpg").write_bytes(cv2.imencode(".jpg", np.full((360, 480, 3), 90, np.uint8))[1].tobytes())
    summary = streamer.load(folder / "meters.yaml").run()
    assert (summary.reason, summary.ok, summary.dead) == ("ended", 9, 1), summary
    readings: dict[str, list[int]] = {}
    for line in (folder / "readings.jsonl").read_text().splitlines():
        result = json.loads(line)
        assert result["probability"] > 0.8
        readings.setdefault(result["meter"], []).append(result["reading"])
    assert readings == {name: [meters.reading_of(name, number) for number in range(3)] for name in meters.METERS}
    assert "no number can be read" in (folder / "unread.jsonl").read_text()


def test_the_service_of_the_meters_passes_check_and_its_case(cli: Any, folder: Path, meters: Any) -> None:
    meters.write(folder, count=1)
    ended = cli("check", folder / "meters.yaml")
    assert ended.code == 0, ended.out + ended.err
    ended = cli("test", folder / "meters.yaml")
    assert ended.code == 0, ended.out + ended.err
    assert "1 ok" in ended.out
