"""Films and photos are seen upright, as players and browsers show them."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import PIL.Image
import PIL.ImageOps
import pytest
from camerareader import reading
from numberedpictures import Pixels, number_in, picture, video


@pytest.mark.parametrize(
    ("matrix", "turns"), [((0, 1, -1, 0), 3), ((0, -1, 1, 0), 1), ((-1, 0, 0, -1), 2), ((1, 0, 0, 1), 0)]
)
def test_a_film_that_a_telephone_took_upright_or_on_its_head_is_seen_as_players_show_it(
    tmp_path: Path, matrix: tuple[int, int, int, int], turns: int
) -> None:
    film = tmp_path / "film.mp4"
    video(str(film), frames=3)
    film.write_bytes(_shown_by(film.read_bytes(), matrix))
    with reading({"film": str(film)}) as reader:
        reader.to_the_end()
        images = [one.message.value.image for one in reader.of("film")]
        lying = [np.rot90(image.get_as("numpy"), -turns) for image in images]
        assert [number_in(one) for one in lying] == [0, 1, 2]
        assert (images[0].width, images[0].height) == ((96, 160) if turns % 2 else (160, 96))
        assert reader.cameras.cameras()["film"]["size"] == ("96x160" if turns % 2 else "160x96")
        assert images[0].scaled(48, 48, 3).shape == (48, 48, 3)


def test_a_photo_that_a_telephone_took_upright_is_seen_as_it_is_shown(tmp_path: Path) -> None:
    exif = PIL.Image.Exif()
    exif[0x0112] = 6
    PIL.Image.fromarray(picture(5, 160, 96)[..., ::-1]).save(tmp_path / "1.jpg", exif=exif, quality=95)
    with reading({"photos": str(tmp_path)}) as reader:
        reader.to_the_end()
        [one] = reader.of("photos")
        image = one.message.value.image
        assert (image.width, image.height) == (96, 160)
        assert number_in(np.rot90(image.get_as("numpy"))) == 5


@pytest.mark.parametrize(
    ("matrix", "mirrored"),
    [
        ((-1, 0, 0, 1), lambda picture: picture[:, ::-1]),
        ((1, 0, 0, -1), lambda picture: picture[::-1]),
        ((0, 1, 1, 0), lambda picture: picture.swapaxes(0, 1)),
        ((0, -1, -1, 0), lambda picture: picture[::-1, ::-1].swapaxes(0, 1)),
    ],
)
def test_a_film_of_a_front_camera_is_mirrored_as_players_show_it(
    tmp_path: Path, matrix: tuple[int, int, int, int], mirrored: Callable[[Pixels], Pixels]
) -> None:
    film = tmp_path / "film.mp4"
    video(str(film), frames=3)
    film.write_bytes(_shown_by(film.read_bytes(), matrix))
    with reading({"film": str(film)}) as reader:
        reader.to_the_end()
        images = [one.message.value.image for one in reader.of("film")]
        # Each of these is undone by doing it again.
        assert [number_in(mirrored(image.get_as("numpy"))) for image in images] == [0, 1, 2]


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_photo_is_turned_and_mirrored_as_its_exif_orientation_says(tmp_path: Path, orientation: int) -> None:
    exif = PIL.Image.Exif()
    exif[0x0112] = orientation
    PIL.Image.fromarray(picture(5, 160, 96)[..., ::-1]).save(tmp_path / "1.jpg", exif=exif, quality=95)
    with reading({"photos": str(tmp_path)}) as reader:
        reader.to_the_end()
        [one] = reader.of("photos")
        seen = one.message.value.image.get_as("numpy")[..., ::-1].astype(int)
        with PIL.Image.open(tmp_path / "1.jpg") as photo:
            expected = np.asarray(PIL.ImageOps.exif_transpose(photo)).astype(int)
        assert seen.shape == expected.shape
        assert np.abs(seen - expected).mean() < 3


def _shown_by(film: bytes, matrix: tuple[int, int, int, int]) -> bytes:
    """The MP4 file with this matrix in the header of its track: how players turn its pictures."""
    plain = struct.pack(">9i", 1 << 16, 0, 0, 0, 1 << 16, 0, 0, 0, 1 << 30)
    a, b, c, d = (part << 16 for part in matrix)
    before, found, after = film.rpartition(plain)
    assert found
    assert b"tkhd" in before[-60:]
    return before + struct.pack(">9i", a, b, 0, c, d, 0, 0, 0, 1 << 30) + after
