"""Images: told by content, measured without decoding, decoded and encoded when asked."""

from __future__ import annotations

import io
import re
import struct
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import PIL.Image
import pytest

from pipelines.errors import DataError, WrongTypeError
from pipelines.values import Image

COLOR = np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3) * 10
GRAY = np.arange(6, dtype=np.uint8).reshape(2, 3, 1) * 40


def file_of(array: np.ndarray[Any, Any], extension: str) -> bytes:
    return bytes(cv2.imencode(extension, array)[1].tobytes())


def pillow_file(mode: str, image_format: str, **options: Any) -> bytes:
    target = io.BytesIO()
    PIL.Image.new(mode, (3, 2), **options).save(target, image_format)
    return target.getvalue()


def png_claiming(width: int, height: int) -> bytes:
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunk = b"IHDR" + header
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + chunk + struct.pack(">I", zlib.crc32(chunk))


@pytest.mark.parametrize("array", [COLOR, GRAY], ids=["color", "gray"])
@pytest.mark.parametrize(
    ("extension", "name"), [(".png", "PNG"), (".jpg", "JPEG"), (".bmp", "BMP")], ids=["png", "jpeg", "bmp"]
)
def test_a_file_says_its_format_and_size_and_decodes_to_that(
    extension: str, name: str, array: np.ndarray[Any, Any]
) -> None:
    image = Image(file_of(array, extension))
    assert (image.format, image.width, image.height, image.channels) == (name, 3, 2, array.shape[2])
    assert image.get_as("numpy").shape == array.shape
    if name != "JPEG":
        np.testing.assert_array_equal(image.get_as(np.ndarray), array)


@pytest.mark.parametrize(
    ("mode", "image_format", "channels"),
    [
        ("1", "PNG", 1),
        ("L", "PNG", 1),
        ("I;16", "PNG", 1),
        ("LA", "PNG", 3),
        ("P", "PNG", 3),
        ("RGB", "PNG", 3),
        ("RGBA", "PNG", 3),
        ("L", "JPEG", 1),
        ("RGB", "JPEG", 3),
        ("CMYK", "JPEG", 3),
        ("1", "BMP", 1),
        ("L", "BMP", 1),
        ("RGB", "BMP", 3),
        ("RGBA", "BMP", 3),
        ("L", "GIF", 3),
        ("RGB", "GIF", 3),
    ],
)
def test_the_header_agrees_with_the_decoder_for_every_pixel_kind(mode: str, image_format: str, channels: int) -> None:
    image = Image(pillow_file(mode, image_format))
    assert (image.format, image.width, image.height, image.channels) == (image_format, 3, 2, channels)
    pixels = image.get_as("numpy")
    assert pixels.shape == (2, 3, channels)
    assert pixels.dtype == np.uint8


def test_alpha_is_dropped_and_the_colour_kept() -> None:
    pixels = Image(pillow_file("RGBA", "PNG", color=(10, 20, 30, 0))).get_as("numpy")
    np.testing.assert_array_equal(pixels[0, 0], [30, 20, 10])
    with_alpha = np.dstack([COLOR, np.zeros((2, 3), np.uint8)])
    np.testing.assert_array_equal(Image(with_alpha).get_as("numpy"), COLOR)


def test_a_progressive_jpeg_with_a_long_comment_is_measured() -> None:
    target = io.BytesIO()
    PIL.Image.new("RGB", (300, 200)).save(target, "JPEG", progressive=True, comment=b"\xff\xc0" * 500)
    image = Image(target.getvalue())
    assert (image.width, image.height) == (300, 200)


def test_an_orientation_mark_is_not_applied() -> None:
    exif = PIL.Image.Exif()
    exif[0x0112] = 6
    target = io.BytesIO()
    PIL.Image.new("RGB", (30, 20)).save(target, "JPEG", exif=exif)
    assert Image(target.getvalue()).get_as("numpy").shape == (20, 30, 3)


def test_a_top_down_bmp_has_a_positive_height() -> None:
    encoded = bytearray(file_of(COLOR, ".bmp"))
    struct.pack_into("<i", encoded, 22, -2)
    image = Image(encoded)
    assert image.height == 2
    np.testing.assert_array_equal(image.get_as("numpy"), COLOR[::-1])


def test_an_array_becomes_a_file_and_the_same_array_again() -> None:
    for array in (COLOR, GRAY, GRAY[:, :, 0]):
        image = Image(array)
        assert image.format is None
        assert image.encoded is None
        png = image.get_as("png")
        np.testing.assert_array_equal(Image(png).get_as("numpy"), array.reshape(2, 3, -1))
        assert Image(image.get_as("JPG")).format == "JPEG"
        assert Image(image.get_as("bmp")).format == "BMP"
        assert image.get_as(bytes) == png


def test_the_bytes_of_a_file_are_given_back_untouched() -> None:
    png, jpeg = file_of(COLOR, ".png"), file_of(COLOR, ".jpg")
    assert Image(png).get_as("png") is png
    assert Image(jpeg).get_as("jpeg") is jpeg
    assert Image(jpeg).get_as("bytes") is jpeg
    assert Image(png).to_wire() is png
    assert Image(jpeg).to_wire() is jpeg


def test_bytes_of_no_known_format_travel_but_are_not_measured_or_decoded() -> None:
    image = Image(b"\x00\x01\x02")
    assert image.format is None
    assert image.to_wire() == b"\x00\x01\x02"
    for ask in (lambda: image.width, lambda: image.get_as("numpy"), lambda: image.get_as("png")):
        with pytest.raises(DataError, match="not a PNG, JPEG, BMP, GIF, WebP, TIFF, PGM or PPM file"):
            ask()


@pytest.mark.parametrize(
    ("encoded", "told"),
    [
        (
            b"RIFF\x10\0\0\0WAVEfmt ",
            "the image's 16 bytes are not a PNG, JPEG, BMP, GIF, WebP, TIFF, PGM or PPM file; send",
        ),
        (b"\0\0\0\x1cftypavif", "but HEIC, AVIF or a video;"),
        (b"data:image/png;base64,iVBORw0KGgo", "but base64 text of one, which has to be decoded first;"),
        (b"iVBORw0KGgoAAAANSUhEUg", "but base64 text of one"),
        (b"\n<!doctype html>", "but text like SVG or HTML;"),
        (b"\x00\x01\x02", "are not a PNG, JPEG, BMP, GIF, WebP, TIFF, PGM or PPM file; send one of these formats"),
        (b"", "the image has no bytes"),
    ],
)
def test_bytes_that_are_no_readable_image_are_told_by_what_they_are(encoded: bytes, told: str) -> None:
    with pytest.raises(DataError, match=re.escape(told)):
        Image(encoded).get_as("numpy")


@pytest.mark.parametrize("extension", [".png", ".jpg", ".bmp"])
def test_a_file_cut_short_is_an_error_and_never_a_crash(extension: str) -> None:
    encoded = file_of(COLOR, extension)
    for end in range(len(encoded)):
        image = Image(encoded[:end])
        try:
            assert image.get_as("numpy").shape == (image.height, image.width, image.channels)
        except DataError:
            continue


@pytest.mark.parametrize("extension", [".png", ".jpg", ".bmp"])
def test_a_file_with_a_wrong_byte_is_an_error_or_an_image(extension: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # A wrong byte in the size would make a picture of a hundred megabytes.
    monkeypatch.setattr(Image, "max_pixels", 10_000)
    encoded = file_of(COLOR, extension)
    for position in range(min(len(encoded), 200)):
        broken = bytearray(encoded)
        broken[position] ^= 0xFF
        try:
            Image(broken).get_as("numpy")
        except DataError:
            continue


def test_a_small_file_that_claims_a_huge_picture_is_refused_before_decoding() -> None:
    image = Image(png_claiming(60_000, 60_000))
    assert image.width == 60_000
    with pytest.raises(DataError, match="60000 x 60000 pixels, more than"):
        image.get_as("numpy")


def test_a_png_chunk_that_claims_gigabytes_is_refused_before_decoding() -> None:
    encoded = bytearray(file_of(COLOR, ".png"))
    encoded[33] = 0xFF
    with pytest.raises(DataError, match="ends within its chunk b'IDAT'"):
        Image(encoded).get_as("numpy")


def test_the_pixel_limit_can_be_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    png = file_of(COLOR, ".png")
    monkeypatch.setattr(Image, "max_pixels", 5)
    with pytest.raises(DataError, match=r"Image\.max_pixels = 5"):
        Image(png).get_as("numpy")
    monkeypatch.setattr(Image, "max_pixels", 6)
    assert Image(png).get_as("numpy").shape == COLOR.shape


def test_an_image_of_no_width_is_refused() -> None:
    with pytest.raises(DataError, match="has the size 0 x 5"):
        _ = Image(png_claiming(0, 5)).width


def test_pixels_are_read_only() -> None:
    for image in (Image(COLOR), Image(file_of(COLOR, ".png"))):
        with pytest.raises(ValueError, match="read-only"):
            image.get_as("numpy")[0, 0, 0] = 1
    assert COLOR.flags.writeable


@pytest.mark.parametrize(
    "source",
    [
        COLOR.astype(np.float32),
        np.zeros((2, 3, 2), np.uint8),
        np.zeros(3, np.uint8),
        np.zeros((0, 3, 3), np.uint8),
        17,
    ],
    ids=["float", "two channels", "one dimension", "empty", "number"],
)
def test_an_array_or_number_that_is_no_picture_is_refused(source: Any) -> None:
    with pytest.raises(WrongTypeError):
        Image(source)


def test_a_file_is_opened_by_content_whatever_its_name(tmp_path: Path) -> None:
    path = tmp_path / "picture.txt"
    path.write_bytes(file_of(COLOR, ".png"))
    assert Image.open(path).format == "PNG"
    assert Image(str(path)) == Image(path)
    path.write_text("hello")
    with pytest.raises(DataError, match="is not a PNG, JPEG, BMP, GIF, WebP, TIFF, PGM or PPM file"):
        Image.open(path)
    with pytest.raises(FileNotFoundError):
        Image.open(tmp_path / "missing.png")


def test_images_are_equal_if_their_png_bytes_are() -> None:
    png = Image(COLOR).get_as("png")
    assert Image(COLOR) == Image(COLOR.copy())
    assert Image(COLOR) == Image(png)
    assert Image(file_of(COLOR, ".bmp")) == Image(COLOR)
    assert Image(COLOR) != Image(COLOR + 1)
    assert Image(COLOR) != Image(GRAY)
    assert Image(png) != png


def test_an_unknown_target_names_the_known_ones() -> None:
    with pytest.raises(DataError, match="No converter found from Image to 'tiff'; there are numpy, png"):
        Image(COLOR).get_as("tiff")
    with pytest.raises(DataError, match="No converter found"):
        Image(COLOR).get_as(list)


def test_a_notebook_shows_the_picture() -> None:
    assert 'src="data:image/jpeg;base64,' in Image(file_of(COLOR, ".jpg"))._repr_html_()
    assert 'src="data:image/png;base64,' in Image(COLOR)._repr_html_()
    assert repr(Image(COLOR)) == "Image(array, 3x2x3)"
    assert repr(Image(b"xyz")) == "Image(unknown format, 3 bytes)"


@pytest.mark.slow
def test_without_opencv_decoding_says_what_to_install_and_png_still_passes() -> None:
    script = """
import sys
sys.modules["cv2"] = None
from pipelines.data.data import Data
from pipelines.errors import MissingPackageError
from pipelines.values import Image
import numpy as np
png = bytes.fromhex(sys.argv[1])
assert Data.from_bytes(Data({"k": Image(png)}).to_bytes()).get_image("k").encoded == png
for use in (Image(png).get_as, lambda _: Data({"k": Image(np.zeros((2, 2, 3), "u1"))}).to_json()):
    try:
        use("numpy")
    except MissingPackageError as error:
        assert "pip install 'streamer-inference[image]'" in str(error), error
    else:
        raise SystemExit("no error")
"""
    subprocess.run([sys.executable, "-c", script, file_of(COLOR, ".png").hex()], check=True)


@pytest.mark.parametrize("name", [".jpg", ".png", ".bmp", ".gif"])
def test_the_pixels_of_a_file_that_is_cut_short_are_an_error(name: str) -> None:
    noise = np.random.default_rng(0).integers(0, 255, (64, 64, 3), dtype=np.uint8)
    whole = cv2.imencode(name, noise)[1].tobytes()
    assert Image(whole).get_as("numpy").shape == (64, 64, 3)
    with pytest.raises(DataError, match="cut short"):
        Image(whole[: len(whole) // 2]).get_as("numpy")
