"""The header of an image file, read without decoding the image: its format and size."""

from __future__ import annotations

import struct
from typing import NamedTuple

from pipelines.errors import DataError


class Header(NamedTuple):
    """Size of an image in pixels, and the channels it has once decoded: 1 for gray, otherwise 3."""

    width: int
    height: int
    channels: int


def sniff(encoded: bytes) -> str | None:
    """`"PNG"`, `"JPEG"`, `"BMP"` or `"GIF"` by the first bytes, or `None` for anything else."""
    if encoded.startswith(b"\x89PNG\r\n\x1a\n"):
        return "PNG"
    if encoded.startswith(b"\xff\xd8\xff"):
        return "JPEG"
    if encoded.startswith(b"BM"):
        return "BMP"
    if encoded.startswith((b"GIF87a", b"GIF89a")):
        return "GIF"
    return None


def read_header(encoded: bytes) -> Header:
    """Width, height and channels. `DataError` if the bytes are no PNG, JPEG, BMP or GIF file or end too early."""
    image_format = sniff(encoded)
    if image_format is None:
        if not encoded:
            raise DataError("the image has no bytes")
        raise DataError(
            f"the image's {len(encoded)} bytes are no PNG, JPEG, BMP or GIF file{_other(encoded)}; "
            "send one of these formats"
        )
    try:
        header = _READERS[image_format](encoded)
    except (struct.error, IndexError):
        raise DataError(f"the {image_format} image ends within its header; it was cut short") from None
    if header.width < 1 or header.height < 1:
        raise DataError(f"the {image_format} image has the size {header.width} x {header.height}")
    return header


def check_png_chunks(encoded: bytes) -> None:
    """Raise `DataError` if a chunk of a PNG file claims more bytes than the file has.

    OpenCV reserves the size that a chunk claims, up to four gigabytes, before it looks for the bytes.
    """
    position = 8
    while position + 8 <= len(encoded):
        length, name = struct.unpack_from(">I4s", encoded, position)
        position += 12 + length
        if position > len(encoded):
            raise DataError(f"the PNG image ends within its chunk {name!r}; it was cut short or is damaged")
        if name == b"IEND":
            return


def _other(encoded: bytes) -> str:
    """What the bytes are instead, as far as they show it."""
    if encoded.startswith(b"RIFF") and encoded[8:12] == b"WEBP":
        return " but WebP"
    if encoded.startswith((b"II*\0", b"MM\0*")):
        return " but TIFF"
    if encoded[4:8] == b"ftyp":
        return " but HEIC, AVIF or a video"
    if encoded.startswith((b"data:image/", b"iVBORw0KGgo", b"/9j/", b"R0lGOD")):
        return " but base64 text of one, which has to be decoded first"
    if encoded.lstrip()[:1] == b"<":
        return " but text like SVG or HTML"
    return ""


def _png(encoded: bytes) -> Header:
    if encoded[12:16] != b"IHDR":
        raise DataError("the PNG image does not begin with its header (IHDR)")
    width, height, _depth, color = struct.unpack_from(">IIBB", encoded, 16)
    return Header(width, height, 1 if color == _PNG_GRAY else 3)


def _jpeg(encoded: bytes) -> Header:
    position = 2
    while True:
        while encoded[position] != 0xFF:
            position += 1
        while encoded[position] == 0xFF:
            position += 1
        marker = encoded[position]
        position += 1
        if marker in _JPEG_FRAMES:
            height, width, components = struct.unpack_from(">HHB", encoded, position + 3)
            return Header(width, height, 1 if components == 1 else 3)
        if marker not in _JPEG_BARE:
            position += struct.unpack_from(">H", encoded, position)[0]


def _bmp(encoded: bytes) -> Header:
    (info,) = struct.unpack_from("<I", encoded, 14)
    if info == _BMP_CORE:
        width, height, _planes, bits = struct.unpack_from("<HHHH", encoded, 18)
        entry, colors = 3, 1 << bits
    else:
        width, height, _planes, bits = struct.unpack_from("<iiHH", encoded, 18)
        entry, colors = 4, struct.unpack_from("<I", encoded, 46)[0] or 1 << bits
    if bits > 8:
        return Header(width, abs(height), 3)
    palette = encoded[14 + info :][: entry * min(colors, 256)]
    blue, green, red = palette[0::entry], palette[1::entry], palette[2::entry]
    return Header(width, abs(height), 1 if blue == green == red else 3)


def _gif(encoded: bytes) -> Header:
    width, height = struct.unpack_from("<HH", encoded, 6)
    return Header(width, height, 3)


_READERS = {"PNG": _png, "JPEG": _jpeg, "BMP": _bmp, "GIF": _gif}
_PNG_GRAY = 0
_BMP_CORE = 12
# SOF0 to SOF15 without DHT, JPG and DAC, which share their numbers.
_JPEG_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
# Markers without a length: TEM, RST0 to RST7, SOI, and a stuffed zero.
_JPEG_BARE = frozenset({0x00, 0x01, *range(0xD0, 0xD9)})
