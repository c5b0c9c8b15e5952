"""An RTSP camera by GStreamer's own server, to be run by the system's Python: `gstreamercamera ENCODER` prints its URL.

GStreamer's bindings come with the system (Debian: gir1.2-gst-rtsp-server-1.0, python3-gi, gstreamer1.0-plugins-ugly),
not from the package index. Imports nothing else.
"""

from __future__ import annotations

import sys

import gi  # type: ignore[import-not-found]

gi.require_version("Gst", "1.0")
gi.require_version("GstRtspServer", "1.0")
from gi.repository import GLib, Gst, GstRtspServer  # type: ignore[import-not-found]  # noqa: E402

PAYERS = {"x264enc": "rtph264pay", "x265enc": "rtph265pay", "jpegenc": "rtpjpegpay"}


def main() -> None:
    """Serve a moving ball until killed."""
    encoder = sys.argv[1]
    Gst.init(None)
    if Gst.ElementFactory.find(encoder) is None:
        sys.exit(f"no {encoder}")
    options = "" if encoder == "jpegenc" else "tune=zerolatency speed-preset=ultrafast key-int-max=10"
    setting = "" if encoder == "jpegenc" else "config-interval=-1"
    factory = GstRtspServer.RTSPMediaFactory()
    factory.set_shared(True)
    factory.set_launch(
        "( videotestsrc is-live=true pattern=ball ! video/x-raw,width=320,height=240,framerate=15/1,format=I420 "
        f"! {encoder} {options} ! {PAYERS[encoder]} name=pay0 pt=96 {setting} )"
    )
    server = GstRtspServer.RTSPServer()
    server.set_address("127.0.0.1")
    server.set_service("0")
    server.get_mount_points().add_factory("/live", factory)
    server.attach(None)
    print(f"rtsp://127.0.0.1:{server.get_bound_port()}/live", flush=True)
    GLib.MainLoop().run()


if __name__ == "__main__":
    main()
