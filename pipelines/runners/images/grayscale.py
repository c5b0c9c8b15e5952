"""Runs GRAY_SCALE."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from pipelines.data.batch import Batch
from pipelines.data.result import Result
from pipelines.runners.images.imagecolumns import each, image_values, images_column, only_image_keys, over_parts
from pipelines.runners.runner import OpenContext, Runner
from pipelines.steps.images.images import GrayScale
from pipelines.values import Image


class GrayScaleRunner(Runner):
    """Makes images and the images of lists gray, with one channel or three equal ones; all other keys stay.

    An image that is gray already is accepted, where Konduit Serving fails. Fails a row that has no image or several.
    """

    keeps_rows: ClassVar[bool] = True
    keeps_keys: ClassVar[bool] = True
    needs_all: ClassVar[bool] = True

    def __init__(self, step: GrayScale, context: OpenContext) -> None:
        self._key = step.image_name
        self._channels = 1 if step.output_channels == 1 else 3

    @property
    def reads(self) -> frozenset[str] | None:
        return None if self._key is None else frozenset([self._key])

    @property
    def gives(self) -> frozenset[str] | None:
        return frozenset()

    def run_batch(self, batch: Batch) -> Result:
        return Result(over_parts(batch, only_image_keys(batch, self._key), self._gray))

    def _gray(self, batch: Batch, key: str) -> Batch:
        return batch.with_columns({key: images_column(each(image_values(batch, key), key, self._image))})

    def _image(self, row: int, image: Image) -> Image:
        if image.channels == self._channels == 1:
            return image
        gray = image.scaled(image.width, image.height, 1)
        return Image(gray if self._channels == 1 else np.repeat(gray, 3, axis=2))
