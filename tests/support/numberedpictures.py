"""Pictures that say which they are, and clips of them, encoded."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import cache
from typing import Any, NamedTuple

import av
import numpy as np
import numpy.typing as npt

Pixels = npt.NDArray[np.uint8]

_BITS = 16
_START = b"\x00\x00\x01"
_ENCODERS = {"h264": "libx264", "h265": "libx265", "mjpeg": "mjpeg"}


def picture(number: int, width: int, height: int) -> Pixels:
    """A BGR picture, `uint8 (height, width, 3)`; the bars of its upper half are the bits of `number`."""
    pixels = np.empty((height, width, 3), np.uint8)
    pixels[:] = np.linspace(60, 190, width, dtype=np.uint8)[None, :, None]
    edges = np.linspace(0, width, _BITS + 1).astype(int)
    for bit in range(_BITS):
        pixels[: height // 2, edges[bit] : edges[bit + 1]] = 235 if number >> bit & 1 else 20
    return pixels


def number_in(pixels: Pixels) -> int:
    """The number that a picture shows, also when it was scaled or lost some quality."""
    height, width = pixels.shape[:2]
    edges = np.linspace(0, width, _BITS + 1)
    row = pixels[height // 8 : 3 * height // 8].reshape(-1, width, pixels[0, 0].size).mean(axis=(0, 2))
    centres = ((edges[:-1] + edges[1:]) / 2).astype(int)
    return sum(1 << bit for bit, centre in enumerate(centres) if row[centre] > 128)


class Clip(NamedTuple):
    """An encoded clip that can be repeated: the first unit is a key frame."""

    codec: str
    units: list[list[bytes]]
    """The NAL units of each picture, without start codes; of MJPEG: one file."""
    parameters: list[bytes]
    """NAL units of the parameter sets (H.264: SPS, PPS; H.265: VPS, SPS, PPS)."""
    width: int
    height: int


@cache
def clip(codec: str = "h264", width: int = 160, height: int = 96, frames: int = 20, gop: int = 5) -> Clip:
    """Pictures 0, 1, ... `frames - 1`, a key frame every `gop`."""
    context: Any = av.CodecContext.create(_ENCODERS[codec], "w")
    context.width, context.height = width, height
    context.pix_fmt = "yuvj420p" if codec == "mjpeg" else "yuv420p"
    context.time_base = Fraction(1, 25)
    context.framerate = 25
    context.gop_size = gop
    context.options = {
        "h264": {
            "preset": "ultrafast",
            "tune": "zerolatency",
            "x264-params": f"keyint={gop}:scenecut=0:repeat-headers=1",
        },
        "h265": {
            "preset": "ultrafast",
            "tune": "zerolatency",
            "x265-params": f"log-level=none:keyint={gop}:min-keyint={gop}:scenecut=0:repeat-headers=1:pools=none",
        },
        "mjpeg": {},
    }[codec]
    units: list[list[bytes]] = []
    for number in range(frames):
        frame = av.VideoFrame.from_ndarray(picture(number, width, height), format="bgr24").reformat(
            format=context.pix_fmt
        )
        frame.pts = number
        units += [_split(bytes(packet), codec) for packet in context.encode(frame)]
    units += [_split(bytes(packet), codec) for packet in context.encode(None)]
    kinds = {"h264": (7, 8), "h265": (32, 33, 34), "mjpeg": ()}[codec]
    parameters = [unit for unit in units[0] if _kind(unit, codec) in kinds]
    return Clip(codec, units, parameters, width, height)


def jpeg(number: int, width: int = 160, height: int = 96) -> bytes:
    """The file of one picture."""
    import cv2

    done, encoded = cv2.imencode(".jpg", picture(number, width, height))
    assert done
    return bytes(encoded.tobytes())


def video(
    path: str,
    frames: int = 10,
    fps: int = 10,
    width: int = 160,
    height: int = 96,
    sound: bool = False,
    gop: int = 250,
    shown: Sequence[int] | None = None,
) -> None:
    """Writes a video file of pictures 0, 1, ..., or of those `shown`, a key frame every `gop`; `sound`: of silence
    alone, no pictures."""
    with av.open(path, "w") as container:
        if sound:
            stream: Any = container.add_stream("aac", rate=8000)
            stream.layout = "mono"
            for at in range(8):
                silence = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), format="fltp", layout="mono")
                silence.sample_rate = 8000
                silence.pts = at * 1024
                container.mux(stream.encode(silence))
            container.mux(stream.encode(None))
            return
        stream = container.add_stream("libx264", rate=fps, options={"preset": "ultrafast", "g": str(gop)})
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        for number in range(frames) if shown is None else shown:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture(number, width, height), format="bgr24")))
        container.mux(stream.encode(None))


def _split(data: bytes, codec: str) -> list[bytes]:
    if codec == "mjpeg":
        return [data]
    parts = [part.removesuffix(b"\x00") for part in data.split(_START)[1:]]
    return [part for part in parts if _kind(part, codec) not in (6, 9, 35, 39)]


def _kind(unit: bytes, codec: str) -> int:
    return unit[0] & 31 if codec == "h264" else unit[0] >> 1 & 63
