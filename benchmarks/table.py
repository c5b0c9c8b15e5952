"""The tables of the measurements: for the terminal and, as Markdown, for pages."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rich.table import Table

from benchmarks.contestants import FRAMEWORKS, TITLES
from benchmarks.measurements import Cell, Measurements
from benchmarks.rows import MAX_WAIT, ROWS

_FLOOR, _BASELINE = "relay-c", "handwritten"


class Grid(NamedTuple):
    """A table of texts; the first `left` columns are words, the others numbers."""

    title: str
    heads: Sequence[str]
    lines: Sequence[Sequence[str]]
    left: int = 2


def grids(found: Measurements) -> list[Grid]:
    """The tables of all that was measured."""
    made = []
    if found.drained:
        made.append(_drained(found))
    if found.paced:
        made.append(_paced(found))
    if found.together:
        made.append(_together(found))
    if any(_guarantees(found.drained.get(row.name, {}), found.paced.get(row.name, {})) for row in ROWS):
        made.append(_exactly_once(found))
    return made


def overview(found: Measurements) -> Grid:
    """A line for each row of messages, a column for each program: CPU by that of the loop written by hand."""
    cells = [cell for cell in found.drained.values() if _BASELINE in cell]
    programs = [
        name for name in TITLES if name not in FRAMEWORKS and name != _BASELINE and any(name in one for one in cells)
    ]
    titles = _titles()
    lines = []
    for row, programs_of_row in found.drained.items():
        hand = programs_of_row.get(_BASELINE)
        if hand is not None:
            ratios = [_ratio(programs_of_row.get(name), hand) for name in programs]
            lines.append([titles[row], f"{hand.median:.1f} us", *ratios])
    heads = ["messages", "hand-written loop", *(TITLES[name].partition(" (")[0] for name in programs)]
    return Grid("", heads, lines, left=1)


def as_rich(grid: Grid) -> Table:
    """A table for the terminal."""
    table = Table(title=grid.title, title_justify="left")
    for place, head in enumerate(grid.heads):
        table.add_column(head, justify="left" if place < grid.left else "right")
    last = None
    for line in grid.lines:
        if last is not None and line[0] != last:
            table.add_section()
        table.add_row("" if line[0] == last else line[0], *line[1:])
        last = line[0]
    return table


def as_markdown(grid: Grid) -> str:
    """A table for a page."""
    rule = [*["---"] * grid.left, *["---:"] * (len(grid.heads) - grid.left)]
    table = "\n".join("| " + " | ".join(line) + " |" for line in [grid.heads, rule, *grid.lines])
    return f"### {grid.title}\n\n{table}" if grid.title else table


def _drained(found: Measurements) -> Grid:
    titles = _titles()
    lines = []
    for row, cells in found.drained.items():
        hand, floor = cells.get(_BASELINE), cells.get(_FLOOR)
        for program in sorted(cells, key=list(TITLES).index):
            cell = cells[program]
            lines.append(
                [
                    titles[row],
                    TITLES[program],
                    f"{cell.least:.2f}",
                    f"{cell.median:.2f}",
                    _ratio(cell, hand),
                    _ratio(cell, floor),
                    f"{cell.rate:,.0f}",
                    f"{cell.rss >> 20}",
                ]
            )
    heads = ["messages", "program", "us, least", "us, median", "/ hand-written", "/ relay in C", "msg/s", "RSS, MiB"]
    return Grid("Saturated: CPU microseconds for one message", heads, lines)


def _paced(found: Measurements) -> Grid:
    titles = _titles()
    lines = []
    for row, programs in found.paced.items():
        for program, runs in programs.items():
            best = min(runs, key=lambda run: run.added[1])
            lines.append(
                [
                    titles[row],
                    TITLES[program],
                    f"{statistics.median(run.microseconds for run in runs):.1f}",
                    *(f"{value * 1000:.1f}" for value in (*best.added, *best.whole)),
                ]
            )
    heads = ["messages", "program", "us", "added p50, ms", "added p99, ms", "whole p50, ms", "whole p99, ms"]
    return Grid(f"Paced: latency, batches wait at most {MAX_WAIT * 1000:g} ms", heads, lines)


def _guarantees(*measured: Mapping[str, object]) -> list[tuple[str, str]]:
    """The programs that were measured with both guarantees: at least once, and exactly once."""
    names = {name: f"{name}-once" for programs in measured for name in programs}
    return [(name, once) for name, once in names.items() if any(once in programs for programs in measured)]


def _exactly_once(found: Measurements) -> Grid:
    titles = _titles()
    lines = []
    for row in titles:
        cells, runs = found.drained.get(row, {}), found.paced.get(row, {})
        for name, once in _guarantees(cells, runs):
            cost = visible = ["-", "-", "-"]
            if name in cells and once in cells:
                cost = [f"{cells[name].median:.2f}", f"{cells[once].median:.2f}", _ratio(cells[once], cells[name])]
            if name in runs and once in runs:
                usual, later = (min(run.whole[1] for run in runs[one]) for one in (name, once))
                visible = [f"{seconds * 1000:.1f}" for seconds in (usual, later, later - usual)]
            lines.append([titles[row], TITLES[name], *cost, *visible])
    heads = ["messages", "program", "us, at least once", "us, exactly once", "ratio"]
    visible_heads = ["visible p99, ms, at least once", "exactly once", "later"]
    return Grid("Exactly once, by at least once", [*heads, *visible_heads], lines)


def _together(found: Measurements) -> Grid:
    lines = []
    for program, by_count in found.together.items():
        one = statistics.median(rate for rate, _ in by_count.get(1, [(float("nan"), 0.0)]))
        for processes, runs in by_count.items():
            rate = statistics.median(rate for rate, _ in runs)
            cost = statistics.median(cost for _, cost in runs)
            lines.append([str(processes), TITLES[program], f"{rate:,.0f}", f"{rate / one:.2f}", f"{cost:.1f}"])
    return Grid("More processes in one consumer group", ["processes", "program", "msg/s", "/ one process", "us"], lines)


def _ratio(cell: Cell | None, other: Cell | None) -> str:
    return "-" if cell is None or other is None else f"{cell.ratio(other):.2f}"


def _titles() -> dict[str, str]:
    return {row.name: row.title for row in ROWS}
