"""Runs IMAGE_CROP."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from pipelines.data.batch import Batch
from pipelines.data.result import Result
from pipelines.errors import DataError, RowsFailed, StreamerError, WrongTypeError
from pipelines.runners.images.fitting import rounded
from pipelines.runners.images.imagecolumns import each, image_values, images_column, only_image_keys, over_parts
from pipelines.runners.models.arrays import array_column
from pipelines.runners.runner import OpenContext, Runner
from pipelines.steps.images.images import ImageCrop
from pipelines.values import BoundingBox, Image, Point, type_of
from pipelines.values.pixels import Pixels, check_size

Corners = tuple[float, float, float, float]
"""Left, top, right, bottom."""


class ImageCropRunner(Runner):
    """Cuts a rectangle out of images and the images of lists; all other keys stay.

    Corners are rounded to pixels, halves up; the right and bottom ones lie just outside. Parts outside of the image are
    black. Raises `StreamerError` when it opens without a rectangle. Fails a row whose rectangle is invalid, holds no
    pixel or has more than `Image.max_pixels`.
    """

    keeps_rows: ClassVar[bool] = True
    keeps_keys: ClassVar[bool] = True
    needs_all: ClassVar[bool] = True

    def __init__(self, step: ImageCrop, context: OpenContext) -> None:
        self._step = step
        self._corners = _given(step)
        if self._corners is None and step.crop_name is None:
            raise StreamerError('IMAGE_CROP needs the rectangle: "cropBox", "cropPoints" or "cropName"')

    @property
    def reads(self) -> frozenset[str] | None:
        if self._step.image_name is None:
            return None
        crop = {self._step.crop_name} if self._corners is None and self._step.crop_name is not None else set()
        return frozenset({self._step.image_name, *crop})

    @property
    def gives(self) -> frozenset[str] | None:
        return frozenset()

    def run_batch(self, batch: Batch) -> Result:
        return Result(over_parts(batch, only_image_keys(batch, self._step.image_name), self._cropped))

    def _cropped(self, batch: Batch, key: str) -> Batch:
        images = image_values(batch, key)
        corners = self._rectangles(batch)

        def cropped(row: int, image: Image) -> Image:
            return Image(crop(image.get_as("numpy"), corners[row], pixels=self._step.coords_are_pixels))

        return batch.with_columns({key: images_column(each(images, key, cropped))})

    def _rectangles(self, batch: Batch) -> Sequence[Corners]:
        if self._corners is not None:
            return [self._corners] * batch.size
        key = str(self._step.crop_name)
        rectangles: list[Corners] = []
        failures: dict[int, Exception] = {}
        for row, value in enumerate(array_column(batch, key).values()):
            try:
                rectangles.append(_corners(value, key))
            except DataError as error:
                failures[row] = error
        if failures:
            raise RowsFailed(failures)
        return rectangles


def crop(picture: Pixels, corners: Corners, *, pixels: bool) -> Pixels:
    """A rectangle of a picture `(H, W, C)`, by corners in pixels or in fractions of the picture.

    Raises `DataError` for a rectangle without pixels or with more than `Image.max_pixels`.
    """
    height, width = picture.shape[:2]
    across, down = (1, 1) if pixels else (width, height)
    scaled = [number * size for number, size in zip(corners, (across, down, across, down), strict=True)]
    if not all(math.isfinite(number) for number in scaled):
        raise DataError(f"the rectangle to crop has the corners {_shown(corners)}")
    left, top, right, bottom = map(rounded, scaled)
    if right <= left or bottom <= top:
        raise DataError(
            f"the rectangle to crop has no pixels: its corners are {_shown(corners)}, "
            f"which is {right - left} x {bottom - top} pixels of an image of {width} x {height}"
        )
    check_size(right - left, bottom - top, Image.max_pixels)
    inside = picture[max(top, 0) : max(bottom, 0), max(left, 0) : max(right, 0)]
    if inside.shape[:2] == (bottom - top, right - left):
        # A copy: a view would keep the whole picture in memory.
        return inside.copy()
    canvas = np.zeros((bottom - top, right - left, picture.shape[2]), np.uint8)
    y, x = max(-top, 0), max(-left, 0)
    canvas[y : y + inside.shape[0], x : x + inside.shape[1]] = inside
    return canvas


def _given(step: ImageCrop) -> Corners | None:
    if step.crop_box is not None:
        return _corners(step.crop_box.value, "cropBox")
    if step.crop_points is not None:
        try:
            return _corners([point.value for point in step.crop_points], "cropPoints")
        except DataError as error:
            raise StreamerError(f"IMAGE_CROP: {error}") from None
    return None


def _corners(value: Any, key: str) -> Corners:
    if isinstance(value, BoundingBox):
        (x1, x2), (y1, y2) = sorted((value.x1, value.x2)), sorted((value.y1, value.y2))
        return x1, y1, x2, y2
    if isinstance(value, list) and len(value) == 2 and all(isinstance(point, Point) for point in value):
        first, second = value
        if first.dimensions == second.dimensions == 2:
            (x1, x2), (y1, y2) = sorted((first.x, second.x)), sorted((first.y, second.y))
            return x1, y1, x2, y2
    what = f"a list of {len(value)}" if isinstance(value, list) else type_of(value).name
    raise WrongTypeError(f'"{key}" must be a BOUNDING_BOX or a list of 2 POINTs with x and y, not {what}')


def _shown(corners: Corners) -> str:
    left, top, right, bottom = corners
    return f"({left:g}, {top:g}) and ({right:g}, {bottom:g})"
