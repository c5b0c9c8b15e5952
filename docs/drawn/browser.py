"""Chromium, to photograph pages and to look at drawings."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, Literal

Scheme = Literal["light", "dark"]

PATIENCE: Final = 90.0
"""Seconds that a page may take to show what it is waited for."""


def chromium() -> str | None:
    """The path of Chromium on this machine, as Debian names it; `None` if there is none."""
    return shutil.which("chromium")


@contextmanager
def browser() -> Iterator[Any]:
    """Playwright's browser, without a window. Raises `FileNotFoundError` if there is no Chromium."""
    from playwright.sync_api import sync_playwright

    path = chromium()
    if path is None:
        raise FileNotFoundError("chromium is not on the PATH: apt-get install chromium")
    with sync_playwright() as playwright:
        # Chromium's sandbox does not start for root, as which containers run.
        opened = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        try:
            yield opened
        finally:
            opened.close()


@contextmanager
def page(opened: Any, width: int, height: int, scheme: Scheme = "light") -> Iterator[Any]:
    """A page of that size in pixels, whose waits end after `PATIENCE` with an error."""
    made = opened.new_page(
        viewport={"width": width, "height": height}, color_scheme=scheme, locale="en-GB", timezone_id="UTC"
    )
    made.set_default_timeout(PATIENCE * 1000)
    try:
        yield made
    finally:
        made.close()
