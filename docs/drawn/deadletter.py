"""The life of a dead letter: a record fails and is looked at, the service is mended, the record is sent again."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from drawn.fansrun import REPAIR, STEP, FansRun
from drawn.terminal import plain

Mood = Literal["plain", "bad", "good"]

_WIDTH: Final = 500
_EDGE, _PAD, _LINE, _HEAD, _ARROW = 8, 14, 17, 24, 40
_LETTERS: Final = 62
"""Letters in a line of values, each 7.2 pixels wide."""
_NAMES: Final = 20
"""Letters of the longest name of a header."""
_STYLE: Final = """
  text { font: 12px ui-monospace, "SFMono-Regular", Menlo, Consolas, "DejaVu Sans Mono", monospace; fill: #1f2328;
    white-space: pre }
  .head { font: 600 14px system-ui, -apple-system, "Segoe UI", sans-serif }
  .name { fill: #59636e } .command { font-weight: 700 }
  rect { fill: #f6f8fa; stroke: #d1d9e0 } .bad rect { stroke: #cf222e } .good rect { stroke: #1a7f5a }
  .bad .head { fill: #cf222e } .good .head { fill: #1a7f5a }
  path { fill: none; stroke: #59636e; stroke-width: 1.5 }
  .paper { fill: #fff; stroke: none }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 } .name { fill: #9198a1 } path { stroke: #9198a1 }
    rect { fill: #151b23; stroke: #3d444d } .bad rect { stroke: #f85149 } .good rect { stroke: #3fb987 }
    .bad .head { fill: #ff7b72 } .good .head { fill: #3fb987 } .paper { fill: #0d1117 }
  }
"""
LABEL: Final = (
    "The life of a dead letter, from top to bottom: a record without the value vib is read; the step 0:ONNX fails; the "
    "record, unchanged, goes to the topic of dead letters with headers that say where it was read and what failed; "
    "streamer tap shows it; the service gets a step that fills the gap; streamer replay sends the record back to its "
    "topic; its result is written."
)


class Card(NamedTuple):
    """A place where the record is, or what happens to it there."""

    head: str
    lines: list[tuple[str, str]]
    """A name, which may be empty, and a value."""
    mood: Mood = "plain"
    then: str = ""
    """What leads from here to the next card."""


def write(folder: Path, run: FansRun) -> list[Path]:
    """Write `dead-letter.svg`. Returns its path."""
    file = folder / "dead-letter.svg"
    file.write_text(drawing(cards(run)))
    return [file]


def cards(run: FansRun) -> list[Card]:
    """The stations of the dead letter of this run."""
    letter, failure = run.letter, run.letter["dead_letter"]
    payload = json.dumps(letter["value"])
    return [
        Card(f"A record on {_place(failure)}", [("", payload)], then="streamer run fans.yaml"),
        Card(
            f"Step {failure['step']} fails for it",
            [("", f"{failure['error']}: {failure['text']}")],
            "bad",
            "the records beside it go on",
        ),
        Card(
            f"A dead letter on {_place(letter)}",
            [("payload", payload), *((name, value) for name, value in letter["headers"])],
            "bad",
            "streamer tap fans.yaml --sink dead_letter",
        ),
        Card(
            "The service is mended, and started again",
            [("fans.yaml", f"pipeline: [{STEP}, ..."), *(("" if at else "gaps.py", line) for at, line in _code())],
            then="streamer replay fans.yaml",
        ),
        Card(
            f"The record again, on {_place(run.again)}",
            [("", json.dumps(run.again["value"])), ("", f"({plain(run.replay)[-1]})")],
            then="streamer run fans.yaml",
        ),
        Card(f"Its result on {_place(run.result)}", [("", json.dumps(run.result["value"]))], "good"),
    ]


def drawing(stations: Sequence[Card]) -> str:
    """The cards from top to bottom, with arrows between them, as SVG."""
    parts: list[str] = []
    top = float(_EDGE)
    for card in stations:
        rows = [row for name, value in card.lines for row in _rows(name, value, any(name for name, _ in card.lines))]
        height = _HEAD + _LINE * len(rows) + _PAD
        inside = [
            f'<rect x="{_EDGE}" y="{top}" width="{_WIDTH - 2 * _EDGE}" height="{height}" rx="6"/>',
            f'<text class="head" x="{_EDGE + _PAD}" y="{top + 20}">{escape(card.head)}</text>',
        ]
        for at, (name, value) in enumerate(rows):
            y = top + _HEAD + _LINE * at + 14
            if name:
                inside.append(f'<text class="name" x="{_EDGE + _PAD}" y="{y}">{escape(name)}</text>')
            inside.append(f'<text x="{_EDGE + _PAD + _indent(card)}" y="{y}">{escape(value)}</text>')
        parts.append(f'<g class="{card.mood}">' + "\n".join(inside) + "</g>")
        top += height
        if card.then:
            parts.append(_arrow(top, card.then))
            top += _ARROW
    height_all = top + _EDGE
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height_all:.0f}" '
        f'viewBox="0 0 {_WIDTH} {height_all:.0f}" role="img" '
        f'aria-label="{escape(LABEL)}">\n<style>{_STYLE}</style>\n'
        f'<rect class="paper" width="{_WIDTH}" height="{height_all:.0f}"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def _arrow(top: float, text: str) -> str:
    x = _EDGE + 2 * _PAD
    kind = "command" if text.startswith("streamer") else "name"
    return (
        f'<path d="M{x} {top + 3}v{_ARROW - 8}m-5 -7l5 7l5 -7"/>'
        f'<text class="{kind}" x="{x + 16}" y="{top + _ARROW / 2 + 4}">{escape(text)}</text>'
    )


def _rows(name: str, value: str, named: bool) -> list[tuple[str, str]]:
    room = _LETTERS - (_NAMES if named else 0)
    spaces = value[: len(value) - len(value.lstrip(" "))]
    lines = textwrap.wrap(value.strip(), room - len(spaces), break_on_hyphens=False) or [""]
    return [("" if at else name, spaces + line) for at, line in enumerate(lines)]


def _indent(card: Card) -> float:
    return _NAMES * 7.2 if any(name for name, _ in card.lines) else 0


def _place(record: dict[str, Any]) -> str:
    return f"{record['topic']}, partition {record['partition']}, offset {record['offset']}"


def _code() -> list[tuple[int, str]]:
    return list(enumerate(line for line in REPAIR.splitlines() if '"""' not in line))
