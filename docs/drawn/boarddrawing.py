"""The Grafana board as a drawing: its panels and queries with Prometheus' answers. It is not Grafana's rendering."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from html import escape
from typing import Any, Final, NamedTuple

Series = tuple[str, list[tuple[float, float]]]
"""A legend, and values by time in seconds since 1970."""
Ask = Callable[[str], Any]
"""Gives Prometheus' matrix (`/api/v1/query_range`) for an expression."""

LINES: Final = (
    *("Throughput", "Latency", "Lag", "Oldest record in flight", "Batch size", "Why batches were closed"),
    *("Time in stages", "Errors in steps", "CPU", "Memory"),
)
"""The panels with lines that are drawn; all of the row "Now" are too."""
LABEL: Final = (
    "The board for Grafana, drawn from the answers of Prometheus while the digits service ran: numbers of now at the "
    "top, and below them throughput, latency, lag, the oldest record in flight, batch sizes, why batches were closed, "
    "time in stages, errors in steps, CPU and memory over time."
)
_WIDTH, _GAP, _TOP = 500, 8, 8
_NUMBER_HIGH, _LINES_HIGH = 62, 158
_COLORS: Final = ("a", "b", "c", "d", "e")
_MOST: Final = 4
"""Series that a panel's legend has room for; the largest are drawn."""
_STYLE: Final = """
  text { font: 12px system-ui, -apple-system, "Segoe UI", sans-serif; fill: #1f2328 }
  .title { font-weight: 600 } .big { font-size: 20px; font-weight: 600 } .small { fill: #59636e }
  .paper { fill: #fff } .panel { fill: #f6f8fa; stroke: #d1d9e0 } .axis { stroke: #d1d9e0 }
  polyline { fill: none; stroke: var(--line); stroke-width: 1.6 } polygon { fill: var(--line); fill-opacity: 0.3 }
  .key { fill: var(--line) } .limit { stroke: #cf222e; stroke-dasharray: 4 4 }
  .good { fill: #1a7f37 } .warn { fill: #9a6700 } .bad { fill: #cf222e }
  .a { --line: #0969da } .b { --line: #bc4c00 } .c { --line: #1a7f5a } .d { --line: #8250df } .e { --line: #57606a }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 } .small { fill: #9198a1 } .paper { fill: #0d1117 } .panel { fill: #151b23; stroke: #3d444d }
    .axis { stroke: #3d444d } .limit { stroke: #ff7b72 }
    .good { fill: #3fb950 } .warn { fill: #d29922 } .bad { fill: #ff7b72 }
    .a { --line: #58a6ff } .b { --line: #f0883e } .c { --line: #3fb987 } .d { --line: #bc8cff } .e { --line: #9198a1 }
  }
"""


class Drawn(NamedTuple):
    """A drawing, and what is in it."""

    svg: str
    without_data: list[str]
    """Titles of panels for which Prometheus has no numbers."""


def drawing(board: dict[str, Any], ask: Ask, window: str) -> Drawn:
    """The board with Prometheus' answers, with rates over `window` (`15s`)."""
    panels = [panel for panel in board["panels"] if panel["type"] != "row"]
    numbers = [panel for panel in panels if panel["type"] == "stat"]
    lines = [panel for title in LINES for panel in panels if (panel["type"], panel["title"]) == ("timeseries", title)]
    answers = {panel["id"]: list(_series(panel, ask, window)) for panel in (*numbers, *lines)}
    times = [at for series in answers.values() for _, points in series for at, _ in points]
    span = (min(times, default=0.0), max(times, default=1.0))
    parts, empty = [], []
    y = _TOP
    for group, columns, high in ((numbers, 3, _NUMBER_HIGH), (lines, 2, _LINES_HIGH)):
        wide = (_WIDTH - _GAP * (columns + 1)) / columns
        for place, panel in enumerate(group):
            series = answers[panel["id"]]
            if not series:
                empty.append(panel["title"])
            x = _GAP + place % columns * (wide + _GAP)
            if panel["type"] == "stat":
                inside = "".join(_number(panel, series, wide, high))
            else:
                inside = "".join(_lines(panel, series, span, wide, high))
            parts.append(f'<g transform="translate({x:.1f} {y})">{inside}</g>\n')
            if place % columns == columns - 1 or place == len(group) - 1:
                y += high + _GAP
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {y}" role="img" aria-label="{escape(LABEL)}">\n'
        f'<style>{_STYLE}</style>\n<rect class="paper" width="{_WIDTH}" height="{y}"/>\n{"".join(parts)}</svg>\n'
    )
    return Drawn(svg, empty)


def _series(panel: dict[str, Any], ask: Ask, window: str) -> Iterator[Series]:
    """The largest series of a panel's queries, in the order in which Prometheus gives them."""
    found: list[Series] = []
    for target in panel["targets"]:
        expression = target["expr"].replace("$__rate_interval", window)
        for variable in ("$service", "$instance"):
            expression = expression.replace(variable, ".*")
        for one in ask(expression):
            legend = target["legendFormat"]
            for label in re.findall(r"\{\{(\w+)\}\}", legend):
                legend = legend.replace(f"{{{{{label}}}}}", one["metric"].get(label, ""))
            points = [(float(at), float(value)) for at, value in one["values"]]
            points = [(at, value) for at, value in points if math.isfinite(value)]
            if points:
                found.append((legend, points))
    largest = sorted(found, key=lambda one: -max(value for _, value in one[1]))[:_MOST]
    return (one for one in found if one in largest)


def _number(panel: dict[str, Any], series: Sequence[Series], wide: float, high: float) -> Iterator[str]:
    yield f'<rect class="panel" width="{wide:.1f}" height="{high}" rx="4"/>'
    yield f'<text class="small" x="8" y="19">{escape(panel["title"])}</text>'
    value = series[0][1][-1][1] if series else None
    defaults = panel["fieldConfig"]["defaults"]
    text = defaults["noValue"] if value is None else in_unit(value, defaults["unit"])
    moods = {"green": "good", "orange": "warn", "red": "bad"}
    color = "green"
    for step in defaults["thresholds"]["steps"]:
        if value is not None and (step["value"] is None or value >= step["value"]):
            color = step["color"]
    yield f'<text class="big {moods[color]}" x="8" y="48">{escape(text)}</text>'


def _lines(
    panel: dict[str, Any], series: Sequence[Series], span: tuple[float, float], wide: float, high: float
) -> Iterator[str]:
    """A panel whose lines go over `span`, the same in all panels."""
    yield f'<rect class="panel" width="{wide:.1f}" height="{high}" rx="4"/>'
    yield f'<text class="title" x="8" y="18">{escape(panel["title"])}</text>'
    if not series:
        yield '<text class="small" x="8" y="60">no data</text>'
        return
    defaults = panel["fieldConfig"]["defaults"]
    stacked = defaults["custom"]["stacking"]["mode"] == "normal"
    begin, end = span
    courses: list[tuple[list[tuple[float, float]], list[float]]] = []
    floor: dict[float, float] = {}
    for _, points in series:
        below = [floor.get(at, 0.0) if stacked else 0.0 for at, _ in points]
        above = [(at, value + base) for (at, value), base in zip(points, below, strict=True)]
        floor.update(above)
        courses.append((above, below))
    top = _round_up(max(value for above, _ in courses for _, value in above), defaults["unit"])
    left, right, upper, lower = 8.0, wide - 8, 40.0, high - 40.0

    def place(at: float, value: float) -> str:
        x = left + (at - begin) / max(1e-9, end - begin) * (right - left)
        return f"{x:.1f},{lower - value / top * (lower - upper):.1f}"

    highest = escape(in_unit(top, defaults["unit"]))
    yield f'<text class="small" x="{wide - 8:.1f}" y="18" text-anchor="end">{highest}</text>'
    for level in (upper, (upper + lower) / 2, lower):
        yield f'<line class="axis" x1="{left}" y1="{level:.1f}" x2="{right:.1f}" y2="{level:.1f}"/>'
    for color, (above, below) in zip(_COLORS, courses, strict=False):
        line = " ".join(place(at, value) for at, value in above)
        yield f'<g class="{color}">'
        if stacked:
            back = " ".join(place(at, value) for (at, _), value in reversed(list(zip(above, below, strict=True))))
            yield f'<polygon points="{line} {back}"/>'
        yield f'<polyline points="{line}"/></g>'
    for number, (color, (legend, _)) in enumerate(zip(_COLORS, series, strict=False)):
        columns = 1 if len(series) < 3 else 2
        x, y = 8 + number % columns * (wide / 2 - 4), high - 24 + number // columns * 16
        room = int((wide / columns - 20) / 6.2)
        text = legend if len(legend) <= room else legend[: room - 1] + "…"
        yield f'<g class="{color}"><rect class="key" x="{x:.1f}" y="{y - 9}" width="8" height="8"/></g>'
        yield f'<text class="small" x="{x + 12:.1f}" y="{y}">{escape(text)}</text>'


def in_unit(value: float, unit: str) -> str:
    """A number as Grafana writes it in this unit: `1.5 s` for s, `12.3 MiB` for bytes, `40 %` for percentunit."""
    if unit == "percentunit":
        return f"{value * 100:.3g} %"
    if unit == "s":
        scaled, name = (value * 1000, "ms") if value < 1 else (value, "s")
        return f"{scaled:.3g} {name}"
    if unit == "bytes":
        for name in ("B", "KiB", "MiB"):
            if value < 1024:
                return f"{value:.3g} {name}"
            value /= 1024
        return f"{value:.3g} GiB"
    text = f"{value:.3g}" if value < 1000 else f"{value / 1000:.3g} K"
    return f"{text}/s" if unit == "cps" else text


def _round_up(value: float, unit: str) -> float:
    """The next of 1, 2, 5, 10, 20 ..., of bytes the next power of two; 1 for 0."""
    if value <= 0:
        return 1.0
    if unit == "bytes":
        return float(2 ** math.ceil(math.log2(value)))
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= value * 0.999)
