"""Runs DRAW_HEATMAP."""

from __future__ import annotations

from typing import ClassVar, Final

import numpy as np
import numpy.typing as npt

from pipelines.data.data import Data
from pipelines.errors import DataError
from pipelines.runners.draw.canvas import canvas
from pipelines.runners.draw.pointfields import check_fields, points_in_pixels
from pipelines.runners.images.opencv import opencv
from pipelines.runners.runner import OpenContext, RowRunner
from pipelines.steps.draw.draw import DrawHeatmap
from pipelines.values import Image, Point
from pipelines.values.pixels import check_size

RADIUS: Final = 15
FADING: Final = 0.9
OPACITY: Final = 0.5
OUTPUT: Final = "image"


class DrawHeatmapRunner(RowRunner):
    """The map of all records so far, each fading by `fadingFactor` at the next; one map for all records.

    Raises `DefinitionError` when it is opened without points or without an image or a size. Fails a row whose picture
    has another size than the first one.
    """

    keeps_rows: ClassVar[bool] = True
    writes: ClassVar[bool] = False
    pure: ClassVar[bool] = False

    def __init__(self, step: DrawHeatmap, context: OpenContext) -> None:
        check_fields(step.points, step.image, step.width, step.height)
        self._step = step
        self._spot = _spot(step.radius or RADIUS)
        self._map: npt.NDArray[np.float64] | None = None

    def run(self, data: Data) -> Data:
        step, cv2 = self._step, opencv()
        image = None if step.image is None else data.get_image(step.image)
        size = (step.height or 0, step.width or 0) if image is None else (image.height, image.width)
        if self._map is not None and self._map.shape != size:
            raise DataError(
                f"the heat map has {self._map.shape[1]} x {self._map.shape[0]} pixels, this picture "
                f"{size[1]} x {size[0]}; resize pictures before, or use one step for each size"
            )
        check_size(size[1], size[0], Image.max_pixels)
        points = points_in_pixels(data, step.points or (), size, step.image_to_ndarray_config)
        fading = FADING if step.fading_factor is None else step.fading_factor
        layer = np.zeros(size) if self._map is None else self._map * fading
        for point in points:
            self._add(layer, point)
        most = layer.max()
        heat = np.rint(layer * (255 / most) if most > 0 else layer).astype(np.uint8)
        picture = cv2.applyColorMap(heat, cv2.COLORMAP_TURBO)
        if image is not None:
            opacity = OPACITY if step.opacity is None else step.opacity
            picture = cv2.addWeighted(canvas(image), 1.0, picture, opacity, 0)
        self._map = layer
        if not step.keep_other_values:
            data.clear()
        data[step.output_name or OUTPUT] = Image(picture)
        return data

    def _add(self, layer: npt.NDArray[np.float64], point: Point) -> None:
        height, width = layer.shape
        row, column = int(point.y), int(point.x)
        if not (0 <= row <= height and 0 <= column <= width):
            return
        reach = len(self._spot) // 2
        top, left = max(row - reach, 0), max(column - reach, 0)
        bottom, right = min(row + reach + 1, height), min(column + reach + 1, width)
        y, x = reach - row, reach - column
        layer[top:bottom, left:right] += self._spot[top + y : bottom + y, left + x : right + x]


def _spot(radius: int) -> npt.NDArray[np.float64]:
    # A single 255 blurred by a Gaussian that reaches as far as the square: the Gaussian itself.
    line = np.exp(-0.5 * (np.arange(-4 * radius, 4 * radius + 1) / radius) ** 2)
    line /= line.sum()
    return 255 * np.outer(line, line)
