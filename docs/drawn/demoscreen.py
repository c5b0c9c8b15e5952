"""The terminal of `streamer demo`: its live screen while it runs, and its summary at the end."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pageblocks import ROOT

from drawn.recording import Screen, recorded, screens
from drawn.terminal import plain, prompt, svg

COLUMNS: Final = 66
LABEL: Final = (
    "A terminal in which streamer demo runs: predictions a second, latencies and batch sizes as they change, the "
    "newest images with the digits that the model sees in them, and at the end what was sent, predicted and lost."
)


def write(folder: Path) -> list[Path]:
    """Run the demo on a broker of its own, and write `demo.svg`. Returns its path."""
    file = folder / "demo.svg"
    file.write_text(drawing(lines(10.0, {"KAFKA_BOOTSTRAP_SERVERS": ""})))
    return [file]


def lines(seconds: float, environment: Mapping[str, str]) -> Screen:
    """The command, the live screen when most of the time has passed, and the summary without its advice what to try
    next. Raises `ValueError` if the demo shows no such screen."""
    command = [sys.executable, "-m", "streamer", "demo", "--seconds", f"{seconds:g}", "--no-sheet"]
    seen = screens(recorded(command, COLUMNS, folder=ROOT, environment=environment))
    live = [screen for screen in seen if any(line.startswith("╰") for line in plain(screen))]
    if not live:
        raise ValueError("the demo has shown no live screen")
    end = seen[-1]
    end = end[: plain(end).index("Try next")]
    while not plain(end[:1])[0]:
        end = end[1:]
    return [prompt("streamer demo"), *_trimmed(live[len(live) * 8 // 10]), "", *_trimmed(end)]


def drawing(shown: Screen) -> str:
    """The lines as SVG."""
    return svg(shown, COLUMNS, LABEL)


def _trimmed(screen: Screen) -> Screen:
    while screen and not plain(screen[-1:])[0]:
        screen = screen[:-1]
    return screen
