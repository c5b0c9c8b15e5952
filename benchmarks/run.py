"""`python -m benchmarks.run`: measure on one broker, print the tables, and with `--write` put them into the pages."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks import table
from benchmarks.bench import Bench
from benchmarks.contestants import contestants
from benchmarks.publish import notes, publish, save
from benchmarks.rows import PACED, QUICK, ROWS, Row
from benchmarks.topics import Topics
from streamer.devbroker import open_broker

QUICK_SHARE = 0.1
"""How much of a row's messages `--quick` takes."""
PACED_SECONDS = 8.0

app = typer.Typer(add_completion=False)


@app.command()
def main(
    peers: Annotated[bool, typer.Option("--peers", help="With the other frameworks, in the same run.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Two rows, a tenth of the messages: does it run?")] = False,
    short: Annotated[bool, typer.Option("--short", help="All rows, two rounds, without latency and groups.")] = False,
    rows: Annotated[list[str] | None, typer.Option("--row", help="Only this row; may be repeated.")] = None,
    exactly_once: Annotated[
        bool, typer.Option("--exactly-once", help="The service alone, with both guarantees in turns, and its latency.")
    ] = False,
    rounds: Annotated[int | None, typer.Option(help="Rounds of each row.")] = None,
    write: Annotated[bool, typer.Option("--write", help="Keep the results, refresh the pages and the plot.")] = False,
) -> None:
    """Have several programs do the same work in turn on one broker, and print the cost of a message in each.

    Example: python -m benchmarks.run --row realistic --rounds 5
    """
    console = Console(width=None if sys.stdout.isatty() else 150)
    began = time.monotonic()
    bar = Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
        console=console, transient=True,
    )  # fmt: skip
    with bar, tempfile.TemporaryDirectory(prefix="streamer-bench-") as folder:
        say = Say(console, bar)
        programs, left_out = contestants(Path(folder), say.note, peers=peers)
        if exactly_once:
            programs = [one for one in programs if one.ours]
        for name, why in left_out.items():
            console.print(f"left out: {name}: {why}", highlight=False, markup=False)
        with open_broker("the benchmark", progress=say.note) as broker:
            console.print(broker.description, highlight=False)
            bench = Bench(Topics(broker.bootstrap), Path(folder), say, programs, share=QUICK_SHARE if quick else 1.0)
            bench.found.left_out = left_out
            chosen = [row for row in _rows(rows, quick=quick) if row.exactly_once or not exactly_once]
            drained = {row: rounds or (1 if quick else 2 if short else row.rounds) for row in chosen}
            paced = {} if rows or short else dict.fromkeys(PACED, 1 if quick else rounds or 1)
            groups = 0 if rows or short or exactly_once else 1 if quick else rounds or 2
            ours = sum(one.ours for one in programs)
            say.expect(
                sum(bench.runs(row, times) for row, times in drained.items())
                + sum(times * (ours + 2) for times in paced.values())
                + groups * 2
            )
            bench.warm_up(ROWS[0])
            for row, times in drained.items():
                bench.drain_row(row, times)
            for row, times in paced.items():
                bench.pace_row(row, times, 3.0 if quick else PACED_SECONDS)
            bench.together(ROWS[0], groups)
    bench.found.close((time.monotonic() - began) / 60)
    for grid in table.grids(bench.found):
        console.print(table.as_rich(grid))
    console.print("\n".join(notes(bench.found)), highlight=False, markup=False)
    console.print("Ratios are medians over rounds that ran in turn; less is better.")
    for failure in bench.found.failed:
        console.print(f"failed: {failure}", highlight=False, markup=False)
    if write:
        save(bench.found)
        publish(bench.found)
    raise typer.Exit(1 if bench.found.failed else 0)


def _rows(names: list[str] | None, *, quick: bool) -> list[Row]:
    if names is not None:
        return [row for row in ROWS if row.name in names]
    return [row for row in (QUICK if quick else ROWS) if not row.extra]


class Say:
    """Shows the progress: as a bar on a terminal, else line by line."""

    def __init__(self, console: Console, bar: Progress) -> None:
        self._console, self._bar = console, bar
        self._task = bar.add_task("starting", total=None)

    def expect(self, runs: int) -> None:
        """So many runs are to come."""
        self._bar.update(self._task, total=runs)

    def note(self, text: str) -> None:
        self._bar.update(self._task, description=text)

    def step(self, text: str) -> None:
        self._bar.advance(self._task)
        seconds = int(self._bar.tasks[0].elapsed or 0)
        self._console.print(f"{seconds // 60}:{seconds % 60:02d}  {text}", highlight=False)


if __name__ == "__main__":
    app()
