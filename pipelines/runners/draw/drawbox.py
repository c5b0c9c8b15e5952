"""Runs DRAW_BOUNDING_BOX."""

from __future__ import annotations

import itertools
import logging
from typing import ClassVar, Final

from pipelines.data.data import Data
from pipelines.runners.boxes.unit import in_pixels, said_of_pixels
from pipelines.runners.draw.canvas import canvas, check_scale, draw_box, draw_text, scaled
from pipelines.runners.draw.drawplaces import Places
from pipelines.runners.images.colors import AQUA, BLUE, LIME, Color, color, random_colors
from pipelines.runners.images.cropped import box_in_image, region_of
from pipelines.runners.images.fields import image_key
from pipelines.runners.images.opencv import opencv
from pipelines.runners.runner import OpenContext, RowRunner
from pipelines.runners.video.boxrows import boxes_of, corners_of, ids_of
from pipelines.steps.draw.draw import DrawBoundingBox
from pipelines.values import BoundingBox, Image

_log = logging.getLogger(__name__)

OF_IDS: Final[tuple[Color, ...]] = tuple(itertools.islice(random_colors(), 64))
"""Colours that ids have in turn."""


class DrawBoundingBoxRunner(RowRunner):
    """The image with its boxes, under the image's key; nothing else of the record, as in Konduit Serving.

    Raises `DefinitionError` when it is opened with an invalid colour. Fails a row without an image or boxes.
    """

    keeps_rows: ClassVar[bool] = True
    writes: ClassVar[bool] = False

    def __init__(self, step: DrawBoundingBox, context: OpenContext) -> None:
        check_scale(step.scale, step.resize_h, step.resize_w)
        self._step = step
        self._color = color(step.color, LIME)
        self._colors = {label: color(text, LIME) for label, text in (step.class_colors or {}).items()}
        self._region_color = color(step.crop_region_color, BLUE)
        self._warned = False
        self._places = Places(step.zones, step.lines, color(step.zone_color, AQUA), step.counts_name)

    def run(self, data: Data) -> Data:
        step = self._step
        key = image_key(data, step.image_name)
        image = data.get_image(key)
        name, boxes = boxes_of(data, step.bbox_name, step.ids_name)
        corners_of(boxes, name)  # numbers that can be drawn
        self._tell_of_pixels(boxes, name)
        ids = [None] * len(boxes) if step.ids_name is None else ids_of(data, step.ids_name, boxes, name)
        region = region_of(step.image_to_ndarray_config, image.width, image.height)
        picture = scaled(canvas(image), step.scale, step.resize_h, step.resize_w)
        if step.zones or step.lines:
            self._places.draw(picture, data)
        for box, number in zip(boxes, ids, strict=True):
            chosen = self._chosen(box, number)
            thickness = 1 if number == 0 else step.line_thickness
            left, top = draw_box(picture, box_in_image(box, region), chosen, thickness)
            if text := self._text(box, number):
                draw_text(picture, text, left, top, chosen)
        if region is not None and step.draw_crop_region:
            height, width = picture.shape[:2]
            place = (region.x1 * width, region.y1 * height, region.width * width, region.height * height)
            cv2 = opencv()
            cv2.rectangle(picture, tuple(map(int, place)), self._region_color, max(step.line_thickness, 1), cv2.LINE_8)
        return Data({key: Image(picture)})

    def _tell_of_pixels(self, boxes: list[BoundingBox], name: str) -> None:
        """Say once that boxes are in pixels: they lie beside the picture, where nobody sees them."""
        wrong = None if self._warned else next(filter(in_pixels, boxes), None)
        if wrong is not None:
            self._warned = True
            _log.warning("%s", said_of_pixels(wrong, name, "DRAW_BOUNDING_BOX"))

    def _chosen(self, box: BoundingBox, number: int | None) -> Color:
        color = self._colors.get(box.label or "")
        if color is not None or not number:
            return self._color if color is None else color
        return OF_IDS[number % len(OF_IDS)]

    def _text(self, box: BoundingBox, number: int | None) -> str:
        label = box.label if self._step.draw_label and box.label else ""
        if number:
            label = f"{number} {label}".rstrip()
        shown = self._step.draw_probability and box.probability is not None
        return f"{label} {box.probability:.2f}".strip() if shown else label
