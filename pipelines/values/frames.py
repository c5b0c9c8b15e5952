"""Images as PyAV's video frames and back, and frames scaled. PyAV is imported when a frame is asked for.

libswscale reads a frame's own planes (I420 as a rule) and scales and converts in one go, so that only as many pixels
are converted as are wanted. Its scalers are costly to set up: each thread keeps those that it used last.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from pipelines.errors import DataError, MissingPackageError
from pipelines.values.pixels import Pixels, as_pixels, check_size

Plane: TypeAlias = npt.NDArray[np.uint8]
"""One channel of a picture, `(height, width)`; rows may lie further apart than they are wide."""

Rect: TypeAlias = tuple[int, int, int, int]
"""A part of a picture in pixels: left, top, width, height."""

MOST_SCALERS: Final = 16
"""Scalers that a thread keeps: one for each pair of a camera's size and format and a size that is wanted."""


def frame_size(frame: Any) -> tuple[int, int, int]:
    """Height, width and 1 (gray) or 3 channels."""
    return frame.height, frame.width, 1 if _is_gray(frame) else 3


def frame_pixels(frame: Any, max_pixels: int) -> Pixels:
    """The pixels of a frame, converted from its own format by libswscale (BGR and gray: not copied).

    Raises `DataError` for a frame of more than `max_pixels`, or of a format that cannot be converted.
    """
    check_size(frame.width, frame.height, max_pixels)
    if _is_gray(frame):
        return as_pixels(_plane(_reformatted(frame, frame.width, frame.height, "gray"), 0))
    made = _reformatted(frame, frame.width, frame.height, "bgr24")
    interleaved = _rows(made.planes[0], 3 * frame.width, frame.height)
    return as_pixels(interleaved.reshape(frame.height, frame.width, 3))


def frame_planes(frame: Any, width: int, height: int, channels: int, part: Rect | None = None) -> tuple[Plane, ...]:
    """Blue, green and red of a frame or of a part of it, or its gray alone, each `(height, width)`, read-only.

    Smaller than the frame every pixel is the mean of those that it covers, larger they are interpolated (bilinear).
    Raises `DataError` for a format that cannot be converted.
    """
    if part is not None and part != (0, 0, frame.width, frame.height):
        frame = _cropped(frame, part)
    if channels == 1:
        return (_plane(_reformatted(frame, width, height, "gray"), 0),)
    if _is_gray(frame):
        return (_plane(_reformatted(frame, width, height, "gray"), 0),) * 3
    # The planes of this format are green, blue, red. libswscale scales to it faster than to interleaved pixels, and
    # keeps the full resolution of the colours.
    green, blue, red = _reformatted(frame, width, height, "gbrp").planes
    return _rows(blue, width, height), _rows(green, width, height), _rows(red, width, height)


def frame_of(pixels: Pixels) -> Any:
    """A frame of the format bgr24 or gray, with the pixels copied into it."""
    try:
        import av
    except ImportError:
        raise MissingPackageError("av", "camera", "an image as a video frame") from None
    if pixels.shape[2] == 1:
        return av.VideoFrame.from_ndarray(np.ascontiguousarray(pixels[:, :, 0]), format="gray")
    return av.VideoFrame.from_ndarray(np.ascontiguousarray(pixels), format="bgr24")


class _Kept(threading.local):
    """A thread's most recently used scalers or croppers, by their sizes and formats; the least recent goes first."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[Any, ...], Any] = OrderedDict()

    def get(self, key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
        kept = self._kept.pop(key, None)
        self._kept[key] = made = make() if kept is None else kept
        if len(self._kept) > MOST_SCALERS:
            self._kept.popitem(last=False)
        return made

    def drop(self, key: tuple[Any, ...]) -> None:
        self._kept.pop(key, None)


# A scaler that is given other sizes or formats than before sets itself up anew, hence one for each.
_SCALERS: Final = _Kept()
_CROPS: Final = _Kept()


def _reformatted(frame: Any, width: int, height: int, pixel_format: str) -> Any:
    """The frame in another size and format; itself if it has them. One thread: the pipeline has threads of its own."""
    from av.error import FFmpegError

    smaller = width <= frame.width and height <= frame.height
    key = (frame.width, frame.height, frame.format.name, width, height, pixel_format)
    scaler = _SCALERS.get(key, _scaler)
    try:
        return scaler.reformat(
            frame,
            width=width,
            height=height,
            format=pixel_format,
            interpolation="AREA" if smaller else "BILINEAR",
            threads=1,
        )
    except (FFmpegError, ValueError, OSError) as error:
        raise DataError(
            f"the video frame ({frame.width} x {frame.height}, {frame.format.name}) cannot be converted to "
            f"{width} x {height}, {pixel_format}: {error}"
        ) from None


def _scaler() -> Any:
    from av.video.reformatter import VideoReformatter

    return VideoReformatter()


def _cropped(frame: Any, part: Rect) -> Any:
    """A part of a frame: libavfilter's crop, which moves the start of the planes and copies nothing."""
    from av.error import FFmpegError

    properties = (frame.width, frame.height, frame.format.name, int(frame.colorspace), int(frame.color_range))
    try:
        graph = _CROPS.get((properties, part), lambda: _crop(*properties, part))
        graph.vpush(frame)
        return graph.vpull()
    except (FFmpegError, ValueError, OSError) as error:
        # A graph that failed may keep the frame, and give it for the next one.
        _CROPS.drop((properties, part))
        raise DataError(f"{part} of the video frame ({properties[:3]}) cannot be cut out: {error}") from None


def _crop(width: int, height: int, pixel_format: str, colorspace: int, color_range: int, part: Rect) -> Any:
    from av.filter import Graph

    graph = Graph()
    described = (
        f"video_size={width}x{height}:pix_fmt={pixel_format}:time_base=1/1000:pixel_aspect=1/1"
        f":colorspace={colorspace}:range={color_range}"
    )
    x, y, wide, high = part
    crop = graph.add("crop", f"{wide}:{high}:{x}:{y}:exact=1")
    graph.add("buffer", described).link_to(crop)
    crop.link_to(graph.add("buffersink"))
    graph.configure()
    return graph


def _plane(frame: Any, at: int) -> Plane:
    return _rows(frame.planes[at], frame.width, frame.height)


def _rows(plane: Any, width: int, height: int) -> Plane:
    """The bytes of a plane without those that pad its rows. The array keeps the frame's memory alive."""
    memory = np.frombuffer(plane, np.uint8, count=plane.line_size * height)
    rows = memory.reshape(height, plane.line_size)[:, :width]
    rows.flags.writeable = False
    return rows


def _is_gray(frame: Any) -> bool:
    return str(frame.format.name).startswith(("gray", "mono"))
