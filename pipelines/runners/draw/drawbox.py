"""Runs DRAW_BOUNDING_BOX."""

from __future__ import annotations

from typing import ClassVar

from pipelines.data.data import Data
from pipelines.runners.draw.canvas import canvas, check_scale, draw_box, draw_text, scaled
from pipelines.runners.images.colors import BLUE, LIME, color
from pipelines.runners.images.cropped import box_in_image, region_of
from pipelines.runners.images.fields import boxes_key, image_key, listed
from pipelines.runners.images.opencv import opencv
from pipelines.runners.runner import OpenContext, RowRunner
from pipelines.steps.draw.draw import DrawBoundingBox
from pipelines.values import BoundingBox, Image


class DrawBoundingBoxRunner(RowRunner):
    """The image with its boxes, under the image's key; nothing else of the record, as in Konduit Serving.

    Raises `DefinitionError` when it is opened with what is no colour. Fails a row without an image or boxes.
    """

    keeps_rows: ClassVar[bool] = True
    writes: ClassVar[bool] = False

    def __init__(self, step: DrawBoundingBox, context: OpenContext) -> None:
        check_scale(step.scale, step.resize_h, step.resize_w)
        self._step = step
        self._color = color(step.color, LIME)
        self._colors = {label: color(text, LIME) for label, text in (step.class_colors or {}).items()}
        self._region_color = color(step.crop_region_color, BLUE)

    def run(self, data: Data) -> Data:
        step = self._step
        key = image_key(data, step.image_name)
        image = data.get_image(key)
        boxes = listed(data[boxes_key(data, step.bbox_name)])
        region = region_of(step.image_to_ndarray_config, image.width, image.height)
        picture = scaled(canvas(image), step.scale, step.resize_h, step.resize_w)
        for box in boxes:
            chosen = self._colors.get(box.label or "", self._color)
            left, top = draw_box(picture, box_in_image(box, region), chosen, step.line_thickness)
            if text := self._text(box):
                draw_text(picture, text, left, top, chosen)
        if region is not None and step.draw_crop_region:
            height, width = picture.shape[:2]
            place = (region.x1 * width, region.y1 * height, region.width * width, region.height * height)
            cv2 = opencv()
            cv2.rectangle(picture, tuple(map(int, place)), self._region_color, max(step.line_thickness, 1), cv2.LINE_8)
        return Data({key: Image(picture)})

    def _text(self, box: BoundingBox) -> str:
        label = box.label if self._step.draw_label and box.label else ""
        shown = self._step.draw_probability and box.probability is not None
        return f"{label} {box.probability:.2f}".strip() if shown else label
