"""The plot of the README: a bar for each program, light and dark, written by hand as SVG."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from html import escape

from benchmarks.contestants import TITLES
from benchmarks.measurements import Cell

_WIDTH, _EDGE, _RIGHT, _TOP, _STEP, _BAR = 800, 16, 110, 64, 30, 18
_LINE = 15
_LETTER = 7.5
"""Room for a letter of a label: the widest of the fonts that browsers take for `system-ui` needs 7 on the average."""
_STYLE = """
  text { font: 13px system-ui, -apple-system, "Segoe UI", sans-serif; fill: #1f2328 }
  .title { font-size: 16px; font-weight: 600 }
  .small { font-size: 11px; fill: #59636e }
  .ours { fill: #1a7f5a } .floor { fill: #8b949e } .other { fill: #4c7fb8 }
  .axis { stroke: #d1d9e0 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 } .small { fill: #9198a1 } .axis { stroke: #3d444d }
    .ours { fill: #3fb987 } .floor { fill: #7d8590 } .other { fill: #6ca4dd }
  }
"""


def svg(cells: Mapping[str, Cell], title: str, caption: str) -> str:
    """Horizontal bars of the median CPU microseconds for a message, the least first and all on one scale, as SVG."""
    names = sorted(cells, key=lambda name: cells[name].median)
    hand = cells.get("handwritten")
    left = _EDGE + round(_LETTER * max(len(_label(name)) for name in names)) + 10
    scale = (_WIDTH - left - _RIGHT) / max(cell.median for cell in cells.values())
    notes = textwrap.wrap(caption, 120)
    bottom = _TOP + _STEP * len(names)
    parts = [
        f'<text class="title" x="{_EDGE}" y="26">{escape(title)}</text>',
        f'<text class="small" x="{_EDGE}" y="46">CPU microseconds of the whole process for one message, median of the '
        "rounds; less is better</text>",
    ]
    for place, name in enumerate(names):
        parts += _bar(name, cells[name], hand, left, _TOP + _STEP * place, scale)
    parts.append(f'<line class="axis" x1="{left}" y1="{_TOP - 4}" x2="{left}" y2="{bottom - 4}"/>')
    parts += [
        f'<text class="small" x="{_EDGE}" y="{bottom + 16 + _LINE * line}">{escape(text)}</text>'
        for line, text in enumerate(notes)
    ]
    height = bottom + 16 + _LINE * len(notes)
    inside = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img" '
        f'aria-label="{escape(title)}">\n<style>{_STYLE}</style>\n{inside}\n</svg>\n'
    )


def _bar(name: str, cell: Cell, hand: Cell | None, left: int, top: int, scale: float) -> list[str]:
    kind = "ours" if name.startswith("ours") else "floor" if name in ("relay-c", "model") else "other"
    width = cell.median * scale
    value = f"{cell.median:.1f}" if cell.median >= 10 else f"{cell.median:.2f}"
    beside = "" if hand is None else f" ({_times(cell.ratio(hand))})"
    middle = top + _BAR / 2 + 4.5
    return [
        f'<text x="{left - 10}" y="{middle}" text-anchor="end">{escape(_label(name))}</text>',
        f'<rect class="{kind}" x="{left}" y="{top}" width="{width:.1f}" height="{_BAR}"/>',
        f'<text x="{left + width + 8:.1f}" y="{middle}">{value}{beside}</text>',
    ]


def _label(name: str) -> str:
    return TITLES[name].partition(" (")[0]


def _times(ratio: float) -> str:
    return f"{ratio:.2f}x" if ratio < 10 else f"{ratio:.0f}x"
