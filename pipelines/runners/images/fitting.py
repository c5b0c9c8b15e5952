"""Pictures of one size made to fit another: resized, cropped to the centre, padded."""

from __future__ import annotations

import math

import numpy as np

from pipelines.steps.images.imagetondarray import AspectRatio
from pipelines.values import BoundingBox, Image
from pipelines.values.frames import Plane, Rect
from pipelines.values.pixels import Pixels, check_size, split
from pipelines.values.pixels import resized as resized_within


def rounded(number: float) -> int:
    """The nearest integer, halves up, also below zero: `Math.round` of Java."""
    return math.floor(number + 0.5)


def fitted_image(image: Image, height: int, width: int, handling: AspectRatio, channels: int | None = None) -> Pixels:
    """The pixels of an image as `fitted` gives them, `(height, width, channels)`, read-only.

    Of a video frame only the pixels that are wanted are converted.
    """
    place = _placed(image, height, width, handling)
    if place is None:
        pixels = fitted(image.get_as("numpy"), height, width, handling)
        return Image(pixels).scaled(width, height, channels)
    x, y, wide, high = place
    scaled = image.scaled(wide, high, channels, _shown(image, height, width, handling))
    if (wide, high) == (width, height):
        return scaled
    canvas = np.zeros((height, width, scaled.shape[2]), np.uint8)
    canvas[y : y + high, x : x + wide] = scaled
    return canvas


def fitted_planes(
    image: Image, height: int, width: int, handling: AspectRatio, channels: int | None = None
) -> tuple[Plane, ...]:
    """The channels of `fitted_image` one by one, each `(height, width)`."""
    place = _placed(image, height, width, handling)
    if place is None:
        return split(fitted_image(image, height, width, handling, channels))
    x, y, wide, high = place
    scaled = image.scaled_planes(wide, high, channels, _shown(image, height, width, handling))
    if (wide, high) == (width, height):
        return scaled
    canvas = np.zeros((len(scaled), height, width), np.uint8)
    for part, plane in zip(canvas, scaled, strict=True):
        part[y : y + high, x : x + wide] = plane
    return tuple(canvas)


def _placed(image: Image, height: int, width: int, handling: AspectRatio) -> Rect | None:
    """Where the scaled image lies in the result, `(x, y, width, height)`; `None` if it has to be padded before.

    A video frame is padded after it was scaled where its edges fall between pixels of the result.
    """
    if handling != "PAD" or (image.height, image.width) == (height, width):
        return 0, 0, width, height
    if not image.is_frame:
        return None
    x, y, full_width, full_height = padding(image.width, image.height, width, height)
    edges = [(x, full_width, width), (y, full_height, height), (image.width, full_width, width)]
    edges.append((image.height, full_height, height))
    if any(place * to % full for place, full, to in edges):
        return None
    left, top, wide, high = (place * to // full for place, full, to in edges)
    return left, top, wide, high


def _shown(image: Image, height: int, width: int, handling: AspectRatio) -> Rect | None:
    """The part of an image that the result shows; `None` for all of it."""
    if handling != "CENTER_CROP" or (image.height, image.width) == (height, width):
        return None
    return center_crop(image.width, image.height, width, height)


def fitted(pixels: Pixels, height: int, width: int, handling: AspectRatio) -> Pixels:
    """`pixels` `(h, w, C)` as `(height, width, C)`: themselves if they have that size, else resized (bilinear).

    `CENTER_CROP` first cuts margins off, `PAD` adds black ones, for equal proportions. Raises `DataError` for more than
    `Image.max_pixels`.
    """
    if pixels.shape[:2] == (height, width):
        return pixels
    if handling == "CENTER_CROP":
        x, y, wide, high = center_crop(pixels.shape[1], pixels.shape[0], width, height)
        pixels = pixels[y : y + high, x : x + wide]
    elif handling == "PAD":
        pixels = _padded(pixels, height, width)
    return resized(pixels, height, width)


def resized(pixels: Pixels, height: int, width: int) -> Pixels:
    """`pixels` `(h, w, C)` as `(height, width, C)`, bilinear. `DataError` for more than `Image.max_pixels`."""
    return resized_within(pixels, height, width, Image.max_pixels)


def center_crop(image_width: int, image_height: int, width: int, height: int) -> tuple[int, int, int, int]:
    """The part `(x, y, width, height)` of an image that has the proportions of `width` to `height`, in pixels.

    Cut off in the middle of the longer side, as Konduit Serving does: fractions dropped, of an odd rest the smaller
    half on the left or on top.
    """
    has, wanted = image_width / image_height, width / height
    if has == wanted:
        return 0, 0, image_width, image_height
    if has > wanted:
        cropped = max(int(wanted * image_height), 1)
        return (image_width - cropped) // 2, 0, cropped, image_height
    cropped = max(int(image_width / wanted), 1)
    return 0, (image_height - cropped) // 2, image_width, cropped


def padding(image_width: int, image_height: int, width: int, height: int) -> tuple[int, int, int, int]:
    """Where an image lies, and on how large a canvas of the proportions of `width` to `height`: `(x, y, w, h)`."""
    has, wanted = image_width / image_height, width / height
    if has > wanted:
        high = max(rounded(image_width / wanted), image_height)
        return 0, (high - image_height) // 2, image_width, high
    wide = max(rounded(image_height * wanted), image_width)
    return (wide - image_width) // 2, 0, wide, image_height


def crop_region(image_width: int, image_height: int, width: int, height: int, handling: AspectRatio) -> BoundingBox:
    """The part of an image that `fitted` shows, as fractions of the image; with `PAD` it reaches beyond it.

    As Konduit Serving counts: as much is taken off on both sides, so of an odd rest one pixel too few.
    """
    if (image_width, image_height) == (width, height) or handling == "STRETCH":
        return _region(0.0, 1.0, 0.0, 1.0)
    if handling == "PAD":
        x, y, wide, high = padding(image_width, image_height, width, height)
        left, top = -x / image_width, -y / image_height
        return _region(left, left + wide / image_width, top, top + high / image_height)
    x, y, _, _ = center_crop(image_width, image_height, width, height)
    across, down = x / image_width, y / image_height
    return _region(across, (image_width - x) / image_width, down, (image_height - y) / image_height)


def _region(x1: float, x2: float, y1: float, y2: float) -> BoundingBox:
    return BoundingBox.corners(x1, x2, y1, y2, "", 0.0)


def _padded(pixels: Pixels, height: int, width: int) -> Pixels:
    high, wide, channels = pixels.shape
    x, y, full_width, full_height = padding(wide, high, width, height)
    check_size(full_width, full_height, Image.max_pixels)
    canvas = np.zeros((full_height, full_width, channels), np.uint8)
    canvas[y : y + high, x : x + wide] = pixels
    return canvas
