"""From fractions of a network's input to places in the image that the input was cropped from."""

from __future__ import annotations

from pipelines.errors import DataError
from pipelines.runners.images.fitting import crop_region
from pipelines.steps.images.imagetondarray import ImageToNDArrayConfig
from pipelines.values import BoundingBox, Point


def region_of(config: ImageToNDArrayConfig | None, width: int, height: int) -> BoundingBox | None:
    """The part of an image of this size that the network saw, as fractions of it; `None` without a configuration."""
    if config is None:
        return None
    return crop_region(width, height, config.width or width, config.height or height, config.aspect_ratio_handling)


def box_in_image(box: BoundingBox, region: BoundingBox | None) -> BoundingBox:
    """A box in fractions of `region` as fractions of the image, by its corners; itself without a region."""
    if region is None:
        return box
    made = BoundingBox.corners(
        region.x1 + region.width * box.x1,
        region.x1 + region.width * box.x2,
        region.y1 + region.height * box.y1,
        region.y1 + region.height * box.y2,
        box.label,
        box.probability,
    )
    # The probability is the same number.
    made.narrow = box.narrow
    return made


def point_in_pixels(point: Point, region: BoundingBox | None, width: int, height: int) -> Point:
    """A point of two coordinates in pixels of an image: fractions of `region` if there is one, else of the image.

    Without a region a point that is absolute already stays as it is. Raises `DataError` for other dimensions.
    """
    if point.dimensions != 2:
        raise DataError(f"a point with two coordinates is needed, not with {point.dimensions}")
    if region is None:
        return point.to_absolute(width, height)
    x = region.x1 + region.width * point.x
    y = region.y1 + region.height * point.y
    return Point((x * width, y * height), point.label, point.probability)
