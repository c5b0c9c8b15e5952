"""RELATIVE_TO_ABSOLUTE, PERSPECTIVE_TRANSFORM: points and boxes from one coordinate system to another."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from pipelines.steps.base import RunBy, Step
from pipelines.steps.config import Int, Key, Spelling
from pipelines.steps.images.imagetondarray import ImageToNDArrayConfig
from pipelines.steps.shapes import PointField


class RelativeToAbsolute(Step):
    """Converts points and boxes from fractions of an image to pixels; those that are in pixels stay."""

    type_name: ClassVar[str] = "RELATIVE_TO_ABSOLUTE"
    run_by: ClassVar[RunBy | None] = RunBy("numpy", "pipelines.runners.boxes.absolute:RelativeToAbsoluteRunner")

    image_name: str | None = None
    """Key of the image that the fractions are of; either this, or `imageH` and `imageW`, is needed."""
    image_h: Annotated[Int, Field(gt=0)] | None = None
    """Height of the image in pixels, if there is no `imageName`."""
    image_w: Annotated[Int, Field(gt=0)] | None = None
    """Width of the image in pixels, if there is no `imageName`."""
    image_to_ndarray_config: Annotated[ImageToNDArrayConfig | None, Spelling(yaml="image_to_ndarray_config")] = Field(
        default=None, alias="imageToNDArrayConfig"
    )
    """The `config` of the `IMAGE_TO_NDARRAY` step that made the network's input, if points and boxes are fractions of
    that input."""
    to_convert: tuple[str, ...] | None = None
    """Keys to convert; default, or if empty: all points, boxes and lists of them."""


class PerspectiveTransform(Step):
    """Maps points, boxes and images so that four source points come to lie on four target points.

    The points come in the order top left, top right, bottom left, bottom right, in pixels.
    """

    type_name: ClassVar[str] = "PERSPECTIVE_TRANSFORM"
    run_by: ClassVar[RunBy | None] = RunBy("numpy", "pipelines.runners.images.perspective:PerspectiveTransformRunner")

    input_names: tuple[str, ...] | None = None
    """Keys to transform; default: all images, boxes, points and lists of them."""
    output_names: tuple[Key, ...] | None = None
    """Keys of the results, one for each input; default, or if empty: the inputs' keys."""
    source_points_name: str | None = None
    """Key of the four source points; either this or `sourcePoints` is needed."""
    target_points_name: str | None = None
    """Key of the four target points."""
    reference_image: str | None = None
    """Key of an image, or list of images, that has to stay wholly visible: the target points are moved so that its left
    and top edges come to lie at 0."""
    reference_width: Annotated[Int, Field(gt=0)] | None = None
    """Width in pixels, together with `referenceHeight`, in place of a `referenceImage`."""
    reference_height: Annotated[Int, Field(gt=0)] | None = None
    """Height in pixels, together with `referenceWidth`, in place of a `referenceImage`."""
    source_points: tuple[PointField, ...] | None = None
    """The four source points."""
    target_points: tuple[PointField, ...] | None = None
    """The four target points; default: an upright rectangle as wide and high as the longer sides between the source
    points."""
    keep_other_fields: bool = True
    """Whether to keep the other keys of the record."""
