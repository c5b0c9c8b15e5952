"""Cameras to a page and to video: the newest frames are shown, whatever becomes of other sinks."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import av
import pytest

from connectors.view.clipsink import ClipSink
from connectors.view.madeclip import MadeClip
from connectors.view.sink import ViewSink
from pipelines import BoundingBox, Data
from streamer.agent.agent import Agent
from streamer.agent.assembly import build
from streamer.cli.findings import examined
from streamer.definition.loading import loads

SERVICE = """
name: yard
source:
  type: camera
  cameras:
    gate: "lavfi:testsrc2=size=320x240:rate=20"
    dock: "lavfi:testsrc2=size=160x120:rate=20"
pipeline: []
keep: [image]
sink:
  - {type: view, listen: "127.0.0.1:0"}
  - {type: video, path: "{camera}.mp4", name: video}
  - {type: file, path: boxes.jsonl, format: jsonl, name: file, drop: [image]}
limits: {drain: 1s}
"""


def boxed(data: Data) -> Data:
    data["people"] = [BoundingBox.corners(0.1, 0.5, 0.1, 0.9, "person", 0.8)]
    return data


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Callable[[str], Agent]]:
    with ExitStack() as stack:

        def started(text: str) -> Agent:
            service = loads(text, base=tmp_path)
            service = service.model_copy(update={"pipeline": type(service.pipeline)([boxed])})
            agent = Agent(service, assembly=build(service))
            agent.start()
            stack.callback(agent.join, 60)
            stack.callback(agent.stop)
            return agent

        yield started


def pieces(address: tuple[str, int], count: int) -> list[dict[str, Any]]:
    with closing(HTTPConnection(address[0], address[1], timeout=60)) as client:
        client.request("GET", "/stream")
        stream = client.getresponse()
        found: list[dict[str, Any]] = []
        while len(found) < count:
            facts = json.loads(stream.read(int.from_bytes(stream.read(4))))
            jpeg = stream.read(int.from_bytes(stream.read(4)))
            if jpeg:
                assert jpeg.startswith(b"\xff\xd8")
                found.append(facts)
        return found


def test_cameras_are_seen_and_recorded_with_their_boxes(running: Any, tmp_path: Path) -> None:
    agent = running(SERVICE)
    view, video, _ = (route.sink for route in agent._assembly.routes)
    found = pieces(view.address, 20)
    assert {facts["camera"] for facts in found} == {"gate", "dock"}
    assert {(facts["width"], facts["height"]) for facts in found} == {(320, 240), (160, 120)}
    assert all([box["label"] for box in facts["boxes"]] == ["person"] for facts in found)
    assert [one.value for one in video.metrics()][1] == 0
    agent.stop()
    summary = agent.join(60)
    assert summary.error is None
    assert summary.ok > 20
    for name, width in (("gate", 320), ("dock", 160)):
        with av.open(str(tmp_path / f"{name}.mp4")) as container:
            frames = list(container.decode(video=0))
        assert frames[0].width == width
        assert len(frames) >= 5
    assert len((tmp_path / "boxes.jsonl").read_text().splitlines()) == summary.ok


def test_the_page_has_the_name_of_the_service_and_names_cameras_that_are_down(running: Any) -> None:
    text = SERVICE.replace("  cameras:\n", '  cameras:\n    gone: "http://127.0.0.1:1/live.mjpeg"\n')
    view = running(text)._assembly.routes[0].sink
    with closing(HTTPConnection(view.address[0], view.address[1], timeout=60)) as client:
        client.request("GET", "/stream")
        stream = client.getresponse()
        told: dict[str, Any] = {}
        # It is told again and again, also while pictures of other cameras come.
        while told.get("states", {}).get("gone", {}).get("reason") is None or told["states"]["gate"]["state"] != "live":
            facts = json.loads(stream.read(int.from_bytes(stream.read(4))))
            stream.read(int.from_bytes(stream.read(4)))
            told = facts if "states" in facts else told
    assert told["title"] == "yard"
    assert told["states"]["gone"]["last_picture_seconds"] is None
    assert "connection refused" in told["states"]["gone"]["reason"]
    assert told["states"]["gate"]["last_picture_seconds"] < 60


def test_the_page_knows_the_zones_of_its_service_and_the_clips_of_its_other_sinks() -> None:
    zones = '{"@type": ZONES, zones: {door: {points: [[0.4, 0.5], [0.6, 0.5], [0.6, 1]]}}}'
    text = SERVICE.replace("pipeline: []", f"pipeline: [{zones}]")
    text = text.replace('{type: video, path: "{camera}.mp4", name: video}', "{type: clip, directory: clips}")
    view, clips, _ = (route.sink for route in build(loads(text)).routes)
    assert isinstance(view, ViewSink)
    assert isinstance(clips, ClipSink)
    assert [place["name"] for place in view._places] == ["door"]
    assert view.events.since(0) is None
    for call in clips._on_clip:
        call(MadeClip("gate", 0, 0, 1, Path("gate.mp4")))
    assert view.events.clip_file(1) == Path("gate.mp4")


def test_a_page_goes_on_while_another_sink_is_away(running: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    text = SERVICE.replace(
        '{type: video, path: "{camera}.mp4", name: video}',
        f'{{type: mqtt, url: "mqtt://127.0.0.1:{port}", topic: out, client_id: away, name: away, drop: [image]}}',
    )
    agent = running(text)
    view = agent._assembly.routes[0].sink
    first = pieces(view.address, 10)
    time.sleep(1.5)
    later = pieces(view.address, 10)
    assert min(facts["number"] for facts in later) > max(facts["number"] for facts in first)
    assert agent.meters.in_flight() < 2 * (320 * 240 + 160 * 120) * 2


def test_check_says_that_cameras_are_run_in_rounds() -> None:
    told = {
        True: "at most one record of each camera or partition, the best number is measured",
        False: "up to 512 records",
    }
    for policy, rounds in (("latest", True), ("fifo", False)):
        service = loads(SERVICE.replace("  cameras:", f"  each: {{policy: {policy}}}\n  cameras:"))
        assert service.sources[0].perishable is service.sources[0].build().perishable is rounds
        (batch,) = [one for one in examined(service).findings if one.part == "batch"]
        assert batch.text.startswith(told[rounds])
