"""A service whose records are pictures: from cameras through a pipeline to a sink, with its control port."""

from __future__ import annotations

import json
import re
import sys
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import av
import pytest
from httpcamera import HttpCamera
from numberedpictures import jpeg, video
from rtspcamera import RtspCamera
from waiting import PATIENCE, until

import streamer
from connectors.memory import MemorySink, forget_memory_topic, memory_topic
from pipelines.errors import ConnectorError
from streamer.agent.agent import Agent
from streamer.agent.assembly import build
from streamer.observe.endpoint import Endpoint


@pytest.fixture(autouse=True)
def _topics() -> Iterator[None]:
    yield
    for topic in ("seen", "dead"):
        forget_memory_topic(topic)


@pytest.fixture
def ports(monkeypatch: pytest.MonkeyPatch) -> list[Endpoint]:
    """The control ports that were opened."""
    found: list[Endpoint] = []
    join = Endpoint.join.__func__  # type: ignore[attr-defined]

    def joined(cls: type[Endpoint], *arguments: Any) -> Endpoint:
        endpoint: Endpoint = join(cls, *arguments)
        found.append(endpoint)
        return endpoint

    monkeypatch.setattr(Endpoint, "join", classmethod(joined))
    return found


def got(endpoint: Endpoint, path: str) -> tuple[int, Any]:
    url = "http://{}:{}{}".format(*endpoint.address, path)
    try:
        with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
            text = answer.read().decode()
            return answer.status, text if path == "/metrics" else json.loads(text)
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


STEPS = """
from pipelines import Data

def small(data):
    image = data["image"]
    return Data({"width": image.width, "camera": data["camera"], "bright": float(image.get_as("numpy").mean())})

def failing(data):
    raise ValueError("not this one")
"""


@pytest.fixture(autouse=True)
def _steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "yardsteps.py").write_text(STEPS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "yardsteps", raising=False)


def service(cameras: dict[str, Any], function: str = "small", **fields: Any) -> str:
    """A service file whose cameras go through one function."""
    written = {
        "name": "yard",
        "source": {"type": "camera", "cameras": cameras, "into": {"key": "camera"}, "each": {"stall": "1s"}},
        "pipeline": {"steps": [{"@type": "FUNCTION", "name": "look", "function": f"yardsteps:{function}"}]},
        "sink": {"type": "memory", "topic": "seen", "codec": "json"},
        "dead_letter": {"type": "memory", "topic": "dead"},
        **fields,
    }
    return json.dumps(written)


def test_pictures_become_results_with_the_name_of_their_camera(ports: list[Endpoint]) -> None:
    with RtspCamera(login=("admin", "s3cret")) as gate, HttpCamera(320, 192) as dock:
        text = service({"gate": gate.url, "dock": dock.url}, control={"listen": "127.0.0.1:0"})
        with streamer.loads(text):
            topic = memory_topic("seen")
            seen: dict[bytes, dict[str, Any]] = {}

            def both() -> bool:
                seen.update({one.key or b"": json.loads(one.value) for one in list(topic.messages())})
                return len(seen) == 2

            until(both, "results of both cameras")
            assert {key: (one["camera"], one["width"]) for key, one in seen.items()} == {
                b"gate": ("gate", 160),
                b"dock": ("dock", 320),
            }
            (endpoint,) = ports
            assert got(endpoint, "/ready")[0] == 200
            status, told = got(endpoint, "/cameras")
            assert status == 200
            assert {name: one["state"] for name, one in told["yard"]["camera"].items()} == {
                "gate": "live",
                "dock": "live",
            }
            assert "s3cret" not in json.dumps(told)
            metrics = got(endpoint, "/metrics")[1]
            assert re.search(
                r'streamer_camera_state\{camera="gate",part="source camera",service="yard",state="live"\} 1', metrics
            )
            gate.vanish()
            dock.stalled = True
            dock.drop()
            until(lambda: got(endpoint, "/ready")[0] == 503, "a service that is not ready")
            assert "no camera is live" in got(endpoint, "/ready")[1]["yard"]
            assert got(endpoint, "/live")[0] == 200
            gate.return_()
            until(lambda: got(endpoint, "/ready")[0] == 200, "a service that is ready again")


def test_a_service_of_files_runs_every_picture_and_ends_by_itself(tmp_path: Path) -> None:
    video(str(tmp_path / "film.mp4"), frames=40)
    (tmp_path / "photos").mkdir()
    for number in range(5):
        (tmp_path / "photos" / f"{number}.jpg").write_bytes(jpeg(number, 160 + 16 * number, 96))
    summary = streamer.loads(service({"film": str(tmp_path / "film.mp4"), "photos": str(tmp_path / "photos")})).run()
    assert summary.error is None
    messages = list(memory_topic("seen").messages())
    assert sorted(one.key for one in messages if one.key) == [b"film"] * 40 + [b"photos"] * 5


def test_a_picture_that_fails_becomes_a_dead_letter_that_can_be_looked_at(tmp_path: Path) -> None:
    video(str(tmp_path / "film.mp4"), frames=3)
    text = service({"film": str(tmp_path / "film.mp4")}, "failing", errors={"stop_ratio": 1})
    streamer.loads(text).run()
    dead = list(memory_topic("dead").messages())
    assert len(dead) == 3
    assert all(bytes(one.value).startswith(b"\xff\xd8") for one in dead)


def test_check_connect_tells_what_each_camera_shows(tmp_path: Path, cli: Any) -> None:
    with RtspCamera("h265", login=("admin", "s3cret")) as gate, HttpCamera() as dock:
        file = tmp_path / "yard.yaml"
        file.write_text(service({"gate": gate.url, "dock": dock.url, "test": "lavfi:testsrc2=size=64x48:rate=10"}))
        ended = cli("check", file, "--connect")
        assert ended.code == 0, ended
        said = " ".join(ended.out.split())
        assert re.search(r"gate: hevc 160x96, (19|20|21) fps, clock of the camera", said)
        assert re.search(r"dock: mjpeg 160x96, \d+ fps, tells no time: pictures have that of their receipt", said)
        assert "test: wrapped_avframe 64x48" in said
        file.write_text(service({"gate": gate.url.replace("s3cret", "wr0ngpass"), "dock": dock.url}))
        ended = cli("check", file, "--connect")
        assert ended.code == 1
        said = " ".join((ended.out + ended.err).split())
        assert "gate: the camera wants another user name and password (401)" in said
        assert "dock: mjpeg" in said
        assert "wr0ngpass" not in said


def test_eight_cameras_of_which_three_die_and_return_lose_no_picture_without_a_cause() -> None:
    with ExitStack() as stack:
        cameras = [stack.enter_context(RtspCamera(fps=10)) for _ in range(8)]
        text = service({f"c{number}": camera.url for number, camera in enumerate(cameras)})
        agent = Agent(streamer.loads(text))
        agent.start()
        topic = memory_topic("seen")

        def seen(since: int = 0) -> set[bytes | None]:
            return {one.key for one in topic.messages()[since:]}

        until(lambda: len(seen()) == 8, "a result of each camera")
        for camera in cameras[:3]:
            camera.vanish()
        before = len(topic.messages())
        until(lambda: len(seen(before)) >= 5, "results of those that are left")
        for camera in cameras[:3]:
            camera.return_()
        before = len(topic.messages())
        until(lambda: len(seen(before)) == 8, "results of all cameras again")
        agent.stop()
        summary = agent.join()
    assert (summary.reason, summary.error) == ("stopped", None)
    results = Counter(one.key for one in topic.messages())
    told = agent.pages()["cameras"]["camera"]()
    assert {name.encode(): one["delivered"] for name, one in told.items()} == results
    for name, one in told.items():
        # Packets that cannot be decoded are counted as drops, and are no pictures.
        missing = one["pictures"] - one["delivered"] - sum(one["drops"].values())
        assert missing == 0 or (missing < 0 and one["drops"].get("corrupt")), f"{name}: {one}"


def test_a_service_makes_clips_of_events_while_its_results_go_elsewhere(tmp_path: Path) -> None:
    with RtspCamera(fps=20) as gate, HttpCamera(320, 192) as dock:
        text = service(
            {"gate": gate.url, "dock": dock.url},
            sink=[
                {"type": "memory", "topic": "seen", "codec": "json"},
                {
                    "type": "clip",
                    "directory": str(tmp_path / "clips"),
                    "when": {"camera": "gate"},
                    "before": "200ms",
                    "after": "200ms",
                    "longest": "1s",
                },
            ],
        )
        with streamer.loads(text):
            until(lambda: len(list((tmp_path / "clips").glob("*.mp4"))) >= 2, "two clips")
        topic = memory_topic("seen")
        assert {one.key for one in topic.messages()} == {b"gate", b"dock"}
    made = list((tmp_path / "clips").iterdir())
    assert all(path.name.startswith("gate-") and path.suffix == ".mp4" for path in made)
    for path in made:
        with av.open(str(path)) as container:
            assert next(container.decode(video=0)).width == 160


@pytest.mark.parametrize(("shown", "clips"), [([0] * 30, 0), ([0] * 20 + [0b1111] * 10, 1)], ids=["still", "moving"])
def test_the_documented_service_makes_a_clip_of_a_film_in_which_something_moves_and_none_of_another(
    tmp_path: Path, shown: list[int], clips: int
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "connectors" / "clip.md").read_text()
    (text,) = [block for block in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL) if "type: clip" in block]
    video(str(tmp_path / "gate.mp4"), shown=shown, gop=5)
    text = text.replace("rtsp://10.0.0.7/live", str(tmp_path / "gate.mp4")).replace(
        "{type: view}", "{type: memory, topic: seen}"
    )
    summary = streamer.loads(text, tmp_path).run()
    # Without a dead letter a result that cannot be compared stops the service.
    assert (summary.ok, len(list(memory_topic("seen").messages()))) == (30, 30)
    assert len(list((tmp_path / "clips").glob("gate-*.mp4"))) == clips


class Away(MemorySink):
    """A sink whose peer can be away: then it takes nothing."""

    away = False

    def send(self, messages: Any, deadline: float) -> Any:
        if not self.away:
            return super().send(messages, deadline)
        return dict.fromkeys(range(len(messages)), ConnectorError("nobody there", retriable=True))


def told(agent: Agent) -> dict[str, dict[str, Any]]:
    """What the cameras of a service do."""
    found: dict[str, dict[str, Any]] = agent.pages()["cameras"]["camera"]()
    return found


def held(agent: Agent, sink: MemorySink) -> None:
    """Every picture was run and is in the sink, was run and dropped as the sink was full, or dropped with its cause."""
    cameras = told(agent)
    results = Counter(one.key for one in sink.topic.messages())
    for name, one in cameras.items():
        missing = one["pictures"] - one["delivered"] - sum(one["drops"].values())
        assert missing == 0 or (missing < 0 and one["drops"].get("corrupt")), f"{name}: {one}"
        assert results[name.encode()] <= one["delivered"]
    metrics = {
        sample.labels["outcome"]: sample.value
        for family in agent.meters.collect()
        for sample in family.samples
        if sample.name == "streamer_records_total"
    }
    assert sum(metrics.values()) == sum(one["delivered"] for one in cameras.values()), metrics


def test_a_sink_that_is_away_stops_no_inference_and_its_messages_are_counted() -> None:
    with RtspCamera() as gate, RtspCamera() as dock:
        definition = streamer.loads(service({"gate": gate.url, "dock": dock.url}))
        sink = Away(name="memory")
        agent = Agent(definition, assembly=build(definition, sinks={"memory": sink}, dead=MemorySink(name="dead")))
        agent.start()

        def delivered() -> int:
            return sum(one["delivered"] for one in told(agent).values())

        until(lambda: len(sink.topic) > 4, "results")
        sink.away = True
        before = delivered()
        until(lambda: delivered() > before + 40, "inference without the sink")
        sink.away = False
        count = len(sink.topic)
        until(lambda: len(sink.topic) > count + 4, "results again")
        agent.stop()
        summary = agent.join()
    assert (summary.reason, summary.error) == ("stopped", None)
    held(agent, sink)
    assert len(sink.topic) < delivered()


@pytest.mark.parametrize("moment", ["at once", "while connecting", "after a result", "while the sink is away"])
def test_a_stop_at_any_moment_ends_within_its_time(moment: str) -> None:
    with RtspCamera() as gate, RtspCamera() as dock:
        if moment == "while connecting":
            gate.refuses = dock.refuses = True
        text = service({"gate": gate.url, "dock": dock.url}, limits={"drain": "5s"})
        definition = streamer.loads(text)
        sink = Away(name="memory")
        agent = Agent(definition, assembly=build(definition, sinks={"memory": sink}, dead=MemorySink(name="dead")))
        agent.start()
        if moment == "after a result":
            until(lambda: len(sink.topic) > 0, "a result")
        if moment == "while connecting":
            until(lambda: told(agent)["gate"]["state"] == "backoff", "cameras that are away")
        if moment == "while the sink is away":
            sink.away = True
            until(lambda: told(agent)["gate"]["delivered"] >= 5, "pictures")
        began = time.monotonic()
        agent.stop()
        summary = agent.join()
        # Far less than a drain and the limits of libav together, on a machine that does other things too.
        assert time.monotonic() - began < 30
    assert (summary.reason, summary.error) == ("stopped", None)
    held(agent, sink)
