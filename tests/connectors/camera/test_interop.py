"""Cameras that are not ours: GStreamer's RTSP server, where the system has it."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from camerareader import reading

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
