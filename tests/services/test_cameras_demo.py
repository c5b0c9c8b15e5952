"""The cameras demo as a user runs it, shorter: a page while it runs, blurred videos afterwards."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.request
from pathlib import Path

import av
import pytest

pytestmark = pytest.mark.slow

COMMAND = [sys.executable, "-c", "from streamer.cli import main; main()", "demo", "cameras"]
CAMERAS = {"bar", "gate", "hall", "square"}


def test_the_demo_shows_four_cameras_tracks_faces_and_writes_videos(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [*COMMAND, "--seconds", "6", "--json"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    page = ""
    try:
        for line in process.stderr:
            if found := re.search(r"watch (http://127\.0\.0\.1:\d+)", line):
                page = found[1]
                break
        with urllib.request.urlopen(page, timeout=60) as answer:
            assert "text/html" in answer.headers["Content-Type"]
        out, err = process.communicate(timeout=250)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0, err
    outcome = json.loads(out)
    assert set(outcome["cameras"]) == CAMERAS
    assert all(seen["pictures"] > 0 for seen in outcome["cameras"].values())
    assert sum(seen["tracks"] for seen in outcome["cameras"].values()) > 0
    assert {Path(one).stem for one in outcome["videos"]} == CAMERAS
    with av.open(str(tmp_path / sorted(outcome["videos"])[0])) as video:
        assert next(video.decode(video=0)).width == 854


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["cameras", "--rate", "5"], "--rate is for digits and sensors"),
        (["cameras", "--no-sheet"], "cameras draws none"),
        (["objects", "--seconds", "5"], "objects, which ends with its film"),
        (["sensors", "--no-video"], "--no-video are for cameras"),
    ],
)
def test_options_of_another_example_are_refused(arguments: list[str], said: str) -> None:
    done = subprocess.run([*COMMAND[:-1], *arguments], capture_output=True, text=True, timeout=100)
    assert done.returncode == 2
    assert said in " ".join(done.stderr.replace("│", " ").split())


def test_where_no_videos_can_be_written_it_runs_without_them_and_says_so(tmp_path: Path) -> None:
    # A file in place of the folder: a folder that is not writable stops everyone but root.
    (tmp_path / "cameras").touch()
    done = subprocess.run([*COMMAND, "--seconds", "1"], cwd=tmp_path, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr
    assert f"no videos: {tmp_path / 'cameras'} cannot be written to (" in done.stdout


def test_videos_that_were_asked_for_and_cannot_be_written_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "clips").touch()
    command = [*COMMAND, "--video", str(tmp_path / "clips")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 1
    assert "name another folder with --video" in done.stderr
