"""Images as PyAV's video frames and back. PyAV is imported when a frame is asked for."""

from __future__ import annotations

from typing import Any

import numpy as np

from pipelines.errors import DataError, MissingPackageError
from pipelines.values.pixels import Pixels, as_pixels


def frame_size(frame: Any) -> tuple[int, int, int]:
    """Height, width and 1 (gray) or 3 channels."""
    return frame.height, frame.width, 1 if _is_gray(frame) else 3


def frame_pixels(frame: Any) -> Pixels:
    """The pixels of a frame, converted from its own format by libswscale (BGR and gray: copied)."""
    try:
        return as_pixels(frame.to_ndarray(format="gray" if _is_gray(frame) else "bgr24"))
    except (ValueError, OSError) as error:
        raise DataError(f"the video frame ({frame.format.name}) cannot be converted: {error}") from None


def frame_of(pixels: Pixels) -> Any:
    """A frame of the format bgr24 or gray, with the pixels copied into it."""
    try:
        import av
    except ImportError:
        raise MissingPackageError("av", "camera", "an image as a video frame") from None
    if pixels.shape[2] == 1:
        return av.VideoFrame.from_ndarray(np.ascontiguousarray(pixels[:, :, 0]), format="gray")
    return av.VideoFrame.from_ndarray(np.ascontiguousarray(pixels), format="bgr24")


def _is_gray(frame: Any) -> bool:
    return str(frame.format.name).startswith(("gray", "mono"))
