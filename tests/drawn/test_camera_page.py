"""The photograph of the camera page shows what the demo shows."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from drawn import camerapage, objectspage
from drawn.camerapage import CAMERAS, Photograph
from PIL import Image

PICTURES = Path(__file__).parents[2] / "docs" / "pictures"


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with camerapage.demo() as address:
        yield address


@pytest.fixture(scope="module")
def photographs(address: str, chromium_browser: Any) -> dict[int, Photograph]:
    """By the width of the window: that of the documentation's picture, and a telephone's."""
    return {width: camerapage.photograph(chromium_browser, address, width) for width in (camerapage.WIDTH, 390)}


def test_every_camera_has_a_caption_with_its_objects_its_rate_and_its_counts(
    photographs: dict[int, Photograph],
) -> None:
    captions = photographs[camerapage.WIDTH].captions
    assert list(captions) == sorted(CAMERAS)
    objects, counts = r"((person|car|bus|cup) \d(, )?)+", r"(near|road|square|bar)( (in|out))? \d.*"
    for camera in CAMERAS:
        lines = re.sub(r"\s*\n\s*", "\n", captions[camera])
        assert re.search(rf"^{camera}\n{objects}\n\d+\.\d fps\n{counts}\ntime", lines)


def test_four_cameras_stand_two_beside_two_on_a_screen_and_in_one_column_on_a_telephone(
    photographs: dict[int, Photograph],
) -> None:
    assert {width: one.columns for width, one in photographs.items()} == {1280: 2, 390: 1}
    assert {width: one.wide for width, one in photographs.items()} == {1280: 1280, 390: 390}


def test_the_photograph_shows_pictures(photographs: dict[int, Photograph]) -> None:
    assert _colours(Image.open(io.BytesIO(photographs[camerapage.WIDTH].png))) > 5000


@pytest.mark.parametrize("name", ["camera-page.webp", "camera-page-dark.webp"])
def test_the_file_in_the_documentation_is_such_a_photograph_and_small(
    name: str, photographs: dict[int, Photograph]
) -> None:
    file = PICTURES / name
    picture = Image.open(file)
    fresh = Image.open(io.BytesIO(photographs[camerapage.WIDTH].png))
    assert picture.width == fresh.width
    assert abs(picture.height - fresh.height) < 60  # fonts of another machine are a little higher or lower
    assert _colours(picture) > 5000
    assert file.stat().st_size < 200_000


@pytest.mark.parametrize("name", ["objects-page.webp", "objects-page-dark.webp"])
def test_the_photograph_of_zones_and_events_in_the_documentation_is_small_and_shows_pictures(name: str) -> None:
    picture = Image.open(PICTURES / name)
    assert picture.size == objectspage.SIZE
    assert _colours(picture) > 5000
    assert (PICTURES / name).stat().st_size < 200_000


def _colours(picture: Image.Image) -> int:
    return len(np.unique(np.asarray(picture.convert("RGB")).reshape(-1, 3), axis=0))
