"""The orientation that phones write into their photos' EXIF data."""

from __future__ import annotations

import io
import struct
from typing import Any

import numpy as np
import numpy.typing as npt
import PIL.Image
import PIL.ImageOps
import pytest

from pipelines.values import Image
from pipelines.values.orientation import UPRIGHT, orientation

PIXELS = np.random.default_rng(3).integers(0, 256, (20, 30, 3), np.uint8)


def photo(number: int, kind: str = "PNG", pixels: npt.NDArray[Any] = PIXELS) -> bytes:
    """A file, RGB, that says that it is shown in this orientation."""
    exif = PIL.Image.Exif()
    exif[0x010F] = "maker"
    exif[0x0112] = number
    target = io.BytesIO()
    options = {"lossless": True} if kind == "WEBP" else {}
    PIL.Image.fromarray(pixels).save(target, kind, exif=exif, **options)
    return target.getvalue()


def as_shown(encoded: bytes) -> npt.NDArray[np.uint8]:
    """Its pixels as Pillow turns them, BGR."""
    with PIL.Image.open(io.BytesIO(encoded)) as opened:
        return np.asarray(PIL.ImageOps.exif_transpose(opened))[..., ::-1]


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF"])
@pytest.mark.parametrize("number", range(1, 9))
def test_the_orientation_is_read_from_all_kinds_of_files(kind: str, number: int) -> None:
    assert orientation(photo(number, kind)) == number


def test_files_without_an_orientation_or_with_a_wrong_one_are_upright() -> None:
    plain = io.BytesIO()
    PIL.Image.fromarray(PIXELS).save(plain, "JPEG")
    whole = photo(6, "JPEG")
    wrong = [b"", b"\xff\xd8", b"\xff\xd8\xff\xe1", b"no picture", plain.getvalue(), photo(9, "JPEG"), photo(0)]
    assert {orientation(one) for one in wrong} == {UPRIGHT}
    # A file that is cut short, or whose EXIF data point anywhere, raises nothing.
    for end in range(len(whole)):
        assert orientation(whole[:end]) in (UPRIGHT, 6)
    at = whole.index(b"Exif\0\0") + 10
    assert orientation(whole[:at] + struct.pack(">I", 2**31) + whole[at + 4 :]) == UPRIGHT


@pytest.mark.parametrize("number", range(1, 9))
def test_an_upright_image_has_pixels_and_size_as_it_is_shown(number: int) -> None:
    encoded = photo(number)
    expected = as_shown(encoded)
    image = Image(encoded, upright=True)
    assert (image.height, image.width) == expected.shape[:2]
    np.testing.assert_array_equal(image.get_as("numpy"), expected)
    np.testing.assert_array_equal(image.get_as("numpy RGB"), expected[..., ::-1])
    np.testing.assert_array_equal(np.asarray(image.get_as("pil"))[..., ::-1], expected)
    height, width = expected.shape[:2]
    np.testing.assert_array_equal(image.scaled(width, height, 3), expected)
    assert not image.get_as("numpy").flags.writeable


def test_an_upright_image_keeps_its_file_and_makes_upright_ones() -> None:
    encoded = photo(6, "JPEG")
    image = Image(encoded, upright=True)
    assert image.encoded == image.get_as(bytes) == image.get_as("jpeg") == encoded
    with PIL.Image.open(io.BytesIO(image.get_as("png"))) as made:
        assert made.size == (20, 30)
    with PIL.Image.open(io.BytesIO(image.get_as("JPEG quality 80"))) as made:
        assert made.size == (20, 30)
        assert 0x0112 not in made.getexif()
