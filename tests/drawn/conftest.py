"""Chromium for the tests of the documentation's pictures."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
from drawn.browser import browser, chromium


@pytest.fixture(scope="module")
def chromium_browser() -> Iterator[Any]:
    """A browser; only one can be open in a process. Without Chromium the test is skipped, saying so; in CI it fails."""
    if chromium() is None:
        missing = "chromium is not on the PATH: `make chromium` installs it where apt-get can"
        if os.environ.get("CI"):
            pytest.fail(missing)
        pytest.skip(missing)
    with browser() as opened:
        yield opened
