"""Pixels to image files and back, with OpenCV."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from pipelines.errors import DataError, MissingPackageError, WrongTypeError
from pipelines.values.conversion.formats import Channels, ImageFormat
from pipelines.values.imageheader import Header, check_png_chunks, sniff
from pipelines.values.orientation import as_stored

Pixels: TypeAlias = npt.NDArray[np.uint8]
"""Height, width, channels: blue, green, red; or gray with one channel."""

EXTENSIONS = {"png": ".png", "jpeg": ".jpg", "bmp": ".bmp", "gif": ".gif"}
"""The forms of image files that are written, with their extensions for OpenCV."""
READ_ONLY = ("webp", "tiff", "pgm", "ppm")
"""The forms of image files that are read only."""


def as_pixels(array: npt.NDArray[Any]) -> Pixels:
    """A read-only view of `array` as pixels, without alpha. `WrongTypeError` if it is not a picture."""
    if array.dtype != np.uint8:
        raise WrongTypeError(f"an Image is made of an array of uint8 (0 to 255), not of {array.dtype}")
    if array.ndim == 2:
        array = array[:, :, np.newaxis]
    if array.ndim != 3 or array.shape[2] not in (1, 3, 4) or 0 in array.shape:
        raise WrongTypeError(
            f"an Image is made of an array of the shape (height, width, 1 or 3 channels), not {array.shape}"
        )
    pixels = array[:, :, :3] if array.shape[2] == 4 else array.view()
    pixels.flags.writeable = False
    return pixels


def check_size(width: int, height: int, max_pixels: int) -> None:
    """Raise `DataError` for a picture of more than `max_pixels`, before anything is made of it."""
    if width * height > max_pixels:
        raise DataError(
            f"the image has {width} x {height} pixels, more than Image.max_pixels = {max_pixels}; "
            "raise that if such images are expected"
        )


def resized(pixels: Pixels, height: int, width: int, max_pixels: int) -> Pixels:
    """`pixels` `(h, w, C)` as `(height, width, C)`, bilinear: themselves if they have that size.

    `DataError` for more than `max_pixels`.
    """
    if pixels.shape[:2] == (height, width):
        return pixels
    check_size(width, height, max_pixels)
    cv2 = _opencv()
    made: Pixels = cv2.resize(pixels, (width, height), interpolation=cv2.INTER_LINEAR)
    # OpenCV drops the axis of a single channel.
    return made if made.ndim == 3 else made[:, :, np.newaxis]


def gray_of(pixels: Pixels) -> Pixels:
    """Pixels with one channel; themselves if they have one."""
    if pixels.shape[2] == 1:
        return pixels
    cv2 = _opencv()
    return as_pixels(cv2.cvtColor(pixels, cv2.COLOR_BGR2GRAY))


def turned(pixels: Pixels) -> Pixels:
    """The three channels of pixels in reverse order, copied by OpenCV: numpy takes twenty times as long."""
    cv2 = _opencv()
    return as_pixels(cv2.cvtColor(pixels, cv2.COLOR_BGR2RGB))


def merged(planes: Sequence[npt.NDArray[np.uint8]]) -> Pixels:
    """Read-only pixels `(height, width, C)` of one plane `(height, width)` a channel; of a single one a view."""
    return as_pixels(planes[0] if len(planes) == 1 else _opencv().merge(planes))


def split(pixels: Pixels) -> tuple[npt.NDArray[np.uint8], ...]:
    """The channels of pixels, each `(height, width)`; of a single one a view."""
    if pixels.shape[2] == 1:
        return (pixels[:, :, 0],)
    return tuple(_opencv().split(pixels))


def decode(encoded: bytes, header: Header, max_pixels: int) -> Pixels:
    """The pixels of an image file of which `header` was read. `DataError` if it is damaged or too large."""
    _check(encoded, header, max_pixels)
    # Gray stays gray, and the file's own orientation mark is not applied, as in Konduit Serving.
    flag = _opencv().IMREAD_GRAYSCALE if header.channels == 1 else _opencv().IMREAD_COLOR
    pixels = as_pixels(_read(encoded, flag))
    if pixels.shape != (header.height, header.width, header.channels):
        raise DataError(
            f"the {sniff(encoded)} image decodes to the shape {pixels.shape}, but its header says "
            f"{(header.height, header.width, header.channels)}; the file is damaged"
        )
    return pixels


def decode_alpha(encoded: bytes, header: Header, max_pixels: int) -> Pixels | None:
    """Blue, green, red and alpha of an image file `(height, width, 4)`; `None` if it has no alpha of eight bits."""
    _check(encoded, header, max_pixels)
    read = _read(encoded, _opencv().IMREAD_UNCHANGED)
    has_alpha = read.dtype == np.uint8 and read.shape == (header.height, header.width, 4)
    return read if has_alpha else None


def encode(pixels: npt.NDArray[Any], wanted: ImageFormat) -> bytes:
    """An image file of the form, quality and compression that are wanted."""
    cv2 = _opencv()
    options = []
    if wanted.quality is not None:
        options += [cv2.IMWRITE_JPEG_QUALITY, wanted.quality]
    if wanted.compression is not None:
        options += [cv2.IMWRITE_PNG_COMPRESSION, wanted.compression]
    name = wanted.form.upper()
    try:
        done, encoded = cv2.imencode(EXTENSIONS[wanted.form], pixels, options)
    except cv2.error as error:
        raise DataError(f"the image cannot be written as {name}: {error}") from None
    if not done:
        raise DataError(f"the image cannot be written as {name}")
    return bytes(encoded.tobytes())


def recoded(encoded: bytes, header: Header, max_pixels: int, wanted: ImageFormat) -> bytes:
    """A lossless image file written anew, alpha and sixteen bits as they are."""
    _check(encoded, header, max_pixels)
    return encode(_read(encoded, _opencv().IMREAD_UNCHANGED), wanted)


def with_channels(pixels: Pixels, channels: Channels | None) -> Pixels:
    """Pixels with the channels in another order or number: a view where that is enough, else a copy."""
    if channels in (None, "BGR" if pixels.shape[2] == 3 else "GRAY"):
        return pixels
    cv2 = _opencv()
    gray = pixels.shape[2] == 1
    if channels == "GRAY":
        return gray_of(pixels)
    color = as_pixels(cv2.cvtColor(pixels, cv2.COLOR_GRAY2BGR)) if gray else pixels
    if channels == "BGR":
        return color
    if channels == "RGB":
        return color[:, :, ::-1]
    opaque = np.dstack([color, np.full(color.shape[:2], 255, np.uint8)])
    return ordered_alpha(opaque, channels)


def ordered_alpha(pixels: Pixels, channels: Channels | None) -> Pixels:
    """Read-only BGRA pixels as they are, or as RGBA."""
    ordered = pixels[:, :, [2, 1, 0, 3]] if channels == "RGBA" else pixels
    ordered.flags.writeable = False
    return ordered


def _check(encoded: bytes, header: Header, max_pixels: int) -> None:
    check_size(header.width, header.height, max_pixels)
    if sniff(encoded) == "PNG":
        check_png_chunks(encoded)


def _read(encoded: bytes, flag: int) -> npt.NDArray[Any]:
    cv2 = _opencv()
    if sniff(encoded) == "TIFF":
        encoded = as_stored(encoded)
    try:
        read = cv2.imdecode(np.frombuffer(encoded, np.uint8), flag | cv2.IMREAD_IGNORE_ORIENTATION)
    except cv2.error as error:
        raise DataError(f"the {sniff(encoded)} image cannot be decoded: {error}") from None
    if read is None:
        raise DataError(f"the {sniff(encoded)} image cannot be decoded; the file is damaged or cut short")
    pixels: npt.NDArray[Any] = read
    return pixels


def _opencv() -> Any:
    try:
        import cv2
    except ImportError:
        raise MissingPackageError("opencv-python-headless", "image", "decoding or encoding an image") from None
    return cv2
