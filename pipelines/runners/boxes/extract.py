"""Runs EXTRACT_BOUNDING_BOX."""

from __future__ import annotations

from functools import partial
from typing import ClassVar

from pipelines.data.data import Data
from pipelines.runners.boxes.unit import check_fractions
from pipelines.runners.images.cropped import box_in_image, region_of
from pipelines.runners.images.fields import boxes_key, each, image_key, listed
from pipelines.runners.images.fitting import resized, rounded
from pipelines.runners.images.imagecrop import crop
from pipelines.runners.runner import OpenContext, RowRunner
from pipelines.runners.video.boxrows import corners_of
from pipelines.steps.boxes.extract import ExtractBoundingBox
from pipelines.values import BoundingBox, Image, ValueType


class ExtractBoundingBoxRunner(RowRunner):
    """The parts of an image that lie in boxes; parts of a box outside of the image are black.

    Fails a row without an image or boxes, and one with a box that has no pixel, or is in pixels.
    """

    keeps_rows: ClassVar[bool] = True
    writes: ClassVar[bool] = False

    def __init__(self, step: ExtractBoundingBox, context: OpenContext) -> None:
        self._step = step

    def run(self, data: Data) -> Data:
        step = self._step
        image_name, boxes_name = image_key(data, step.image_name), boxes_key(data, step.bbox_name)
        image = data.get_image(image_name)
        region = region_of(step.image_to_ndarray_config, image.width, image.height)
        corners_of(listed(data[boxes_name]), boxes_name)  # numbers that pixels have
        check_fractions(listed(data[boxes_name]), boxes_name, "EXTRACT_BOUNDING_BOX")
        parts = each(data[boxes_name], partial(self._part, image, region), ValueType.IMAGE)
        for key in [image_name, boxes_name] if step.keep_other_fields else list(data):
            del data[key]
        data[step.output_name or image_name] = parts
        return data

    def _part(self, image: Image, region: BoundingBox | None, box: BoundingBox) -> Image:
        step = self._step
        placed = box_in_image(box, region)
        width, height = placed.width * image.width, placed.height * image.height
        if step.aspect_ratio is not None:
            width, height = max(width, height * step.aspect_ratio), max(height, width / step.aspect_ratio)
        left = rounded(placed.cx * image.width - width / 2)
        top = rounded(placed.cy * image.height - height / 2)
        corners = (left, top, left + rounded(width), top + rounded(height))
        pixels = crop(image.get_as("numpy"), corners, pixels=True)
        if step.resize_h is not None and step.resize_w is not None:
            pixels = resized(pixels, step.resize_h, step.resize_w)
        return Image(pixels)
