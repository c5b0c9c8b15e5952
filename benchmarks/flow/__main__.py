"""What `limits.parallel`, joined batches, `target_latency` and the notes of workers give: `python -m benchmarks.flow`.

Ratios of one run, measured in turn, the best of several rounds. It takes a few minutes; nothing else should run.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer
from rich.console import Console

import pipelines
from benchmarks.flow import models
from benchmarks.flow.services import LiveSource, SlowBus, Spent, best, sleeping, spent
from benchmarks.flow.waiting import compared
from benchmarks.pages import machine
from benchmarks.table import Grid, as_rich
from pipelines import Data, Onnx
from pipelines.definitions.pipeline import Pipeline
from streamer.workers.filing import PagesFile
from streamer.workers.notes import Span
from streamer.workers.pages import WorkerPage

FREE_CORES = 1.8
"""Below so many, two batches at a time cannot be faster than one, whatever the program does."""


class Measured(NamedTuple):
    """A line of the table."""

    what: str
    value: str
    wanted: str
    reached: bool | None
    """`None`: it could not be measured here."""


def main(
    rounds: Annotated[int, typer.Option(help="Rounds, of which the best counts.")] = 5,
    only: Annotated[str, typer.Option(help="Only lines with this text.")] = "",
) -> None:
    """Measure, and print a line for each aim."""
    console = Console(width=None if sys.stdout.isatty() else 150)
    began = time.monotonic()
    lines = []
    with tempfile.TemporaryDirectory(prefix="streamer-bench-") as name:
        for parts in (convolutions, waits, sources, targets, notes):
            if only in parts.__name__:
                for line in parts(Path(name), rounds):
                    verdict = {True: "reached", False: "missed", None: "not measured"}[line.reached]
                    lines.append((line.what, line.value, line.wanted, verdict))
                    console.print(*lines[-1], sep="  ", highlight=False)
    console.print(as_rich(Grid("flow", ("what", "measured", "aim", ""), lines, left=1)))
    console.print(machine((time.monotonic() - began) / 60, packages=("numpy", "onnxruntime")), highlight=False)


def convolutions(folder: Path, rounds: int) -> Iterator[Measured]:
    """Two pipelines at a time for a model that computes."""
    pipeline = pipelines.Sequence([Onnx(model_uri=str(models.convolution(folder / "conv.onnx")))])
    payloads = [Data({"x": np.zeros((8, 32, 32), np.float32)}).to_bytes()] * 400
    settings: dict[str, Any] = {"batch": {"max_records": 4}}
    one, two = best([lambda k=k: spent(pipeline, payloads, limits={"parallel": k}, **settings) for k in (1, 2)], rounds)
    free = _free_cores()
    wall = one.wall / two.wall
    enough = free >= FREE_CORES
    yield Measured(
        f"convolution ({one.wall / 100 * 1000:.1f} ms for 4), K=2 : K=1, records a second",
        f"{wall:.2f}" if enough else f"{wall:.2f} with {free:.1f} free cores",
        "1.6",
        wall >= 1.6 if enough else None,
    )
    cpu = one.cpu / two.cpu
    yield Measured("the same, records for each second of CPU", f"{cpu:.2f}", "0.93", cpu >= 0.93)


def waits(folder: Path, rounds: int) -> Iterator[Measured]:
    """Several pipelines at a time for a step that waits."""
    payloads = [Data({"x": number}).to_bytes() for number in range(200)]
    one: dict[str, Any] = {"batch": {"type": "soft", "max_records": 1}}
    yield from _faster("step that sleeps 5 ms, batches of 1", sleeping(0.005), payloads, rounds, **one)
    live: dict[str, Any] = {"batch": {"type": "round", "max_records": 1}, "kind": LiveSource}
    yield from _faster("step of 20 ms, live source", sleeping(0.02), payloads[:100], rounds, **live)


def _faster(what: str, pipeline: Pipeline, payloads: list[bytes], rounds: int, **settings: Any) -> Iterator[Measured]:
    first, *more = best(
        [lambda k=k: spent(pipeline, payloads, limits={"parallel": k}, **settings) for k in (1, 2, 4)], rounds
    )
    for count, times, least in zip((2, 4), more, (1.8, 3.3), strict=True):
        ratio = first.wall / times.wall
        yield Measured(f"{what}, K={count} : K=1", f"{ratio:.2f}", str(least), ratio >= least)


def sources(folder: Path, rounds: int) -> Iterator[Measured]:
    """Eight sources with a record each, joined and apart."""
    for what, width, least in (("weights of 38 MiB", models.WIDE, 4.0), ("small model", 32, 1.0)):
        pipeline = pipelines.Sequence([Onnx(model_uri=str(models.wide(folder / f"wide-{width}.onnx", width)))])
        payloads = [Data({"x": np.zeros(width, np.float32)}).to_bytes()] * 400
        joined, apart = best(
            [lambda j=j, p=pipeline, m=payloads: _eight(p, m, joined=j) for j in (True, False)], rounds
        )
        ratio = apart.wall / joined.wall
        yield Measured(
            f"8 sources, {what}, joined : apart, records a second", f"{ratio:.2f}", str(least), ratio >= least
        )


def _eight(pipeline: Pipeline, payloads: list[bytes], *, joined: bool) -> Spent:
    batch = {"max_records": 8, "max_wait": 0}
    return spent(pipeline, payloads, sources=8, kind=SlowBus, joined=joined, batch=batch)


def targets(folder: Path, rounds: int) -> Iterator[Measured]:
    """A target of 20 ms on a simulated clock."""
    late, busy = compared(0.3, 0.02)
    yield Measured("target 20 ms, load 0.3, simulated: late", f"{late:.3%}", "0.1 %", late <= 0.001)
    yield Measured("the same: busy time with : without", f"{busy:.2f}", "0.8 at most", busy <= 0.8)


def notes(folder: Path, rounds: int) -> Iterator[Measured]:
    """A note and its end, and comparing the board's version."""
    file = PagesFile(folder / "pages", 1)
    page = WorkerPage(file.path, 0)
    slot, spans = page.slot(), [Span("digits", "kafka", "images-3", 100, 611)]
    least = float("inf")
    for _ in range(rounds):
        began = time.process_time()
        for _ in range(10_000):
            page.note(slot, spans, 1.0)
            page.clear(slot)
            page.version  # noqa: B018
        least = min(least, (time.process_time() - began) / 10_000 * 1e6)
    page.close()
    file.close()
    yield Measured("a note, its end, and comparing the version", f"{least:.1f} us", "5 us", least <= 5)


def _free_cores() -> float:
    """How many cores others leave, about: from the load of the last minute."""
    return len(os.sched_getaffinity(0)) - max(0.0, os.getloadavg()[0] - 2.0)


if __name__ == "__main__":
    typer.run(main)
