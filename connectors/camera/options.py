"""libav's options and formats: those that a service file never sets, and those that any service file may set."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pipelines.harmless import Harmless

_OTHERS: Final = "others of libav may open files, devices, keys and further streams"

INPUT_OPTIONS: Final = Harmless(
    frozenset(
        {
            # Of decoders and of formats in general
            "analyzeduration",
            "ec",
            "err_detect",
            "fflags",
            "flags",
            "flags2",
            "formatprobesize",
            "fpsprobesize",
            "framerate",
            "lowres",
            "max_delay",
            "max_probe_packets",
            "pixel_format",
            "probesize",
            "skip_frame",
            "skip_idct",
            "skip_loop_filter",
            "thread_queue_size",
            "use_wallclock_as_timestamps",
            "video_size",
            # Of RTSP
            "allowed_media_types",
            "buffer_size",
            "max_port",
            "min_port",
            "pkt_size",
            "reorder_queue_size",
            "rtsp_flags",
            "rtsp_transport",
            "stimeout",
            "timeout",
            "user_agent",
            # Of HTTP and HLS
            "auth_type",
            "cookies",
            "headers",
            "http_multiple",
            "http_persistent",
            "http_seekable",
            "icy",
            "live_start_index",
            "m3u8_hold_counters",
            "max_reload",
            "multiple_requests",
            "prefer_x_start",
            "reconnect",
            "reconnect_at_eof",
            "reconnect_delay_max",
            "reconnect_delay_total_max",
            "reconnect_max_retries",
            "reconnect_on_http_error",
            "reconnect_on_network_error",
            "reconnect_streamed",
            "referer",
            "rw_timeout",
            "seekable",
            "tls_verify",
            # Of devices
            "channel",
            "input_format",
            "standard",
            "timestamps",
            "ts",
        }
    ),
    _OTHERS,
)
"""Options of cameras and films."""

INPUT_FORMATS: Final = Harmless(
    frozenset(
        {
            "asf",
            "avi",
            "flv",
            "gif",
            "h264",
            "hevc",
            "hls",
            "ivf",
            "jpeg_pipe",
            "m4v",
            "matroska",
            "mjpeg",
            "mov",
            "mp4",
            "mpeg",
            "mpegts",
            "mpegvideo",
            "mpjpeg",
            "obu",
            "png_pipe",
            "rawvideo",
            "rtp",
            "rtsp",
            "v4l2",
            "video4linux2",
            "webm",
            "webp_pipe",
        }
    ),
    _OTHERS,
)
"""Formats of cameras and films; a device that they read has to be listed as a file."""

ENCODER_OPTIONS: Final = Harmless(
    frozenset(
        {
            "8x8dct",
            "aq-mode",
            "aq-strength",
            "aud",
            "auto-alt-ref",
            "b",
            "b_ref_mode",
            "b_strategy",
            "bf",
            "bluray-compat",
            "bufsize",
            "coder",
            "compression_level",
            "cpu-used",
            "cq",
            "crf",
            "crf_max",
            "deadline",
            "delay",
            "forced-idr",
            "g",
            "gpu",
            "intra-refresh",
            "keyint_min",
            "lag-in-frames",
            "level",
            "lossless",
            "low_power",
            "maxrate",
            "mbtree",
            "me_range",
            "minrate",
            "motion-est",
            "multipass",
            "no-scenecut",
            "nal-hrd",
            "partitions",
            "preset",
            "profile",
            "psy",
            "qcomp",
            "qdiff",
            "qmax",
            "qmin",
            "qp",
            "quality",
            "rc",
            "rc-lookahead",
            "realtime",
            "refs",
            "row-mt",
            "sc_threshold",
            "slice-max-size",
            "slices",
            "spatial-aq",
            "speed",
            "static-thresh",
            "subq",
            "surfaces",
            "temporal-aq",
            "threads",
            "tier",
            "tile-columns",
            "tile-rows",
            "trellis",
            "tune",
            "usage",
            "weightb",
            "weightp",
            "zerolatency",
        }
    ),
    "others of an encoder may read and write files",
)
"""Options of encoders."""

ENCODERS: Final = Harmless(
    frozenset(
        {
            "av1_amf",
            "av1_nvenc",
            "av1_qsv",
            "ffv1",
            "h264_amf",
            "h264_nvenc",
            "h264_qsv",
            "h264_videotoolbox",
            "hevc_amf",
            "hevc_nvenc",
            "hevc_qsv",
            "hevc_videotoolbox",
            "libaom-av1",
            "libopenh264",
            "libsvtav1",
            "libvpx",
            "libvpx-vp9",
            "libx264",
            "libx264rgb",
            "libx265",
            "mjpeg",
            "mpeg1video",
            "mpeg2video",
            "mpeg4",
            "msmpeg4",
            "png",
        }
    ),
    "others may use devices of this machine",
)
"""Encoders."""

_GUARDS: Final = ("protocol_whitelist", "protocol_blacklist", "format_whitelist", "codec_whitelist")
_GRAPHS: Final = ("graph", "dumpgraph")


def check_never_set(options: Iterable[str]) -> None:
    """Raise `ValueError` for an option with which a stream, or whoever sends it, could read any file."""
    for name in options:
        if name in _GUARDS:
            raise ValueError(
                f"{name} cannot be set: it keeps what a camera sends from reading this machine's files; leave it out"
            )
        if name.startswith(_GRAPHS):
            raise ValueError(f"{name} cannot be set: write what makes the picture into url, lavfi:testsrc2=rate=10")
