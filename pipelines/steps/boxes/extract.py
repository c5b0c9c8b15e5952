"""EXTRACT_BOUNDING_BOX, CROP_GRID, CROP_FIXED_GRID: parts of an image as images of their own."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from pipelines.steps.base import RunBy, Step
from pipelines.steps.config import Int, Key, Spelling
from pipelines.steps.images.imagetondarray import ImageToNDArrayConfig
from pipelines.steps.shapes import PointField


class ExtractBoundingBox(Step):
    """The part of an image in each box: one box gives an image, a list of boxes a list of images.

    Boxes are fractions of the image; parts of a box outside of it are black.
    """

    type_name: ClassVar[str] = "EXTRACT_BOUNDING_BOX"
    run_by: ClassVar[RunBy | None] = RunBy(
        "opencv", "pipelines.runners.boxes.extract:ExtractBoundingBoxRunner", ("cv2",), extra="image"
    )

    image_name: str | None = None
    """Key of the image; none: the only one."""
    bbox_name: str | None = None
    """Key of the box or list of boxes; none: the only one."""
    output_name: Key | None = None
    """Key of the parts; none: that of the image."""
    keep_other_fields: bool = True
    """Whether to keep the other keys; image and boxes go in any case."""
    aspect_ratio: Annotated[float, Field(gt=0)] | None = None
    """Width / height, in pixels, to which a box is widened or heightened about its centre."""
    resize_h: Annotated[Int, Field(gt=0)] | None = None
    """Height of the parts, with `resizeW`; none: as they are."""
    resize_w: Annotated[Int, Field(gt=0)] | None = None
    """Width of the parts, with `resizeH`; none: as they are."""
    image_to_ndarray_config: Annotated[ImageToNDArrayConfig | None, Spelling(yaml="image_to_ndarray_config")] = Field(
        default=None, alias="imageToNDArrayConfig"
    )
    """How the image was made a network's input, if the boxes are fractions of that: its crop is accounted for."""


class CropGrid(Step):
    """The cells of a grid in a quadrilateral of an image, as a list of images, line by line.

    The corners come in the order top left, top right, bottom left, bottom right. Each part is the upright rectangle
    around its cell.
    """

    type_name: ClassVar[str] = "CROP_GRID"
    run_by: ClassVar[RunBy | None] = RunBy(
        "opencv", "pipelines.runners.images.cropgrid:CropGridRunner", ("cv2",), extra="image"
    )

    image_name: str | None = None
    """Key of the image; none: the only one."""
    points_name: str | None = None
    """Key of the list of the four corners; none: the only list of points."""
    grid_x: Annotated[Int, Field(ge=0)] = 0
    """Number of columns."""
    grid_y: Annotated[Int, Field(ge=0)] = 0
    """Number of lines."""
    coords_are_pixels: bool = False
    """Whether the corners are pixels; otherwise fractions of the image."""
    bounding_box_name: Key | None = None
    """Key for the rectangles as a list of boxes, fractions of the image; none: they are not added."""
    output_coordinates: bool = False
    """Konduit's; has no effect, there neither."""
    keep_other_fields: bool = False
    """Whether to keep the other keys, the image and the corners among them."""
    aspect_ratio: Annotated[float, Field(gt=0)] | None = None
    """Width / height to which each rectangle is widened or heightened about its centre."""
    output_name: Key | None = None
    """Key of the parts; none: `crops`."""


class CropFixedGrid(Step):
    """As `CROP_GRID`, with corners that are the same for all records."""

    type_name: ClassVar[str] = "CROP_FIXED_GRID"
    run_by: ClassVar[RunBy | None] = RunBy(
        "opencv", "pipelines.runners.images.cropgrid:CropGridRunner", ("cv2",), extra="image"
    )

    image_name: str | None = None
    """Key of the image; none: the only one."""
    points: tuple[PointField, ...] | None = None
    """The four corners."""
    grid_x: Annotated[Int, Field(ge=0)] = 0
    """Number of columns."""
    grid_y: Annotated[Int, Field(ge=0)] = 0
    """Number of lines."""
    coords_are_pixels: bool = False
    """Whether the corners are pixels; otherwise fractions of the image."""
    bounding_box_name: Key | None = None
    """Key for the rectangles as a list of boxes, fractions of the image; none: they are not added."""
    output_coordinates: bool = False
    """Konduit's; has no effect, there neither."""
    keep_other_fields: bool = False
    """Whether to keep the other keys, the image among them."""
    aspect_ratio: Annotated[float, Field(gt=0)] | None = None
    """Width / height to which each rectangle is widened or heightened about its centre."""
    output_name: Key | None = None
    """Key of the parts; none: `crops`."""
