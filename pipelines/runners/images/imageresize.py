"""Runs IMAGE_RESIZE."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from pipelines.data.batch import Batch
from pipelines.data.result import Result
from pipelines.errors import DataError, RowsFailed, StreamerError
from pipelines.runners.images.fitting import fitted_image, rounded
from pipelines.runners.images.imagecolumns import each, image_keys, image_values, images_column, over_parts
from pipelines.runners.runner import OpenContext, Runner
from pipelines.steps.images.images import ImageResize
from pipelines.values import Image


class ImageResizeRunner(Runner):
    """Resizes images and the images of lists; all other keys stay.

    Raises `StreamerError` when it opens without height and width. Fails a row that has no image, or none under a name
    that is given, or whose result had more than `Image.max_pixels`.
    """

    keeps_rows: ClassVar[bool] = True
    keeps_keys: ClassVar[bool] = True
    needs_all: ClassVar[bool] = True

    def __init__(self, step: ImageResize, context: OpenContext) -> None:
        if step.height is None and step.width is None:
            raise StreamerError('IMAGE_RESIZE needs "height", "width" or both')
        self._step = step

    @property
    def reads(self) -> frozenset[str] | None:
        return frozenset(self._step.input_names) if self._step.input_names else None

    @property
    def gives(self) -> frozenset[str] | None:
        return frozenset()

    def run_batch(self, batch: Batch) -> Result:
        if self._step.input_names:
            everyone = np.arange(batch.size, dtype=np.int64)
            return Result(over_parts(batch, [(everyone, batch, list(self._step.input_names))], self._resized))
        return Result(over_parts(batch, image_keys(batch, lists=True), self._resized))

    def _resized(self, batch: Batch, keys: list[str]) -> Batch:
        if not keys:
            error = DataError("the record has no image and no list of images to resize")
            raise RowsFailed(dict.fromkeys(range(batch.size), error))
        made = {key: images_column(each(image_values(batch, key), key, self._image)) for key in keys}
        return batch.with_columns(made)

    def _image(self, row: int, image: Image) -> Image:
        step = self._step
        high, wide = image.height, image.width
        if step.height is None or step.width is None:
            ratio = wide / high
            width = step.width or max(rounded(ratio * (step.height or 0)), 1)
            height = step.height or max(rounded(width / ratio), 1)
            handling_needed = False
        else:
            height, width = step.height, step.width
            handling_needed = wide / high != width / height
        if (high, wide) == (height, width):
            return image
        return Image(fitted_image(image, height, width, step.aspect_ratio_handling if handling_needed else "STRETCH"))
