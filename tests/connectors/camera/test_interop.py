"""Cameras that are not ours: GStreamer's RTSP server, where the system has it, and that of the package rtsp."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from camerareader import reading, shown
from numberedpictures import number_in, picture
from rtspcamera import RtspCamera

SYSTEM = Path("/usr/bin/python3")
pytestmark = pytest.mark.slow


@pytest.fixture
def gstreamer(pytestconfig: pytest.Config) -> Iterator[Callable[[str], str]]:
    """`gstreamer(encoder)` is the URL of a camera."""
    script = pytestconfig.rootpath / "tests" / "support" / "gstreamercamera.py"
    with ExitStack() as stack:

        def serve(encoder: str) -> str:
            if not SYSTEM.exists():
                pytest.skip(f"there is no {SYSTEM}, of which GStreamer's bindings are")
            process = stack.enter_context(
                subprocess.Popen([SYSTEM, script, encoder], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            )
            stack.callback(process.kill)
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            if not url:
                assert process.stderr is not None
                why = process.stderr.read().strip().rpartition("\n")[2]
                pytest.skip(f"GStreamer's RTSP server is not on this machine (gir1.2-gst-rtsp-server-1.0): {why}")
            return url

        yield serve


@pytest.mark.parametrize(
    ("encoder", "codec", "transport"),
    [("x264enc", "h264", "tcp"), ("x264enc", "h264", "udp"), ("x265enc", "hevc", "tcp"), ("jpegenc", "mjpeg", "tcp")],
)
def test_pictures_of_gstreamers_server(
    gstreamer: Callable[[str], str], encoder: str, codec: str, transport: str
) -> None:
    url = gstreamer(encoder)
    with reading({"gate": {"url": url, "transport": transport}}) as reader:
        found = reader.see("gate", 20)
        # It reports its time every few seconds.
        reader.wait(lambda: reader.cameras.cameras()["gate"]["clock"] == "camera", "the camera's time")
        told = reader.cameras.cameras()["gate"]
    assert told["codec"] == codec
    assert {(one.message.value.image.width, one.message.value.image.height) for one in found} == {(320, 240)}
    stamps = [one.message.timestamp or 0 for one in found]
    assert stamps == sorted(stamps)
    assert abs(told["skew_seconds"]) < 5


@pytest.mark.parametrize("transport", ["tcp", "udp"])
def test_pictures_of_the_server_of_the_package_rtsp(transport: str) -> None:
    rtsp = pytest.importorskip("rtsp")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    # Its pictures are red, green, blue.
    numbered = [np.ascontiguousarray(picture(number, 320, 192)[..., ::-1]) for number in range(20)]
    with (
        rtsp.Source(f"rtsp://127.0.0.1:{port}/live", fps=10, frame_buffer=numbered) as server,
        reading({"gate": {"url": server.client_uri, "transport": transport}}, policy="fifo") as reader,
    ):
        found = reader.see("gate", 25)
        told = reader.cameras.cameras()["gate"]
    assert told["codec"] == "h264"
    assert {(one.message.value.image.width, one.message.value.image.height) for one in found} == {(320, 192)}
    if transport == "tcp":
        numbers = {shown(one) for one in found}
        assert numbers <= set(range(20))
        assert len(numbers) > 3


def test_our_test_camera_is_read_by_the_client_of_the_package_rtsp() -> None:
    """Other programs accept the test camera of this folder as a camera, too."""
    rtsp = pytest.importorskip("rtsp")
    with RtspCamera(login=("admin", "s3cret")) as camera, rtsp.Client(camera.url) as client:
        deadline = time.monotonic() + 30
        while (seen := client.read(raw=True)) is None:
            assert time.monotonic() < deadline, "it shows nothing"
            time.sleep(0.05)
    assert number_in(np.asarray(seen)) < 20
