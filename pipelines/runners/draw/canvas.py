"""A picture to draw into: a copy of an image, in colours."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from pipelines.errors import DefinitionError
from pipelines.runners.images.colors import Color
from pipelines.runners.images.fitting import resized, rounded
from pipelines.runners.images.opencv import opencv
from pipelines.steps.draw.draw import Scale
from pipelines.values import BoundingBox, Image
from pipelines.values.pixels import Pixels, check_size

Size: TypeAlias = tuple[int, int]
"""Height and width."""


def canvas(image: Image) -> Pixels:
    """The pixels `(height, width, 3)` of an image as a copy; gray becomes three equal channels."""
    pixels = image.get_as("numpy")
    copied: Pixels = np.repeat(pixels, 3, axis=2) if pixels.shape[2] == 1 else pixels.copy()
    return copied


def black(height: int, width: int) -> Pixels:
    """A black picture `(height, width, 3)`. `DataError` for more than `Image.max_pixels`."""
    check_size(width, height, Image.max_pixels)
    return np.zeros((height, width, 3), np.uint8)


def check_scale(scale: Scale, height: int, width: int) -> None:
    """Raise `DefinitionError` if a picture cannot be scaled to this size: 0 does not bound it."""
    if (scale == "AT_MOST" and not (height and width)) or (scale == "AT_LEAST" and not (height or width)):
        raise DefinitionError(f"scale {scale} needs resizeH and resizeW")


def scaled(pixels: Pixels, scale: Scale, height: int, width: int) -> Pixels:
    """A picture enlarged until it has at least this size, or shrunk until it has at most this size, or itself."""
    high, wide = pixels.shape[:2]
    if scale == "NONE":
        return pixels
    factor = (max if scale == "AT_LEAST" else min)(height / high, width / wide)
    if factor <= 1 if scale == "AT_LEAST" else factor >= 1:
        return pixels
    return resized(pixels, max(rounded(high * factor), 1), max(rounded(wide * factor), 1))


def draw_box(picture: Pixels, box: BoundingBox, color: Color, thickness: int) -> tuple[int, int]:
    """Draw the rectangle of a box in fractions of the picture; gives its left top corner in pixels."""
    cv2 = opencv()
    height, width = picture.shape[:2]
    thickness = max(thickness, 1)
    left, top = int(min(box.x1, box.x2) * width), int(min(box.y1, box.y2) * height)
    right, bottom = left + rounded(box.width * width), top + rounded(box.height * height)
    # OpenCV takes no numbers beyond 32 bits; a line outside of the picture is as good wherever it is.
    left, right = (_near(place, width, thickness) for place in (left, right))
    top, bottom = (_near(place, height, thickness) for place in (top, bottom))
    cv2.rectangle(picture, (left, top, right - left, bottom - top), color, thickness, cv2.LINE_8)
    return left, top


def _near(place: int, size: int, thickness: int) -> int:
    return min(max(place, -thickness - 1), size + thickness + 1)


def draw_text(picture: Pixels, text: str, left: int, bottom: int, color: Color) -> None:
    """Write text with its lower left corner at `left`, `bottom`, moved if it would begin outside of the picture."""
    cv2 = opencv()
    size = max(picture.shape[0] / 900, 0.4)
    (_, high), _ = cv2.getTextSize(text, cv2.FONT_HERSHEY_SIMPLEX, size, 1)
    place = (max(left, 0), max(bottom - 3, high + 1))
    cv2.putText(picture, text, place, cv2.FONT_HERSHEY_SIMPLEX, size, color, 1, cv2.LINE_AA)
