"""Steps from image to image: IMAGE_RESIZE, IMAGE_CROP, GRAY_SCALE; and SHOW_IMAGE."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from pipelines.steps.base import RunBy, Step
from pipelines.steps.config import Form, Int, Spelling
from pipelines.steps.images.imagetondarray import AspectRatio
from pipelines.steps.shapes import BoxField, PointField


class ImageResize(Step):
    """Resizes images, and the images of lists, with bilinear interpolation."""

    type_name: ClassVar[str] = "IMAGE_RESIZE"
    run_by: ClassVar[RunBy | None] = RunBy(
        "opencv", "pipelines.runners.images.imageresize:ImageResizeRunner", ("cv2",), extra="image"
    )
    yaml_case: ClassVar[Literal["snake", "camel"]] = "camel"

    input_names: tuple[str, ...] | None = None
    """Keys of the images and lists of images; default, or if empty: all that the record has."""
    height: Annotated[Int, Field(gt=0)] | None = None
    """Height of the result in pixels; default: from `width`, so that the proportions stay."""
    width: Annotated[Int, Field(gt=0)] | None = None
    """Width of the result in pixels; default: from `height`, so that the proportions stay."""
    aspect_ratio_handling: AspectRatio = "STRETCH"
    """What happens to an image of other proportions: it is cropped to its centre, padded with black, or stretched."""


class ImageCrop(Step):
    """Cuts a rectangle out of an image, or out of each image of a list; where it reaches beyond the image, it is black.

    The rectangle is `crop_box`, else `crop_points`, else the record's value under `crop_name`.
    """

    type_name: ClassVar[str] = "IMAGE_CROP"
    run_by: ClassVar[RunBy | None] = RunBy(
        "opencv", "pipelines.runners.images.imagecrop:ImageCropRunner", ("cv2",), extra="image"
    )
    yaml_case: ClassVar[Literal["snake", "camel"]] = "camel"

    crop_name: str | None = None
    """Key of the rectangle: a BOUNDING_BOX, or a list of two POINTs, opposite corners."""
    crop_points: tuple[PointField, ...] | None = None
    """The rectangle by two opposite corners."""
    crop_box: BoxField | None = None
    """The rectangle as a box."""
    coords_are_pixels: bool = False
    """Whether the rectangle is in pixels; otherwise it is in fractions of the image."""
    image_name: Annotated[str | None, Spelling(yaml="image_name", also=("inputNames",))] = None
    """Key of the image or list of images; default: the record's only one."""


class GrayScale(Step):
    """Makes an image, or the images of a list, gray: 0.299 red + 0.587 green + 0.114 blue."""

    type_name: ClassVar[str] = "GRAY_SCALE"
    run_by: ClassVar[RunBy | None] = RunBy(
        "opencv", "pipelines.runners.images.grayscale:GrayScaleRunner", ("cv2",), extra="image"
    )

    image_name: str | None = None
    """Key of the image or list of images; default: the record's only one."""
    output_channels: Annotated[Int, Field(ge=1)] = 1
    """Channels of the gray image: 1, or any other number for three equal channels."""


class ShowImage(Step):
    """Shows images in a window, if there is a display; records are passed on unchanged."""

    type_name: ClassVar[str] = "SHOW_IMAGE"
    run_by: ClassVar[RunBy | None] = RunBy("opencv", "pipelines.runners.images.showimage:ShowImageRunner")
    yaml_case: ClassVar[Literal["snake", "camel"]] = "camel"

    image_name: str | None = "image"
    """Key of the image or list of images; `null`: the record's only one."""
    display_name: str = "Image"
    """Title of the window; each image of a list has its own window, `Image_0`, `Image_1`, ..."""
    width: Annotated[Int, Field(gt=0)] | None = None
    """Width of the window in pixels; default: the image's, at least 64."""
    height: Annotated[Int, Field(gt=0)] | None = None
    """Height of the window in pixels; default: the image's, at least 64."""
    allow_multiple: bool = False
    """Whether a list may have more, or fewer, than one image; otherwise such a record fails."""

    def to_dict(self, form: Form = "json") -> dict[str, Any]:
        """Plain data; an `image_name` of `None` is written, as an absent one means `image`."""
        written = super().to_dict(form)
        return written if self.image_name is not None else {**written, self.key("image_name", form): None}
