"""The terminal of somebody who checks the README's service, sends records and looks at results and at a dead letter."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from drawn.fansrun import COLUMNS, FansRun
from drawn.recording import Screen
from drawn.terminal import prompt, svg

LABEL: Final = (
    "A terminal. streamer check lists the parts of the service fans, each ok; streamer send sends three records; "
    "streamer tap shows two results, and the dead letter of the record in which a value was missing."
)


def write(folder: Path, run: FansRun) -> list[Path]:
    """Write `check-and-tap.svg`. Returns its path."""
    file = folder / "check-and-tap.svg"
    file.write_text(drawing(run))
    return [file]


def drawing(run: FansRun) -> str:
    """The commands and what they showed, as SVG."""
    parts: list[tuple[str, Screen]] = [
        ("streamer check fans.yaml", run.check),
        ("streamer send fans.yaml records.jsonl", run.send),
        ("streamer tap fans.yaml --from earliest -n 2", run.results),
        ("streamer tap fans.yaml --sink dead_letter --from earliest -n 1", run.letters),
    ]
    lines = [line for command, screen in parts for line in (prompt(command), *screen, "")]
    return svg(lines[:-1], COLUMNS, LABEL)
