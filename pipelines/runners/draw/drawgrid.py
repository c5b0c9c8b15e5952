"""Runs DRAW_GRID and DRAW_FIXED_GRID."""

from __future__ import annotations

from typing import ClassVar

from pipelines.data.data import Data
from pipelines.runners.draw.canvas import canvas
from pipelines.runners.images.colors import LIME, Color, color
from pipelines.runners.images.fields import image_key
from pipelines.runners.images.opencv import opencv
from pipelines.runners.images.quadrilateral import between, corners_under, fixed_corners, in_pixels
from pipelines.runners.runner import OpenContext, RowRunner
from pipelines.steps.draw.drawgrid import DrawFixedGrid, DrawGrid
from pipelines.values import Image
from pipelines.values.pixels import Pixels


class DrawGridRunner(RowRunner):
    """The image is replaced by a picture with the grid; all other keys stay.

    Raises `DefinitionError` when it is opened with fixed corners that are not four, or with an invalid colour. Fails a
    row without an image or four corners.
    """

    keeps_rows: ClassVar[bool] = True
    writes: ClassVar[bool] = False
    keeps_keys: ClassVar[bool] = True

    def __init__(self, step: DrawGrid | DrawFixedGrid, context: OpenContext) -> None:
        self._step = step
        self._fixed = fixed_corners(step.points) if isinstance(step, DrawFixedGrid) else None
        self._border = color(step.border_color, LIME)
        self._inside = color(step.grid_color, self._border)

    def run(self, data: Data) -> Data:
        step = self._step
        key = image_key(data, step.image_name)
        picture = canvas(data.get_image(key))
        given = self._fixed
        if isinstance(step, DrawGrid):
            given = corners_under(data, step.points_name)
        assert given is not None
        corners = in_pixels(given, picture.shape[1], picture.shape[0], pixels=step.coords_are_pixels)
        thickness = max(step.border_thickness, 1)
        for ends in ((0, 0, 1, 0), (0, 0, 0, 1), (1, 0, 1, 1), (0, 1, 1, 1)):
            start, end = between(corners, *ends[:2]), between(corners, *ends[2:])
            _line(picture, start, end, self._border, thickness)
        thickness = thickness if step.grid_thickness is None else max(step.grid_thickness, 1)
        for column in range(1, step.grid_x):
            x = column / step.grid_x
            _line(picture, between(corners, x, 0), between(corners, x, 1), self._inside, thickness)
        for line in range(1, step.grid_y):
            y = line / step.grid_y
            _line(picture, between(corners, 0, y), between(corners, 1, y), self._inside, thickness)
        data[key] = Image(picture)
        return data


def _line(picture: Pixels, start: tuple[float, float], end: tuple[float, float], chosen: Color, thickness: int) -> None:
    cv2 = opencv()
    first, last = (int(start[0]), int(start[1])), (int(end[0]), int(end[1]))
    cv2.line(picture, first, last, chosen, thickness, cv2.LINE_8)
