"""The photographs of the dashboard in the documentation."""

from __future__ import annotations

from pathlib import Path

import pytest
from drawn import dashboardpage
from PIL import Image

PICTURES = Path(__file__).parents[2] / "docs" / "pictures"


@pytest.mark.parametrize("name", ["dashboard.webp", "dashboard-dark.webp"])
def test_the_photograph_of_the_dashboard_is_small_and_of_the_whole_page(name: str) -> None:
    file = PICTURES / name
    picture = Image.open(file)
    assert picture.width == dashboardpage.WIDTH
    assert 900 < picture.height < 1600
    assert file.stat().st_size < 150_000
