"""The codec `image` reads photos of phones, whose files say how they are shown."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import PIL.Image

from connectors.codecs.registry import codec_of


def photo(orientation: int) -> bytes:
    """A JPEG file of 30 x 20 pixels."""
    exif = PIL.Image.Exif()
    exif[0x0112] = orientation
    target = io.BytesIO()
    PIL.Image.new("RGB", (30, 20)).save(target, "JPEG", exif=exif)
    return target.getvalue()


def test_a_photo_of_a_phone_is_upright_and_its_file_goes_on_as_it_came(block: Callable[..., Any]) -> None:
    lying, plain = photo(6), photo(1)
    codec = codec_of("image")
    batch = codec.decode(block([lying, plain]), None).batch
    images = [batch.row(row)["image"] for row in range(2)]
    assert [(image.width, image.height) for image in images] == [(20, 30), (30, 20)]
    assert [image.get_as("numpy").shape for image in images] == [(30, 20, 3), (20, 30, 3)]
    assert codec.encode(batch).values == [lying, plain]


def test_pixels_can_be_taken_as_a_phone_stored_them(block: Callable[..., Any]) -> None:
    batch = codec_of({"type": "image", "upright": False}).decode(block([photo(6)]), None).batch
    assert batch.row(0)["image"].get_as("numpy").shape == (20, 30, 3)


def test_a_photo_that_is_written_anew_is_upright_without_a_mark(block: Callable[..., Any]) -> None:
    codec = codec_of({"type": "image", "format": "png"})
    [written] = codec.encode(codec.decode(block([photo(6)]), None).batch).values
    with PIL.Image.open(io.BytesIO(bytes(written))) as made:
        assert made.size == (20, 30)
        assert 0x0112 not in made.getexif()
