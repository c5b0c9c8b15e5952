"""Images as arrays for a model: sizes, channels, axes, scale and element type of `ImageToNDArrayConfig`."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias, TypeVar

import numpy as np

from pipelines.data.views import View
from pipelines.runners.forms import ArrayForm
from pipelines.runners.images.fitting import fitted_image, fitted_planes, view_of
from pipelines.runners.images.scaling import DTYPES, cast, normalized
from pipelines.steps.images.imagetondarray import ImageToNDArrayConfig
from pipelines.values import Image
from pipelines.values.frames import Plane
from pipelines.values.ndarray import Array
from pipelines.values.pixels import Pixels, turned

_FEW: Final = 16
"""A picture with fewer shades than this is hardly one."""
_Length = TypeVar("_Length", int, int | None)
CHANNELS = {"RGB": 3, "RGBA": 4, "BGR": 3, "BGRA": 4, "GRAYSCALE": 1}
"""How many channels each layout has."""


def image_to_ndarray(image: Any, config: ImageToNDArrayConfig | None = None, /, **fields: Any) -> Array:
    """An image as an array, as the step IMAGE_TO_NDARRAY makes it: `image_to_ndarray(photo, height=224, width=224)`.

    `image` is an `Image` or an object to make one of (a path, bytes, uint8 pixels in the order BGR). The result is
    `[1, C, H, W]` float32 from -1 to 1 unless `config` or `fields`, those of `ImageToNDArrayConfig`, say otherwise.
    Raises `DataError` for an image that cannot be decoded.
    """
    if config is not None and fields:
        raise TypeError("give a config or its fields, not both")
    config = config or ImageToNDArrayConfig(**fields)
    array = stacked([prepared(Image.create(image), config)], config)
    return array if config.include_minibatch_dim else array[0]


Picture: TypeAlias = Pixels | tuple[Plane, ...]
"""A picture in the size of the output, as its axes ask for: `(H, W, C)`, or C planes `(H, W)`; blue, green, red; or
gray."""


def prepared(image: Image, config: ImageToNDArrayConfig) -> Picture:
    """The image's pixels in the size of the output; gray already where the output is."""
    height, width = output_size(image, config)
    channels = 1 if config.channel_layout == "GRAYSCALE" else None
    fit = fitted_planes if config.format == "CHANNELS_FIRST" else fitted_image
    return fit(image, height, width, config.aspect_ratio_handling, channels, config.pad_color)


def viewed(image: Image, config: ImageToNDArrayConfig) -> View:
    """Which part of the image its array shows."""
    height, width = output_size(image, config)
    return view_of(image.width, image.height, width, height, config.aspect_ratio_handling)


def size_of(picture: Picture) -> tuple[int, int]:
    """Height and width of a prepared picture."""
    height, width = (picture[0] if isinstance(picture, tuple) else picture).shape[:2]
    return height, width


def output_size(image: Image, config: ImageToNDArrayConfig) -> tuple[int, int]:
    """Height and width of the image's array."""
    return config.height or image.height, config.width or image.width


def shape_of(height: _Length, width: _Length, config: ImageToNDArrayConfig) -> tuple[int | _Length, ...]:
    """The shape of one image's array, without the leading dimension."""
    channels = CHANNELS[config.channel_layout]
    if config.format == "CHANNELS_FIRST":
        return channels, height, width
    return height, width, channels


def form_of(config: ImageToNDArrayConfig, *, lists: bool) -> ArrayForm | None:
    """The form of the array that each image becomes, and with `lists` each list of images; `None` if it may be none."""
    dtype = np.dtype(DTYPES.get(config.data_type, np.float32))
    inner = shape_of(config.height, config.width, config)
    if not lists or config.list_handling in ("NONE", "FIRST"):
        return ArrayForm(dtype, (1, *inner) if config.include_minibatch_dim else inner)
    if config.list_handling == "LIST_OUT":
        return None
    return ArrayForm(dtype, (None, *inner) if config.include_minibatch_dim else None)


def lost_detail(config: ImageToNDArrayConfig) -> str | None:
    """What is wrong with an integer element type for values that the normalization makes fractions; `None`: nothing."""
    if np.dtype(DTYPES.get(config.data_type, np.float32)).kind not in "iu" or config.normalization is None:
        return None
    values = np.array([0, 255], np.float32).reshape(2, 1, 1).repeat(CHANNELS[config.channel_layout], 2)
    normalized(values, config.normalization, config.channel_layout, -1)
    low, high = float(values[0, 0, 0]), float(values[1, 0, 0])
    if high - low >= _FEW:
        return None
    return (
        f"normalization {config.normalization.type} makes values from {low:.3g} to {high:.3g}, of which "
        f"{config.data_type} keeps whole numbers only, so that hardly anything is left of the picture: set "
        "normalization: {type: NONE}, or dataType: FLOAT"
    )


def stacked(pictures: Sequence[Picture], config: ImageToNDArrayConfig, empty: Callable[..., Array] = np.empty) -> Array:
    """Prepared pictures of one size as one array `(N, C, H, W)` or `(N, H, W, C)`, in memory that `empty` gives."""
    height, width = size_of(pictures[0])
    layout = config.channel_layout
    shape = (len(pictures), *shape_of(height, width, config))
    # Without a normalization no fraction comes up, and integers need no float32 on the way.
    plain = config.normalization is None or config.normalization.type == "NONE"
    values = empty(shape, np.uint8 if plain else np.float32)
    first = config.format == "CHANNELS_FIRST"
    rows = values if not first else values.transpose(0, 2, 3, 1)
    if layout.endswith("A"):
        rows[..., 3] = 255
        rows = rows[..., :3]
    backwards = layout.startswith("RGB")
    for row, picture in zip(rows, pictures, strict=True):
        if not isinstance(picture, tuple):
            # A gray picture is repeated by broadcasting.
            row[...] = turned(picture) if backwards and picture.shape[2] == 3 else picture
            continue
        channels = range(row.shape[2])
        # Each channel has its place in memory: nothing is transposed.
        for channel, plane in zip(channels, itertools.cycle(reversed(picture) if backwards else picture)):
            row[:, :, channel] = plane
    if not plain:
        assert config.normalization is not None
        normalized(values, config.normalization, layout, -3 if first else -1)
    return cast(values, config.data_type)
