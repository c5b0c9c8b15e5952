"""RELATIVE_TO_ABSOLUTE, PERSPECTIVE_TRANSFORM: points and boxes from one coordinate system to another."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from pipelines.steps.base import RunBy, Step
from pipelines.steps.config import Int, Key, Spelling
from pipelines.steps.images.imagetondarray import ImageToNDArrayConfig
from pipelines.steps.shapes import PointField


class RelativeToAbsolute(Step):
    """Points and boxes in fractions of an image become pixels; those that are pixels already stay."""

    type_name: ClassVar[str] = "RELATIVE_TO_ABSOLUTE"
    run_by: ClassVar[RunBy | None] = RunBy("numpy", "pipelines.runners.boxes.absolute:RelativeToAbsoluteRunner")

    image_name: str | None = None
    """Key of the image whose size counts."""
    image_h: Annotated[Int, Field(gt=0)] | None = None
    """Height in pixels, where there is no `imageName`."""
    image_w: Annotated[Int, Field(gt=0)] | None = None
    """Width in pixels, where there is no `imageName`."""
    image_to_ndarray_config: Annotated[ImageToNDArrayConfig | None, Spelling(yaml="image_to_ndarray_config")] = Field(
        default=None, alias="imageToNDArrayConfig"
    )
    """How the image was made a network's input, if the fractions are of that: its crop is accounted for."""
    to_convert: tuple[str, ...] | None = None
    """Keys to convert; none or empty: every point, box and list of them."""


class PerspectiveTransform(Step):
    """Maps points, boxes and images so that four source points come to lie on four target points.

    The points come in the order top left, top right, bottom left, bottom right, in pixels.
    """

    type_name: ClassVar[str] = "PERSPECTIVE_TRANSFORM"
    run_by: ClassVar[RunBy | None] = RunBy("numpy", "pipelines.runners.images.perspective:PerspectiveTransformRunner")

    input_names: tuple[str, ...] | None = None
    """Keys to transform; none: every image, box, point and list of them."""
    output_names: tuple[Key, ...] | None = None
    """Keys of the results, one for each input; none or empty: those of the inputs."""
    source_points_name: str | None = None
    """Key of the four source points; either this or `sourcePoints` is needed."""
    target_points_name: str | None = None
    """Key of the four target points."""
    reference_image: str | None = None
    """Key of an image, or list of them, that has to be wholly visible: the target is moved so that it begins at 0."""
    reference_width: Annotated[Int, Field(gt=0)] | None = None
    """With `referenceHeight`, in place of an image."""
    reference_height: Annotated[Int, Field(gt=0)] | None = None
    """With `referenceWidth`, in place of an image."""
    source_points: tuple[PointField, ...] | None = None
    """The four source points."""
    target_points: tuple[PointField, ...] | None = None
    """The four target points; without any a rectangle as large as the source's longer sides."""
    keep_other_fields: bool = True
    """Whether to keep the other keys of the record."""
