"""Four corners in an image, given by a definition or by a record, and the grid between them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pipelines.data.data import Data
from pipelines.errors import DataError, DefinitionError
from pipelines.runners.images.fields import points_key
from pipelines.runners.images.homography import Corners, corners_of
from pipelines.steps.shapes import PointConfig


def fixed_corners(points: Sequence[PointConfig] | None) -> Corners:
    """The corners that a definition gives. Raises `DefinitionError` if they are not four."""
    try:
        return corners_of([point.value for point in points or ()], "points")
    except DataError as error:
        raise DefinitionError(str(error)) from None


def corners_under(data: Data, key: str | None) -> Corners:
    """The corners under `key` of a record, by default its only list of points. `DataError` if they are not four."""
    key = points_key(data, key or None)
    return corners_of(data[key], f'the points "{key}"')


def in_pixels(corners: Corners, width: int, height: int, *, pixels: bool) -> Corners:
    """The corners in pixels: fractions of the image are multiplied by its size."""
    return corners if pixels else corners * np.array([width, height])


def between(corners: Corners, across: float, down: float) -> tuple[float, float]:
    """The point at these fractions of the way from left to right and from top to bottom."""
    top_left, top_right, bottom_left, bottom_right = corners
    left = top_left + down * (bottom_left - top_left)
    right = top_right + down * (bottom_right - top_right)
    x, y = (left + across * (right - left)).tolist()
    return x, y
