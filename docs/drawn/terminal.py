"""A terminal's lines as an SVG: no fonts of its own, and dark on every page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import Final, NamedTuple

from rich.cells import cell_len
from rich.console import Console
from rich.style import Style
from rich.terminal_theme import TerminalTheme
from rich.text import Text

WIDE, HIGH = 8.4, 19.0
"""A character's cell, in pixels."""
_EDGE: Final = 16
FAINT: Final = "#8f959b"
"""The colour of dimmed text, in which commands print what their numbers are."""
_BACK, _INK = (13, 17, 23), (230, 237, 243)
_THEME: Final = TerminalTheme(
    _BACK,
    _INK,
    [
        *((72, 79, 88), (255, 123, 114), (63, 185, 80), (210, 153, 34)),
        *((88, 166, 255), (188, 140, 255), (57, 197, 207), (177, 186, 196)),
    ],
)
_STYLE: Final = """
  text { font: 14px ui-monospace, "SFMono-Regular", Menlo, Consolas, "DejaVu Sans Mono", monospace; white-space: pre }
  .b { font-weight: 700 }
"""
# Where lines of a frame leave the middle of their cell: left, right, up, down.
_FRAMES: Final = {"─": "lr", "│": "ud", "╭": "rd", "╮": "ld", "╰": "ru", "╯": "lu", "━": "lr", "╸": "l", "╺": "r"}
_HEAVY: Final = "━╸╺"


class _Run(NamedTuple):
    """Characters of one style beside one another."""

    column: int
    text: str
    style: Style


def svg(lines: Sequence[str], columns: int, label: str) -> str:
    """The lines on a terminal of that width, which goes on below where a line is longer; `label` says to whoever sees
    no pictures what is there."""
    rows = [part for line in lines for part in _folded(Text.from_ansi(line), columns)]
    width, height = columns * WIDE + 2 * _EDGE, len(rows) * HIGH + 2 * _EDGE
    shapes = [shape for row, text in enumerate(rows) for run in _runs(text) for shape in _shapes(run, row)]
    inside = "\n".join(shapes)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" role="img" '
        f'aria-label="{escape(label)}">\n<style>{_STYLE}</style>\n'
        f'<rect x="0.5" y="0.5" width="{width - 1:.0f}" height="{height - 1:.0f}" rx="8" fill="{_hex(_BACK)}" '
        f'stroke="#3d444d"/>\n{inside}\n</svg>\n'
    )


def plain(lines: Sequence[str]) -> list[str]:
    """The lines without colours, nor spaces at their ends."""
    return [Text.from_ansi(line).plain.rstrip() for line in lines]


def prompt(command: str) -> str:
    """A line as it is where a user has typed this command."""
    return f"\x1b[2m$\x1b[0m \x1b[1m{command}\x1b[0m"


def _folded(text: Text, columns: int) -> Sequence[Text]:
    text.rstrip()
    return list(text.divide(range(columns, len(text), columns)))


def _runs(text: Text) -> Iterator[_Run]:
    console = Console(width=1000, color_system="truecolor", force_terminal=True)
    column = 0
    for segment in text.render(console, end=""):
        if segment.text:
            yield _Run(column, segment.text, segment.style or Style.null())
        column += cell_len(segment.text)


def _shapes(run: _Run, row: int) -> Iterator[str]:
    ink, back = _colours(run.style)
    top = _EDGE + row * HIGH
    if back is not None:
        yield _rect(_left(run.column), top, cell_len(run.text) * WIDE, HIGH, back)
    word, begins = "", run.column
    for column, letter in enumerate(run.text, run.column):
        drawn = _drawn(letter, _left(column), top, ink)
        if drawn is None and not (letter == " " and run.text[column - run.column :].strip() == ""):
            begins = begins if word else column
            word += letter
            continue
        yield from _word(word, begins, top, ink, run.style)
        word = ""
        if drawn:
            yield drawn
    yield from _word(word, begins, top, ink, run.style)


def _word(word: str, column: int, top: float, ink: str, style: Style) -> Iterator[str]:
    text = word.lstrip(" ")
    if not text:
        return
    column += len(word) - len(text)
    bold = ' class="b"' if style.bold else ""
    # Its length is given, so that each letter stands in its cell, whichever font there is.
    yield (
        f'<text{bold} x="{_left(column):.1f}" y="{top + HIGH * 0.72:.1f}" fill="{ink}" '
        f'textLength="{len(text) * WIDE:.1f}" lengthAdjust="spacingAndGlyphs">{escape(text)}</text>'
    )


def _drawn(letter: str, left: float, top: float, ink: str) -> str | None:
    """Blocks and frames as shapes, as letters of fonts would leave gaps between lines; `None` for others."""
    if letter == "▀":
        return _rect(left, top, WIDE, HIGH / 2, ink)
    if "▁" <= letter <= "█":
        high = (ord(letter) - ord("▁") + 1) / 8 * HIGH * 0.8
        return _rect(left, top + HIGH * 0.85 - high, WIDE - 1, high, ink)
    if letter not in _FRAMES:
        return None
    x, y = left + WIDE / 2, top + HIGH / 2
    ends = {"l": (left, y), "r": (left + WIDE, y), "u": (x, top - 0.3), "d": (x, top + HIGH + 0.3)}
    there = [ends[side] for side in _FRAMES[letter]]
    path = f"M{there[0][0]:.1f} {there[0][1]:.1f}Q{x:.1f} {y:.1f} " + " ".join(
        f"{number:.1f}" for number in (there[1] if len(there) > 1 else (x, y))
    )
    return f'<path d="{path}" fill="none" stroke="{ink}" stroke-width="{3 if letter in _HEAVY else 1.2}"/>'


def _colours(style: Style) -> tuple[str, str | None]:
    ink = _INK if style.color is None else tuple(style.color.get_truecolor(_THEME))
    back = None if style.bgcolor is None else tuple(style.bgcolor.get_truecolor(_THEME, foreground=False))
    if style.reverse:
        ink, back = back or _BACK, ink
    if style.dim:
        ink = tuple(round(0.6 * bright + 0.4 * dark) for bright, dark in zip(ink, _BACK, strict=True))
    return _hex(ink), None if back is None else _hex(back)


def _rect(left: float, top: float, width: float, height: float, colour: str) -> str:
    # Half a pixel more, so that no seam is seen between two.
    return f'<rect x="{left:.1f}" y="{top:.1f}" width="{width + 0.3:.1f}" height="{height + 0.3:.1f}" fill="{colour}"/>'


def _left(column: int) -> float:
    return _EDGE + column * WIDE


def _hex(colour: Sequence[int]) -> str:
    return "#" + "".join(f"{part:02x}" for part in colour)
