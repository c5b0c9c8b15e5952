"""Pictures leave memory once they have been run, however seldom the garbage collector runs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil
import pytest
from camerareader import CameraReader, reading
from httpcamera import HttpCamera
from numberedpictures import clip, jpeg, video
from waiting import until

from connectors.contract.cycles import check_no_cycles

SIZE = (1280, 720)
PICTURE = SIZE[0] * SIZE[1] * 3 // 2
"""Bytes of a decoded picture."""


def motion_jpeg(folder: Path) -> Any:
    files = [unit for [unit] in clip("mjpeg", *SIZE).units]
    (folder / "film.mjpeg").write_bytes(b"".join(files))
    return {"url": str(folder / "film.mjpeg"), "loop": True}


def h264(folder: Path) -> Any:
    video(str(folder / "film.mp4"), 40, 20, *SIZE, gop=1)
    return {"url": str(folder / "film.mp4"), "loop": True}


def photos(folder: Path) -> Any:
    folder = folder / "photos"
    folder.mkdir()
    for number in range(20):
        (folder / f"{number:02d}.jpg").write_bytes(jpeg(number, *SIZE))
    return {"url": str(folder), "loop": True}


def generated(folder: Path) -> Any:
    return f"lavfi:testsrc2=size={SIZE[0]}x{SIZE[1]}:rate=100"


KINDS = [motion_jpeg, h264, photos, generated]


@pytest.fixture
def http_cameras() -> Iterator[dict[str, Any]]:
    with HttpCamera(*SIZE, fps=100) as live:
        yield {"http": live.url}


def check(reader: CameraReader, camera: str) -> None:
    """Raises `AssertionError` if pictures leave objects that only the garbage collector frees."""

    def see(count: int) -> None:
        reader.see(camera, count)
        reader.received.clear()

    check_no_cycles(see)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_picture_leaves_nothing_to_the_garbage_collector(kind: Callable[[Path], Any], tmp_path: Path) -> None:
    with reading({"camera": kind(tmp_path)}) as reader:
        check(reader, "camera")


def test_a_picture_of_an_http_camera_leaves_nothing_to_the_garbage_collector(http_cameras: dict[str, Any]) -> None:
    with reading(http_cameras) as reader:
        check(reader, "http")


@pytest.mark.parametrize("pictures", [150, pytest.param(20_000, marks=pytest.mark.soak)])
def test_a_service_of_cameras_needs_no_more_memory_the_longer_it_runs(
    tmp_path: Path, http_cameras: dict[str, Any], pictures: int
) -> None:
    """As `streamer run` runs it, with its own settings of the garbage collector."""
    cameras = http_cameras | {kind.__name__: kind(tmp_path) for kind in KINDS}
    service = {
        "name": "memory",
        "source": {"type": "camera", "cameras": cameras, "into": {"key": "camera"}},
        "pipeline": [],
        "sink": {"type": "file", "path": "out.jsonl", "format": "jsonl", "drop": ["image"]},
    }
    (tmp_path / "memory.json").write_text(json.dumps(service))
    results = tmp_path / "out.jsonl"
    with ExitStack() as stack:
        log = stack.enter_context((tmp_path / "log").open("w"))
        process = subprocess.Popen(
            [sys.executable, "-m", "streamer", "run", "memory.json"], cwd=tmp_path, stdout=log, stderr=log
        )
        stack.callback(process.wait, 60)
        stack.callback(process.terminate)

        def has_run(count: int) -> bool:
            assert process.poll() is None, (tmp_path / "log").read_text()
            if not results.exists():
                return False
            found = Counter(line for line in results.read_text().splitlines())
            return len(found) >= len(cameras) and min(found.values()) >= count

        until(lambda: has_run(50), "the first pictures")
        before = psutil.Process(process.pid).memory_info().rss
        until(lambda: has_run(50 + pictures), "the pictures", 120 + pictures)
        grown = psutil.Process(process.pid).memory_info().rss - before
        assert grown < 100 * PICTURE, f"{grown / 2**20:.0f} MiB more after {pictures} pictures of each camera"
