"""Films and folders as people have them: joined from several, with covers, several streams, palettes."""

from __future__ import annotations

import time
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import PIL.Image
import pytest
from camerareader import reading, shown
from filmserver import FilmServer
from numberedpictures import jpeg, picture, video

from connectors.camera.address import address
from connectors.camera.footage import Footage
from connectors.camera.video import open_video


def _joined(folder: Path) -> Path:
    """A film of 2 s, and behind it itself."""
    video(str(folder / "one.ts"), frames=20, gop=5)
    film = folder / "joined.ts"
    film.write_bytes(2 * (folder / "one.ts").read_bytes())
    return film


@pytest.mark.parametrize("fps", [None, 5.0])
def test_times_of_a_film_that_was_joined_from_two_go_on_with_the_second(tmp_path: Path, fps: float | None) -> None:
    step = 1 if fps is None else 2
    with reading({"film": {"url": str(_joined(tmp_path)), "fps": fps}}) as reader:
        reader.to_the_end()
        found = reader.of("film")
        assert [shown(one) for one in found] == 2 * list(range(0, 20, step))
        times = [one.message.timestamp or 0 for one in found]
        assert [time - times[0] for time in times] == [100 * step * at for at in range(len(found))]


def test_packets_of_a_film_that_was_joined_from_two_lie_behind_one_another_for_clips(tmp_path: Path) -> None:
    footage = Footage(60.0, 10_000_000, live=False)
    film = open_video(address(str(_joined(tmp_path))), footage=footage)
    while film.read() is not None:
        continue
    film.close()
    times = [kept.at for kept in footage.since(0)]
    assert times[-1] - times[0] == pytest.approx(3.8, abs=0.2)


def _from(path: Path, begin: float, seconds: float = 2.0) -> bytes:
    """An MPEG-TS film of ten pictures a second whose first has the time `begin`."""
    with av.open(str(path), "w", format="mpegts") as container:
        stream: Any = container.add_stream("libx264", rate=10, options={"preset": "ultrafast", "bf": "0", "g": "5"})
        stream.width, stream.height, stream.pix_fmt = 160, 96, "yuv420p"
        for number in range(round(seconds * 10)):
            frame = av.VideoFrame.from_ndarray(picture(number, 160, 96), format="bgr24")
            frame.pts, frame.time_base = number + round(begin * 10), Fraction(1, 10)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return path.read_bytes()


@pytest.mark.parametrize(
    ("first", "second"),
    [(120.0, 0.0), (50.0, 0.0), (40_000.0, 120.0), (2**33 / 90_000 - 1.0, None)],
    ids=["minutes back", "less than a minute back", "hours back", "the clock runs over"],
)
def test_times_that_go_back_go_on(tmp_path: Path, first: float, second: float | None) -> None:
    film = tmp_path / "film.ts"
    film.write_bytes(
        _from(tmp_path / "a.ts", first, 4.0)
        if second is None
        else _from(tmp_path / "a.ts", first) + _from(tmp_path / "b.ts", second)
    )
    with reading({"film": str(film)}) as reader:
        reader.to_the_end()
        times = [one.message.timestamp or 0 for one in reader.of("film")]
    assert [time - times[0] for time in times] == pytest.approx([100 * at for at in range(40)], abs=2)


def test_a_long_pause_of_a_film_in_real_time_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    film = tmp_path / "film.ts"
    film.write_bytes(_from(tmp_path / "a.ts", 0.0, 1.0) + _from(tmp_path / "b.ts", 3600.0))
    with reading({"film": {"url": str(film), "real_time": True}}) as reader:
        reader.wait(lambda: reader.cameras.cameras()["film"]["waits_until"] is not None, "the pause")
        until = reader.cameras.cameras()["film"]["waits_until"]
        assert 3000 < until - time.time() < 3700
        assert "the next picture was recorded 359" in caplog.text


def test_a_song_with_a_cover_picture_is_no_video(tmp_path: Path) -> None:
    song = tmp_path / "song.mp3"
    with av.open(str(song), "w") as container:
        sound: Any = container.add_stream("libmp3lame", rate=44100)
        sound.layout = "mono"
        cover = container.add_mux_stream("mjpeg", width=160, height=96)
        cover.disposition = av.stream.Disposition.attached_pic
        packet = av.Packet(jpeg(9))
        packet.stream, packet.pts, packet.dts, packet.is_keyframe = cover, 0, 0, True
        container.mux(packet)
        for at in range(8):
            silence = av.AudioFrame.from_ndarray(np.zeros((1, 1152), np.float32), format="fltp", layout="mono")
            silence.sample_rate, silence.pts = 44100, at * 1152
            container.mux(sound.encode(silence))
        container.mux(sound.encode(None))
    with reading({"film": str(song), "other": "lavfi:testsrc2=size=64x48:rate=50"}) as reader:
        reader.wait(lambda: reader.state("film") == "failed")
        assert reader.reason("film") == "there is no video in it, only a cover picture and audio"


def test_pictures_with_a_palette_are_scaled_as_others(tmp_path: Path) -> None:
    photo = PIL.Image.fromarray(picture(5, 160, 96)[..., ::-1])
    photo.convert("P").save(tmp_path / "1.png")
    photo.convert("1").save(tmp_path / "2.png")
    photo.save(tmp_path / "3.jpg", quality=95)
    with reading({"photos": {"url": str(tmp_path), "size": "80x48"}}) as reader:
        reader.to_the_end()
        assert [shown(one) for one in reader.of("photos")] == [5, 5, 5]
        assert {one.message.value.image.get_as("numpy").shape[:2] for one in reader.of("photos")} == {(48, 80)}


def test_a_folder_within_the_folder_of_pictures_is_no_picture(tmp_path: Path) -> None:
    (tmp_path / "1.jpg").write_bytes(jpeg(1))
    (tmp_path / "2.jpg").mkdir()
    with reading({"photos": str(tmp_path)}) as reader:
        reader.to_the_end()
        assert [shown(one) for one in reader.of("photos")] == [1]
        assert reader.cameras.cameras()["photos"]["drops"] == {}


def test_a_test_picture_that_never_changes_is_not_taken_for_a_frozen_camera() -> None:
    with reading({"test": {"url": "lavfi:smptebars=size=64x48:rate=50", "frozen": "400ms"}}) as reader:
        began = time.monotonic()
        reader.wait(lambda: time.monotonic() - began > 2)
        assert reader.state("test") == "live"
        assert reader.cameras.cameras()["test"]["reconnects_last_hour"] == 0


def test_of_hls_in_several_sizes_only_the_one_that_is_read_is_loaded(tmp_path: Path) -> None:
    master = "#EXTM3U\n"
    for name, width, height in (("small", 160, 96), ("large", 320, 192)):
        options = {"hls_time": "1", "hls_list_size": "0", "hls_segment_filename": str(tmp_path / f"{name}%d.ts")}
        with av.open(str(tmp_path / f"{name}.m3u8"), "w", format="hls", options=options) as container:
            stream: Any = container.add_stream("libx264", rate=10, options={"preset": "ultrafast", "g": "10"})
            stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
            for number in range(80):
                frame = av.VideoFrame.from_ndarray(picture(number, width, height), format="bgr24")
                container.mux(stream.encode(frame))
            container.mux(stream.encode(None))
        master += f"#EXT-X-STREAM-INF:BANDWIDTH={width}000,RESOLUTION={width}x{height}\n{name}.m3u8\n"
    (tmp_path / "master.m3u8").write_text(master)
    with FilmServer(tmp_path) as server:
        stream = open_video(address(f"{server.url}/master.m3u8"))
        while stream.read() is not None:
            continue
        assert stream.size == (160, 96)
        stream.close()
        assert sum("small" in path for path in server.asked.elements()) >= 8
        assert sum("large" in path for path in server.asked.elements()) <= 4
