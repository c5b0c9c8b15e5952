"""Faults of cameras: each reconnects by itself, says why it was away, and disturbs no other."""

from __future__ import annotations

import logging
import os
import random
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import cv2
import numpy as np
import psutil
import pytest
from camerareader import CameraReader, reading, shown
from httpcamera import HttpCamera
from numberedpictures import clip, jpeg, video
from rtspcamera import RtspCamera

from connectors.source import LaneEnded


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cameras come back sooner than in service, and are given up on sooner."""
    monkeypatch.setattr("connectors.camera.camera._LEAST_WAIT", 0.05)
    monkeypatch.setattr("connectors.camera.camera._MOST_WAIT", 0.3)
    monkeypatch.setattr("connectors.camera.watch.FIRST_PICTURE", 2.0)
    monkeypatch.setattr("connectors.camera.watch._LEARNED", 2.0)


@pytest.fixture
def camera() -> Iterator[RtspCamera]:
    with RtspCamera() as found:
        yield found


def comes_back(reader: CameraReader, sessions: RtspCamera) -> None:
    """The camera `gate` is live again, on a new connection and so in a new lane."""
    before = sessions.sessions
    epoch = reader.of("gate")[-1].lane.epoch
    reader.wait(lambda: reader.of("gate")[-1].lane.epoch > epoch and reader.state("gate") == "live", "a new connection")
    assert sessions.sessions >= before


def test_a_camera_that_is_silent_is_stalled_and_connected_to_anew(camera: RtspCamera) -> None:
    with reading({"gate": camera.url}, stall="1s") as reader:
        reader.see("gate")
        camera.stalled = True
        reader.wait(lambda: bool(reader.events(LaneEnded)), "the end of its lane")
        assert "no data within 1 s" in reader.reason("gate")
        assert reader.cameras.cameras()["gate"]["stalls_last_hour"] == 1
        assert [event.down for event in reader.downs][-1:] == [True]
        camera.stalled = False
        comes_back(reader, camera)
        assert reader.downs[-1].down is False
        assert reader.cameras.cameras()["gate"]["reconnects_last_hour"] >= 1


def test_a_camera_that_sends_no_whole_picture_is_stalled(camera: RtspCamera) -> None:
    with reading({"gate": {"url": camera.url, "policy": "fifo", "max_frames": 100}}, stall="1s") as reader:
        reader.see("gate", 60)
        camera.trickles = True
        reader.wait(lambda: reader.reason("gate") != "None", "a stall")
        assert re.search("no picture for|pictures a second come|no data", reader.reason("gate"))
        camera.trickles = False
        comes_back(reader, camera)


def test_a_camera_whose_picture_is_frozen_is_connected_to_anew(camera: RtspCamera) -> None:
    with reading({"gate": camera.url}, frozen="1s") as reader:
        reader.see("gate")
        camera.freezes = True
        reader.wait(lambda: "has not changed in any pixel" in reader.reason("gate"), "a frozen picture")
        camera.freezes = False
        comes_back(reader, camera)


def test_a_stream_that_ends_is_a_camera_that_is_lost(camera: RtspCamera) -> None:
    with reading({"gate": camera.url}) as reader:
        reader.see("gate")
        camera.drop()
        comes_back(reader, camera)
        assert [event.finish for event in reader.events(LaneEnded)] == [True]


def test_a_camera_that_was_away_comes_back_and_no_number_comes_again(camera: RtspCamera) -> None:
    with reading({"gate": camera.url}, stall="1s") as reader:
        reader.see("gate")
        for _ in range(3):
            camera.vanish()
            reader.wait(lambda: reader.state("gate") == "backoff", "backoff")
            camera.return_()
            reader.see("gate")
        positions = [one.position for one in reader.of("gate")]
        assert positions == sorted(set(positions))
        assert reader.cameras.cameras()["gate"]["grade"] == "fair"


def test_lost_packets_and_jumps_of_its_time_do_not_end_a_connection(camera: RtspCamera) -> None:
    with reading({"gate": {"url": camera.url, "fps": 20, "policy": "fifo", "max_frames": 100}}) as reader:
        reader.see("gate")
        camera.loss = 0.05
        reader.see("gate", 20)
        camera.loss = 0.0
        camera.jump = -20 * 90_000
        found = reader.see("gate", 20)
        assert {one.lane.epoch for one in reader.of("gate")} == {1}
        stamps = [one.message.timestamp or 0 for one in reader.of("gate")]
        assert stamps == sorted(stamps)
        # The clock is off by the jump, and not believed, until the camera reports its time again.
        assert dict(found[-1].message.extras)["receipt"] - stamps[-1] < 5000


def test_pictures_may_change_their_size(camera: RtspCamera) -> None:
    with reading({"gate": {"url": camera.url, "policy": "fifo", "max_frames": 100}}) as reader:
        reader.see("gate")
        camera.shown = clip("h264", 320, 192)
        reader.wait(lambda: reader.of("gate")[-1].message.value.image.width == 320, "the new size")
        assert shown(reader.see("gate")[-1]) < 20
        assert reader.cameras.cameras()["gate"]["size"] == "320x192"
    with reading({"gate": {"url": camera.url, "size": "160x96"}}) as reader:
        reader.see("gate")
        camera.shown = clip()
        assert {one.message.value.image.width for one in reader.see("gate", 20)} == {160}


def test_a_camera_that_changes_its_codec_is_connected_to_anew_and_the_others_go_on(camera: RtspCamera) -> None:
    with RtspCamera() as other, reading({"gate": camera.url, "other": other.url}, stall="1s") as reader:
        reader.see("gate")
        reader.see("other")
        # The session goes on, with data that its description says to be something else.
        camera.shown = clip("h265", 320, 192)
        reader.wait(lambda: reader.cameras.cameras()["gate"]["codec"] == "hevc", "the new codec")
        assert reader.see("gate")[-1].message.value.image.width == 320
        assert {one.lane.epoch for one in reader.of("other")} == {1}


def test_packets_that_cannot_be_decoded_end_nothing(camera: RtspCamera) -> None:
    good, chance = camera.shown, random.Random(3)
    bad = [[unit[:1] + chance.randbytes(len(unit)) for unit in units] for units in good.units]
    with RtspCamera() as other, reading({"gate": camera.url, "other": other.url}) as reader:
        reader.see("gate")
        camera.shown = good._replace(units=bad)
        sent = camera.sent
        reader.wait(lambda: camera.sent > sent + 40, "packets of no meaning")
        camera.shown = good
        reader.see("other")
        reader.wait(lambda: shown(reader.see("gate", 1)[0]) < 20, "a picture")
        reader.see("gate", 10)
        assert {one.lane.epoch for one in reader.of("other")} == {1}


def test_a_camera_that_never_tells_the_size_of_its_pictures_is_tried_again(camera: RtspCamera) -> None:
    # Key frames alone have SPS and PPS before them: later pictures cannot be decoded without.
    camera.shown = camera.shown._replace(units=camera.shown.units[1:5], parameters=[])
    with RtspCamera() as other, reading({"gate": camera.url, "other": other.url}, timeout="1s", stall="1s") as reader:
        reader.wait(lambda: reader.reason("gate") != "None", "trouble")
        assert not reader.of("gate")
        reader.see("other")
        camera.shown = clip()
        reader.see("gate")
        assert {one.lane.epoch for one in reader.of("other")} == {1}


def test_pictures_that_are_too_large_are_refused_before_they_are_decoded(tmp_path: Path) -> None:
    with reading({"huge": "lavfi:color=size=15360x8640:rate=1", "test": "lavfi:testsrc2=size=64x48:rate=10"}) as reader:
        reader.see("test")
        reader.wait(lambda: "pictures of 15360 x 8640 pixels are larger than max_pixels" in reader.reason("huge"))
        assert not reader.of("huge")
    assert cv2.imwrite(str(tmp_path / "1.png"), np.zeros((200, 200, 3), np.uint8))
    assert cv2.imwrite(str(tmp_path / "2.png"), np.zeros((20, 20, 3), np.uint8))
    with reading({"photos": {"url": str(tmp_path), "max_pixels": 10_000}}) as reader:
        reader.see("photos", 1)
        assert reader.cameras.cameras()["photos"]["drops"] == {"corrupt": 1}


def test_every_trouble_is_told_without_a_login_and_the_other_cameras_go_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    video(str(tmp_path / "film.mp4"))
    login = ("admin", "s3cret")
    with (
        RtspCamera() as good,
        RtspCamera(login=login) as rtsp,
        HttpCamera(login=login) as http,
        RtspCamera(kind="audio") as sound,
        RtspCamera() as refusing,
        HttpCamera(redirect=(tmp_path / "film.mp4").as_uri()) as redirecting,
        RtspCamera(redirect=(tmp_path / "film.mp4").as_uri()) as redirecting_rtsp,
        HttpCamera(endless=True) as endless,
    ):
        refusing.refuses = True
        wanted = {
            "rtsp": (f"rtsp://admin:wr0ngpass@127.0.0.1:{rtsp.port}/live", "another user name and password (401)"),
            "http": (f"http://admin:wr0ngpass@127.0.0.1:{http.port}/", "another user name and password (401)"),
            "sound": (sound.url, "no video in it, only audio"),
            "refusing": (refusing.url.replace("//", "//admin:wr0ngpass@"), "are the port and the path of the URL"),
            "redirecting": (redirecting.url, "a redirect to a protocol that is not allowed"),
            "redirecting_rtsp": (redirecting_rtsp.url, "a redirect to a protocol that is not allowed"),
            "endless": (endless.url, ""),
            "nobody": ("rtsp://admin:wr0ngpass@127.0.0.1:1/live", "nothing listens at this address"),
            "unknown": ("rtsp://admin:wr0ngpass@no.such.host.invalid/live", 'there is no host "no.such.host.invalid"'),
            "anonymous": (f"http://127.0.0.1:{http.port}/", "wants a user name and a password: write both down (401)"),
        }
        cameras = {name: url for name, (url, _) in wanted.items()}
        with reading({"good": good.url, **cameras}, timeout="2s", stall="2s") as reader:
            for name, (_, reason) in wanted.items():
                reader.wait(lambda name=name: reader.reason(name) != "None", f"trouble of {name}")  # type: ignore[misc]
                assert reason in reader.reason(name), f"{name}: {reader.reason(name)}"
                assert not reader.of(name)
            assert reader.state("good") == "live"
            told = reader.cameras.cameras()["good"]
            assert told["reconnects_last_hour"] == told["stalls_last_hour"] == 0
            said = caplog.text + repr(reader.cameras.cameras()) + repr(reader.seen) + repr(reader.source.metrics())
            assert "wr0ngpass" not in said
            assert "another user name and password" in said


def test_an_answer_that_is_no_video_is_told_with_what_to_look_at(tmp_path: Path) -> None:
    pages = ("login.html", "live.mjpeg", "snap.jpg", "live", "live.m3u8", "film.mp4")
    for page in pages:
        (tmp_path / page).write_text("<!DOCTYPE html><html><body>Please log in.</body></html>")
    (tmp_path / "snapshot.jpg").write_bytes(jpeg(1))
    (tmp_path / "notes").write_text("no video at all")
    with HttpCamera(folder=tmp_path) as files:
        urls = {name: files.url.replace("live.mjpeg", name) for name in (*pages, "snapshot.jpg", "notes")}
        wanted = {
            **dict.fromkeys(pages, "the URL gives a web page, not a video: is it the login page"),
            "snapshot.jpg": "its URL gives one picture and ends: set fps to ask for it again and again",
            "notes": "the connection ended before a picture came: is this the URL of a video stream?",
        }
        with reading(urls) as reader:
            for name, reason in wanted.items():
                reader.wait(lambda name=name, reason=reason: reason in reader.reason(name), reason)  # type: ignore[misc]


@pytest.mark.parametrize(
    "kind", ["image/jpeg", "application/octet-stream", "video/x-motion-jpeg", "image/jpg in parts"]
)
def test_jpeg_pictures_are_found_however_a_camera_sends_them(kind: str) -> None:
    with HttpCamera() as camera:
        if kind.endswith(" in parts"):
            camera.part_type = kind.removesuffix(" in parts")
        else:
            camera.bare = kind
        with reading({"gate": camera.url}, timeout="0.5s") as reader:
            assert all(shown(one) < 500 for one in reader.see("gate", 5))
            epoch = reader.of("gate")[-1].lane.epoch
            camera.drop()
            reader.wait(lambda: reader.of("gate")[-1].lane.epoch > epoch, "pictures of another connection")


def test_a_refused_login_is_not_tried_again_soon_as_cameras_lock_such_guests_out(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("connectors.camera.camera._MOST_WAIT", 30.0)
    with (
        RtspCamera(login=("admin", "s3cret")) as rtsp,
        HttpCamera(login=("admin", "s3cret")) as http,
        reading({"rtsp": rtsp.address, "http": http.url.replace("s3cret", "wr0ngpass")}) as reader,
    ):
        for name in ("rtsp", "http"):
            reader.wait(lambda name=name: reader.reason(name) != "None")  # type: ignore[misc]
    waits = [float(one) for one in re.findall(r"connects again in ([0-9.]+) s", caplog.text)]
    assert len(waits) == 2
    assert all(15 <= one <= 30 for one in waits)


def test_a_format_that_libav_has_not_is_told_with_the_nearest_one() -> None:
    with RtspCamera() as camera, reading({"gate": {"url": camera.url, "format": "mpjeg"}}) as reader:
        reader.wait(lambda: reader.reason("gate") != "None")
        assert 'format: libav has no "mpjeg"; did you mean "mpjpeg"?' in reader.reason("gate")


def test_two_lost_cameras_cost_a_third_one_no_picture() -> None:
    with RtspCamera() as first, RtspCamera() as second, RtspCamera() as third:
        urls = {"first": first.url, "second": second.url, "third": third.url}
        with reading(urls, stall="1s", policy="fifo", max_frames=1000) as reader:
            for name in urls:
                reader.see(name)
            third.stalled = True
            second.vanish()
            reader.wait(lambda: not {reader.state(name) for name in ("second", "third")} & {"live"}, "two lost cameras")
            reader.see("first", 20)
            positions = [one.position for one in reader.of("first")]
            assert positions == list(range(positions[0], positions[0] + len(positions)))
            third.stalled = False
            second.return_()
            reader.see("second")
            reader.see("third")
            assert {event.lane.partition for event in reader.events(LaneEnded)} == {"second", "third"}


def test_reconnecting_again_and_again_leaves_nothing_behind(camera: RtspCamera) -> None:
    process = psutil.Process()
    with reading({"gate": camera.url}, stall="1s") as reader:
        counts = []
        for _ in range(12):
            reader.see("gate", 1)
            counts.append((sum("camera gate" in one.name for one in threading.enumerate()), process.num_fds()))
            camera.drop()
            comes_back(reader, camera)
        assert {threads for threads, _ in counts} == {1}
        assert min(fds for _, fds in counts[6:]) < min(fds for _, fds in counts[:6]) + 10


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_ten_minutes_of_reconnects_take_no_memory_threads_or_descriptors(camera: RtspCamera) -> None:
    """A new connection every five seconds; `SOAK_SECONDS=60` makes it shorter."""
    process = psutil.Process()
    with reading({"gate": camera.url}, stall="1s") as reader:
        counts = []
        until = time.monotonic() + float(os.environ.get("SOAK_SECONDS", "600"))
        while time.monotonic() < until:
            reader.see("gate", 1)
            reader.received.clear()
            camera.drop()
            reader.listen(5)
            threads = sum("camera gate" in one.name for one in threading.enumerate())
            counts.append((process.memory_info().rss, threads, process.num_fds()))
            print(
                f"{len(counts)}: {counts[-1][0] >> 10} KiB, {threads} threads, {counts[-1][2]} descriptors", flush=True
            )
        assert camera.sessions >= len(counts)
        third = len(counts) // 3
        (sizes, threads_of, files), before = (
            list(zip(*part, strict=True)) for part in (counts[-third:], counts[third : 2 * third])
        )
        assert min(sizes) < min(before[0]) + 8 * 2**20
        assert set(threads_of) == {1}
        assert min(files) <= min(before[2])
