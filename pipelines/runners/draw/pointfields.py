"""The points that a drawing step draws, in pixels, and the picture that it draws into."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pipelines.data.data import Data
from pipelines.errors import DataError, DefinitionError, WrongTypeError
from pipelines.runners.draw.canvas import Size
from pipelines.runners.images.cropped import point_in_pixels, region_of
from pipelines.runners.images.fields import holds, listed
from pipelines.runners.images.homography import FARTHEST
from pipelines.steps.images.imagetondarray import ImageToNDArrayConfig
from pipelines.values import Point, ValueType, type_of


def check_fields(points: Sequence[str] | None, image: str | None, width: int | None, height: int | None) -> None:
    """Raise `DefinitionError` if a step names no points, or neither an image nor a size."""
    if not points:
        raise DefinitionError("points must name the keys of the points to draw")
    if image is None and (width is None or height is None):
        raise DefinitionError("image, or both width and height must be given")


def points_in_pixels(data: Data, keys: Iterable[str], size: Size, config: ImageToNDArrayConfig | None) -> list[Point]:
    """All points under these keys, in pixels of a picture of this size.

    Raises `WrongTypeError` for a value that is not a point or a list of points, `DataError` for other than two
    dimensions and for numbers that are not finite, or farther from 0 than `FARTHEST`.
    """
    height, width = size
    region = region_of(config, width, height)
    points: list[Point] = []
    for key in keys:
        value = data[key]
        if not holds(value, ValueType.POINT):
            raise WrongTypeError(
                f'Value has wrong type for key "{key}": a point or a list of points is needed, '
                f"not {type_of(value).name}"
            )
        for number, point in enumerate(listed(value)):
            placed = point_in_pixels(point, region, width, height)
            if not all(abs(place) <= FARTHEST for place in placed.coords):
                raise DataError(
                    f'point {number} of "{key}" is {point!r}: its numbers have to be finite, and below 1e9 in pixels'
                )
            points.append(placed)
    return points
