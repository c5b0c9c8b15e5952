"""Runs CROP_GRID and CROP_FIXED_GRID."""

from __future__ import annotations

from typing import ClassVar

from pipelines.data.data import Data
from pipelines.errors import DataError
from pipelines.runners.images.fields import image_key
from pipelines.runners.images.homography import Corners
from pipelines.runners.images.imagecrop import crop
from pipelines.runners.images.quadrilateral import between, corners_under, fixed_corners, in_pixels
from pipelines.runners.runner import OpenContext, RowRunner
from pipelines.steps.boxes.extract import CropFixedGrid, CropGrid
from pipelines.values import BoundingBox, Image, TypedList, ValueType

OUTPUT = "crops"


class CropGridRunner(RowRunner):
    """The upright rectangles around the cells of a grid, cut at the image's borders, line by line.

    Raises `DefinitionError` when it is opened with fixed corners that are not four. Fails a row without an image or
    four corners, and one with a cell that has no pixel of the image.
    """

    keeps_rows: ClassVar[bool] = True
    writes: ClassVar[bool] = False

    def __init__(self, step: CropGrid | CropFixedGrid, context: OpenContext) -> None:
        self._step = step
        self._fixed = fixed_corners(step.points) if isinstance(step, CropFixedGrid) else None

    def run(self, data: Data) -> Data:
        step = self._step
        image = data.get_image(image_key(data, step.image_name))
        given = self._fixed
        if isinstance(step, CropGrid):
            given = corners_under(data, step.points_name)
        assert given is not None
        corners = in_pixels(given, image.width, image.height, pixels=step.coords_are_pixels)
        crops, boxes = self._cells(image, corners)
        if not step.keep_other_fields:
            data.clear()
        data[step.output_name or OUTPUT] = TypedList(ValueType.IMAGE, crops)
        if step.bounding_box_name is not None:
            data[step.bounding_box_name] = TypedList(ValueType.BOUNDING_BOX, boxes)
        return data

    def _cells(self, image: Image, corners: Corners) -> tuple[list[Image], list[BoundingBox]]:
        step = self._step
        picture = image.get_as("numpy")
        crops, boxes = [], []
        for line in range(step.grid_y):
            for column in range(step.grid_x):
                x, y, width, height = self._rectangle(corners, column, line, image.width, image.height)
                if width <= 0 or height <= 0:
                    raise DataError(
                        f"the cell in column {column} and line {line} of the grid has no pixel of the image"
                    )
                left, top = int(x), int(y)
                crops.append(Image(crop(picture, (left, top, left + width, top + height), pixels=True)))
                boxes.append(
                    BoundingBox.corners(
                        x / image.width,
                        (x + width) / image.width,
                        y / image.height,
                        (y + height) / image.height,
                        "",
                        0.0,
                    )
                )
        return crops, boxes

    def _rectangle(
        self, corners: Corners, column: int, line: int, image_width: int, image_height: int
    ) -> tuple[float, float, int, int]:
        """Left, top, width, height; fractions dropped where Konduit Serving drops them."""
        step = self._step
        cell = [between(corners, (column + i) / step.grid_x, (line + j) / step.grid_y) for i in (0, 1) for j in (0, 1)]
        x, y = min(point[0] for point in cell), min(point[1] for point in cell)
        width, height = int(max(point[0] for point in cell) - x), int(max(point[1] for point in cell) - y)
        if step.aspect_ratio is not None and width > 0 and height > 0:
            if step.aspect_ratio < width / height:
                wanted = int(width / step.aspect_ratio)
                y, height = y - (wanted - height) // 2, wanted
            elif step.aspect_ratio > width / height:
                wanted = int(height * step.aspect_ratio)
                x, width = x - (wanted - width) // 2, wanted
        x, width = _clipped(x, width, image_width)
        y, height = _clipped(y, height, image_height)
        return x, y, width, height


def _clipped(start: float, length: int, limit: int) -> tuple[float, int]:
    if start < 0:
        start, length = 0.0, int(length + start)
    if start + length > limit:
        length = limit - int(start)
    return start, length
