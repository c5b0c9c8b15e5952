"""The example on cameras: it finds what is in its films, and blurs faces."""

from __future__ import annotations

import importlib.util
import json
import shutil
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
import yaml

import pipelines
from pipelines import BoundingBox, Data, Image
from streamer.agent.agent import Agent
from streamer.definition.service import Service

EXAMPLE = Path(__file__).parents[2] / "examples" / "cameras"


@pytest.fixture(scope="module")
def film() -> Any:
    """The module that writes the films."""
    spec = importlib.util.spec_from_file_location("examples_cameras_film", EXAMPLE / "film.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def shared(box: BoundingBox, other: Any) -> float:
    """The part of both boxes' area that they share."""
    width = min(box.x2, other.x2) - max(box.x1, other.x1)
    height = min(box.y2, other.y2) - max(box.y1, other.y1)
    both = max(width, 0.0) * max(height, 0.0)
    union = (box.x2 - box.x1) * (box.y2 - box.y1) + (other.x2 - other.x1) * (other.y2 - other.y1) - both
    return float(both / union)


def test_every_face_is_found_and_blurred(film: Any, tmp_path: Path) -> None:
    path = tmp_path / "film.mp4"
    film.write(path, "hall", seconds=7.0)
    blurred = 0
    with av.open(str(path)) as container, pipelines.load(EXAMPLE / "cameras.pipeline.yaml").open() as executor:
        for number, frame in enumerate(container.decode(video=0)):
            if number % 4:
                continue
            (result,) = executor.run_many([Data({"image": Image(frame)})])
            assert isinstance(result, Data)
            found: Any = result["faces"]
            before, after = frame.to_ndarray(format="bgr24"), result["image"].get_as("numpy")
            assert before.shape == after.shape
            for face in film.faces_at("hall", number / film.FPS):
                # The model sees faces of 16 pixels and more in a picture 512 wide.
                if face.x1 < 0 or face.x2 > 1 or (face.x2 - face.x1) * 512 < 16:
                    continue
                assert any(shared(box, face) > 0.3 for box in found)
                # Its middle: a box may be a little beside it.
                x, y = (face.x1 + face.x2) / 2 * frame.width, (face.y1 + face.y2) / 2 * frame.height
                wide, high = (face.x2 - face.x1) * frame.width / 4, (face.y2 - face.y1) * frame.height / 4
                inside = np.s_[int(y - high) : int(y + high), int(x - wide) : int(x + wide)]
                assert _detail(after[inside]) < 0.4 * _detail(before[inside])
                blurred += 1
    assert blurred >= 15


def _detail(picture: np.ndarray[Any, Any]) -> float:
    """How much neighbouring rows differ."""
    return float(np.abs(np.diff(picture.astype(int), axis=0)).mean())


def test_cars_and_a_bus_are_counted_where_they_pass_the_middle_of_the_road(film: Any, tmp_path: Path) -> None:
    film.write(tmp_path / "gate.mp4", "gate", seconds=9.5)
    document = yaml.safe_load((EXAMPLE / "cameras.yaml").read_text())
    document["source"] |= {"cameras": {"gate": str(tmp_path / "gate.mp4")}, "each": {"fps": 4}}
    document["pipeline"] = pipelines.load(EXAMPLE / "cameras.pipeline.yaml")
    results = tmp_path / "objects.jsonl"
    document["sink"] = {"type": "file", "path": str(results), "format": "jsonl", "drop": ["image"]}
    document["dead_letter"]["path"] = str(tmp_path / "dead.jsonl")
    del document["control"]
    summary = Agent(Service.model_validate(document)).run()
    assert summary.error is None
    lines = [json.loads(line) for line in results.read_text().splitlines()]
    assert summary.dead == 0
    ways = [way for thing in film.SCENES["gate"].things if thing.label != "person" for way in thing.crossings(0.5, 9.5)]
    assert ways == ["right", "right", "left"]
    assert lines[-1]["counts"]["road"] == {"in": 2, "out": 1}
    assert {box["label"] for line in lines for box in line["boxes"]} == {"person", "car", "bus"}


def test_the_service_of_the_cameras_passes_check_and_its_cases(cli: Any, film: Any, tmp_path: Path) -> None:
    folder = tmp_path / "cameras"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("__pycache__", "*.mp4"))
    (tmp_path / "objects").symlink_to(EXAMPLE.parent / "objects")
    for name in film.CAMERAS:
        film.write(folder / f"{name}.mp4", name, seconds=1.0)
    ended = cli("check", folder / "cameras.yaml", "--connect")
    assert ended.code == 0, ended.out + ended.err
    assert "gate: h264 640x360, 10 fps" in " ".join(ended.out.split())
    ended = cli("test", folder / "cameras.yaml")
    assert ended.code == 0, ended.out + ended.err
    assert "2 cases: 2 ok" in ended.out
