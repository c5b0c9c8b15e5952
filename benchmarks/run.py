"""`python -m benchmarks.run`: measure on one broker, print the tables, and with `--write` put them into the README."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks import table
from benchmarks.bench import Bench
from benchmarks.environments import PEERS, python_of
from benchmarks.rows import PACED, PEER_ROWS, ROWS
from benchmarks.topics import Topics
from streamer.broker import open_broker

QUICK = 0.1
"""How much of a row's messages `--quick` takes."""
PACED_SECONDS = 8.0

app = typer.Typer(add_completion=False)


@app.command()
def main(
    peers: Annotated[bool, typer.Option("--peers", help="Compare with the other frameworks.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Two rows, a tenth of the messages, one round.")] = False,
    rows: Annotated[list[str] | None, typer.Option("--row", help="Only this row; may be repeated.")] = None,
    rounds: Annotated[int | None, typer.Option(help="Rounds of each row.")] = None,
    write: Annotated[bool, typer.Option("--write", help="Put the tables into benchmarks/README.md.")] = False,
) -> None:
    """Have several programs do the same work in turn on one broker, and print what a message costs each of them.

    Example: python -m benchmarks.run --row realistic --rounds 5
    """
    console = Console(width=None if sys.stdout.isatty() else 150)
    began = time.monotonic()
    bar = Progress(TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), console=console, transient=True)
    with bar, tempfile.TemporaryDirectory(prefix="streamer-bench-") as folder:
        say = _Say(console, bar)
        pythons = {peer: python_of(peer, say.note) for peer in PEERS} if peers else {}
        with open_broker("the benchmark", progress=say.note) as broker:
            console.print(broker.describe(), highlight=False)
            bench = Bench(Topics(broker.bootstrap), Path(folder), say, share=QUICK if quick else 1.0, pythons=pythons)
            bench.warm_up(ROWS[0])
            for row in PEER_ROWS if peers or quick else ROWS:
                if rows is None or row.name in rows:
                    bench.drain_row(row, rounds or (1 if quick else row.rounds))
            if not peers and rows is None:
                for row in PACED[: 1 if quick else None]:
                    bench.pace_row(row, 1 if quick else rounds or 1, 3.0 if quick else PACED_SECONDS)
                bench.together(ROWS[0], 1 if quick else rounds or 2)
    minutes = (time.monotonic() - began) / 60
    for grid in table.grids(bench.found):
        console.print(table.as_rich(grid))
    console.print(f"{minutes:.1f} minutes. Ratios are medians over rounds that ran in turn; less is better.")
    for failure in bench.found.failed:
        console.print(f"failed: {failure}", highlight=False, markup=False)
    if write:
        table.write(bench.found, "peers" if peers else "bench", minutes)
    raise typer.Exit(1 if bench.found.failed else 0)


class _Say:
    """Tells what is being done: on a bar where there is a terminal, else line by line."""

    def __init__(self, console: Console, bar: Progress) -> None:
        self._console, self._bar = console, bar
        self._task = bar.add_task("starting", total=None)

    def note(self, text: str) -> None:
        self._bar.update(self._task, description=text)

    def step(self, text: str) -> None:
        self._console.print(text, highlight=False)


if __name__ == "__main__":
    app()
