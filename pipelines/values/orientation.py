"""The orientation that an image file says it is to be shown in (EXIF)."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from pipelines.values.imageheader import TIFF

UPRIGHT: Final = 1
"""The orientation of an image that is shown as it is stored."""
LYING: Final = frozenset({5, 6, 7, 8})
"""The orientations that exchange width and height."""
_TURNS: Final[Mapping[int, Callable[[npt.NDArray[Any]], npt.NDArray[Any]]]] = {
    2: lambda pixels: pixels[:, ::-1],
    3: lambda pixels: pixels[::-1, ::-1],
    4: lambda pixels: pixels[::-1],
    5: lambda pixels: pixels.swapaxes(0, 1),
    6: lambda pixels: pixels[::-1].swapaxes(0, 1),
    7: lambda pixels: pixels[::-1, ::-1].swapaxes(0, 1),
    8: lambda pixels: pixels[:, ::-1].swapaxes(0, 1),
}
_ORIENTATION: Final = 0x0112
_EXTRA_SAMPLES: Final = 338
_MULTIPLIED: Final = 1
_SHORT: Final = 3


def orientation(encoded: bytes) -> int:
    """The EXIF orientation of a JPEG, PNG, WebP or TIFF file, 1 to 8; 1 if it says none, or none that can be read."""
    try:
        number = _tag(_exif(encoded))
    except (struct.error, IndexError):
        return UPRIGHT
    return number if 1 <= number <= 8 else UPRIGHT


def turned(pixels: npt.NDArray[Any], number: int) -> npt.NDArray[Any]:
    """Pixels `(height, width, ...)` of this orientation as they are shown: themselves, or a copy."""
    turn = _TURNS.get(number)
    return pixels if turn is None else np.ascontiguousarray(turn(pixels))


def as_stored(tiff: bytes) -> bytes:
    """The TIFF file changed so that OpenCV decodes its pixels as they are stored.

    OpenCV always applies the orientation and multiplies colours by alpha. So the copy declares itself upright, and its
    colours as already multiplied.
    """
    stored = bytearray(tiff)
    for tag, value in ((_ORIENTATION, UPRIGHT), (_EXTRA_SAMPLES, _MULTIPLIED)):
        with contextlib.suppress(struct.error):
            place = _place(tiff, tag)
            if place is not None:
                struct.pack_into(_short(tiff), stored, place, value)
    return bytes(stored)


def _exif(encoded: bytes) -> bytes:
    """The EXIF data of a file, which have the form of a TIFF file; empty if there are none."""
    if encoded.startswith(b"\xff\xd8"):
        return _of_jpeg(encoded)
    if encoded.startswith(b"\x89PNG\r\n\x1a\n"):
        return _of_chunks(encoded, 8, ">I4s", b"eXIf", behind=4)
    if encoded.startswith(b"RIFF") and encoded[8:12] == b"WEBP":
        return _of_chunks(encoded, 12, "<4sI", b"EXIF", behind=0)
    return encoded if encoded.startswith(TIFF) else b""


def _of_jpeg(encoded: bytes) -> bytes:
    position = 2
    while encoded[position] == 0xFF:
        marker = encoded[position + 1]
        if marker == 0xFF:
            position += 1
            continue
        # Start of scan or end of image: no more headers.
        if marker in (0xDA, 0xD9):
            break
        (length,) = struct.unpack_from(">H", encoded, position + 2)
        if marker == 0xE1 and encoded[position + 4 : position + 10] == b"Exif\0\0":
            return encoded[position + 10 : position + 2 + length]
        position += 2 + max(length, 2)
    return b""


def _of_chunks(encoded: bytes, position: int, head: str, wanted: bytes, behind: int) -> bytes:
    """The chunk `wanted` of a PNG or WebP file; `behind` is the size of the checksum after each chunk."""
    while position + 8 <= len(encoded):
        first, second = struct.unpack_from(head, encoded, position)
        name, length = (first, second) if isinstance(first, bytes) else (second, first)
        position += 8
        if name == wanted:
            # Some programs write the prefix that only JPEG files need here, too.
            return encoded[position : position + length].removeprefix(b"Exif\0\0")
        # Chunks of WebP have an even number of bytes.
        position += length + behind + (0 if behind else length % 2)
    return b""


def _tag(exif: bytes) -> int:
    place = _place(exif, _ORIENTATION) if exif.startswith(TIFF) else None
    return UPRIGHT if place is None else int(struct.unpack_from(_short(exif), exif, place)[0])


def _place(tiff: bytes, wanted: int) -> int | None:
    """The offset of the 16-bit value of a tag in EXIF data or a TIFF file; `None` if it is missing."""
    order = "<" if tiff.startswith(b"II") else ">"
    (directory,) = struct.unpack_from(f"{order}I", tiff, 4)
    (count,) = struct.unpack_from(f"{order}H", tiff, directory)
    for entry in range(directory + 2, directory + 2 + 12 * count, 12):
        tag, kind = struct.unpack_from(f"{order}HH", tiff, entry)
        if tag == wanted and kind == _SHORT:
            return entry + 8
    return None


def _short(tiff: bytes) -> str:
    return "<H" if tiff.startswith(b"II") else ">H"
