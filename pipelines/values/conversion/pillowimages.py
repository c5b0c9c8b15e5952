"""Images as Pillow's and back. Pillow is imported when one of its images is asked for."""

from __future__ import annotations

import io
import sys
from typing import Any

import numpy as np

from pipelines.errors import DataError, MissingPackageError, WrongTypeError
from pipelines.values.conversion.formats import ImageFormat
from pipelines.values.imageheader import Header, check_png_chunks, sniff
from pipelines.values.pixels import Pixels, as_pixels, check_size, encode

_GRAY = frozenset({"1", "L"})
_COLOR = frozenset({"RGB", "RGBA", "RGBX", "RGBa", "P", "PA", "LA", "La", "CMYK", "YCbCr", "HSV", "LAB"})
# Modes that a PNG file holds unchanged, alpha and sixteen bits too.
_IN_PNG = frozenset({"RGBA", "LA", "P", "I;16"})


def pillow_size(image: Any) -> tuple[int, int, int]:
    """Height, width and 1 (gray) or 3 channels."""
    return image.height, image.width, 1 if image.mode in _GRAY else 3


def pillow_pixels(image: Any, max_pixels: int) -> Pixels:
    """The pixels without alpha. `DataError` for more than `max_pixels`, `WrongTypeError` for more than eight bits."""
    loaded = _loaded(image, max_pixels)
    if loaded.mode in _GRAY:
        return as_pixels(np.asarray(loaded.convert("L")))
    if loaded.mode not in _COLOR:
        raise WrongTypeError(
            f'a Pillow image of mode "{loaded.mode}" has no pixels of eight bits; convert it to L or RGB'
        )
    return as_pixels(np.asarray(loaded.convert("RGB"))[:, :, ::-1])


def pillow_alpha(image: Any, max_pixels: int) -> Pixels:
    """Blue, green, red and alpha, `(height, width, 4)`. Raises as `pillow_pixels` does."""
    loaded = _loaded(image, max_pixels)
    if loaded.mode not in _GRAY | _COLOR:
        return pillow_pixels(loaded, max_pixels)
    return np.asarray(loaded.convert("RGBA"))[:, :, [2, 1, 0, 3]]


def pillow_png(image: Any, max_pixels: int, wanted: ImageFormat) -> bytes:
    """A PNG file that keeps alpha, a palette and sixteen bits."""
    loaded = _loaded(image, max_pixels)
    if loaded.mode not in _IN_PNG:
        # With the encoder of all other pixels, so that equal pictures give equal files.
        return encode(pillow_pixels(loaded, max_pixels), wanted)
    target = io.BytesIO()
    options = {} if wanted.compression is None else {"compress_level": wanted.compression}
    loaded.save(target, "PNG", **options)
    return target.getvalue()


def pillow_of(pixels: Pixels) -> Any:
    """An image of mode RGB or L."""
    pillow = _pillow()
    if pixels.shape[2] == 1:
        return pillow.fromarray(np.ascontiguousarray(pixels[:, :, 0]))
    return pillow.fromarray(np.ascontiguousarray(pixels[:, :, ::-1]))


def read_pillow(encoded: bytes, header: Header, max_pixels: int) -> Any:
    """An image file as Pillow reads it, with its own mode. `DataError` if it is damaged or too large."""
    pillow = _pillow()
    name = sniff(encoded)
    check_size(header.width, header.height, max_pixels)
    if name == "PNG":
        check_png_chunks(encoded)
    try:
        image = pillow.open(io.BytesIO(encoded), formats=["PPM" if name == "PGM" else name])
        image.load()
    # Pillow lets the exceptions of its decoders through.
    except (OSError, SyntaxError, ValueError, EOFError, pillow.DecompressionBombError) as error:
        raise DataError(f"the {name} image cannot be decoded: {error}") from None
    return image


def _loaded(image: Any, max_pixels: int) -> Any:
    # One that was opened from a file has not been decoded yet.
    check_size(image.width, image.height, max_pixels)
    try:
        image.load()
    except (OSError, SyntaxError, ValueError, EOFError) as error:
        raise DataError(f"the Pillow image cannot be decoded: {error}") from None
    return image


def _pillow() -> Any:
    if "PIL.Image" in sys.modules:
        return sys.modules["PIL.Image"]
    try:
        import PIL.Image
    except ImportError:
        raise MissingPackageError("pillow", "pillow", "an image as Pillow's") from None
    return PIL.Image
