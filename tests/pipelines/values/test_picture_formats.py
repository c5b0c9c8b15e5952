"""WebP, TIFF, PGM and PPM files: read as they were written, and refused before they are decoded where they are too
large or no single picture of 8 or 16 bits."""

from __future__ import annotations

import contextlib
import io
import struct
from typing import Any

import numpy as np
import numpy.typing as npt
import PIL.Image
import pytest

from pipelines.data.data import Data
from pipelines.errors import DataError
from pipelines.values import Image
from pipelines.values.imageheader import SUFFIXES, read_header
from pipelines.wire import json as wire

PIXELS = np.random.default_rng(5).integers(0, 256, (20, 30, 3), np.uint8)
GRAY = PIXELS[:, :, :1]


def saved(pixels: npt.NDArray[Any], kind: str, **options: Any) -> bytes:
    """A file of RGB, gray (one channel) or RGBA pixels."""
    target = io.BytesIO()
    PIL.Image.fromarray(pixels[:, :, 0] if pixels.shape[2:] == (1,) else pixels).save(target, kind, **options)
    return target.getvalue()


ALPHA = np.dstack([PIXELS, np.full((20, 30), 200, np.uint8)])
FILES = {
    "lossless WebP": saved(PIXELS, "WEBP", lossless=True),
    "WebP with EXIF data": saved(PIXELS, "WEBP", lossless=True, exif=PIL.Image.Exif()),
    "TIFF": saved(PIXELS, "TIFF"),
    "TIFF, packed": saved(PIXELS, "TIFF", compression="tiff_lzw"),
    "gray TIFF": saved(GRAY, "TIFF"),
    "PPM": saved(PIXELS, "PPM"),
    "PGM": saved(GRAY, "PPM"),
    "PPM as text": b"P3 # made by hand\n30 20\n255\n" + b" ".join(b"%d" % one for one in PIXELS.ravel()) + b"\n",
}


@pytest.mark.parametrize("encoded", FILES.values(), ids=FILES)
def test_a_picture_of_each_format_has_the_size_and_pixels_that_were_written(encoded: bytes) -> None:
    image = Image(encoded)
    wanted = GRAY if image.channels == 1 else PIXELS[:, :, ::-1]
    assert (image.width, image.height) == (30, 20)
    assert np.array_equal(image.get_as("numpy"), wanted)
    assert np.array_equal(Image(image.get_as("png")).get_as("numpy"), wanted)
    assert image.get_as(PIL.Image.Image).size == (30, 20)
    assert image.get_as("bytes") == encoded


def test_a_lossy_webp_has_the_size_and_nearly_the_pixels() -> None:
    smooth = np.broadcast_to(np.linspace(0, 255, 33, dtype=np.uint8)[:, None, None], (33, 17, 3))
    image = Image(saved(smooth, "WEBP", quality=95))
    assert (image.width, image.height, image.format) == (17, 33, "WEBP")
    assert np.abs(image.get_as("numpy").astype(int) - smooth).max() < 12


@pytest.mark.parametrize("kind", ["WEBP", "TIFF"])
def test_alpha_is_dropped_unless_it_is_asked_for(kind: str) -> None:
    image = Image(saved(ALPHA, kind, **({"lossless": True} if kind == "WEBP" else {})))
    assert np.array_equal(image.get_as("numpy"), PIXELS[:, :, ::-1])
    assert np.array_equal(image.get_as("numpy RGBA"), ALPHA)


def test_sixteen_bits_are_read_as_their_upper_eight() -> None:
    deep = np.arange(600, dtype=np.uint16).reshape(20, 30) * 100
    assert np.abs(Image(saved(deep, "TIFF")).get_as("numpy")[:, :, 0].astype(int) - deep // 256).max() <= 1


@pytest.mark.parametrize("upright", [False, True])
@pytest.mark.parametrize("number", range(1, 9))
def test_a_tiff_is_turned_only_where_the_image_is_to_be_upright(number: int, upright: bool) -> None:
    exif = PIL.Image.Exif()
    exif[274] = number
    found = Image(saved(PIXELS, "TIFF", tiffinfo={274: number}), upright=upright)
    wanted = Image(saved(PIXELS, "PNG", exif=exif), upright=upright)
    assert (found.width, found.height) == (wanted.width, wanted.height)
    assert np.array_equal(found.get_as("numpy"), wanted.get_as("numpy"))


def huge_webp(kind: bytes) -> bytes:
    body = {
        b"VP8 ": b"\x30\x01\x00\x9d\x01\x2a" + struct.pack("<HH", 16383, 16383),
        b"VP8L": b"\x2f" + struct.pack("<I", 16382 | 16382 << 14),
        b"VP8X": bytes(4) + (16383).to_bytes(3, "little") * 2,
    }[kind] + bytes(20)
    return b"RIFF" + struct.pack("<I", 12 + len(body)) + b"WEBP" + kind + struct.pack("<I", len(body)) + body


def tiff(**tags: int) -> bytes:
    """A TIFF file of these tags, without pixels."""
    numbers = {"width": 256, "height": 257, "bits": 258, "kind": 339, "samples": 277, "across": 322, "down": 323}
    entries = [struct.pack("<HHII", numbers[name], 4, 1, value) for name, value in tags.items()]
    return b"II*\0" + struct.pack("<IH", 8, len(entries)) + b"".join(entries) + bytes(4)


@pytest.mark.parametrize(
    "encoded",
    [
        *(huge_webp(kind) for kind in (b"VP8 ", b"VP8L", b"VP8X")),
        tiff(width=20_000, height=20_000),
        b"P6\n20000 20000\n255\n",
        b"P2 #a\n 20000 #b\n 20000 1 0",
    ],
)
def test_a_picture_that_claims_too_many_pixels_is_refused_before_it_is_decoded(encoded: bytes) -> None:
    with pytest.raises(DataError, match=r"the image has \d+ x \d+ pixels, more than Image.max_pixels"):
        Image(encoded).get_as("numpy")


@pytest.mark.parametrize(
    ("encoded", "told"),
    [
        (saved(PIXELS.astype(np.float32)[:, :, 0], "TIFF"), "TIFF image has floating-point numbers of 32 bits; send"),
        (saved(PIXELS.astype(np.int32)[:, :, 0], "TIFF"), "TIFF image has signed integers of 32 bits; send"),
        (tiff(width=9, height=9, samples=5), "has 5 channels; send gray or red, green, blue"),
        (tiff(width=9, height=9, across=1 << 16, down=1 << 16), "tiles of 65536 x 65536 pixels, larger than itself"),
        (
            saved(PIXELS, "WEBP", save_all=True, append_images=[PIL.Image.fromarray(255 - PIXELS)]),
            "the WebP image is an animation; send its pictures one by one",
        ),
        (b"P5 \x00\x01\x02 3 4", "does not begin with its width and height"),
        (b"RIFF\0\0\0\0WEBPVP9 " + bytes(30), "does not begin with its header"),
    ],
)
def test_a_file_that_is_no_single_picture_of_plain_pixels_is_told(encoded: bytes, told: str) -> None:
    with pytest.raises(DataError, match=told):
        Image(encoded).get_as("numpy")


@pytest.mark.parametrize("encoded", FILES.values(), ids=FILES)
def test_a_file_that_is_cut_short_anywhere_in_its_header_raises_nothing_else_than_a_data_error(encoded: bytes) -> None:
    for end in range(1, 40):
        with contextlib.suppress(DataError):
            read_header(encoded[:end])


def test_tiff_directories_that_point_anywhere_raise_nothing_else_than_a_data_error() -> None:
    good = FILES["gray TIFF"]
    random = np.random.default_rng(7)
    for _ in range(500):
        bad = bytearray(good)
        for place in random.integers(4, len(good), 3):
            bad[place] = random.integers(0, 256)
        with contextlib.suppress(DataError):
            read_header(bytes(bad))


@pytest.mark.parametrize("encoded", FILES.values(), ids=FILES)
def test_the_json_form_names_the_format_and_is_read_back(encoded: bytes) -> None:
    plain = wire.value_to_plain(Image(encoded))
    assert plain["@ImageFormat"] == Image(encoded).format
    again = wire.loads(wire.dumps(Data({"k": Image(encoded)})))["k"]
    assert isinstance(again, Image)
    assert again.encoded == encoded


def test_the_suffixes_are_those_of_the_formats_that_are_read() -> None:
    assert {f".{name.lower()}" for name in ("PNG", "JPEG", "BMP", "GIF", "WEBP", "TIFF", "PGM", "PPM")} <= SUFFIXES
