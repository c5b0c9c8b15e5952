"""EXTRACT_BOUNDING_BOX, CROP_GRID, CROP_FIXED_GRID: parts of an image as images of their own."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from pipelines.steps.base import RunBy, Step
from pipelines.steps.config import Int, Key, Spelling
from pipelines.steps.images.imagetondarray import ImageToNDArrayConfig
from pipelines.steps.shapes import PointField


class ExtractBoundingBox(Step):
    """Cuts the part of an image in each box out: one box gives an image, a list of boxes a list of images.

    Boxes are in fractions of the image. Where a box reaches beyond the image, its part is black.
    """

    type_name: ClassVar[str] = "EXTRACT_BOUNDING_BOX"
    run_by: ClassVar[RunBy | None] = RunBy(
        "opencv", "pipelines.runners.boxes.extract:ExtractBoundingBoxRunner", ("cv2",), extra="image"
    )

    image_name: str | None = None
    """Key of the image; default: the record's only image."""
    bbox_name: str | None = None
    """Key of the box or list of boxes; default: the record's only one."""
    output_name: Key | None = None
    """Key of the part, or list of parts; default: the image's key."""
    keep_other_fields: bool = True
    """Whether to keep the other keys; the image and the boxes are always removed."""
    aspect_ratio: Annotated[float, Field(gt=0)] | None = None
    """Width / height in pixels: a box of another ratio is made wider or higher around its centre; default: boxes
    stay."""
    resize_h: Annotated[Int, Field(gt=0)] | None = None
    """Height in pixels to which parts are resized, together with `resizeW`; default: they are not resized."""
    resize_w: Annotated[Int, Field(gt=0)] | None = None
    """Width in pixels to which parts are resized, together with `resizeH`; default: they are not resized."""
    image_to_ndarray_config: Annotated[ImageToNDArrayConfig | None, Spelling(yaml="image_to_ndarray_config")] = Field(
        default=None, alias="imageToNDArrayConfig"
    )
    """The `config` of the `IMAGE_TO_NDARRAY` step that made the network's input, if boxes are fractions of that input:
    they are converted to fractions of the image."""


class CropGrid(Step):
    """Cuts the cells of a grid, in a quadrilateral of an image, out as a list of images, row by row.

    The corners come in the order top left, top right, bottom left, bottom right. Each part is the upright rectangle
    around its cell.
    """

    type_name: ClassVar[str] = "CROP_GRID"
    run_by: ClassVar[RunBy | None] = RunBy(
        "opencv", "pipelines.runners.images.cropgrid:CropGridRunner", ("cv2",), extra="image"
    )

    image_name: str | None = None
    """Key of the image; default: the record's only image."""
    points_name: str | None = None
    """Key of the list of the four corners; default: the record's only list of points."""
    grid_x: Annotated[Int, Field(ge=0)] = 0
    """Number of columns."""
    grid_y: Annotated[Int, Field(ge=0)] = 0
    """Number of rows."""
    coords_are_pixels: bool = False
    """Whether the corners are in pixels; otherwise they are in fractions of the image."""
    bounding_box_name: Key | None = None
    """Key under which the rectangles are added as a list of boxes, in fractions of the image; default: they are not."""
    output_coordinates: bool = False
    """No effect, as in Konduit Serving."""
    keep_other_fields: bool = False
    """Whether to keep the other keys, the image and the corners among them."""
    aspect_ratio: Annotated[float, Field(gt=0)] | None = None
    """Width / height in pixels: a rectangle of another ratio is made wider or higher around its centre; default: none
    is."""
    output_name: Key | None = None
    """Key of the list of parts; default: `crops`."""


class CropFixedGrid(Step):
    """As `CROP_GRID`, with corners that the definition gives, the same for all records."""

    type_name: ClassVar[str] = "CROP_FIXED_GRID"
    run_by: ClassVar[RunBy | None] = RunBy(
        "opencv", "pipelines.runners.images.cropgrid:CropGridRunner", ("cv2",), extra="image"
    )

    image_name: str | None = None
    """Key of the image; default: the record's only image."""
    points: tuple[PointField, ...] | None = None
    """The four corners: top left, top right, bottom left, bottom right."""
    grid_x: Annotated[Int, Field(ge=0)] = 0
    """Number of columns."""
    grid_y: Annotated[Int, Field(ge=0)] = 0
    """Number of rows."""
    coords_are_pixels: bool = False
    """Whether the corners are in pixels; otherwise they are in fractions of the image."""
    bounding_box_name: Key | None = None
    """Key under which the rectangles are added as a list of boxes, in fractions of the image; default: they are not."""
    output_coordinates: bool = False
    """No effect, as in Konduit Serving."""
    keep_other_fields: bool = False
    """Whether to keep the other keys, the image among them."""
    aspect_ratio: Annotated[float, Field(gt=0)] | None = None
    """Width / height in pixels: a rectangle of another ratio is made wider or higher around its centre; default: none
    is."""
    output_name: Key | None = None
    """Key of the list of parts; default: `crops`."""
