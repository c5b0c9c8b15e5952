"""Runs BLUR."""

from __future__ import annotations

import math
from typing import ClassVar

from pipelines.data.data import Data
from pipelines.runners.boxes.unit import check_fractions
from pipelines.runners.images.colors import color
from pipelines.runners.images.fields import image_key
from pipelines.runners.images.opencv import opencv
from pipelines.runners.runner import OpenContext, RowRunner
from pipelines.runners.video.boxrows import boxes_of, corners_of
from pipelines.steps.video.blur import Blur
from pipelines.values import Image
from pipelines.values.frames import Rect
from pipelines.values.pixels import Pixels

BLACK = (0, 0, 0)


class BlurRunner(RowRunner):
    """The image with its boxes blurred; an image without any is passed on as it is, a JPEG as the same JPEG.

    Fails a row without an image or boxes, and one with a box that is not finite, or in pixels. Raises
    `DefinitionError` when it is opened with an invalid colour.
    """

    keeps_rows: ClassVar[bool] = True
    keeps_keys: ClassVar[bool] = True
    writes: ClassVar[bool] = False

    def __init__(self, step: Blur, context: OpenContext) -> None:
        self._step = step
        self._color = color(step.color, BLACK)
        self._labels = None if step.labels is None else frozenset(step.labels)
        self._cv2 = opencv()

    def run(self, data: Data) -> Data:
        step = self._step
        key = image_key(data, step.image_name)
        image = data.get_image(key)
        name, boxes = boxes_of(data, step.bbox_name)
        if self._labels is not None:
            boxes = [box for box in boxes if box.label in self._labels]
        parts = [self._part(corners, image) for corners in corners_of(boxes, name).tolist()]
        check_fractions(boxes, name, "BLUR")
        parts = [part for part in parts if part[0] < part[2] and part[1] < part[3]]
        if parts:
            picture = image.get_as("numpy").copy()
            for left, top, right, bottom in parts:
                self._hide(picture[top:bottom, left:right])
            image = Image(picture)
        data[step.output_name or key] = image
        return data

    def _part(self, corners: list[float], image: Image) -> Rect:
        """The part of the image in pixels, at least the box: left, top, right, bottom."""
        x1, y1, x2, y2 = corners
        across, down = (x2 - x1) * self._step.grow, (y2 - y1) * self._step.grow
        wide, high = image.width, image.height
        left, right = (min(max(place, 0.0), 1.0) for place in (x1 - across, x2 + across))
        top, bottom = (min(max(place, 0.0), 1.0) for place in (y1 - down, y2 + down))
        return math.floor(left * wide), math.floor(top * high), math.ceil(right * wide), math.ceil(bottom * high)

    def _hide(self, part: Pixels) -> None:
        """Change the pixels of a part of the picture in place."""
        cv2, step = self._cv2, self._step
        high, wide, channels = part.shape
        size = max(step.strength * max(high, wide), 1.0)
        if step.method == "FILL":
            part[...] = self._color if channels == 3 else sum(self._color) // 3
            return
        if step.method == "PIXELATE":
            few = (max(math.floor(wide / size), 1), max(math.floor(high / size), 1))
            squares = cv2.resize(part, few, interpolation=cv2.INTER_AREA)
            made = cv2.resize(squares, (wide, high), interpolation=cv2.INTER_NEAREST)
        else:
            made = self._blurred(part, size)
        part[...] = made.reshape(part.shape)

    def _blurred(self, part: Pixels, size: float) -> Pixels:
        cv2 = self._cv2
        high, wide = part.shape[:2]
        # A wide blur is done on a small copy: it looks the same, and takes a fraction of the time.
        shrink = max(math.floor(size / 3), 1)
        small = (max(wide // shrink, 1), max(high // shrink, 1))
        reduced = cv2.resize(part, small, interpolation=cv2.INTER_AREA) if shrink > 1 else part
        blurred = cv2.GaussianBlur(reduced, (0, 0), size / shrink, borderType=cv2.BORDER_REPLICATE)
        made: Pixels = cv2.resize(blurred, (wide, high), interpolation=cv2.INTER_LINEAR) if shrink > 1 else blurred
        return made
