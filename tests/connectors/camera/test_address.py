"""Cameras' URLs: their meaning, and that logins are never shown."""

import re
from pathlib import Path

import pytest

from connectors.camera.address import Kind, address


@pytest.mark.parametrize(
    ("url", "kind", "live"),
    [
        ("rtsp://10.0.0.7/live", Kind.RTSP, True),
        ("rtsps://10.0.0.7:322/live", Kind.RTSP, True),
        ("RTSP://10.0.0.7/live", Kind.RTSP, True),
        ("http://10.0.0.7/video.mjpeg", Kind.HTTP, True),
        ("https://example.org/live.m3u8", Kind.HTTP, True),
        ("udp://0.0.0.0:5000", Kind.STREAM, True),
        ("udp://@:5000", Kind.STREAM, True),
        ("rtp://239.0.0.1:5004", Kind.STREAM, True),
        ("rtmp://10.0.0.7/live/gate", Kind.STREAM, True),
        ("srt://10.0.0.7:9000", Kind.STREAM, True),
        ("/dev/video0", Kind.DEVICE, True),
        ("film.mp4", Kind.FILE, False),
        ("file:///data/film%201.mp4", Kind.FILE, False),
        ("lavfi:testsrc2=size=640x360:rate=30/1", Kind.GENERATED, True),
    ],
)
def test_a_url_says_what_is_read(url: str, kind: Kind, live: bool) -> None:
    found = address(url)
    assert (found.kind, found.live) == (kind, live)


def test_a_folder_is_a_folder_of_pictures_and_relative_to_the_service_file(tmp_path: Path) -> None:
    (tmp_path / "pictures").mkdir()
    found = address("pictures", tmp_path)
    assert (found.kind, found.path) == (Kind.FOLDER, tmp_path / "pictures")
    assert address("file:///data/film%201.mp4").path == Path("/data/film 1.mp4")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("rtsp://admin:s3cret@10.0.0.7:554/live", "rtsp://10.0.0.7:554/live"),
        ("rtsp://admin:s3%2Fcret@10.0.0.7/live?token=abcdef", "rtsp://10.0.0.7/live"),
        (
            "http://10.0.0.7/user=admin&password=s3cret&channel=1",
            "http://10.0.0.7/user=admin&password=**********&channel=1",
        ),
        ("rtsp://[::1]:8554/a", "rtsp://[::1]:8554/a"),
    ],
)
def test_a_login_is_not_shown(url: str, shown: str) -> None:
    found = address(url)
    assert found.shown == shown
    assert "s3" not in repr(found)
    scrubbed = found.scrubbed(f"could not open {url}: s3/cret s3cret abcdef {found.target}")
    assert not any(secret in scrubbed for secret in ("s3%2Fcret", "token=abcdef") if secret in url)
    assert "admin:s3" not in scrubbed


def test_a_login_of_its_own_may_have_any_character() -> None:
    found = address("rtsp://10.0.0.7/live", username="a@b", password="p/ä:s#s")
    assert found.target == "rtsp://a%40b:p%2F%C3%A4%3As%23s@10.0.0.7/live"
    assert found.shown == "rtsp://10.0.0.7/live"
    assert "p/ä:s#s" not in found.scrubbed("it said p/ä:s#s")


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("ftp://10.0.0.7/x", '"ftp" is not a kind of camera; there are rtsp://'),
        ("rtsp://admin:s3/cret@10.0.0.7/x", "belongs into `password`"),
        ("rtsp://admin:12/s3cret@10.0.0.7/x", "belongs into `password`"),
        ("rtsp://admin:p@s3/cret#x@10.0.0.7/x", "belongs into `password`"),
        ("http://admin:p@s3/cret@10.0.0.7/x", "belongs into `password`"),
        ("rtsp://admin:12#s3cret@10.0.0.7/x", "belongs into `password`"),
        ("rtsp:///live", "has no host"),
        ("rtsp//10.0.0.7/live", "write rtsp://HOST/PATH"),
        ("HTTP:/10.0.0.7/live", "write http://HOST/PATH"),
        ("", "the URL is empty"),
        ("lavfi:movie=/etc/passwd", "lavfi: makes test pictures"),
        ("lavfi:testsrc2,drawtext=textfile=/etc/passwd", "lavfi: makes test pictures"),
        ("lavfi:testsrc2;movie=x", "lavfi: makes test pictures"),
    ],
)
def test_a_wrong_camera_url_is_refused_without_showing_its_password(url: str, text: str) -> None:
    with pytest.raises(ValueError) as caught:
        address(url)
    assert text in str(caught.value)
    assert "s3" not in str(caught.value)


def test_a_path_that_begins_like_a_protocol_of_libav_opens_no_further_files() -> None:
    found = address("concat:/etc/passwd")
    assert found.kind is Kind.FILE
    assert found.options["protocol_whitelist"] == "file"


def test_a_picture_service_may_have_an_at_sign_in_its_path() -> None:
    assert address("https://example.org/@town/live.m3u8").shown == "https://example.org/@town/live.m3u8"


def test_two_logins_are_refused_as_one_of_them_would_not_count() -> None:
    with pytest.raises(ValueError, match="leave one of them out") as caught:
        address("rtsp://admin:s3cret@10.0.0.7/live", username="ai", password="s3cret")
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("0", "write /dev/video0"),
        ("films/*.mp4", "there are no patterns: name a folder"),
        ("udp://127.0.0.1", "the udp URL has no port: write udp://0.0.0.0:PORT"),
        ("srt:/10.0.0.7:9000", "write srt://HOST/PATH"),
        ("gopher://h", "udp://, rtp://, rtmp://, srt://"),
    ],
)
def test_what_people_write_for_a_camera_elsewhere_is_answered_with_what_to_write(url: str, text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(text)):
        address(url)


def test_a_stream_that_is_read_reads_no_file_of_this_machine() -> None:
    for url in ("udp://0.0.0.0:5000", "rtp://0.0.0.0:5000", "rtmp://h/a", "rtmps://h/a", "srt://h:1"):
        allowed = address(url).options["protocol_whitelist"].split(",")
        assert not {"file", "http", "concat", "subfile"} & set(allowed)
        assert address(url).path is None
