"""The source of cameras: records, times, lanes, policies."""

from __future__ import annotations

import logging
import re
import time
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from camerareader import CameraReader, reading, shown
from httpcamera import HttpCamera
from numberedpictures import clip, jpeg, video
from pydantic import ValidationError
from rtspcamera import RtspCamera

from connectors.camera.config import CameraSourceConfig
from connectors.camera.source import CameraSource
from connectors.source import LaneBegan, LaneEnded
from pipelines.definitions.documents import parse_document
from pipelines.definitions.validation import validated
from pipelines.errors import ConnectorError, DefinitionError


@pytest.mark.parametrize("codec", ["h264", "h265"])
@pytest.mark.parametrize("transport", ["tcp", "udp"])
def test_pictures_of_an_rtsp_camera_come_in_their_order(codec: str, transport: str) -> None:
    with (
        RtspCamera(codec, 320, 192, login=("admin", "s3cret")) as camera,
        reading({"gate": {"url": camera.url, "transport": transport, "policy": "fifo", "max_frames": 100}}) as reader,
    ):
        found = reader.see("gate", 12)
        numbers = [shown(one) for one in found]
        assert numbers == [(numbers[0] + at) % 20 for at in range(12)]
        assert {one.message.key for one in found} == {b"gate"}
        assert {one.message.topic for one in found} == {"gate"}
        positions = [one.position for one in found]
        assert positions == list(range(positions[0], positions[0] + 12))
        image = found[0].message.value.image
        assert (image.width, image.height) == (320, 192)


def test_a_picture_has_the_time_of_its_cameras_clock(tmp_path: Path) -> None:
    with RtspCamera() as camera, reading({"gate": camera.url}) as reader:
        reader.wait(lambda: any(dict(one.message.extras).get("clock") for one in reader.of("gate")))
        one = reader.see("gate", 1)[0]
        known = dict(one.message.extras)
        assert one.message.timestamp == known["clock"]
        assert abs(known["receipt"] - known["clock"]) < 5000
        assert set(known) == {"pts", "clock", "receipt", "epoch", "drops"}
        headers = dict(one.message.headers)
        assert headers["clock"] == str(known["clock"]).encode()
        assert headers["epoch"] == b"1"
        assert float(headers["pts"] or b"") == known["pts"]


def test_a_clock_that_is_wrong_is_told_and_not_believed() -> None:
    with RtspCamera() as camera:
        camera.clock_error = -3600.0
        with reading({"gate": camera.url}) as reader:
            reader.wait(lambda: any(dict(one.message.extras).get("clock") for one in reader.of("gate")))
            one = reader.see("gate", 1)[0]
            known = dict(one.message.extras)
            assert one.message.timestamp == known["receipt"]
            told = reader.cameras.cameras()["gate"]
            assert told["clock"] == "not believed"
            assert told["skew_seconds"] == pytest.approx(3600, abs=30)


def test_pictures_of_an_http_camera_have_the_time_of_their_receipt() -> None:
    with HttpCamera(login=("admin", "s3cret")) as camera, reading({"dock": camera.url}) as reader:
        one = reader.see("dock", 2)[-1]
        known = dict(one.message.extras)
        # libav makes its times up: 25 pictures a second, at any real rate.
        assert "pts" not in known
        assert one.message.timestamp == known["receipt"]


def test_latest_gives_the_newest_picture_and_says_how_many_it_replaced() -> None:
    with RtspCamera() as camera, reading({"gate": camera.url}) as reader:
        first = reader.see("gate", 1)[0]
        pictures = reader.cameras.cameras()["gate"]["pictures"]
        deadline = time.monotonic() + 30
        while reader.cameras.cameras()["gate"]["pictures"] < pictures + 5 and time.monotonic() < deadline:
            time.sleep(0.05)
        newest = reader.see("gate", 1)[0]
        assert newest.position > first.position + 3
        assert dict(newest.message.extras)["drops"] == newest.position - first.position - 1


def test_fps_and_size_of_a_camera_are_kept() -> None:
    with (
        RtspCamera("h264", 320, 192) as camera,
        reading(
            {"gate": {"url": camera.url, "fps": 5, "size": "160x96", "policy": "fifo", "max_frames": 100}}
        ) as reader,
    ):
        found = reader.see("gate", 7)
        # The first pictures of a stream may have no time yet.
        times = [dict(one.message.extras).get("pts") for one in found][-4:]
        assert np.diff(np.array(times, float)).tolist() == pytest.approx([0.2] * 3, abs=0.06)
        image = found[0].message.value.image
        assert (image.width, image.height) == (160, 96)
        assert 0 <= shown(found[0]) < 20
        assert found[0].message.value.byte_count < 160 * 96 * 2


def test_key_frames_only() -> None:
    with (
        RtspCamera() as camera,
        reading({"gate": {"url": camera.url, "keyframes_only": True, "policy": "fifo"}}) as reader,
    ):
        assert {shown(one) % 5 for one in reader.see("gate", 4)} == {0}


def test_every_picture_of_a_file_is_read_and_then_the_source_ends(tmp_path: Path) -> None:
    video(str(tmp_path / "film.mp4"), frames=30)
    with reading({"film": str(tmp_path / "film.mp4")}) as reader:
        reader.to_the_end()
        found = reader.of("film")
        assert [shown(one) for one in found] == list(range(30))
        assert [one.position for one in found] == list(range(30))
        # By the time in the file, however fast it was read.
        stamps = [one.message.timestamp or 0 for one in found]
        assert stamps[-1] - stamps[0] == pytest.approx(2900, abs=5)
        assert not reader.downs


def test_pictures_of_a_file_come_together_and_a_file_that_waits_for_the_service_makes_no_poll_wait(
    tmp_path: Path,
) -> None:
    video(str(tmp_path / "film.mp4"), frames=16)
    with reading({"film": {"url": str(tmp_path / "film.mp4"), "max_frames": 8}}) as reader:
        camera = reader.cameras._cameras[0]
        with camera._arrived:
            assert camera._arrived.wait_for(lambda: camera.waiting.full, 30)
        began = time.monotonic()
        # More than it may give before some are taken.
        assert [shown(one) for one in reader.poll(timeout=60.0)] == list(range(8))
        assert time.monotonic() - began < 30
        reader.to_the_end()
        assert [shown(one) for one in reader.of("film")] == list(range(16))


def test_a_file_begins_again_in_a_new_lane_and_numbers_go_on(tmp_path: Path) -> None:
    video(str(tmp_path / "film.mp4"), frames=5)
    with reading({"film": {"url": str(tmp_path / "film.mp4"), "loop": True}}) as reader:
        found = reader.see("film", 12)
        assert [shown(one) for one in found] == [0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 1]
        assert [one.position for one in found] == list(range(12))
        assert [one.lane.epoch for one in found] == [1] * 5 + [2] * 5 + [3] * 2
        assert [event.finish for event in reader.events(LaneEnded)] == [True] * 2


def test_a_file_in_real_time_is_like_a_camera(tmp_path: Path) -> None:
    video(str(tmp_path / "film.mp4"), frames=12, fps=20)
    began = time.monotonic()
    with reading({"film": {"url": str(tmp_path / "film.mp4"), "real_time": True}}) as reader:
        assert reader.cameras.perishable
        reader.to_the_end()
        assert time.monotonic() - began > 0.5
        assert reader.of("film")


def test_a_picture_of_a_folder_that_is_no_good_is_named_counted_and_passed_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(4):
        (tmp_path / f"{number}.jpg").write_bytes(jpeg(number, 160 + 16 * number, 96))
    (tmp_path / "2.jpg").write_bytes(b"no picture")
    (tmp_path / "notes.txt").write_text("neither")
    with reading({"photos": str(tmp_path)}) as reader:
        reader.to_the_end()
        assert [shown(one) for one in reader.of("photos")] == [0, 1, 3]
        assert reader.cameras.cameras()["photos"]["drops"] == {"corrupt": 1}
    assert f"{tmp_path / '2.jpg'} is passed over: its data are not a picture" in caplog.text


def test_test_pictures_come_at_their_rate() -> None:
    with reading({"test": {"url": "lavfi:testsrc2=size=64x48:rate=50", "policy": "fifo", "max_frames": 100}}) as reader:
        found = reader.see("test", 10)
        stamps = [one.message.timestamp or 0 for one in found]
        assert stamps[-1] - stamps[0] > 90


def test_without_the_hardware_that_is_asked_for_the_cpu_decodes_and_an_unknown_one_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    video(str(tmp_path / "film.mp4"), frames=3)
    film = {"url": str(tmp_path / "film.mp4"), "hardware": "vdpau"}
    with reading({"film": film}) as reader:
        reader.to_the_end()
        assert [shown(one) for one in reader.of("film")] == [0, 1, 2]
    assert "vdpau cannot be had here" in caplog.text
    source = CameraSource(CameraSourceConfig.model_validate({"cameras": {"film": {**film, "hardware": "cudaa"}}}))
    with (
        CameraReader(source) as reader,
        pytest.raises(ConnectorError, match='there is no "cudaa"; did you mean "cuda"'),
    ):
        reader.listen(20)


def test_a_jpeg_of_a_folder_that_is_cut_short_is_counted_and_passed_over_and_one_without_an_end_marker_is_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(5):
        (tmp_path / f"{number}.jpg").write_bytes(jpeg(number, 160, 96))
    whole = (tmp_path / "1.jpg").read_bytes()
    (tmp_path / "1.jpg").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "2.jpg").write_bytes(jpeg(2, 160, 96)[:-2])
    (tmp_path / "3.jpg").write_bytes(jpeg(3, 160, 96) + bytes(100))
    with reading({"photos": str(tmp_path)}) as reader:
        reader.to_the_end()
        assert [shown(one) for one in reader.of("photos")] == [0, 2, 3, 4]
        assert reader.cameras.cameras()["photos"]["drops"] == {"corrupt": 1}
    assert f"{tmp_path / '1.jpg'} is passed over" in caplog.text


def test_a_jpeg_of_a_stream_that_is_cut_short_is_counted_and_one_without_an_end_marker_is_not(tmp_path: Path) -> None:
    pictures = [jpeg(number, 160, 96) for number in range(6)]
    pictures[1] = pictures[1][: len(pictures[1]) // 2]
    pictures[3] = pictures[3][:-2]
    pictures[4] += bytes(100)
    (tmp_path / "live.mjpeg").write_bytes(b"".join(pictures))
    with reading({"gate": {"url": str(tmp_path / "live.mjpeg"), "format": "mjpeg"}}) as reader:
        reader.to_the_end()
        assert [shown(one) for one in reader.of("gate")] == [0, 2, 3, 4, 5]
        assert reader.cameras.cameras()["gate"]["drops"] == {"corrupt": 1}


@pytest.mark.parametrize("photos", [1, 3])
def test_a_short_film_that_is_repeated_is_played_on_at_its_rate(tmp_path: Path, photos: int) -> None:
    for number in range(photos):
        (tmp_path / f"{number}.jpg").write_bytes(jpeg(number, 160, 96))
    fields = {"url": str(tmp_path), "loop": True, "real_time": True, "policy": "fifo", "max_frames": 100}
    with reading({"all": fields, "some": {**fields, "fps": 5}}) as reader:
        began = time.monotonic()
        reader.see("some", 8)
        assert 1.2 < time.monotonic() - began < 6
        told = reader.cameras.cameras()
        # Of 25 pictures a second, five.
        assert 3 < told["some"]["pictures"] / told["some"]["delivered"] < 6
        assert told["all"]["pictures"] < 26 * (time.monotonic() - began + 2.5)


def test_a_camera_without_times_gives_as_many_pictures_a_second_as_are_wanted() -> None:
    # libav takes 25 pictures a second for granted here, of which this camera gives ten.
    with HttpCamera(fps=10) as camera, reading({"dock": {"url": camera.url, "format": "mjpeg", "fps": 5}}) as reader:
        found = reader.see("dock", 8)
        assert not any("pts" in dict(one.message.headers) for one in found)
        times = [dict(one.message.extras)["receipt"] for one in found]
        assert times[-1] - times[0] < 2400


@pytest.mark.parametrize("codec", ["h264", "h265"])
def test_a_film_without_times_is_played_at_its_usual_rate(tmp_path: Path, codec: str) -> None:
    units = [unit for shown in clip(codec).units for unit in shown]
    film = tmp_path / f"film.{codec}"
    film.write_bytes(b"".join(b"\0\0\0\1" + unit for unit in units))
    began = time.monotonic()
    cameras = {"fast": str(film), "slow": {"url": str(film), "real_time": True, "policy": "fifo", "max_frames": 100}}
    with reading(cameras) as reader:
        reader.to_the_end()
        assert time.monotonic() - began > 0.7
        for name in cameras:
            assert [shown(one) for one in reader.of(name)] == list(range(20))
            times = [one.message.timestamp or 0 for one in reader.of(name)]
            assert 750 <= times[-1] - times[0] <= 770


def test_hls_is_read(tmp_path: Path) -> None:
    video(str(tmp_path / "film.mp4"), frames=20)
    with av.open(str(tmp_path / "film.mp4")) as film, av.open(str(tmp_path / "live.m3u8"), "w", format="hls") as list_:
        stream = list_.add_stream_from_template(film.streams.video[0])
        for packet in film.demux(film.streams.video[0]):
            if packet.dts is not None:
                packet.stream = stream
                list_.mux(packet)
    with HttpCamera(folder=tmp_path) as camera:
        url = camera.url.replace("live.mjpeg", "live.m3u8")
        with reading({"hls": {"url": url, "policy": "fifo", "max_frames": 100}}) as reader:
            assert shown(reader.see("hls", 3)[0]) == 0


def test_cameras_that_are_away_when_it_opens_are_awaited_and_the_service_is_not_ready(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    camera = RtspCamera(login=("admin", "s3cret"))
    with camera:
        url = camera.url
    camera = RtspCamera(login=("admin", "s3cret"))
    camera.port = int(re.findall(r":(\d+)/", url)[0])
    with reading({"gate": url}) as reader:
        reader.wait(lambda: bool(reader.downs))
        (down,) = reader.downs
        assert down.down
        assert "no camera is live: gate is " in down.reason
        assert "connection refused" in down.reason
        with camera:
            reader.see("gate", 1)
            assert [event.down for event in reader.downs] == [True, False]
            said = " ".join([caplog.text, repr(reader.seen), repr(reader.cameras.cameras()), repr(reader.source)])
            assert "nothing listens at this address" in said
            assert "s3cret" not in said


def test_a_position_is_used_once_though_the_process_starts_again() -> None:
    with RtspCamera() as camera:
        with reading({"gate": camera.url}) as reader:
            last = reader.see("gate", 3)[-1].position
        with reading({"gate": camera.url}) as reader:
            assert reader.see("gate", 1)[0].position > last


def test_a_rewind_begins_a_new_lane_and_brings_nothing_back() -> None:
    with RtspCamera() as camera, reading({"gate": camera.url}) as reader:
        before = reader.see("gate", 1)[0]
        reader.source.rewind([before.lane])
        after = reader.see("gate", 1)[0]
        assert after.lane.epoch == before.lane.epoch + 1
        assert after.position > before.position
        assert [event.lane for event in reader.events(LaneBegan)] == [before.lane, after.lane]


def test_a_file_that_is_no_video_ends_the_service(tmp_path: Path) -> None:
    (tmp_path / "text.mp4").write_text("no video")
    (tmp_path / "empty.mp4").touch()
    whole = tmp_path / "whole.mkv"
    video(str(whole))
    (tmp_path / "cut.mkv").write_bytes(whole.read_bytes()[:900])
    cameras = {name.partition(".")[0]: str(tmp_path / name) for name in ("text.mp4", "empty.mp4", "cut.mkv")}
    source = CameraSource(CameraSourceConfig.model_validate({"cameras": cameras}))
    with CameraReader(source) as reader, pytest.raises(ConnectorError, match="nothing can be read") as caught:
        reader.listen(20)
    for words in (
        "text: its data are not a video that libav can read: is the file cut short?",
        "empty: the file is empty",
        "cut: it ended without a picture that can be decoded",
    ):
        assert words in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"cameras": {}}, "at least 1 item"),
        ({"cameras": {"a/b": "rtsp://h/x"}}, "a camera's name is its topic and a part of file names"),
        ({"cameras": {"Küche (links)": "rtsp://h/x"}}, 'write "Kuche-links"'),
        ({"cameras": "rtsp://u:s3cret@h/x"}, "cameras have names: write {gate: rtsp://HOST/PATH, ...}"),
        ({"cameras": ["rtsp://u:s3cret@h/x"]}, "cameras have names"),
        ({"cameras": {"a": 0}}, "a camera is a URL, or a mapping with `url`; camera 0 of this machine is /dev/video0"),
        ({"cameras": {"a": {"url": 1}}}, "camera 1 of this machine is /dev/video1"),
        ({"cameras": {"a": None}}, "a camera is a URL, or a mapping with `url`"),
        ({"cameras": {"a": {"url": "rtsp://u:s3cret@h/x", "policy": "block"}}}, "policy block is for files"),
        ({"cameras": {"a": {"url": "rtsp://u:s3cret@h/x", "loop": True}}}, "loop and real_time are for files"),
        ({"cameras": {"a": {"url": "film.mp4", "max_age": 1}}}, "max_age is for policy fifo"),
        ({"cameras": {"a": {"url": "rtsp://h/x", "size": "640 x 360"}}}, "like 640x360, not '640 x 360'"),
        ({"cameras": {"a": {"url": "rtsp://h/x", "password": "s3cret"}}}, "password needs username"),
        ({"cameras": {"a": {"url": "gopher://u:s3cret@h/x"}}}, "not a kind of camera"),
        ({"cameras": {"a": "rtsp://h/x"}, "each": {"url": "rtsp://u:s3cret@h/x"}}, "`url` is of one camera"),
    ],
)
def test_fields_that_cannot_be_right_are_told(fields: dict[str, Any], text: str) -> None:
    with pytest.raises(ValidationError) as caught:
        CameraSourceConfig.model_validate(fields)
    assert text in str(caught.value)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("each", "message"),
    [
        ("{usrname: x}", 'a.yaml:1: each.usrname: no such field; did you mean "username"?'),
        ("{policy: lastest}", "a.yaml:1: each.policy: must be 'latest', 'fifo' or 'block', not 'lastest'"),
        ("5", "a.yaml:1: each: must be a mapping"),
    ],
)
def test_a_mistake_in_the_fields_of_all_cameras_is_told_once_at_its_place(each: str, message: str) -> None:
    document = parse_document(f'{{each: {each}, cameras: {{a: "rtsp://h/x", b: {{url: "rtsp://h/y"}}}}}}', "a.yaml")
    with pytest.raises(DefinitionError) as caught:
        validated(CameraSourceConfig, document)
    assert str(caught.value).startswith(message)
    assert len(caught.value.problems) == 1


def test_a_check_notes_files_that_are_not_there(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "1.jpg").write_bytes(jpeg(1, 160, 96))
    cameras = {"film": "flim.mp4", "empty": "empty", "photos": "photos", "gate": "rtsp://h/x"}
    config = CameraSourceConfig.model_validate({"cameras": cameras}, context={"base": tmp_path})
    assert config.notes == (
        f"camera film: there is no file {tmp_path / 'flim.mp4'}",
        f"camera empty: there is no picture in {tmp_path / 'empty'}",
    )


def test_a_look_at_many_cameras_tells_first_what_is_wrong(tmp_path: Path) -> None:
    video(str(tmp_path / "film.mp4"), frames=3)
    cameras = {"good": "film.mp4", "gone": "flim.mp4", "right": "film.mp4"}
    browser = CameraSourceConfig.model_validate({"cameras": cameras}, context={"base": tmp_path}).browser()
    assert browser is not None
    with pytest.raises(ConnectorError) as caught:
        browser.checked(())
    assert str(caught.value) == (
        f"gone: there is no file {tmp_path / 'flim.mp4'}; in order are good: h264 160x96, 10 fps; "
        "right: h264 160x96, 10 fps"
    )


def test_files_and_folders_are_relative_to_the_service_file_and_reported_as_files_that_it_reads(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    cameras = {"film": "film.mp4", "photos": {"url": "photos"}, "gate": "rtsp://h/x", "test": "lavfi:testsrc2"}
    config = CameraSourceConfig.model_validate({"cameras": cameras}, context={"base": tmp_path})
    assert config.file_keys == {
        "cameras.film.url": tmp_path / "film.mp4",
        "cameras.photos.url": tmp_path / "photos",
    }


def test_each_gives_fields_to_all_cameras_that_do_not_say_otherwise() -> None:
    config = CameraSourceConfig.model_validate(
        {
            "cameras": {"a": "rtsp://h/x", "b": {"url": "rtsp://h/y", "fps": 2}},
            "each": {"fps": 5, "username": "ai", "password": "s3cret", "options": {"user_agent": "x", "rtsp_flags": 1}},
        }
    )
    assert [camera.fps for camera in config.cameras.values()] == [5, 2]
    assert config.cameras["a"].settings.address.target == "rtsp://ai:s3cret@h/x"
    assert dict(config.cameras["a"].settings.opening.options or {})["rtsp_flags"] == "1"
    assert "s3cret" not in repr(config)
    assert "s3cret" not in config.model_dump_json()
