"""How a consumer group behaves as members come and go: `python -m benchmarks.scaling`, a quarter of an hour.

The step of the service waits as long as a model elsewhere would, so that eight members do on two cores what they
would do on eight machines; brokers, clients and everything else are real.

- members: the longest that a record waits when a member comes or goes, records lost and repeated, idle members
- rates: members that work off a backlog, beside the simulated ones
- plan: what the simulation says of a million records a second
- engines: the same rows in one process, in workers, and on other engines; those that are not installed are left out
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console

from benchmarks.environments import ROOT
from benchmarks.pages import machine, put
from benchmarks.process import ProgramFailed
from benchmarks.programs.waiting import A, B
from benchmarks.scaling import engines, measured
from benchmarks.scaling.simulated import Change, Load, members_for, simulated
from benchmarks.table import Grid, as_markdown, as_rich
from streamer.devbroker import open_broker

PAGE: Final = ROOT / "docs" / "scaling.md"
BACKLOG: Final = 10.0
"""Seconds that members take for their backlog, about."""
NEAR: Final = 0.15
"""How far the simulation may be from what was measured."""


def main(
    members: Annotated[str, typer.Option(help="Numbers of members, with commas.")] = "1,2,4,8",
    partitions: Annotated[str, typer.Option(help="Numbers of partitions.")] = "8,64,500",
    rounds: Annotated[int, typer.Option(help="How often each backlog is worked off; the best counts.")] = 2,
    parts: Annotated[str, typer.Option(help="What is measured.")] = "rates,members,engines",
    write: Annotated[bool, typer.Option(help="Put the tables into docs/scaling.md.")] = False,
) -> None:
    """Measure, simulate, and print the tables; exit code 1 if records were lost, or the simulation is far off."""
    console = Console(width=130)
    began = time.monotonic()
    counts, widths = [[int(text) for text in words.split(",")] for words in (members, partitions)]
    grids, lost, near = {"scaling-plan": _plan()}, 0, True
    with open_broker("the benchmark of scaling") as broker, tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if "rates" in parts:
            grids["scaling-rates"], near = _rates(broker.bootstrap, folder, counts, max(widths), rounds, console)
        if "members" in parts:
            grids["scaling-members"], lost = _moves(broker.bootstrap, folder, counts, widths, console)
        if "engines" in parts:
            grids["scaling-engines"] = _engines(broker.bootstrap, folder, console)
    for grid in grids.values():
        console.print(as_rich(grid))
    line = machine((time.monotonic() - began) / 60)
    console.print(line, highlight=False)
    if write:
        for section, grid in grids.items():
            put(section, as_markdown(grid), PAGE)
        put("scaling-machine", line, PAGE)
    if lost or not near:
        raise typer.Exit(1)


def _rates(
    bootstrap: str, folder: Path, counts: list[int], partitions: int, rounds: int, console: Console
) -> tuple[Grid, bool]:
    lines, near = [], True
    load = Load(0.0, partitions, A, B, measured.MAX_RECORDS, measured.MAX_WAIT)
    for count in counts:
        alone = load.max_records / (load.a + load.b * load.max_records)
        backlog = round(alone * count * BACKLOG)
        seen = max(measured.rate(bootstrap, folder, count, partitions, backlog) for _ in range(rounds))
        told = simulated(load, [Change(0.0, count)], BACKLOG * 4, backlog=backlog)
        expected = backlog / told.ended if told.ended else float("nan")
        near &= abs(expected / seen - 1) <= NEAR
        lines.append([str(count), f"{seen:,.0f}", f"{expected:,.0f}", f"{expected / seen:.2f}"])
        console.print(f"{count} members: {seen:,.0f} records/s, simulated {expected:,.0f}", highlight=False)
    heads = ["members", "records/s, measured", "simulated", "simulated / measured"]
    return Grid("", heads, lines, left=0), near


def _moves(bootstrap: str, folder: Path, counts: list[int], widths: list[int], console: Console) -> tuple[Grid, int]:
    lines, lost = [], 0
    for width in widths:
        for count in counts:
            try:
                found = measured.moved(bootstrap, folder, count, width)
            except ProgramFailed as error:
                console.print(f"{count} members, {width} partitions: {error}", highlight=False)
                lost += 1
                continue
            lost += found.lost
            times = [f"{seconds:.2f}" for seconds in (found.usual, found.joined, found.left)]
            ends = [f"{found.lost} of {found.sent:,}", str(found.repeated), f"{found.idle * 100:.1f} %"]
            lines.append([str(width), str(count), *times, *ends])
            console.print(*lines[-1], sep="  ", highlight=False)
    heads = ["partitions", "members", "usual, s", "one comes, s", "one goes, s", "lost", "repeated", "idle, of a core"]
    return Grid("", heads, lines, left=0), lost


def _engines(bootstrap: str, folder: Path, console: Console) -> Grid:
    lines = []
    ways = {way: lambda way: engines.streamed(bootstrap, folder, way) for way in engines.STREAMS}
    ways |= {way: lambda way: engines.of_files(folder, way) for way in engines.FILES}
    for way, run in ways.items():
        if (package := engines.missing(way)) is not None:
            console.print(f"left out: {way}: {package} is not installed", highlight=False)
            continue
        cost = run(way)
        lines.append([way, f"{cost.start:.1f}", f"{cost.rate:,.0f}", f"{cost.microseconds:.1f}"])
        console.print(*lines[-1], sep="  ", highlight=False)
    heads = ["way", "first results after, s", "records/s", "CPU us a record"]
    return Grid("", heads, lines, left=1)


def _plan() -> Grid:
    """What the simulation says of services with a rate of a million."""
    lines = []
    for title, a, b, most in (
        ("a small model: a = 1 ms, b = 2 us", 0.001, 0.000002, 512),
        ("a middling one: a = 20 ms, b = 0.2 ms", 0.02, 0.0002, 512),
        ("a large one: a = 5 ms, b = 3 ms", 0.005, 0.003, 64),
    ):
        for partitions in (64, 512, 4096):
            load = Load(1e6, partitions, a, b, most)
            least = int(load.rate * (a + b * most) / most) + 1
            fit = members_for(load, pause=8.0, most=30.0, choices=_around(least, partitions))
            each = f"{most / (a + b * most):,.0f}"
            lines.append([title, str(partitions), each, str(least), "more partitions" if fit is None else str(fit)])
    heads = ["model", "partitions", "records/s, one member", "members, at least", "so that one may leave"]
    return Grid("", heads, lines, left=1)


def _around(least: int, partitions: int) -> list[int]:
    """Numbers of members from this one on, up to that of the partitions, in steps of a fiftieth."""
    numbers, number = [], max(least, 2)
    while number <= partitions:
        numbers.append(number)
        number += max(1, number // 50)
    return numbers


if __name__ == "__main__":
    typer.run(main)
