"""A photograph of the page of `streamer demo cameras`, light and dark, while the demo runs."""

from __future__ import annotations

import io
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from drawn.browser import Scheme, browser, page

CAMERAS: Final = ("bar", "gate", "hall", "square")
WIDTH: Final = 1280
HEIGHT: Final = 800
QUALITY: Final = 80
"""Of the WebP files, of 100."""

# Something found in the newest picture of each, and a rate measured over the five seconds that the page counts: the
# first pictures come in a burst.
_COMPLETE: Final = """(cameras) => {
  if (performance.now() < 8000) return false;
  const figures = [...document.querySelectorAll('figure')];
  return figures.length === cameras.length && figures.every((figure) => {
    const { boxes, drawn } = figure.querySelector('canvas').dataset;
    return Number(boxes) > 0 && Number(drawn) > 5 && /fps$/.test(figure.querySelector('.rate').textContent);
  });
}"""


class Photograph(NamedTuple):
    """The page at one moment."""

    png: bytes
    captions: dict[str, str]
    """The text below the picture of each camera, by its name."""
    wide: int
    """The width of what the page holds: larger than the window, if something sticks out of it."""
    columns: int
    """How many cameras stand beside one another."""


def write(folder: Path) -> list[Path]:
    """Run the demo, and write `camera-page.webp` and `camera-page-dark.webp`. Returns their paths."""
    from PIL import Image

    files = []
    with demo() as address, browser() as opened:
        schemes: tuple[tuple[Scheme, str], ...] = (("light", ""), ("dark", "-dark"))
        for scheme, ending in schemes:
            taken = photograph(opened, address, WIDTH, scheme)
            file = folder / f"camera-page{ending}.webp"
            Image.open(io.BytesIO(taken.png)).convert("RGB").save(file, quality=QUALITY, method=6)
            files.append(file)
    return files


@contextmanager
def demo(seconds: float = 300.0) -> Iterator[str]:
    """`streamer demo cameras`, for so many seconds at most, as a program of its own. Gives the address of its page."""
    command = [sys.executable, "-m", "streamer", "demo", "cameras", "--no-video", "--seconds", f"{seconds:.0f}"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:  # noqa: S603
        try:
            assert process.stderr is not None
            said = []
            for line in process.stderr:
                said.append(line)
                if found := re.search(r"http://\S+", line):
                    yield found[0]
                    return
            raise RuntimeError(f"the demo ended before its page could be opened: {''.join(said)}")
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(60)


def photograph(opened: Any, address: str, width: int, scheme: Scheme = "light") -> Photograph:
    """The whole page in a window of that width, once every camera shows something that was found."""
    with page(opened, width, HEIGHT, scheme) as shown:
        shown.goto(address)
        shown.wait_for_function(_COMPLETE, arg=CAMERAS)
        captions = shown.eval_on_selector_all(
            "figure", "all => all.map(one => [one.querySelector('strong').textContent, one.innerText])"
        )
        wide = shown.evaluate("document.documentElement.scrollWidth")
        columns = shown.eval_on_selector_all("figure", "all => new Set(all.map(one => one.offsetLeft)).size")
        return Photograph(shown.screenshot(full_page=True), dict(captions), wide, columns)
