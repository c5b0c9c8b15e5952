"""The sink `video`: the contents of files, and pictures that cannot be written."""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest

from connectors.contract.measures import check_measures
from connectors.message import Message, block_of
from connectors.view.config import VideoSinkConfig
from connectors.view.picture import pixels_of
from connectors.view.videosink import VideoSink
from pipelines import Data, Image
from pipelines.data.record import RecordContext
from pipelines.errors import ConnectorError, StreamerError
from streamer.definition.loading import loads
from tests.connectors.view.conftest import deliver, result


@pytest.fixture
def writing(tmp_path: Path) -> Iterator[Callable[..., VideoSink]]:
    """`writing(**fields)` is an open sink `video` that writes `{camera}.mp4` into the test's folder."""
    with ExitStack() as stack:

        def opened(**fields: Any) -> VideoSink:
            if "url" not in fields:
                fields = {"path": tmp_path / "{camera}.mp4", **fields}
            sink = VideoSink(VideoSinkConfig(name="videos", **fields))
            sink.open()
            stack.callback(sink.close)
            return sink

        yield opened


def at(milliseconds: int, camera: str = "gate", shade: int = 0, **settings: Any) -> Data:
    found = result(camera, shade, **settings)
    return Data(dict(found), record=RecordContext("cameras", camera, timestamp=1_700_000_000_000 + milliseconds))


def pictures(path: Path) -> list[tuple[float, Any]]:
    """Time and pixels of each picture of a video."""
    with av.open(str(path)) as container:
        return [(float(frame.time or 0), frame.to_ndarray(format="bgr24")) for frame in container.decode(video=0)]


def soon() -> float:
    return time.monotonic() + 60


def test_each_camera_has_a_video_of_its_pictures_at_their_own_times(writing: Any, tmp_path: Path) -> None:
    sink = writing()
    times = [0, 100, 150, 1000]
    for number, moment in enumerate(times):
        sent = deliver(
            sink, at(moment, "gate", 50 * number, boxes=0), at(moment, "dock", 200, boxes=0), first=2 * number
        )
        assert sent == {}
    assert sink.barrier(soon()) == {}
    assert sorted(np.concatenate(sink.confirmed()).tolist()) == list(range(8))
    sink.close()
    found = pictures(tmp_path / "gate.mp4")
    assert [round(moment * 1000) for moment, _ in found] == times
    assert [abs(int(np.median(pixels)) - 50 * number) < 12 for number, (_, pixels) in enumerate(found)] == [True] * 4
    assert len(pictures(tmp_path / "dock.mp4")) == 4


def test_boxes_are_drawn_unless_told_otherwise(writing: Any, tmp_path: Path) -> None:
    for draw in (True, False):
        sink = writing(path=tmp_path / f"{draw}.mp4", draw=draw)
        deliver(sink, at(0, boxes=2, wide=320))
        sink.close()
    assert pictures(tmp_path / "True.mp4")[0][1].max() > 150
    assert pictures(tmp_path / "False.mp4")[0][1].max() < 40


def test_a_video_can_be_played_though_the_process_was_killed(writing: Any, tmp_path: Path) -> None:
    sink = writing(options={"preset": "ultrafast", "g": "5", "tune": "zerolatency"})
    for number in range(23):
        deliver(sink, at(40 * number, shade=number))
    assert sink.barrier(soon()) == {}
    # As it lies on the disk while it is written.
    copy = tmp_path / "copy.mp4"
    copy.write_bytes((tmp_path / "gate.mp4").read_bytes())
    assert len(pictures(copy)) >= 15


def test_a_file_that_is_there_is_left_alone(writing: Any, tmp_path: Path) -> None:
    (tmp_path / "gate.mp4").write_bytes(b"precious")
    for _ in range(2):
        sink = writing()
        deliver(sink, at(0))
        sink.close()
    assert (tmp_path / "gate.mp4").read_bytes() == b"precious"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["gate-2.mp4", "gate-3.mp4", "gate.mp4"]


def test_a_picture_of_another_size_begins_another_file(writing: Any, tmp_path: Path) -> None:
    sink = writing()
    for number, wide in enumerate((64, 64, 128, 128)):
        deliver(sink, at(100 * number, wide=wide))
    sink.close()
    assert [len(pictures(tmp_path / name)) for name in ("gate.mp4", "gate-2.mp4")] == [2, 2]
    assert pictures(tmp_path / "gate-2.mp4")[0][1].shape == (96, 128, 3)


@pytest.mark.parametrize("name", ["../../etc/passwd", "a/b", "x" * 500, "", "\0", "..", "Straße 7"])
def test_a_camera_may_have_any_name(name: str, writing: Any, tmp_path: Path) -> None:
    sink = writing(path=tmp_path / "inside" / "{camera}.mp4")
    assert deliver(sink, at(0, name)) == {}
    sink.close()
    (path,) = tmp_path.rglob("*.mp4")
    assert path.parent == tmp_path / "inside"
    assert len(pictures(path)) == 1


def test_clocks_that_go_back_or_stand_still_make_no_hole(writing: Any, tmp_path: Path) -> None:
    sink = writing()
    for moment in (1000, 0, 0, 1010):
        deliver(sink, at(moment))
    sink.close()
    times = [round(moment * 1000) for moment, _ in pictures(tmp_path / "gate.mp4")]
    assert times == sorted(set(times))
    assert len(times) == 4


def test_a_picture_that_cannot_be_decoded_is_passed_over(writing: Any, tmp_path: Path) -> None:
    sink = writing()
    broken = Data({"image": Image(b"\x89PNG no picture")}, record=RecordContext("s", "gate"))
    assert deliver(sink, at(0), broken, at(100)) == {}
    assert sink.barrier(soon()) == {}
    assert {one.name: one.value for one in sink.metrics()} == {"frames": 2, "frames_passed_over": 1}
    sink.close()
    assert len(pictures(tmp_path / "gate.mp4")) == 2


def test_a_slow_encoder_makes_the_sink_full_and_takes_no_more_room(writing: Any, monkeypatch: Any) -> None:
    sink = writing(queue=2)
    go_on = threading.Event()

    def slow(*given: Any, **how: Any) -> Any:
        go_on.wait(60)
        return pixels_of(*given, **how)

    monkeypatch.setattr("connectors.view.videowriter.pixels_of", slow)
    results = [at(100 * number) for number in range(6)]
    began = time.monotonic()
    refused = sink.send(block_of([Message(one) for one in results]), time.monotonic())
    assert time.monotonic() - began < 30
    assert len(refused) >= 3
    assert all(error.retriable for error in refused.values())
    with pytest.raises(ConnectorError, match="is not encoded yet"):
        sink.barrier(time.monotonic())
    go_on.set()
    assert sink.barrier(soon()) == {}
    assert len(np.concatenate(sink.confirmed())) == 6 - len(refused)


def test_a_file_that_cannot_be_written_ends_the_sink(writing: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"no folder")
    sink = writing(path=tmp_path / "file" / "{camera}.mp4")
    deliver(sink, at(0))
    with pytest.raises(ConnectorError, match='the video of "gate" cannot be written') as caught:
        sink.barrier(soon())
    assert f"cannot be written: {tmp_path / 'file' / 'gate.mp4'}: " in str(caught.value)
    assert not caught.value.retriable
    with pytest.raises(ConnectorError, match="cannot be written"):
        deliver(sink, at(100))


@pytest.mark.parametrize("wide", [320, 1280])
def test_a_video_says_how_its_colours_are_meant(writing: Any, tmp_path: Path, wide: int) -> None:
    sink = writing()
    colours = np.zeros((wide * 3 // 4, wide, 3), np.uint8)
    colours[:] = 40, 160, 220
    deliver(sink, Data({"image": Image(colours)}, record=at(0).record))
    sink.close()
    with av.open(str(tmp_path / "gate.mp4")) as container:
        frame = next(container.decode(video=0))
        assert (int(frame.colorspace), int(frame.color_range)) == (6, 1)
        seen = frame.to_ndarray(format="bgr24").mean(axis=(0, 1))
    assert np.abs(seen - (40, 160, 220)).max() < 4


def test_a_video_goes_on_at_its_pace_after_a_clock_was_set_back(writing: Any, tmp_path: Path) -> None:
    sink = writing(fps=10)
    times = [0, 100, 200, -60_000, -59_900, -59_800]
    for number, milliseconds in enumerate(times):
        deliver(sink, at(milliseconds), first=number)
    sink.barrier(soon())
    sink.close()
    assert [round(when * 1000) for when, _ in pictures(tmp_path / "gate.mp4")] == [0, 100, 200, 300, 400, 500]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"path": "{camera}.foo"}, 'libav knows no video file that ends with ".foo": write .mp4 or .mkv'),
        ({"path": "{camera}.webm"}, '.webm files take no video of the encoder "libx264"'),
        (
            {"path": "{camera}.mp4", "encoder": "libx2644"},
            'the encoder "libx2644" is not there; did you mean "libx264"?',
        ),
        ({"path": "{camera}.mp4", "encoder": "aac"}, '.mp4 files take no video of the encoder "aac"'),
    ],
)
def test_an_encoder_that_does_not_fit_the_file_is_told_by_check_and_by_the_sink(
    writing: Any, tmp_path: Path, fields: dict[str, str], said: str
) -> None:
    fields = {**fields, "path": str(tmp_path / fields["path"])}
    [note] = VideoSinkConfig.model_validate({"name": "videos", **fields}).notes
    assert said in note
    sink = writing(**fields)
    deliver(sink, at(0))
    with pytest.raises(ConnectorError, match=re.escape(said)):
        sink.barrier(soon())


def test_an_encoder_that_is_not_there_is_named(writing: Any) -> None:
    sink = writing(encoder="libx2644", options={})
    deliver(sink, at(0))
    with pytest.raises(ConnectorError, match='the encoder "libx2644" is not there'):
        sink.barrier(soon())


def test_an_encoder_that_refuses_its_options_is_told_with_them(writing: Any) -> None:
    sink = writing(options={"preset": "fats"})
    deliver(sink, at(0))
    with pytest.raises(ConnectorError, match=r'"libx264" refuses .* with the options {preset: fats}; change `options`'):
        sink.barrier(soon())


def test_a_server_that_is_away_is_passed_over_and_its_login_is_told_to_nobody(
    writing: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    sink = writing(url=f"rtmp://user:hunter2@127.0.0.1:{port}/live/{{camera}}")
    for number in range(5):
        assert deliver(sink, at(100 * number), first=number) == {}
    assert sink.barrier(soon()) == {}
    assert np.concatenate(sink.confirmed()).tolist() == list(range(5))
    assert sink.down() == "Connection refused"
    assert {one.name: one.value for one in sink.metrics()} == {"frames": 0, "frames_passed_over": 5}
    assert "hunter2" not in caplog.text
    assert "hunter2" not in repr(VideoSinkConfig(url="rtmp://user:hunter2@host/x"))


def test_a_second_camera_needs_a_place_of_its_own(writing: Any, tmp_path: Path) -> None:
    sink = writing(path=tmp_path / "all.mp4")
    refused = deliver(sink, at(0, "gate"), at(0, "dock"))
    assert list(refused) == [1]
    assert "put {camera} into it" in str(refused[1])


SERVICE = """
source: {type: memory, topic: in}
pipeline: []
sink: {type: video, %s}
"""


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ("", "path or url is needed, and only one of them"),
        ("path: a.mp4, url: rtmp://host/live", "path or url is needed, and only one of them"),
        ("url: 'https://user:secret@host/live'", "rtmp, rtmps, rtsp, rtsps, srt or udp is needed"),
        ("path: 'videos/{cam}.mp4'", r'there is no "\{cam\}" in the place of a video, only \{camera\}'),
        ("url: 'rtmp://user:secret@host/{name}'", r'there is no "\{name\}"'),
        ("path: 'videos/{camera}'", "its ending says the format of the video"),
    ],
)
def test_a_video_sink_needs_a_valid_path_or_url_and_the_error_shows_no_password(fields: str, error: str) -> None:
    with pytest.raises(StreamerError, match=error) as caught:
        loads(SERVICE % fields)
    assert "secret" not in str(caught.value)


def test_metrics_of_a_video_sink_can_be_read_at_any_time(writing: Any) -> None:
    sink = writing()
    check_measures(sink)
    deliver(sink, at(0))
    sink.close()
    sink.close()
    check_measures(sink)
    with pytest.raises(ConnectorError, match="is not open"):
        deliver(sink, at(0))
