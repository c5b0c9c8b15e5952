"""Pictures for people: scaled, with boxes drawn if wanted, as JPEG files."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import numpy.typing as npt

from connectors.view.result import Box, Shown
from pipelines.errors import DataError, MissingPackageError
from pipelines.values.orientation import UPRIGHT, orientation

Pixels = npt.NDArray[np.uint8]


def size_within(width: int, height: int, widest: int) -> tuple[int, int]:
    """Width and height of the same ratio, at most `widest` pixels across, both even, as video requires."""
    if width > widest:
        width, height = widest, round(height * widest / width)
    return max(2, width // 2 * 2), max(2, height // 2 * 2)


def pixels_of(shown: Shown, widest: int, *, boxes: bool) -> Pixels:
    """The picture: uint8 `(height, width, 3)`, blue, green, red, `widest` pixels across at most. Raises `DataError`."""
    width, height = size_within(shown.image.width, shown.image.height, widest)
    pixels = shown.image.scaled(width, height, 3)
    return _annotated(pixels, shown) if boxes else pixels


def jpeg_of(shown: Shown, widest: int, quality: int, *, boxes: bool = False) -> bytes:
    """The picture as a JPEG file. Raises `DataError` for an image that cannot be decoded."""
    image = shown.image
    if not boxes and image.format == "JPEG" and image.width <= widest:
        file = image.get_as("jpeg")
        # A browser turns a file with an orientation, and boxes would lie elsewhere.
        if orientation(file) == UPRIGHT:
            return file
    cv2 = _cv2()
    done, encoded = cv2.imencode(".jpg", pixels_of(shown, widest, boxes=boxes), [cv2.IMWRITE_JPEG_QUALITY, quality])
    if not done:
        raise DataError("the picture cannot be written as JPEG")
    return bytes(encoded.tobytes())


def colour_of(box: Box) -> tuple[int, int, int]:
    """Blue, green and red of a box: one colour for each track, or else for each label."""
    hue = (box.number * 67 if box.number else zlib.crc32(box.label.encode())) % 180
    (colour,) = _cv2().cvtColor(np.array([[[hue, 200, 255]]], np.uint8), _cv2().COLOR_HSV2BGR)[0].tolist()
    return (colour[0], colour[1], colour[2])


def _annotated(pixels: Pixels, shown: Shown) -> Pixels:
    cv2 = _cv2()
    canvas = np.array(pixels)
    height, width = canvas.shape[:2]
    thick = max(1, width // 400)
    for box in shown.boxes:
        colour = colour_of(box)
        left, top = _pixel(box.left, width), _pixel(box.top, height)
        right, bottom = _pixel(box.left + box.width, width), _pixel(box.top + box.height, height)
        cv2.rectangle(canvas, (left, top), (right, bottom), colour, thick)
        if box.text:
            _write(canvas, box.text, left, top, colour)
    return canvas


def _write(canvas: Pixels, text: str, left: int, top: int, colour: tuple[int, int, int]) -> None:
    cv2 = _cv2()
    scale = max(0.4, canvas.shape[1] / 1600)
    # OpenCV's fonts have ASCII characters only.
    text = text.encode("ascii", "replace").decode()
    (wide, high), below = cv2.getTextSize(text, cv2.FONT_HERSHEY_SIMPLEX, scale, 1)
    base = top - below if top - high - below >= 0 else top + high + below
    cv2.rectangle(canvas, (left, base - high - below), (left + wide, base + below), colour, cv2.FILLED)
    cv2.putText(canvas, text, (left, base), cv2.FONT_HERSHEY_SIMPLEX, scale, (0, 0, 0), 1, cv2.LINE_AA)


def _pixel(part: float, size: int) -> int:
    return round(min(max(part, 0.0), 1.0) * (size - 1))


def _cv2() -> Any:
    try:
        import cv2
    except ImportError:
        raise MissingPackageError("opencv-python-headless", "image", "showing pictures") from None
    return cv2
