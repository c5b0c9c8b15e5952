"""Services of cameras whose input is bad, and that are told to stop: nothing disappears, and others notice nothing."""

from __future__ import annotations

import json
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import av
import pytest
from httpcamera import HttpCamera
from numberedpictures import clip, video
from rtspcamera import RtspCamera
from waiting import PATIENCE, until

import streamer
from connectors.memory import forget_memory_topic, memory_topic
from streamer.agent.agent import Agent

pytestmark = pytest.mark.slow


class Yard:
    """Cameras that do well, and those that do not: one for each kind of bad input."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        def opened(camera: Any) -> Any:
            return stack.enter_context(camera)

        film = folder / "film.mp4"
        video(str(film), frames=2)
        self.good = {
            f"good{number}": opened(RtspCamera(codec, fps=30)) for number, codec in enumerate(("h264", "h265"))
        }
        self.corrupt, self.sizes, self.codecs = (opened(RtspCamera()) for _ in range(3))
        self.blind = opened(RtspCamera())
        self.blind.shown = self.blind.shown._replace(units=self.blind.shown.units[1:5], parameters=[])
        login = ("admin", "s3cret")
        self.failing = {
            "sound": opened(RtspCamera(kind="audio")).url,
            "login": opened(RtspCamera(login=login)).url.replace("s3cret", "wr0ng"),
            "redirect": opened(HttpCamera(redirect=film.as_uri())).url,
            "endless": opened(HttpCamera(endless=True)).url,
            "huge": "lavfi:color=size=8192x4896:rate=1",
            "blind": self.blind.url,
        }
        self.odd = {"corrupt": self.corrupt, "sizes": self.sizes, "codecs": self.codecs}

    @property
    def cameras(self) -> dict[str, str]:
        return {**self.failing, **{name: one.url for name, one in {**self.good, **self.odd}.items()}}

    def misbehave(self) -> None:
        """The cameras that began well go wrong in the middle of their streams."""
        chance, good = random.Random(3), self.corrupt.shown
        bad = [[unit[:1] + chance.randbytes(len(unit)) for unit in units] for units in good.units]
        self.corrupt.shown = good._replace(units=bad)
        self.sizes.shown = clip("h264", 320, 192)
        self.codecs.shown = clip("h265", 320, 192)


@pytest.fixture
def topic() -> Iterator[Any]:
    yield memory_topic("seen")
    forget_memory_topic("seen")


def test_bad_input_of_each_kind_costs_the_other_cameras_no_frames(tmp_path: Path, topic: Any) -> None:
    with ExitStack() as stack:
        yard = Yard(tmp_path, stack)
        service = {
            "name": "yard",
            "source": {
                "type": "camera",
                # Nothing but its patience ends the camera that sends data without a picture.
                "cameras": {**yard.cameras, "blind": {"url": yard.blind.url, "stall": "4s"}},
                # Every picture is run, so that sent and received pictures can be compared.
                "each": {"policy": "fifo", "max_frames": 10_000, "stall": "60s", "timeout": "2s"},
                "into": {"key": "camera"},
            },
            "pipeline": [],
            "keep": ["camera"],
            "sink": {"type": "memory", "topic": "seen", "codec": "json", "keys": ["camera"]},
            "on_error": "drop",
        }
        agent = Agent(streamer.loads(json.dumps(service)))
        agent.start()

        def told() -> dict[str, dict[str, Any]]:
            found: dict[str, dict[str, Any]] = agent.pages()["cameras"]["camera"]()
            return found

        def sent() -> int:
            return min(int(one.sent) for one in yard.good.values())

        until(
            lambda: all(told()[name]["delivered"] for name in (*yard.good, *yard.odd)),
            "pictures of all that begin well",
        )
        yard.misbehave()
        until(lambda: all(told()[name]["reason"] for name in yard.failing), f"a reason of each camera: {told()}")
        before = sent()
        until(lambda: sent() > before + 150, "more pictures")
        # They stop where they are, so that both sides can be counted.
        for camera in yard.good.values():
            camera.stalled = True
        time.sleep(0.2)
        counts = {name: camera.sent for name, camera in yard.good.items()}
        until(
            lambda: all(told()[name]["delivered"] >= 0.99 * count for name, count in counts.items()),
            "99 % of the pictures that were sent",
        )
        found = told()
        agent.stop()
        summary = agent.join()
    assert (summary.reason, summary.error) == ("stopped", None)
    for name in yard.good:
        assert found[name]["state"] == "live"
        assert found[name]["reconnects_last_hour"] == found[name]["stalls_last_hour"] == 0
        assert sum(found[name]["drops"].values()) == 0
        assert sum(one.key == name.encode() for one in topic.messages()) >= 0.99 * counts[name]
    for name in yard.failing:
        assert not found[name]["delivered"], name
        assert "wr0ng" not in str(found[name])


SERVICE = """
name: yard
source:
  type: camera
  cameras: {cameras}
  each: {{stall: 1s}}
  into: {{key: camera}}
pipeline: []
keep: [image, camera]
sink:
  - {{type: view, listen: "127.0.0.1:0"}}
  - {{type: video, path: "{{camera}}.mp4"}}
  - {{type: clip, directory: clips, before: 0s, after: 1s, longest: 2s}}
  - {{type: file, path: seen.jsonl, format: jsonl, keys: [camera], when_full: wait}}
on_error: drop
limits: {{drain: 10s}}
"""
SAID = re.compile(r"camera (\w+): (\d+) pictures, (\d+) became records, dropped: ([^\"]*)")


@pytest.mark.parametrize("moment", ["while connecting", "after a result", "in the midst of clips"])
def test_a_process_that_is_told_to_stop_ends_in_time_and_knows_of_every_frame(tmp_path: Path, moment: str) -> None:
    with RtspCamera(fps=20) as gate, RtspCamera("h265", fps=20) as dock, RtspCamera() as away:
        away.refuses = True
        gate.refuses = dock.refuses = moment == "while connecting"
        cameras = {"gate": gate.url, "dock": dock.url, "away": away.url}
        file = tmp_path / "yard.yaml"
        file.write_text(SERVICE.format(cameras=json.dumps(cameras)))
        command = [sys.executable, "-m", "streamer", "run", str(file), "--json", "--log-json", "--log-level", "info"]
        with (tmp_path / "log").open("w") as log:
            process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            until(lambda: "not a video that libav can read" in (tmp_path / "log").read_text(), "a camera that is away")
            seen = tmp_path / "seen.jsonl"
            if moment != "while connecting":
                until(lambda: seen.exists() and seen.stat().st_size, "a result")
            if moment == "in the midst of clips":
                until(lambda: len(list((tmp_path / "clips").glob("*.mp4"))) > 2, "clips")
            began = time.monotonic()
            process.send_signal(signal.SIGTERM)
            out, _ = process.communicate(timeout=PATIENCE)
        finally:
            process.kill()
        # `drain`, and the time to close; with a margin for a busy machine.
        assert time.monotonic() - began < 30
    text = (tmp_path / "log").read_text()
    assert process.returncode == 0, text
    summary = json.loads(out.splitlines()[-1])
    assert (summary["reason"], summary["error"]) == ("stopped", None)
    said = {name: (int(count), int(run), why) for name, count, run, why in SAID.findall(text)}
    assert said.keys() == cameras.keys()
    for name, (pictures, run, why) in said.items():
        dropped = {cause: int(count) for count, cause in re.findall(r"(\d+) ([a-z_]+)", why)}
        # The counter is of corrupt packets, not of pictures.
        dropped.pop("corrupt", None)
        assert pictures == run + sum(dropped.values()), f"{name}: {said}"
    assert sum(run for _, run, _ in said.values()) == summary["ok"] + summary["dropped"] + summary["failed"]
    results = [json.loads(line)["camera"] for line in seen.read_text().splitlines()] if summary["ok"] else []
    assert len(results) == summary["ok"]
    if moment == "while connecting":
        assert results == []
        return
    # Nothing is unfinished, and each file can be played to its end.
    assert list(tmp_path.rglob("*.part")) == []
    for path in [*(tmp_path / "clips").glob("*.mp4"), *(tmp_path / f"{name}.mp4" for name in set(results))]:
        with av.open(str(path)) as container:
            assert sum(1 for _ in container.decode(video=0)) > 0, path
