"""A folder of pictures as people have it: with files that are none."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import PIL.Image

import streamer
from pipelines import Image

SERVICE = """
name: photos
pipeline: {steps: [{"@type": IMAGE_RESIZE, width: 8}]}
source: {type: file, path: photos, format: images, codec: image}
sink: {type: file, path: small, codec: image, format: images}
"""


def run(folder: Path, service: str) -> list[dict[str, object]]:
    """The lines of the log, with an error or without."""
    (folder / "photos" / "trip").mkdir(parents=True)
    (folder / "photos" / "1.png").write_bytes(Image(np.zeros((16, 16, 3), np.uint8)).get_as("png"))
    (folder / "photos" / "trip" / "2.jpg").write_bytes(b"no picture")
    (folder / "service.yaml").write_text(service)
    command = [sys.executable, "-m", "streamer", "run", "service.yaml"]
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
    return [json.loads(line) for line in (ended.stdout + ended.stderr).splitlines() if line.startswith("{")]


def test_a_file_that_is_no_picture_is_told_by_its_name(tmp_path: Path) -> None:
    [end] = [line for line in run(tmp_path, SERVICE) if line["event"] == "ended"]
    assert str(end["error"]).startswith(
        "photos[0]@1 (trip/2.jpg): decode: DataError: the image's 10 bytes are not a PNG"
    )


def test_the_dead_letter_of_a_file_that_is_no_picture_is_told_by_its_name(tmp_path: Path) -> None:
    service = SERVICE + "dead_letter: {type: file, path: dead, format: images}\n"
    [letter] = [line for line in run(tmp_path, service) if line["event"] == "dead letter"]
    assert letter["at"] == "photos[0]@1 (trip/2.jpg)"
    assert (tmp_path / "dead" / "trip" / "2.jpg").read_bytes() == b"no picture"
    assert (tmp_path / "small" / "1.png").exists()


def test_a_folder_of_webp_tiff_and_ppm_is_read_picture_by_picture_under_their_names(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    for name, kind in (("a.webp", "WEBP"), ("b.tif", "TIFF"), ("c.ppm", "PPM")):
        PIL.Image.new("RGB", (16, 12), (200, 100, 50)).save(tmp_path / "photos" / name, kind)
    (tmp_path / "service.yaml").write_text(SERVICE)
    streamer.load(tmp_path / "service.yaml").run()
    written = [Image.open(tmp_path / "small" / name) for name in ("a.webp", "b.tif", "c.ppm")]
    assert [(one.width, one.height) for one in written] == [(8, 6)] * 3
    assert all(abs(one.get_as("numpy").astype(int) - (50, 100, 200)).max() < 6 for one in written)
