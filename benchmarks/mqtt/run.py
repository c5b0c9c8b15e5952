"""`python -m benchmarks.mqtt.run`: measure MQTT, print the tables, and with `--write` put them into the page."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks.environments import MQTT_PEERS, ROOT, TITLES, version_of
from benchmarks.mqtt.bench import MqttBench
from benchmarks.mqtt.contestants import contestants
from benchmarks.mqtt.rows import QUICK, ROWS
from benchmarks.mqtt.table import grids, text
from benchmarks.pages import machine, put
from benchmarks.run import Say
from benchmarks.table import as_rich
from streamer.devbroker.mqtt import find_mosquitto

RESULTS = ROOT / "benchmarks" / "mqtt-results.json"
"""The measurements that the page shows."""
PACKAGES = ("paho-mqtt", "numpy", "onnxruntime", "protobuf")
QUICK_SHARE = 0.1
SHORT_SHARE = 0.33

app = typer.Typer(add_completion=False)


@app.command()
def main(
    peers: Annotated[bool, typer.Option("--peers", help="With gmqtt, aiomqtt, mq-bridge and FastStream.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Two rows, a tenth of the messages: does it run?")] = False,
    short: Annotated[bool, typer.Option("--short", help="Two rounds, a third of the messages.")] = False,
    rows: Annotated[list[str] | None, typer.Option("--row", help="Only this row; may be repeated.")] = None,
    rounds: Annotated[int | None, typer.Option(help="Rounds of each row.")] = None,
    write: Annotated[bool, typer.Option("--write", help="Keep the results and refresh the page.")] = False,
) -> None:
    """Have several MQTT clients do the same work in turn, and print the cost of a message in each.

    Example: python -m benchmarks.mqtt.run --row receive --rounds 5
    """
    console = Console(width=None if sys.stdout.isatty() else 150)
    began = time.monotonic()
    bar = Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
        console=console, transient=True,
    )  # fmt: skip
    with bar, tempfile.TemporaryDirectory(prefix="streamer-bench-") as folder:
        say = Say(console, bar)
        programs, left_out = contestants(say.note, peers=peers)
        wanted = [row for row in ROWS if row.name in rows] if rows is not None else list(QUICK if quick else ROWS)
        if find_mosquitto() is None and any(row.broker == "mosquitto" for row in wanted):
            wanted = [row for row in wanted if row.broker != "mosquitto"]
            left_out["mosquitto"] = "it is not installed"
        for name, why in left_out.items():
            console.print(f"left out: {name}: {why}", highlight=False, markup=False)
        bench = MqttBench(Path(folder), say, programs, share=QUICK_SHARE if quick else SHORT_SHARE if short else 1.0)
        bench.found.left_out = left_out
        drained = {row: rounds or (1 if quick else 2 if short else row.rounds) for row in wanted}
        say.expect(sum(bench.runs(row, times) for row, times in drained.items()))
        for row, times in drained.items():
            bench.run(row, times)
    found = bench.found
    names = [name for name in MQTT_PEERS if any(name in one for one in found.costs.values())]
    others = "; " + ", ".join(f"{TITLES[name]} {version_of(name)}" for name in names) if names else ""
    found.caption = machine((time.monotonic() - began) / 60, others, PACKAGES)
    for grid in grids(found):
        console.print(as_rich(grid))
    console.print(found.caption, highlight=False, markup=False)
    console.print("Ratios are medians over rounds that ran in turn.")
    for failure in found.failed:
        console.print(f"failed: {failure}", highlight=False, markup=False)
    if write:
        RESULTS.write_text(json.dumps(asdict(found), indent=1) + "\n", encoding="utf-8")
        put("mqtt", text(found))
    raise typer.Exit(1 if found.failed else 0)


if __name__ == "__main__":
    app()
