"""Runs DRAW_SEGMENTATION."""

from __future__ import annotations

import itertools
from typing import Any, ClassVar, Final

import numpy as np
import numpy.typing as npt

from pipelines.data.data import Data
from pipelines.errors import DataError, WrongTypeError
from pipelines.runners.draw.canvas import black, canvas
from pipelines.runners.images.colors import LIME, color, random_colors
from pipelines.runners.images.cropped import region_of
from pipelines.runners.images.opencv import opencv
from pipelines.runners.models.arrays import array_named, only_array_of
from pipelines.runners.runner import OpenContext, RowRunner
from pipelines.steps.draw.draw import DrawSegmentation
from pipelines.values import Image
from pipelines.values.pixels import Pixels

OPACITY: Final = 0.5
OUTPUT: Final = "image"
MOST: Final = 65536
"""Upper bound of class numbers: an array with more is not a segmentation."""


class DrawSegmentationRunner(RowRunner):
    """A picture of the classes, alone or over an image; nothing else of the record, as in Konduit Serving.

    Raises `DefinitionError` when it is opened with an invalid colour. Fails a row whose array is not integers
    `[1, H, W]` (with `ARGMAX` numbers `[1, C, H, W]`), or has a class number below 0.
    """

    keeps_rows: ClassVar[bool] = True
    writes: ClassVar[bool] = False

    def __init__(self, step: DrawSegmentation, context: OpenContext) -> None:
        self._step = step
        given = [color(name, LIME) for name in step.class_colors or ()]
        self._source = itertools.chain(given, itertools.islice(random_colors(), len(given), None))
        self._colors = np.zeros((0, 3), np.uint8)

    def run(self, data: Data) -> Data:
        step = self._step
        key = step.segment_array
        array = only_array_of(dict(data)) if key is None else data.get_ndarray(key)
        classes = _classes(array if step.activation == "NONE" else _highest(array, key), key)
        colors = self._table(int(classes.max(initial=0)) + 1)
        background = classes == (-1 if step.background_class is None else step.background_class)
        if step.image is None:
            picture = black(*classes.shape)
            picture[:] = colors[classes]
            picture[background] = 0
            return Data({step.output_name or OUTPUT: Image(picture)})
        image = data.get_image(step.image)
        picture = canvas(image)
        if classes.shape == picture.shape[:2]:
            self._blend(picture, colors[classes], background, 0.0)
            return Data({step.output_name or OUTPUT: Image(picture)})
        region = region_of(step.image_to_ndarray_config, image.width, image.height)
        left, top, wide, high = 0, 0, image.width, image.height
        if region is not None:
            left, top = int(region.x1 * image.width), int(region.y1 * image.height)
            wide, high = max(int(region.width * image.width), 1), max(int(region.height * image.height), 1)
        # A region that reaches beyond the image (padding) is cut at its borders.
        inside = picture[max(top, 0) : top + high, max(left, 0) : left + wide]
        y, x = max(-top, 0), max(-left, 0)
        part = _stretched(classes, high, wide)[y : y + inside.shape[0], x : x + inside.shape[1]]
        hidden = _stretched(background, high, wide)[y : y + inside.shape[0], x : x + inside.shape[1]]
        self._blend(inside, colors[part], hidden, 0.5)
        return Data({step.output_name or OUTPUT: Image(picture)})

    def _blend(self, picture: Pixels, colors: Pixels, background: npt.NDArray[np.bool_], rounding: float) -> None:
        # Of an image of the same size Konduit Serving drops the fraction, otherwise it rounds.
        opacity = OPACITY if self._step.opacity is None else self._step.opacity
        mixed = (opacity * colors + (1 - opacity) * picture + rounding).astype(np.uint8)
        np.copyto(picture, mixed, where=~background[:, :, np.newaxis])

    def _table(self, count: int) -> Pixels:
        if count > len(self._colors):
            more = list(itertools.islice(self._source, count - len(self._colors)))
            self._colors = np.concatenate([self._colors, np.array(more, np.uint8)])
        return self._colors


def _highest(array: npt.NDArray[Any], key: str | None) -> npt.NDArray[np.int64]:
    """The class with the highest score at each pixel, the first of equal ones: `(H, W)`."""
    if array.dtype.kind not in "iuf" and array.dtype.name != "bfloat16":
        raise WrongTypeError(f"{array_named(key)} is {array.dtype.name}; scores, numbers, are needed for ARGMAX")
    if array.ndim == 4 and len(array) == 1:
        array = array[0]
    if array.ndim != 3 or 0 in array.shape:
        raise WrongTypeError(f"{array_named(key)} has the shape {list(array.shape)}; [1, C, H, W] is needed for ARGMAX")
    if array.dtype.kind not in "iu" and np.isnan(array).any():
        raise DataError(f"{array_named(key)} has scores that are not a number")
    highest: npt.NDArray[np.int64] = array.argmax(axis=0)
    return highest


def _classes(array: npt.NDArray[Any], key: str | None) -> npt.NDArray[np.int64]:
    if array.dtype.kind not in "iu":
        raise WrongTypeError(
            f"{array_named(key)} is {array.dtype.name}; class numbers, integers, are needed, or for scores of classes "
            "[1, C, H, W] activation: ARGMAX"
        )
    if array.ndim == 3 and len(array) == 1:
        array = array[0]
    if array.ndim != 2 or 0 in array.shape:
        raise WrongTypeError(f"{array_named(key)} has the shape {list(array.shape)}; [1, H, W] is needed")
    if array.min() < 0 or array.max() >= MOST:
        raise DataError(f"{array_named(key)} has class numbers from {array.min()} to {array.max()}")
    return array.astype(np.int64)


def _stretched(mask: npt.NDArray[Any], height: int, width: int) -> npt.NDArray[Any]:
    cv2 = opencv()
    # Nearest neighbour: between two classes there is none.
    made: npt.NDArray[Any] = cv2.resize(mask.astype(np.uint16), (width, height), interpolation=cv2.INTER_NEAREST)
    return made.astype(mask.dtype)
