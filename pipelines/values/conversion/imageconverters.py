"""The forms of images and the converters between them.

Every built-in form converts to every other one directly: through its pixels, which have no alpha, or by Pillow, which
keeps it. A plug-in's form meets the others in PNG, which loses nothing. No lossless image becomes a JPEG unasked.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np

from pipelines.plugins.requirements import Package
from pipelines.values.conversion.convert import Conversions, Converter, Factory
from pipelines.values.conversion.formats import ImageFormat
from pipelines.values.conversion.pillowimages import (
    pillow_alpha,
    pillow_of,
    pillow_pixels,
    pillow_png,
    pillow_size,
    read_pillow,
)
from pipelines.values.frames import frame_of, frame_pixels, frame_size
from pipelines.values.image import Image
from pipelines.values.imageheader import read_header, sniff
from pipelines.values.pixels import (
    EXTENSIONS,
    READ_ONLY,
    Pixels,
    as_pixels,
    decode,
    decode_alpha,
    encode,
    ordered_alpha,
    recoded,
    with_channels,
)

CANONICAL = "png"


@cache
def image_conversions() -> Conversions[ImageFormat]:
    """The forms and converters of images in this process: built in, and those of installed plug-ins."""
    conversions = Conversions("image", ImageFormat, CANONICAL)
    conversions.add(*FACTORIES, *builtin_converters())
    return conversions


def builtin_converters() -> list[Converter]:
    """Every built-in converter of images."""
    pairs: dict[tuple[str, str], Callable[[Any, ImageFormat], Any]] = {
        (source, target): partial(_through_pixels, read, write)
        for source, read in _TO_PIXELS.items()
        for target, write in _FROM_PIXELS.items()
        if source != target
    }
    for form in (*EXTENSIONS, *READ_ONLY):
        pairs[form, "numpy"] = _array_of_file
        pairs[form, "pil"] = lambda encoded, _: read_pillow(encoded, read_header(encoded), _max_pixels())
    pairs["png", "png"] = lambda encoded, wanted: recoded(encoded, read_header(encoded), _max_pixels(), wanted)
    pairs["jpeg", "jpeg"] = partial(_through_pixels, _pixels_of_file, encode)
    pairs["numpy", "numpy"] = lambda array, wanted: with_channels(as_pixels(array), wanted.channels)
    pairs["pil", "png"] = lambda image, wanted: pillow_png(image, _max_pixels(), wanted)
    pairs["pil", "numpy"] = _array_of_pillow
    return [
        Converter("image", source, target, convert, _HONOURS.get(target, frozenset()))
        for (source, target), convert in pairs.items()
    ]


def _through_pixels(
    read: Callable[[Any], Pixels], write: Callable[[Pixels, ImageFormat], Any], value: Any, wanted: ImageFormat
) -> Any:
    return write(read(value), wanted)


def _pixels_of_file(encoded: bytes) -> Pixels:
    return decode(encoded, read_header(encoded), _max_pixels())


def _array_of_file(encoded: bytes, wanted: ImageFormat) -> Pixels:
    if wanted.channels in ("BGRA", "RGBA"):
        with_alpha = decode_alpha(encoded, read_header(encoded), _max_pixels())
        if with_alpha is not None:
            return ordered_alpha(with_alpha, wanted.channels)
    return with_channels(_pixels_of_file(encoded), wanted.channels)


def _array_of_pillow(image: Any, wanted: ImageFormat) -> Pixels:
    if wanted.channels in ("BGRA", "RGBA"):
        return ordered_alpha(pillow_alpha(image, _max_pixels()), wanted.channels)
    return with_channels(_pixels_of_pillow(image), wanted.channels)


def _pixels_of_pillow(image: Any) -> Pixels:
    return pillow_pixels(image, _max_pixels())


def _pixels_of_frame(frame: Any) -> Pixels:
    return frame_pixels(frame, _max_pixels())


def _max_pixels() -> int:
    return Image.max_pixels


def _is_file(form: str) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, bytes) and sniff(value) == form.upper()


FACTORIES = (
    Factory("image", "numpy", ("numpy.ndarray",), aliases=("ndarray",)),
    Factory("image", "png", accepts=_is_file("png")),
    Factory("image", "jpeg", accepts=_is_file("jpeg"), aliases=("jpg",)),
    Factory("image", "bmp", accepts=_is_file("bmp")),
    Factory("image", "gif", accepts=_is_file("gif")),
    Factory(
        "image",
        "pil",
        ("PIL.Image.Image",),
        aliases=("pillow",),
        requires=Package("PIL", "pillow"),
        measure=pillow_size,
    ),
    Factory(
        "image",
        "frame",
        ("av.video.frame.VideoFrame",),
        aliases=("av",),
        requires=Package("av", "camera"),
        measure=frame_size,
    ),
)
"""The built-in forms."""

_TO_PIXELS: dict[str, Callable[[Any], Pixels]] = {
    "numpy": as_pixels,
    **dict.fromkeys((*EXTENSIONS, *READ_ONLY), _pixels_of_file),
    "pil": _pixels_of_pillow,
    "frame": _pixels_of_frame,
}
_FROM_PIXELS: dict[str, Callable[[Pixels, ImageFormat], Any]] = {
    "numpy": lambda pixels, wanted: with_channels(pixels, wanted.channels),
    **dict.fromkeys(EXTENSIONS, encode),
    "pil": lambda pixels, _: pillow_of(pixels),
    "frame": lambda pixels, _: frame_of(np.asarray(pixels)),
}
_HONOURS = {
    "numpy": frozenset({"channels"}),
    "jpeg": frozenset({"quality"}),
    "png": frozenset({"compression"}),
}
