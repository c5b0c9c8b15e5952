"""The header of an image file, read without decoding the image: its format and size."""

from __future__ import annotations

import re
import struct
from typing import Final, NamedTuple

from pipelines.errors import DataError


class Header(NamedTuple):
    """Size of an image in pixels, and the channels it has once decoded: 1 for gray, otherwise 3."""

    width: int
    height: int
    channels: int


SUFFIXES: Final = frozenset({".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"})
"""The suffixes of image files, of all formats that are read."""
FORMATS: Final = "PNG, JPEG, BMP, GIF, WebP, TIFF, PGM or PPM"
"""The formats that are read, for texts."""


def sniff(encoded: bytes) -> str | None:
    """The format of an image file by its first bytes; `None` for anything else.

    `"PNG"`, `"JPEG"`, `"BMP"`, `"GIF"`, `"WEBP"`, `"TIFF"`, `"PGM"` or `"PPM"`.
    """
    if encoded.startswith(b"\x89PNG\r\n\x1a\n"):
        return "PNG"
    if encoded.startswith(b"\xff\xd8\xff"):
        return "JPEG"
    if encoded.startswith(b"BM"):
        return "BMP"
    if encoded.startswith((b"GIF87a", b"GIF89a")):
        return "GIF"
    if encoded.startswith(b"RIFF") and encoded[8:12] == b"WEBP":
        return "WEBP"
    if encoded.startswith(TIFF):
        return "TIFF"
    return _NETPBM.get(encoded[:2]) if encoded[2:3].isspace() or encoded[2:3] == b"#" else None


def read_header(encoded: bytes) -> Header:
    """Width, height and channels of an image file, read from its header.

    Raises:
        DataError: The bytes are not a file of these formats or end too early; an animated WebP; a TIFF whose samples
            are not of one to sixteen bits without a sign.
    """
    image_format = sniff(encoded)
    if image_format is None:
        if not encoded:
            raise DataError("the image has no bytes")
        raise DataError(
            f"the image's {len(encoded)} bytes are not a {FORMATS} file{_other(encoded)}; send one of these formats"
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
    """The end of the error about bytes that are not an image: what they look like instead."""
    if encoded[4:8] == b"ftyp":
        return " but HEIC, AVIF or a video"
    if encoded.startswith((b"data:image/", b"iVBORw0KGgo", b"/9j/", b"R0lGOD", b"UklGR")):
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


def _webp(encoded: bytes) -> Header:
    kind = encoded[12:16]
    if kind == b"VP8X":
        flags, width, height = encoded[20], encoded[24:27], encoded[27:30]
        if flags & _WEBP_ANIMATION:
            raise DataError("the WebP image is an animation; send its pictures one by one, as WebP, PNG or JPEG files")
        if len(height) < 3:
            raise IndexError
        return Header(int.from_bytes(width, "little") + 1, int.from_bytes(height, "little") + 1, 3)
    if kind == b"VP8L":
        signature, bits = struct.unpack_from("<BI", encoded, 20)
        if signature == _WEBP_LOSSLESS:
            return Header((bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1, 3)
    elif kind == b"VP8 ":
        start, width, height = struct.unpack_from("<3sHH", encoded, 23)
        if start == _WEBP_LOSSY:
            return Header(width & 0x3FFF, height & 0x3FFF, 3)
    raise DataError("the WebP image does not begin with its header (VP8, VP8L or VP8X)")


def _tiff(encoded: bytes) -> Header:
    tags = tiff_tags(encoded)
    width, height = tags.get(256, 0), tags.get(257, 0)
    bits, samples, values = tags.get(258, 1), tags.get(277, 1), tags.get(339, 1)
    if values != _TIFF_UNSIGNED or bits > 16:
        kind = {2: "signed integers", 3: "floating-point numbers"}.get(values, "samples")
        raise DataError(f"the TIFF image has {kind} of {bits} bits; send samples of 8 or 16 bits, without a sign")
    if samples > 4:
        raise DataError(f"the TIFF image has {samples} channels; send gray or red, green, blue, with alpha or without")
    # Tiles are decoded whole.
    if tags.get(322, 0) * tags.get(323, 0) > max(_TIFF_TILE, 4 * width * height):
        raise DataError(f"the TIFF image has tiles of {tags[322]} x {tags[323]} pixels, larger than itself")
    return Header(width, height, 1 if tags.get(262) in _TIFF_GRAY else 3)


def tiff_tags(encoded: bytes) -> dict[int, int]:
    """The integers in the first directory of a TIFF file by tag; of a list of numbers the first."""
    order = "<" if encoded.startswith(b"II") else ">"
    (directory,) = struct.unpack_from(f"{order}I", encoded, 4)
    (count,) = struct.unpack_from(f"{order}H", encoded, directory)
    tags: dict[int, int] = {}
    for place in range(directory + 2, directory + 2 + 12 * count, 12):
        tag, kind, number = struct.unpack_from(f"{order}HHI", encoded, place)
        if kind not in (_TIFF_SHORT, _TIFF_LONG):
            continue
        letter, size = ("H", 2) if kind == _TIFF_SHORT else ("I", 4)
        # Up to four bytes are stored in the entry, more at the offset that it holds.
        at = place + 8 if number * size <= 4 else struct.unpack_from(f"{order}I", encoded, place + 8)[0]
        tags.setdefault(tag, struct.unpack_from(f"{order}{letter}", encoded, at)[0])
    return tags


def _netpbm(encoded: bytes) -> Header:
    words = re.sub(rb"#[^\r\n]*", b" ", encoded[2:_NETPBM_HEADER]).split()
    if len(words) < 3:
        raise IndexError
    if not all(word.isdigit() and len(word) < 10 for word in words[:2]):
        raise DataError("the PGM or PPM image does not begin with its width and height")
    return Header(int(words[0]), int(words[1]), 1 if sniff(encoded) == "PGM" else 3)


TIFF: Final = (b"II*\0", b"MM\0*")
"""How TIFF files begin, and EXIF data, which have the same form."""
_NETPBM: Final = {b"P2": "PGM", b"P5": "PGM", b"P3": "PPM", b"P6": "PPM"}
_READERS: Final = {
    "PNG": _png,
    "JPEG": _jpeg,
    "BMP": _bmp,
    "GIF": _gif,
    "WEBP": _webp,
    "TIFF": _tiff,
    "PGM": _netpbm,
    "PPM": _netpbm,
}
_WEBP_ANIMATION = 0x02
_WEBP_LOSSLESS = 0x2F
_WEBP_LOSSY = b"\x9d\x01\x2a"
_TIFF_SHORT, _TIFF_LONG = 3, 4
_TIFF_UNSIGNED = 1
_TIFF_GRAY = frozenset({0, 1})
_TIFF_TILE = 1 << 22
_NETPBM_HEADER = 4096
_PNG_GRAY = 0
_BMP_CORE = 12
# SOF0 to SOF15 without DHT, JPG and DAC, which share their numbers.
_JPEG_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
# Markers without a length: TEM, RST0 to RST7, SOI, and a stuffed zero.
_JPEG_BARE = frozenset({0x00, 0x01, *range(0xD0, 0xD9)})
