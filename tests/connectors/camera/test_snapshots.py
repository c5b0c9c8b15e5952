"""URLs that give a single picture, of real HTTP servers: they are asked as often as `fps` says."""

from __future__ import annotations

from pathlib import Path

import PIL.Image
import pytest
from camerareader import reading, shown
from filmserver import FilmServer
from numberedpictures import jpeg, picture

from connectors.source import LaneBegan


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    for name in ("snap.jpg", "snap.png", "snap.webp"):
        photo = PIL.Image.fromarray(picture(5, 160, 96)[..., ::-1])
        photo.save(tmp_path / name, lossless=True) if name.endswith("webp") else photo.save(tmp_path / name)
    return tmp_path


@pytest.mark.parametrize("lengths", [True, False])
@pytest.mark.parametrize("name", ["snap.jpg", "snap.png", "snap.webp", "snap.cgi"])
def test_the_url_of_a_picture_is_asked_as_often_as_is_wanted(photos: Path, name: str, lengths: bool) -> None:
    (photos / "snap.cgi").write_bytes(jpeg(5))
    with FilmServer(photos, lengths=lengths) as server:
        with reading({"gate": {"url": f"{server.url}/{name}", "fps": 10}}, stall="0.5s") as reader:
            found = reader.see("gate", 12)
            told = reader.cameras.cameras()["gate"]
        assert {shown(one) for one in found} == {5}
        assert len(reader.events(LaneBegan)) == 1
        assert told["reconnects_last_hour"] == told["stalls_last_hour"] == 0
        assert not told["drops"].get("rate")
        # The first answer may be looked at twice.
        assert server.asked[f"/{name}"] <= told["pictures"] + 2
        times = [one.message.timestamp or 0 for one in found]
        assert times[-1] - times[0] > 1000


def test_each_picture_is_the_one_that_the_camera_has_at_that_time(photos: Path) -> None:
    with FilmServer(photos) as server, reading({"gate": {"url": f"{server.url}/snap.jpg", "fps": 20}}) as reader:
        assert shown(reader.see("gate", 1)[0]) == 5
        (photos / "next.jpg").write_bytes(jpeg(9, 320, 192))
        (photos / "next.jpg").replace(photos / "snap.jpg")
        reader.wait(lambda: shown(reader.of("gate")[-1]) == 9, "the new picture")
        assert reader.cameras.cameras()["gate"]["size"] == "320x192"


def test_long_pauses_between_pictures_are_no_stall(photos: Path) -> None:
    with FilmServer(photos) as server:
        gate = {"url": f"{server.url}/snap.jpg", "fps": 1}
        with reading({"gate": gate}, stall="0.3s") as reader:
            reader.see("gate", 3)
            assert reader.cameras.cameras()["gate"]["state"] == "live"
            assert len(reader.events(LaneBegan)) == 1


def test_a_server_that_fails_is_asked_again_later_and_says_why(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("connectors.camera.camera._LEAST_WAIT", 0.05)
    gate = {"url": "", "fps": 8}
    with (
        FilmServer(photos) as server,
        reading({"gate": gate | {"url": f"{server.url}/snap.jpg"}}, stall="0.1s") as reader,
    ):
        reader.see("gate", 2)
        server.missing = {"snap.jpg"}
        reader.wait(lambda: "(404)" in reader.reason("gate"), "the failure")
        server.missing = set()
        reader.see("gate", 20)
        assert reader.state("gate") == "live"
        assert reader.cameras.cameras()["gate"]["stalls_last_hour"] == 0


def test_without_fps_it_is_said_what_to_set(photos: Path) -> None:
    with FilmServer(photos) as server, reading({"gate": f"{server.url}/snap.jpg"}) as reader:
        reader.wait(lambda: "set fps to ask for it again and again, as in `fps: 1`" in reader.reason("gate"), "advice")
