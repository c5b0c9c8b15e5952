"""Recordings by URL, of real HTTP servers: each picture is read once, as from a file, and the camera ends."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import av
import pytest
from camerareader import CameraReader, reading, shown
from filmserver import FilmServer
from httpcamera import HttpCamera
from numberedpictures import video

from connectors.camera.config import CameraSourceConfig
from connectors.source import LaneBegan
from pipelines.errors import ConnectorError

FRAMES = 100


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cameras come back sooner than in service."""
    monkeypatch.setattr("connectors.camera.camera._LEAST_WAIT", 0.05)
    monkeypatch.setattr("connectors.camera.camera._MOST_WAIT", 0.3)


@pytest.fixture
def films(tmp_path: Path) -> Path:
    """A folder with the same film in several forms: of pictures 0 to 99, ten a second."""
    video(str(tmp_path / "film.mkv"), frames=FRAMES, gop=10)
    for name, options in (
        ("film.mp4", {}),
        ("fast.mp4", {"movflags": "faststart"}),
        ("film.ts", {}),
        ("film.h264", {}),
        ("vod.m3u8", {"hls_time": "1", "hls_list_size": "0"}),
    ):
        _copied(tmp_path / "film.mkv", tmp_path / name, options)
    return tmp_path


def _copied(film: Path, to: Path, options: dict[str, str]) -> None:
    with av.open(str(film)) as source, av.open(str(to), "w", options=options) as copy:
        stream = copy.add_stream_from_template(source.streams.video[0])
        for packet in source.demux(source.streams.video[0]):
            if packet.dts is not None:
                packet.stream = stream
                copy.mux(packet)


def numbers(reader: CameraReader, camera: str = "film") -> list[int]:
    return [shown(one) for one in reader.of(camera)]


@pytest.mark.parametrize("ranges", [True, False])
@pytest.mark.parametrize("name", ["fast.mp4", "film.mkv", "film.ts", "film.h264", "vod.m3u8"])
def test_a_recording_by_url_is_read_once_with_every_picture_and_ends_as_from_the_disk(
    films: Path, name: str, ranges: bool
) -> None:
    with FilmServer(films, ranges=ranges) as server, reading({"film": f"{server.url}/{name}"}) as reader:
        reader.to_the_end()
        assert numbers(reader) == list(range(FRAMES))
        assert [one.position for one in reader.of("film")] == list(range(FRAMES))
        assert reader.state("film") == "ended"
        by_url = [one.message.timestamp or 0 for one in reader.of("film")]
    with reading({"film": str(films / name)}) as reader:
        reader.to_the_end()
        from_disk = [one.message.timestamp or 0 for one in reader.of("film")]
    assert [time - by_url[0] for time in by_url] == [time - from_disk[0] for time in from_disk]


def test_a_film_whose_length_the_server_does_not_tell_is_a_recording_by_its_duration(films: Path) -> None:
    with FilmServer(films, lengths=False, ranges=False) as server:
        urls = {name: f"{server.url}/{name}" for name in ("fast.mp4", "film.mkv")}
        with reading(urls) as reader:
            reader.to_the_end()
            assert numbers(reader, "fast.mp4") == numbers(reader, "film.mkv") == list(range(FRAMES))


def test_a_service_that_is_slower_than_the_recording_loses_no_picture_of_it(films: Path) -> None:
    with FilmServer(films) as server, reading({"film": f"{server.url}/fast.mp4"}) as reader:
        while not reader.cameras.cameras()["film"]["pictures"]:
            reader.poll(max_records=1)
        assert not reader.cameras.perishable
        while reader.state("film") != "ended":
            assert len(reader.poll(max_records=1)) <= 1
        reader.to_the_end()
        assert numbers(reader) == list(range(FRAMES))


@pytest.mark.parametrize("ranges", [True, False])
@pytest.mark.parametrize("name", ["fast.mp4", "film.mkv", "film.ts", "film.h264"])
def test_a_recording_whose_connection_is_cut_goes_on_behind_its_last_picture(
    films: Path, name: str, ranges: bool
) -> None:
    with FilmServer(films, ranges=ranges) as server:
        # The first connections are left as soon as it is known what they are to.
        server.cuts[name], server.cut_for = 0.55, 4
        with reading({"film": f"{server.url}/{name}"}) as reader:
            reader.to_the_end()
            assert numbers(reader) == list(range(FRAMES))
            assert not server.cut_for
            times = [one.message.timestamp or 0 for one in reader.of("film")]
            assert {after - before for before, after in pairwise(times)} <= {99, 100, 101, 40}
            assert len(reader.events(LaneBegan)) >= 2
            assert reader.cameras.cameras()["film"]["reconnects_last_hour"] >= 1


def test_a_recording_whose_server_goes_away_is_read_on_when_it_is_back(films: Path) -> None:
    with FilmServer(films) as server:
        film = {"url": f"{server.url}/vod.m3u8", "max_frames": 1}
        with reading({"film": film}) as reader:
            reader.see("film", 30)
            server.away = True
            reader.wait(lambda: "5XX" in reader.reason("film"), "an attempt to go on")
            server.away = False
            reader.to_the_end()
            assert numbers(reader) == list(range(FRAMES))


def test_a_part_of_a_playlist_that_fails_once_is_read_again(films: Path) -> None:
    with FilmServer(films) as server:
        server.cuts["vod4.ts"] = 0.5
        with reading({"film": f"{server.url}/vod.m3u8"}) as reader:
            reader.to_the_end()
            assert not server.cut_for
            assert numbers(reader) == list(range(FRAMES))


def test_a_part_of_a_playlist_that_is_gone_for_good_ends_nothing(films: Path) -> None:
    with FilmServer(films) as server:
        server.missing = {"vod4.ts", "vod9.ts"}
        with reading({"film": f"{server.url}/vod.m3u8"}) as reader:
            reader.to_the_end()
            assert numbers(reader) == [*range(40), *range(50, 90)]


def test_a_recording_that_breaks_at_the_same_place_again_and_again_is_given_up(films: Path) -> None:
    with FilmServer(films) as server:
        server.cuts["film.mkv"] = 0.5
        server.cut_for = 100
        with reading({"film": f"{server.url}/film.mkv"}) as reader:
            reader.to_the_end()
            assert reader.state("film") == "failed"
            assert numbers(reader) == list(range(len(reader.of("film"))))
            assert 40 < len(reader.of("film")) < 60


def test_a_recording_may_be_repeated_and_read_in_real_time(films: Path) -> None:
    video(str(films / "short.mkv"), frames=5, fps=20)
    fields: dict[str, Any] = {"loop": True, "real_time": True, "policy": "fifo", "max_frames": 100}
    with FilmServer(films) as server, reading({"film": {"url": f"{server.url}/short.mkv", **fields}}) as reader:
        found = reader.see("film", 12)
        assert [shown(one) for one in found] == [0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 1]
        assert [one.position for one in found] == list(range(12))


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"policy": "block"}, "policy: block: for files and recordings, and this is a live stream"),
        ({"loop": True, "real_time": True}, "loop and real_time: for files and recordings"),
    ],
)
def test_what_is_for_recordings_is_refused_once_a_url_turns_out_to_be_live(fields: dict[str, Any], text: str) -> None:
    with HttpCamera() as live, reading({"gate": {"url": live.url, **fields}, "other": live.url}) as reader:
        reader.see("other")
        reader.wait(lambda: reader.state("gate") == "failed", "a failure")
        assert text in reader.reason("gate")
        browser = CameraSourceConfig.model_validate({"cameras": {"gate": {"url": live.url, **fields}}}).browser()
        assert browser is not None
        with pytest.raises(ConnectorError, match=text):
            browser.checked(())


def test_a_live_playlist_is_a_camera_and_is_not_played_again_when_it_is_over(films: Path) -> None:
    whole = (films / "vod.m3u8").read_text()
    growing = films / "live.m3u8"
    growing.write_text(whole.replace("#EXT-X-ENDLIST\n", ""))
    with FilmServer(films) as server:
        fields = {"url": f"{server.url}/live.m3u8", "policy": "fifo", "max_frames": 1000}
        with reading({"film": fields}, stall="1s") as reader:
            first = reader.see("film", 5)
            assert first[0].position > FRAMES
            assert reader.cameras.cameras()["film"]["state"] == "live"
            growing.write_text(whole)
            reader.wait(lambda: "its live stream is over" in reader.reason("film"), "the end of the live stream")
            found = numbers(reader)
            assert found == sorted(set(found))


def test_a_check_tells_that_a_url_is_a_recording(films: Path) -> None:
    with FilmServer(films) as server:
        cameras = {"film": f"{server.url}/vod.m3u8", "other": f"{server.url}/film.mp4"}
        browser = CameraSourceConfig.model_validate({"cameras": cameras}).browser()
        assert browser is not None
        told = browser.checked(())
    assert told == (
        "film: h264 160x96, 10 fps, a recording, which is read once; other: h264 160x96, 10 fps, a recording, which is "
        "read once"
    )
