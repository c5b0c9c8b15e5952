"""`Image` in any form: files, arrays, Pillow images and video frames, converted only where somebody asks."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable
from typing import Any

import av
import cv2
import numpy as np
import PIL.Image
import pytest

from pipelines import Data, Image, ImageFormat, NDArray
from pipelines.errors import DataError, WrongTypeError
from pipelines.values import image_conversions

COLOR = np.arange(4 * 6 * 3, dtype=np.uint8).reshape(4, 6, 3) * 3
GRAY = np.arange(4 * 6, dtype=np.uint8).reshape(4, 6, 1) * 10


def file_of(array: np.ndarray[Any, Any], extension: str) -> bytes:
    return bytes(cv2.imencode(extension, array)[1].tobytes())


def pillow(mode: str, size: tuple[int, int] = (6, 4)) -> PIL.Image.Image:
    pixels = np.random.default_rng(5).integers(0, 256, (size[1], size[0], 4), dtype=np.uint8)
    image = PIL.Image.fromarray(pixels)
    return image if mode == "RGBA" else image.convert(mode)


def png_claiming(width: int, height: int) -> bytes:
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(b"\0" * 100)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))
        for name, content in chunks
    )


FORMS: dict[str, Callable[[np.ndarray[Any, Any]], Any]] = {
    "numpy": lambda pixels: pixels,
    "png": lambda pixels: file_of(pixels, ".png"),
    "bmp": lambda pixels: file_of(pixels, ".bmp"),
    "pil": lambda pixels: PIL.Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels[:, :, ::-1].copy()),
    "frame": lambda pixels: av.VideoFrame.from_ndarray(
        pixels[:, :, 0].copy() if pixels.shape[2] == 1 else pixels, format="gray" if pixels.shape[2] == 1 else "bgr24"
    ),
}


@pytest.mark.parametrize("pixels", [COLOR, GRAY], ids=["color", "gray"])
@pytest.mark.parametrize("target", FORMS)
@pytest.mark.parametrize("source", FORMS)
def test_every_lossless_form_becomes_every_other_one_pixel_by_pixel(
    source: str, target: str, pixels: np.ndarray[Any, Any]
) -> None:
    """K-17."""
    image = Image.create(FORMS[source](pixels))
    assert (image.height, image.width, image.channels) == pixels.shape
    np.testing.assert_array_equal(Image(image.get_as(target)).get_as("numpy"), pixels)


def test_an_image_is_given_back_unconverted_in_the_form_that_it_has() -> None:
    """K-12."""
    for name, made in FORMS.items():
        source = made(COLOR)
        image = Image.create(source)
        if name != "numpy":
            assert image.get_as(name) is source
    picture = pillow("RGB")
    assert Image(picture).get_as(PIL.Image.Image) is picture
    frame = FORMS["frame"](COLOR)
    assert Image(frame).get_as(av.VideoFrame) is frame
    assert np.shares_memory(Image(COLOR).get_as(np.ndarray), COLOR)
    image = Image(COLOR)
    assert Image.create(image) is image


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "I;16"])
@pytest.mark.parametrize("size", [(6, 4), (1, 1)])
def test_a_png_of_a_pillow_image_loses_nothing(mode: str, size: tuple[int, int]) -> None:
    """K-17."""
    picture = PIL.Image.new("I;16", size, 40_000) if mode == "I;16" else pillow(mode, size)
    png = Image(picture).get_as("png")
    assert Image(png).format == "PNG"
    again = Image(png).get_as("pil")
    kept = picture.mode if mode != "1" else "L"
    assert np.array_equal(np.asarray(again.convert(kept)), np.asarray(picture.convert(kept)))
    assert Image(picture).to_wire() == png
    assert Data.from_bytes(Data({"k": Image(picture)}).to_bytes()).get_image("k").encoded == png


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "YCbCr", "HSV"])
def test_a_pillow_image_of_every_mode_has_pixels(mode: str) -> None:
    picture = pillow("RGB").convert(mode)
    image = Image(picture)
    expected = np.asarray(picture.convert("L" if mode in ("1", "L") else "RGB"))
    pixels = image.get_as("numpy")
    assert pixels.shape == (image.height, image.width, image.channels)
    np.testing.assert_array_equal(pixels[:, :, ::-1].squeeze(), expected.squeeze())
    assert Image(image.get_as("png")).get_as("numpy").shape == pixels.shape


def test_a_pillow_image_of_more_than_eight_bits_has_no_pixels() -> None:
    for mode in ("I", "F", "I;16"):
        with pytest.raises(WrongTypeError, match="no pixels of eight bits; convert it"):
            Image(PIL.Image.new(mode, (2, 2))).get_as("numpy")


def test_a_frame_as_cameras_give_it_becomes_pixels() -> None:
    frame = av.VideoFrame.from_ndarray(np.full((6, 8), 128, np.uint8), format="yuv420p")
    image = Image(frame)
    assert (image.height, image.width, image.channels) == (frame.height, frame.width, 3)
    assert image.get_as("numpy").shape == (frame.height, frame.width, 3)
    assert Image(image.get_as("jpeg")).format == "JPEG"
    assert repr(image) == f"Image(frame, {frame.width}x{frame.height}x3)"


def test_a_jpeg_has_the_quality_that_is_asked_for() -> None:
    """K-13."""
    noise = np.random.default_rng(5).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    image = Image(noise)
    sizes = [len(image.get_as(f"JPEG quality {quality}")) for quality in (10, 80, 100)]
    assert sizes == sorted(sizes)
    assert sizes[0] < sizes[1] / 2
    expected = cv2.imencode(".jpg", noise, [cv2.IMWRITE_JPEG_QUALITY, 80])[1].tobytes()
    assert image.get_as(ImageFormat("jpeg", quality=80)) == expected
    assert Image(expected).get_as("jpeg") is expected
    assert Image(Image(expected).get_as("jpg, quality 20")).format == "JPEG"
    assert Image(pillow("RGBA")).get_as("JPEG quality 50")[:3] == b"\xff\xd8\xff"


def test_a_png_has_the_compression_that_is_asked_for_and_loses_nothing() -> None:
    """K-13."""
    picture = pillow("RGBA", (64, 64))
    flat = PIL.Image.new("RGBA", (64, 64), (1, 2, 3, 4))
    for source in (picture, Image(picture).get_as("png")):
        again = Image(Image(source).get_as("PNG compression 9")).get_as("pil")
        np.testing.assert_array_equal(np.asarray(again), np.asarray(picture))
    assert len(Image(flat).get_as("png compression 0")) > len(Image(flat).get_as("png compression 9"))
    assert len(Image(COLOR).get_as("png compression 0")) > len(Image(COLOR).get_as("png compression 9"))
    deep = cv2.imencode(".png", np.full((2, 2), 40_000, np.uint16))[1].tobytes()
    again = cv2.imdecode(np.frombuffer(Image(deep).get_as("png compression 1"), "u1"), -1)
    assert again is not None
    assert again.max() == 40_000


@pytest.mark.parametrize("source", ["numpy", "png", "pil"])
def test_pixels_come_in_the_channels_that_are_asked_for(source: str) -> None:
    """K-13."""
    image = Image(FORMS[source](COLOR))
    np.testing.assert_array_equal(image.get_as("numpy RGB"), COLOR[:, :, ::-1])
    np.testing.assert_array_equal(image.get_as("BGR"), COLOR)
    np.testing.assert_array_equal(image.get_as("gray"), cv2.cvtColor(COLOR, cv2.COLOR_BGR2GRAY)[:, :, None])
    np.testing.assert_array_equal(image.get_as("RGBA"), np.dstack([COLOR[:, :, ::-1], np.full((4, 6), 255, "u1")]))
    np.testing.assert_array_equal(image.get_as("BGRA")[:, :, :3], COLOR)
    gray = Image(FORMS[source](GRAY))
    np.testing.assert_array_equal(gray.get_as("numpy GRAY"), GRAY)
    np.testing.assert_array_equal(gray.get_as("numpy RGB"), np.repeat(GRAY, 3, axis=2))
    for channels in ("RGB", "RGBA", "gray"):
        assert not image.get_as(channels).flags.writeable
    assert np.shares_memory(Image(COLOR).get_as("RGB"), COLOR)


def test_alpha_is_kept_only_where_it_is_asked_for() -> None:
    """K-13."""
    picture = pillow("RGBA")
    for source in (picture, Image(picture).get_as("png")):
        np.testing.assert_array_equal(Image(source).get_as("RGBA"), np.asarray(picture))
        np.testing.assert_array_equal(Image(source).get_as("BGRA"), np.asarray(picture)[:, :, [2, 1, 0, 3]])
        np.testing.assert_array_equal(Image(source).get_as("numpy"), np.asarray(picture)[:, :, 2::-1])


@pytest.mark.parametrize(
    ("target", "error"),
    [
        ("JPEG quality", "quality is followed by a number"),
        ("JPEG quality good", "quality is followed by a number"),
        ("JPEG quality 101", "an image's quality is 0 to 100, not 101"),
        ("PNG compression 10", "an image's compression is 0 to 9, not 10"),
        ("JPEG PNG", "asks for both jpeg and png; say one form"),
        ("numpy RGB BGR", "asks for both RGB and BGR; say one channels"),
        ("png quality 80", "to png knows no quality; it knows compression"),
        ("jpeg RGB", "to jpeg knows no channels; it knows quality"),
        ("bmp quality 3", "knows no quality; it knows no details"),
        ("webp", "No converter found from Image to 'webp'; there are numpy, png, jpeg, bmp, gif, pil, frame"),
        (dict, "No converter found from Image to 'builtins.dict'"),
        (5, "is converted to a class, a text or an ImageFormat, not to 5"),
    ],
)
def test_a_format_that_makes_no_sense_is_refused(target: Any, error: str) -> None:
    """K-13."""
    with pytest.raises(DataError, match=error):
        Image(COLOR).get_as(target)


def test_no_lossless_image_becomes_a_jpeg_on_its_way() -> None:
    """K-17."""
    conversions = image_conversions()
    for _, factory in conversions.factories:
        for _, other in conversions.factories:
            hops = conversions.route(factory.form, ImageFormat(other.form))
            assert len(hops) <= 1
    assert conversions.canonical == "png"


@pytest.mark.parametrize("target", ["numpy", "pil", "frame", "jpeg", "RGBA", "png compression 1", "gray"])
@pytest.mark.parametrize("source", ["a small file", "Pillow, not loaded", "Pillow"])
def test_a_picture_of_too_many_pixels_is_refused_whatever_it_becomes(
    source: str, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    huge = png_claiming(60_000, 60_000)
    if source == "a small file":
        image = Image(huge)
    elif source == "Pillow":
        monkeypatch.setattr(Image, "max_pixels", 23)
        image = Image(pillow("RGBA"))
    else:
        monkeypatch.setattr(PIL.Image, "MAX_IMAGE_PIXELS", None)
        image = Image(PIL.Image.open(io.BytesIO(huge)))
    if target == "pil" and source != "a small file":
        assert image.get_as("pil")
        return
    with pytest.raises(DataError, match=r"pixels, more than Image\.max_pixels"):
        image.get_as(target)


@pytest.mark.parametrize("end", range(0, 120, 7))
def test_a_file_cut_short_is_an_error_for_pillow_too(end: int) -> None:
    for extension in (".png", ".jpg", ".bmp"):
        encoded = file_of(COLOR, extension)
        try:
            picture = Image(encoded[:end]).get_as("pil")
        except DataError:
            continue
        assert picture.size == (6, 4)


def test_bytes_of_no_known_format_become_nothing() -> None:
    for target in ("pil", "frame", "RGB", "jpeg quality 3"):
        with pytest.raises(DataError, match="not a PNG, JPEG, BMP, GIF, WebP, TIFF, PGM or PPM file"):
            Image(b"\0\1\2").get_as(target)


def test_an_object_that_is_no_image_is_refused() -> None:
    for source in (17, None, [1], object()):
        with pytest.raises(WrongTypeError, match="an Image is made of bytes, an array, a path, a Pillow image"):
            Image(source)


def test_pictures_of_other_libraries_are_values_of_a_data() -> None:
    """K-12."""
    data = Data({"pil": FORMS["pil"](COLOR), "frame": FORMS["frame"](COLOR)})
    assert type(data["pil"]) is type(data["frame"]) is Image
    assert data["pil"] == data["frame"] == Image(COLOR)
    again = Data.from_json(data.to_json())
    np.testing.assert_array_equal(again.get_image("frame").get_as("numpy"), COLOR)
    assert NDArray.create(data["pil"].get_as("numpy")).shape == (4, 6, 3)
    assert 'src="data:image/png;base64,' in data["pil"]._repr_html_()
