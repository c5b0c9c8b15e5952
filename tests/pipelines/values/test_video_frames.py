"""Images of video frames: scaled from the frame's own planes, no more pixels converted than are wanted."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import av
import cv2
import numpy as np
import numpy.typing as npt
import pytest

from pipelines import DataError, Image

Array = npt.NDArray[Any]


def scene(width: int = 320, height: int = 180) -> Array:
    """A smooth picture, as cameras see."""
    spots = np.random.default_rng(7).integers(0, 256, (9, 16, 3), np.uint8)
    return cv2.resize(spots, (width, height), interpolation=cv2.INTER_CUBIC)


def frame(pixel_format: str = "yuv420p", width: int = 320, height: int = 180) -> Any:
    return av.VideoFrame.from_ndarray(scene(width, height), format="bgr24").reformat(format=pixel_format)


def apart(a: Array, b: Array) -> float:
    """The mean difference of two pictures, of 255."""
    assert a.shape == b.shape
    return float(np.abs(a.astype("f4") - b).mean())


@pytest.mark.parametrize("pixel_format", ["yuv420p", "yuvj420p", "nv12", "yuv422p", "yuv420p10le", "bgr24", "rgb24"])
@pytest.mark.parametrize("size", [(96, 54), (100, 100), (640, 360), (33, 47)])
def test_a_scaled_frame_looks_like_its_pixels_resized(pixel_format: str, size: tuple[int, int]) -> None:
    given = frame(pixel_format)
    expected = cv2.resize(given.to_ndarray(format="bgr24"), size, interpolation=cv2.INTER_AREA)
    assert apart(Image(given).scaled(*size), expected) < 4.0


@pytest.mark.parametrize("pixel_format", ["yuv420p", "nv12", "bgr24", "gray"])
def test_a_part_of_a_frame_is_scaled_as_if_it_were_cut_out_before(pixel_format: str) -> None:
    given = frame(pixel_format)
    pixels = Image(given).get_as("numpy")
    for x, y, wide, high in ((70, 4, 90, 90), (71, 3, 90, 90), (0, 0, 320, 180), (2, 2, 45, 45)):
        part = Image(given).scaled(45, 45, part=(x, y, wide, high))
        expected = cv2.resize(pixels[y : y + high, x : x + wide], (45, 45), interpolation=cv2.INTER_LINEAR)
        assert apart(part, expected.reshape(part.shape)) < 4.0


def test_a_frame_in_its_own_size_has_the_pixels_that_it_always_had() -> None:
    given = frame()
    image = Image(given)
    assert np.array_equal(image.scaled(320, 180), given.to_ndarray(format="bgr24"))
    assert image.scaled(320, 180) is image.get_as("numpy")


def test_gray_is_the_brightness_of_a_frame_over_the_whole_range() -> None:
    given = frame()
    expected = cv2.cvtColor(given.to_ndarray(format="bgr24"), cv2.COLOR_BGR2GRAY)
    assert apart(Image(given).scaled(320, 180, 1)[:, :, 0], expected) < 2.0
    black = av.VideoFrame.from_ndarray(np.zeros((8, 8, 3), np.uint8), format="bgr24").reformat(format="yuv420p")
    white = av.VideoFrame.from_ndarray(np.full((8, 8, 3), 255, np.uint8), format="bgr24").reformat(format="yuv420p")
    assert Image(black).scaled(4, 4, 1).max() <= 1
    assert Image(white).scaled(4, 4, 1).min() >= 254


def test_planes_are_the_channels_of_the_scaled_picture() -> None:
    for image in (Image(frame()), Image(scene()), Image(frame("gray"))):
        for channels in (1, 3):
            planes = image.scaled_planes(64, 36, channels)
            assert len(planes) == channels
            assert np.array_equal(np.dstack(planes), image.scaled(64, 36, channels))
            assert not any(plane.flags.writeable and image.is_frame for plane in planes)


def test_an_image_of_a_file_or_an_array_is_resized_as_ever() -> None:
    pixels = scene()
    expected = cv2.resize(pixels, (64, 48), interpolation=cv2.INTER_LINEAR)
    for image in (Image(pixels), Image(Image(pixels).get_as("png"))):
        assert np.array_equal(image.scaled(64, 48), expected)
        assert np.array_equal(image.scaled(64, 48, 1)[:, :, 0], cv2.cvtColor(expected, cv2.COLOR_BGR2GRAY))
    gray = Image(pixels[:, :, 0])
    assert gray.scaled(64, 48).shape == (48, 64, 1)
    assert gray.scaled(64, 48, 3).shape == (48, 64, 3)


@pytest.mark.parametrize("size", [(1, 1), (1, 180), (320, 1), (3, 2)])
def test_a_frame_may_become_tiny(size: tuple[int, int]) -> None:
    assert Image(frame()).scaled(*size).shape == (size[1], size[0], 3)


def test_a_frame_of_too_many_pixels_is_refused_before_it_is_converted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "max_pixels", 320 * 180 - 1)
    asks: list[Callable[[Image], Any]] = [
        lambda image: image.scaled(10, 10),
        lambda image: image.scaled(320, 180),
        lambda image: image.get_as("numpy"),
    ]
    for ask in asks:
        with pytest.raises(DataError, match="320 x 180 pixels, more than"):
            ask(Image(frame()))
    with pytest.raises(DataError, match="400 x 400 pixels, more than"):
        Image(frame(width=16, height=16)).scaled(400, 400)


def test_a_part_that_does_not_lie_in_the_frame_is_an_error_and_the_next_one_is_as_ever() -> None:
    expected = Image(frame()).scaled(20, 20, part=(10, 10, 80, 80))
    with pytest.raises(DataError, match="cannot be cut out"):
        Image(frame()).scaled(20, 20, part=(10, 10, 4000, 80))
    assert np.array_equal(Image(frame()).scaled(20, 20, part=(10, 10, 80, 80)), expected)


def test_pictures_stay_when_their_frame_and_the_scaler_are_used_for_others() -> None:
    first = Image(frame()).scaled(64, 36)
    kept = first.copy()
    for width in range(40, 80):
        Image(frame()).scaled(width, 36)
    assert np.array_equal(first, kept)


def test_cameras_of_several_sizes_and_threads_do_not_mix() -> None:
    sizes = [(320, 180), (160, 120), (200, 200)]
    expected = {
        size: Image(frame(width=size[0], height=size[1])).scaled(50, 50, part=(10, 10, 90, 90)) for size in sizes
    }
    wrong: list[tuple[int, int]] = []

    def scale() -> None:
        for _ in range(10):
            for size in sizes:
                found = Image(frame(width=size[0], height=size[1])).scaled(50, 50, part=(10, 10, 90, 90))
                if not np.array_equal(found, expected[size]):
                    wrong.append(size)

    threads = [threading.Thread(target=scale) for _ in range(3)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert not wrong
