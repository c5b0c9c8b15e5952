"""IMAGE_TO_NDARRAY: images as arrays that a model takes."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, model_validator

from pipelines.steps.base import RunBy, Step
from pipelines.steps.config import EXTENSION, Config, Int, Key, Spelling

AspectRatio = Literal["CENTER_CROP", "PAD", "STRETCH"]
"""How an image whose sides have another ratio than the output's is made to fit."""

Fit = Literal["CENTER_CROP", "PAD", "STRETCH", "LETTERBOX", "CORNER"]
"""The same, with the ways of detectors: scaled to whole pixels and then padded on both sides, or right and below."""


class ImageNormalization(Config):
    """How a channel's value v, 0 to 255, is normalised, in float32 arithmetic; max is `max_value` or 255.

    | `type` | result |
    | --- | --- |
    | `NONE` | v |
    | `SCALE` | v / (max / 2) - 1: from -1 to 1 |
    | `SCALE_01` | v / max: from 0 to 1 |
    | `SUBTRACT_MEAN` | v - mean |
    | `STANDARDIZE` | (v - mean) / std |
    | `INCEPTION` | (v / max - 0.5) * 2 |
    | `VGG_SUBTRACT_MEAN` | v - mean, which is 123.68, 116.779, 103.939 |
    | `IMAGE_NET` | v - mean / std, which are 0.485, 0.456, 0.406 and 0.229, 0.224, 0.225: as Konduit has it |
    """

    type: Literal[
        "NONE",
        "SCALE",
        "SCALE_01",
        "SUBTRACT_MEAN",
        "STANDARDIZE",
        "INCEPTION",
        "VGG_SUBTRACT_MEAN",
        "IMAGE_NET",
    ] = "SCALE"
    """The formula that is applied to each channel's value."""
    max_value: Annotated[float, Field(gt=0)] | None = None
    """max in the formulas, the largest value that a channel can have; default: 255."""
    mean_rgb: tuple[float, float, float] | None = None
    """Means of red, green and blue, in this order, whatever `channelLayout` is."""
    std_rgb: tuple[float, float, float] | None = None
    """Standard deviations of red, green and blue, in this order."""

    @model_validator(mode="after")
    def _check_numbers(self) -> ImageNormalization:
        if self.type in ("SUBTRACT_MEAN", "STANDARDIZE") and self.mean_rgb is None:
            raise ValueError(f'{self.type} needs "meanRgb", three numbers')
        if self.type == "STANDARDIZE" and self.std_rgb is None:
            raise ValueError('STANDARDIZE needs "stdRgb", three numbers')
        if self.std_rgb is not None and 0.0 in self.std_rgb:
            raise ValueError('"stdRgb" has a 0; values are divided by it')
        return self


def _last_if_none(value: Any) -> Any:
    return "CHANNELS_LAST" if value is None else value


def _unchanged_if_none(value: Any) -> Any:
    return ImageNormalization(type="NONE") if value is None else value


_Shade = Annotated[Int, Field(ge=0, le=255)]
PadColor = _Shade | tuple[_Shade, _Shade, _Shade]
"""A shade of gray, or red, green and blue."""


class ImageToNDArrayConfig(Config):
    """How an image becomes an array `[1, C, H, W]`: size, order of the axes and channels, scale, element type."""

    yaml_case: ClassVar[Literal["snake", "camel"]] = "camel"

    height: Annotated[Int, Field(gt=0)] | None = None
    """Height of the array in pixels; default: the image's."""
    width: Annotated[Int, Field(gt=0)] | None = None
    """Width of the array in pixels; default: the image's."""
    data_type: Literal[
        "DOUBLE",
        "FLOAT",
        "FLOAT16",
        "BFLOAT16",
        "INT64",
        "INT32",
        "INT16",
        "INT8",
        "UINT64",
        "UINT32",
        "UINT16",
        "UINT8",
    ] = "FLOAT"
    """Element type. Integers lose the fraction: for `UINT8` pixels set the normalization to `NONE`."""
    include_minibatch_dim: bool = True
    """Whether the array has a leading dimension of 1."""
    aspect_ratio_handling: Fit = "CENTER_CROP"
    """What happens to an image of other proportions: it is cropped to its centre, padded, or stretched. `LETTERBOX` and
    `CORNER`, which Konduit Serving does not have, scale it to whole pixels first, as detectors are trained, and pad on
    both sides, or on the right and below."""
    format: Annotated[Literal["CHANNELS_FIRST", "CHANNELS_LAST"] | None, BeforeValidator(_last_if_none)] = (
        "CHANNELS_FIRST"
    )
    """Order of the axes: `[C, H, W]` or `[H, W, C]`."""
    channel_layout: Literal["RGB", "RGBA", "BGR", "BGRA", "GRAYSCALE"] = "RGB"
    """Channels and their order. Gray is 0.299 red + 0.587 green + 0.114 blue; alpha is 255."""
    normalization: Annotated[ImageNormalization | None, BeforeValidator(_unchanged_if_none)] = ImageNormalization()
    """How the channels' values are normalised."""
    list_handling: Literal["NONE", "BATCH", "LIST_OUT", "FIRST"] = "NONE"
    """What a list of images becomes: an error (`NONE`), one array `[n, ...]` of all (`BATCH`), a list of arrays
    (`LIST_OUT`), or the array of the first image (`FIRST`)."""
    pad_color: Annotated[PadColor, EXTENSION] = 0
    """Colour of what is padded: one number from 0 to 255, or three, of red, green and blue."""


class ImageToNDArray(Step):
    """Converts images to arrays: `ImageToNDArray(config={"height": 224, "width": 224}, keys=["image"])`."""

    type_name: ClassVar[str] = "IMAGE_TO_NDARRAY"
    run_by: ClassVar[RunBy | None] = RunBy(
        "opencv", "pipelines.runners.images.imagetondarray:ImageToNDArrayRunner", ("cv2",), extra="image"
    )
    yaml_case: ClassVar[Literal["snake", "camel"]] = "camel"

    config: ImageToNDArrayConfig | None = None
    """Size, element type, layout and normalization of the arrays."""
    image_names: Annotated[tuple[str, ...] | None, Spelling(yaml="keys")] = Field(default=None, alias="keys")
    """Keys of the images; default: all images, and all lists of images if `listHandling` is not `NONE`."""
    output_names: tuple[Key, ...] | None = None
    """Keys of the arrays, one for each of `keys`, or for the only image; default, or if empty: the images' keys."""
    keep_other_values: bool = True
    """Whether to keep the other keys; they come after the arrays."""
    metadata: bool = False
    """Whether to replace the record's metadata by names, sizes and crop regions of the images that were converted."""
    metadata_key: Key = "@ImageToNDArrayStepMetadata"
    """Key of these in the metadata."""
