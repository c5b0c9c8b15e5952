"""The tables: on the terminal, and as Markdown in `benchmarks/README.md`."""

from __future__ import annotations

import datetime
import os
import platform
import re
import statistics
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from rich.table import Table

from benchmarks.environments import PEERS, TITLES, version_of
from benchmarks.measurements import Measurements
from benchmarks.rows import MAX_WAIT, ROWS
from streamer.broker import KAFKA_VERSION

README = Path(__file__).parent / "README.md"
PACKAGES = ("confluent-kafka", "numpy", "onnxruntime", "protobuf")
_NAMES = {"relay": "relay (the floor)", "handwritten": "hand-written (the baseline)", "ours": "streamer", **TITLES}


class Grid(NamedTuple):
    """A table of texts."""

    title: str
    heads: Sequence[str]
    lines: Sequence[Sequence[str]]


def grids(found: Measurements) -> list[Grid]:
    """The tables of all that was measured."""
    made = []
    if found.drained:
        made.append(_drained(found))
    if found.paced:
        made.append(_paced(found))
    if found.together:
        made.append(_together(found))
    return made


def as_rich(grid: Grid) -> Table:
    """A table for the terminal."""
    table = Table(title=grid.title, title_justify="left")
    for place, head in enumerate(grid.heads):
        table.add_column(head, justify="left" if place < 2 else "right")
    last = None
    for line in grid.lines:
        if last is not None and line[0] != last:
            table.add_section()
        table.add_row("" if line[0] == last else line[0], *line[1:])
        last = line[0]
    return table


def as_markdown(grid: Grid) -> str:
    """A table for a page."""
    rule = ["---", "---", *["---:"] * (len(grid.heads) - 2)]
    lines = [grid.heads, rule, *grid.lines]
    return f"### {grid.title}\n\n" + "\n".join("| " + " | ".join(line) + " |" for line in lines)


def write(found: Measurements, section: str, minutes: float) -> None:
    """Put the tables into the README, between the marks of this section."""
    peers = "; ".join(f"{TITLES[peer]} {version_of(peer)}" for peer in PEERS)
    broker = f", Apache Kafka {KAFKA_VERSION} on the same machine" + (f"; {peers}" if section == "peers" else "")
    put(section, "\n\n".join([machine(minutes, broker), *(as_markdown(grid) for grid in grids(found))]))


def put(section: str, body: str) -> None:
    """Put a text into the README, between the marks of this section."""
    text = README.read_text(encoding="utf-8")
    start, end = f"<!-- {section} -->", f"<!-- end of {section} -->"
    pattern = re.compile(re.escape(start) + ".*?" + re.escape(end), re.DOTALL)
    if not pattern.search(text):
        raise ValueError(f"{README} has no section {section}")
    README.write_text(pattern.sub(lambda _: f"{start}\n{body}\n{end}", text), encoding="utf-8")


def machine(minutes: float, more: str = "", packages: Sequence[str] = PACKAGES) -> str:
    """When, on what and with which versions something was measured, and for how long."""
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    versions = ", ".join(f"{name} {version(name)}" for name in packages)
    return (
        f"{today}, {os.cpu_count()} cores ({_processor()}), {platform.system()}, Python {platform.python_version()}, "
        f"{versions}{more}. {minutes:.1f} minutes."
    )


def _drained(found: Measurements) -> Grid:
    titles = {row.name: row.title for row in ROWS}
    lines = []
    for name, cells in found.drained.items():
        hand, ours = cells.get("handwritten"), cells.get("ours")
        for program, cell in cells.items():
            lines.append(
                [
                    titles[name],
                    _NAMES[program],
                    f"{cell.least:.1f}",
                    f"{cell.median:.1f}",
                    "-" if hand is None else f"{cell.ratio(hand):.2f}",
                    "-" if ours is None or program == "ours" else f"{ours.ratio(cell):.2f}",
                    f"{cell.rate:,.0f}",
                    f"{cell.rss >> 20}",
                ]
            )
    heads = ["messages", "program", "us, least", "us, median", "/ hand-written", "streamer / it", "msg/s", "RSS, MiB"]
    return Grid("Saturated: CPU microseconds for one message", heads, lines)


def _paced(found: Measurements) -> Grid:
    titles = {row.name: row.title for row in ROWS}
    lines = []
    for name, programs in found.paced.items():
        for program, runs in programs.items():
            best = min(runs, key=lambda run: run.added[1])
            lines.append(
                [
                    titles[name],
                    _NAMES[program],
                    f"{statistics.median(run.microseconds for run in runs):.1f}",
                    *(f"{value * 1000:.1f}" for value in (*best.added, *best.whole)),
                ]
            )
    heads = ["messages", "program", "us", "added p50, ms", "added p99, ms", "whole p50, ms", "whole p99, ms"]
    return Grid(f"Paced: latency, batches wait at most {MAX_WAIT * 1000:g} ms", heads, lines)


def _together(found: Measurements) -> Grid:
    lines = []
    one = statistics.median(rate for rate, _ in found.together.get(1, [(float("nan"), 0.0)]))
    for processes, runs in found.together.items():
        rate = statistics.median(rate for rate, _ in runs)
        cost = statistics.median(cost for _, cost in runs)
        lines.append([str(processes), "streamer", f"{rate:,.0f}", f"{rate / one:.2f}", f"{cost:.1f}"])
    return Grid("More processes in one consumer group", ["processes", "program", "msg/s", "/ one process", "us"], lines)


def _processor() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.processor() or platform.machine()
    found = re.search(r"model name\s*:\s*(.+)", text)
    return found.group(1) if found else platform.machine()
