"""Streams that another program sends are read as live cameras: UDP, RTP, RTMP; real ones, of ffmpeg."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest
from camerareader import reading, shown
from numberedpictures import video

pytestmark = pytest.mark.skipif(shutil.which("ffmpeg") is None, reason="needs ffmpeg")


@contextmanager
def sending(film: str, *output: str) -> Iterator[None]:
    """The film is sent again and again, at its rate."""
    command = ["ffmpeg", "-v", "error", "-re", "-stream_loop", "-1", "-i", film, "-c", "copy", *output]
    sender = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    try:
        yield
    finally:
        sender.kill()
        sender.wait()


def free_port(kind: socket.SocketKind) -> int:
    with socket.socket(socket.AF_INET, kind) as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@pytest.fixture
def film(tmp_path: Path) -> str:
    path = f"{tmp_path}/film.mp4"
    video(path, frames=20, fps=20, gop=5)
    return path


@pytest.mark.parametrize(
    ("url", "output"),
    [
        ("udp://127.0.0.1:{port}", ("-f", "mpegts", "udp://127.0.0.1:{port}?pkt_size=1316")),
        ("udp://@:{port}", ("-f", "mpegts", "udp://127.0.0.1:{port}?pkt_size=1316")),
        ("rtp://127.0.0.1:{port}", ("-f", "rtp_mpegts", "rtp://127.0.0.1:{port}")),
        ("rtmp://127.0.0.1:{port}/live/gate", ("-f", "flv", "-listen", "1", "rtmp://127.0.0.1:{port}/live/gate")),
    ],
)
def test_pictures_that_are_sent_come(film: str, url: str, output: tuple[str, ...]) -> None:
    port = free_port(socket.SOCK_STREAM if url.startswith("rtmp") else socket.SOCK_DGRAM)
    fields = {"url": url.format(port=port), "policy": "fifo", "max_frames": 100}
    with sending(film, *(one.format(port=port) for one in output)), reading({"gate": fields}) as reader:
        numbers = [shown(one) for one in reader.see("gate", 30)]
    steps = {(after - before) % 20 for before, after in pairwise(numbers)}
    # What was sent before somebody listened is gone; nothing is shown twice.
    assert 0 not in steps
    assert 1 in steps


def test_a_port_that_nobody_sends_to_is_told() -> None:
    port = free_port(socket.SOCK_DGRAM)
    with reading({"gate": f"udp://127.0.0.1:{port}"}, timeout="0.5s") as reader:
        reader.wait(lambda: reader.reason("gate") != "None", "a reason")
        assert f"nothing was sent to udp://127.0.0.1:{port} within 0.5 s" in reader.reason("gate")


def test_a_protocol_that_libav_lacks_is_told_with_what_to_do() -> None:
    with reading({"gate": "srt://127.0.0.1:9"}, timeout="0.5s") as reader:
        reader.wait(lambda: reader.reason("gate") != "None", "a reason")
        reason = reader.reason("gate")
    assert "reads no srt://; pass the stream on: ffmpeg -i srt://127.0.0.1:9" in reason or "within 0.5 s" in reason
