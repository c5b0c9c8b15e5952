"""Pictures of one size made to fit another: resized, cropped to the centre, padded."""

from __future__ import annotations

import math

import numpy as np

from pipelines.data.views import View
from pipelines.steps.images.imagetondarray import Fit, PadColor
from pipelines.values import BoundingBox, Image
from pipelines.values.frames import Plane, Rect
from pipelines.values.pixels import Pixels, check_size, split
from pipelines.values.pixels import resized as resized_within


def rounded(number: float) -> int:
    """The nearest integer, halves up, also below zero: `Math.round` of Java."""
    return math.floor(number + 0.5)


def fitted_image(
    image: Image, height: int, width: int, handling: Fit, channels: int | None = None, color: PadColor = 0
) -> Pixels:
    """The pixels of an image as `fitted` gives them, `(height, width, channels)`, read-only.

    Of a video frame only the pixels that are wanted are converted.
    """
    place = _placed(image, height, width, handling)
    if place is None:
        pixels = fitted(image.get_as("numpy"), height, width, handling, color)
        return Image(pixels).scaled(width, height, channels)
    x, y, wide, high = place
    scaled = image.scaled(wide, high, channels, _shown(image, height, width, handling))
    if (wide, high) == (width, height):
        return scaled
    canvas = _canvas(height, width, scaled.shape[2], color)
    canvas[y : y + high, x : x + wide] = scaled
    return canvas


def fitted_planes(
    image: Image, height: int, width: int, handling: Fit, channels: int | None = None, color: PadColor = 0
) -> tuple[Plane, ...]:
    """The channels of `fitted_image` one by one, each `(height, width)`."""
    place = _placed(image, height, width, handling)
    if place is None:
        return split(fitted_image(image, height, width, handling, channels, color))
    x, y, wide, high = place
    scaled = image.scaled_planes(wide, high, channels, _shown(image, height, width, handling))
    if (wide, high) == (width, height):
        return scaled
    canvas = np.empty((len(scaled), height, width), np.uint8)
    for part, plane, shade in zip(canvas, scaled, _shades(color, len(scaled)), strict=True):
        part[:] = shade
        part[y : y + high, x : x + wide] = plane
    return tuple(canvas)


def view_of(image_width: int, image_height: int, width: int, height: int, handling: Fit) -> View:
    """Which part of an image of this size an array of `width` x `height` pixels shows, from the whole pixels used."""
    if (image_width, image_height) == (width, height) or handling == "STRETCH":
        return View(0.0, 0.0, 1.0, 1.0, width, height)
    if handling == "CENTER_CROP":
        x, y, wide, high = center_crop(image_width, image_height, width, height)
        edges = (x / image_width, y / image_height, (x + wide) / image_width, (y + high) / image_height)
        return View(*edges, width, height)
    if handling == "PAD":
        x, y, wide, high = padding(image_width, image_height, width, height)
        edges = (-x / image_width, -y / image_height, (wide - x) / image_width, (high - y) / image_height)
        return View(*edges, width, height)
    x, y, wide, high = scaled_place(image_width, image_height, width, height, handling)
    return View(-x / wide, -y / high, (width - x) / wide, (height - y) / high, width, height)


def scaled_place(image_width: int, image_height: int, width: int, height: int, handling: Fit) -> Rect:
    """Where LETTERBOX or CORNER put an image that they scaled, `(x, y, width, height)` in pixels of the array.

    As the detectors' exporters do: the sides are rounded to whole pixels, and of an odd margin the smaller half is on
    the left and on top.
    """
    ratio = min(width / image_width, height / image_height)
    wide, high = max(round(image_width * ratio), 1), max(round(image_height * ratio), 1)
    if handling == "CORNER":
        return 0, 0, wide, high
    return (width - wide) // 2, (height - high) // 2, wide, high


def _shades(color: PadColor, channels: int) -> tuple[int, ...]:
    """The pad colour in so many channels: blue, green, red; or gray."""
    if isinstance(color, int):
        return (color,) * channels
    red, green, blue = color
    return (rounded(0.299 * red + 0.587 * green + 0.114 * blue),) if channels == 1 else (blue, green, red)


def _canvas(height: int, width: int, channels: int, color: PadColor) -> Pixels:
    canvas = np.empty((height, width, channels), np.uint8)
    # numpy repeats a line far faster than a pixel.
    canvas[:] = np.tile(np.array(_shades(color, channels), np.uint8), (width, 1))
    return canvas


def _placed(image: Image, height: int, width: int, handling: Fit) -> Rect | None:
    """Where the scaled image lies in the result, `(x, y, width, height)`; `None` if it has to be padded before.

    Padding after scaling costs a tenth and gives the same pixels where the picture's edges fall between pixels of the
    result.
    """
    if handling in ("LETTERBOX", "CORNER"):
        return scaled_place(image.width, image.height, width, height, handling)
    if handling != "PAD" or (image.height, image.width) == (height, width):
        return 0, 0, width, height
    x, y, full_width, full_height = padding(image.width, image.height, width, height)
    if not image.is_frame and (full_width < width or full_height < height):
        # Enlarged, a pixel at an edge of the picture is mixed with the margin.
        return None
    edges = [(x, full_width, width), (y, full_height, height), (image.width, full_width, width)]
    edges.append((image.height, full_height, height))
    if any(place * to % full for place, full, to in edges):
        return None
    left, top, wide, high = (place * to // full for place, full, to in edges)
    return left, top, wide, high


def _shown(image: Image, height: int, width: int, handling: Fit) -> Rect | None:
    """The part of an image that the result shows; `None` for all of it."""
    if handling != "CENTER_CROP" or (image.height, image.width) == (height, width):
        return None
    return center_crop(image.width, image.height, width, height)


def fitted(pixels: Pixels, height: int, width: int, handling: Fit, color: PadColor = 0) -> Pixels:
    """`pixels` `(h, w, C)` as `(height, width, C)`: themselves if they have that size, else resized (bilinear).

    `CENTER_CROP` first cuts margins off, `PAD` adds some of `color`, for equal proportions. Raises `DataError` for more
    than `Image.max_pixels`.
    """
    if pixels.shape[:2] == (height, width):
        return pixels
    if handling == "CENTER_CROP":
        x, y, wide, high = center_crop(pixels.shape[1], pixels.shape[0], width, height)
        pixels = pixels[y : y + high, x : x + wide]
    elif handling == "PAD":
        pixels = _padded(pixels, height, width, color)
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


def crop_region(image_width: int, image_height: int, width: int, height: int, handling: Fit) -> BoundingBox:
    """The part of an image that `fitted` shows, as fractions of the image; with `PAD` it reaches beyond it.

    As Konduit Serving counts: as much is taken off on both sides, so of an odd rest one pixel too few.
    """
    if (image_width, image_height) == (width, height) or handling == "STRETCH":
        return _region(0.0, 1.0, 0.0, 1.0)
    if handling == "PAD":
        x, y, wide, high = padding(image_width, image_height, width, height)
        left, top = -x / image_width, -y / image_height
        return _region(left, left + wide / image_width, top, top + high / image_height)
    if handling in ("LETTERBOX", "CORNER"):
        view = view_of(image_width, image_height, width, height, handling)
        return _region(view.left, view.right, view.top, view.bottom)
    x, y, _, _ = center_crop(image_width, image_height, width, height)
    across, down = x / image_width, y / image_height
    return _region(across, (image_width - x) / image_width, down, (image_height - y) / image_height)


def _region(x1: float, x2: float, y1: float, y2: float) -> BoundingBox:
    return BoundingBox.corners(x1, x2, y1, y2, "", 0.0)


def _padded(pixels: Pixels, height: int, width: int, color: PadColor) -> Pixels:
    high, wide, channels = pixels.shape
    x, y, full_width, full_height = padding(wide, high, width, height)
    check_size(full_width, full_height, Image.max_pixels)
    canvas = _canvas(full_height, full_width, channels, color)
    canvas[y : y + high, x : x + wide] = pixels
    return canvas
