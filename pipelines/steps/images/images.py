"""Steps from image to image: IMAGE_RESIZE, IMAGE_CROP, GRAY_SCALE; and SHOW_IMAGE."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from pipelines.steps.base import RunBy, Step
from pipelines.steps.config import Form, Int, Spelling
from pipelines.steps.images.imagetondarray import AspectRatio
from pipelines.steps.shapes import BoxField, PointField


class ImageResize(Step):
    """Images are resized, bilinear; those of a list one by one."""

    type_name: ClassVar[str] = "IMAGE_RESIZE"
    run_by: ClassVar[RunBy | None] = RunBy(
        "opencv", "pipelines.runners.images.imageresize:ImageResizeRunner", ("cv2",), extra="image"
    )
    yaml_case: ClassVar[Literal["snake", "camel"]] = "camel"

    input_names: tuple[str, ...] | None = None
    """Which images; none or empty: all images and lists of images."""
    height: Annotated[Int, Field(gt=0)] | None = None
    """Rows of the result; none: by the image's own proportions."""
    width: Annotated[Int, Field(gt=0)] | None = None
    """Columns of the result; none: by the image's own proportions."""
    aspect_ratio_handling: AspectRatio = "STRETCH"
    """An image of other proportions is cropped to its centre, padded with black, or stretched."""


class ImageCrop(Step):
    """A rectangle is cut out of an image, or out of each of a list; parts of it outside of the image are black.

    The rectangle is `crop_box`, else `crop_points`, else the record's value under `crop_name`.
    """

    type_name: ClassVar[str] = "IMAGE_CROP"
    run_by: ClassVar[RunBy | None] = RunBy(
        "opencv", "pipelines.runners.images.imagecrop:ImageCropRunner", ("cv2",), extra="image"
    )
    yaml_case: ClassVar[Literal["snake", "camel"]] = "camel"

    crop_name: str | None = None
    """Key of a BOUNDING_BOX, or of a list of two POINTs."""
    crop_points: tuple[PointField, ...] | None = None
    """Two opposite corners."""
    crop_box: BoxField | None = None
    """The rectangle as a box."""
    coords_are_pixels: bool = False
    """Whether coordinates are pixels; else fractions of the image."""
    image_name: Annotated[str | None, Spelling(yaml="image_name", also=("inputNames",))] = None
    """Key of the image or list of images; none: the only one."""


class GrayScale(Step):
    """An image becomes gray: 0.299 red + 0.587 green + 0.114 blue."""

    type_name: ClassVar[str] = "GRAY_SCALE"
    run_by: ClassVar[RunBy | None] = RunBy(
        "opencv", "pipelines.runners.images.grayscale:GrayScaleRunner", ("cv2",), extra="image"
    )

    image_name: str | None = None
    """Key of the image or list of images; none: the only one."""
    output_channels: Annotated[Int, Field(ge=1)] = 1
    """1, or anything else for three equal channels."""


class ShowImage(Step):
    """Images are shown in a window, if there is a display; records pass on as they are."""

    type_name: ClassVar[str] = "SHOW_IMAGE"
    run_by: ClassVar[RunBy | None] = RunBy("opencv", "pipelines.runners.images.showimage:ShowImageRunner")
    yaml_case: ClassVar[Literal["snake", "camel"]] = "camel"

    image_name: str | None = "image"
    """Key of the image or list of images; none: the only one."""
    display_name: str = "Image"
    """Title of the window; those of a list are numbered, `Image_0`."""
    width: Annotated[Int, Field(gt=0)] | None = None
    """Width of the window in pixels; none: the image's, at least 64."""
    height: Annotated[Int, Field(gt=0)] | None = None
    """Height of the window in pixels; none: the image's, at least 64."""
    allow_multiple: bool = False
    """Whether a list of other than one image may come."""

    def to_dict(self, form: Form = "json") -> dict[str, Any]:
        """Plain data; an `image_name` that is none is written, as an absent one means `image`."""
        written = super().to_dict(form)
        return written if self.image_name is not None else {**written, self.key("image_name", form): None}
