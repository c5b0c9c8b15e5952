"""What DETECT costs beside its model: `python -m benchmarks.detectors.run`; `--write` puts it on the page."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated

import cv2
import numpy as np
import typer
from rich.console import Console

from benchmarks.detectors import byhand, ours
from benchmarks.environments import ROOT, python_of
from benchmarks.pages import machine, put
from benchmarks.table import Grid, as_markdown, as_rich
from pipelines import Data
from pipelines.telemetry import import_onnxruntime

RESULTS = ROOT / "benchmarks" / "detectors-results.json"
"""The measurements that the page shows."""
PACKAGES = ("numpy", "onnxruntime", "opencv-python-headless")
COUNTS = (600, 1000)
"""Boxes above the threshold."""
LOOP, BY_HAND, SUPERVISION = "loop over all boxes", "cv2 and numpy without a loop", "the same with supervision"
PAD, BATCH = "IMAGE_TO_NDARRAY, PAD", "8 records, model of batch 4"
RESIZED, CALLS = "resize, copyMakeBorder, transpose, / 255", "two calls of the model"
LIMITS = {LOOP: 0.15, BY_HAND: 1.2, SUPERVISION: 0.3, RESIZED: 1.25, CALLS: 1.1}
"""The most that ours may cost, as part of the other's."""

app = typer.Typer(add_completion=False)


@dataclass
class Costs:
    """CPU milliseconds of ours and of another, by what is done and by whom."""

    pairs: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    caption: str = ""


@app.command()
def main(
    peers: Annotated[
        bool, typer.Option("--peers", help="With the package supervision, in its own environment.")
    ] = False,
    rounds: Annotated[int, typer.Option(help="Rounds whose median counts.")] = 15,
    write: Annotated[bool, typer.Option("--write", help="Keep the results and refresh the page.")] = False,
) -> None:
    """Do the same work by a pipeline and by hand in turn, on one core, and print what ours costs of the other's.

    Example: python -m benchmarks.detectors.run --peers
    """
    console = Console(width=None if sys.stdout.isatty() else 150)
    began = time.monotonic()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    cv2.setNumThreads(1)
    python = python_of("supervision", console.print) if peers else None
    with tempfile.TemporaryDirectory(prefix="streamer-bench-") as name:
        costs = measured(Path(name), rounds, python)
    costs.caption = machine((time.monotonic() - began) / 60, packages=PACKAGES)
    console.print(as_rich(grid(costs)))
    console.print(costs.caption, highlight=False, markup=False)
    if write:
        RESULTS.write_text(json.dumps(asdict(costs), indent=1) + "\n", encoding="utf-8")
        put("detectors", text(costs))


def measured(folder: Path, rounds: int, python: Path | None) -> Costs:
    """All costs; `python` is the interpreter that has supervision, without which that is left out."""
    costs = Costs()
    pixels = byhand.picture()
    with ExitStack() as stack:
        detector = stack.enter_context(ours.detect(ours.write_detector(folder / "detector.onnx")).open())
        pad = stack.enter_context(ours.padded().open())
        for count in COUNTS:
            _detect(costs, count, ours.work(detector, ours.pictures(pixels)), pixels, rounds)
        costs.pairs[PAD] = {
            RESIZED: byhand.medians([ours.work(pad, ours.pictures(pixels)), lambda: _resized(pixels)], rounds)
        }
        _batch(costs, stack, folder, rounds)
    if python is not None:
        _supervised(costs, python, rounds)
    return costs


def _detect(costs: Costs, count: int, run: ours.Work, pixels: np.ndarray, rounds: int) -> None:
    output = byhand.output(count)
    with ours.answer(output):
        times = byhand.medians(
            [run, lambda: byhand.looped(pixels, output), lambda: byhand.batched(pixels, output)], rounds
        )
    costs.pairs[f"DETECT, {count} boxes"] = {LOOP: [times[0], times[1]], BY_HAND: [times[0], times[2]]}


def _resized(pixels: np.ndarray) -> object:
    high, wide = pixels.shape[:2]
    new_high = round(high * byhand.SIDE / wide)
    small = cv2.resize(pixels, (byhand.SIDE, new_high), interpolation=cv2.INTER_LINEAR)
    return byhand.padded_array(small, 0, (byhand.SIDE - new_high) // 2, 0)


def _batch(costs: Costs, stack: ExitStack, folder: Path, rounds: int) -> None:
    path = ours.write_batch_model(folder / "batch.onnx")
    executor = stack.enter_context(ours.batch_model(path).open())
    onnxruntime = import_onnxruntime()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    arrays = np.random.default_rng(0).random((2 * ours.CALL, 3, 160, 160), np.float32)
    halves = [arrays[: ours.CALL], arrays[ours.CALL :]]
    costs.pairs[BATCH] = {
        CALLS: byhand.medians(
            [
                ours.work(executor, lambda: [Data({"x": array}) for array in arrays]),
                lambda: [session.run(None, {"x": half}) for half in halves],
            ],
            rounds,
        )
    }


def _supervised(costs: Costs, python: Path, rounds: int) -> None:
    """Measured in its own environment beside the work by hand, by which it is put in proportion to ours."""
    done = subprocess.run(
        [str(python), "-m", "benchmarks.detectors.byhand"],
        cwd=ROOT, input=json.dumps({"counts": COUNTS, "rounds": rounds}), capture_output=True, text=True, timeout=900,
        check=False, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"supervision failed:\n{done.stderr[-3000:]}")
    for count, (by_hand, supervised) in json.loads(done.stdout).items():
        pairs = costs.pairs[f"DETECT, {count} boxes"]
        mine, here = pairs[BY_HAND]
        pairs[SUPERVISION] = [mine, supervised * here / by_hand]


def grid(costs: Costs) -> Grid:
    """A line for each pair."""
    lines = [
        [what, other, f"{mine:.2f}", f"{theirs:.2f}", f"{mine / theirs:.2f}", f"{LIMITS[other]:g}"]
        for what, others in costs.pairs.items()
        for other, (mine, theirs) in others.items()
    ]
    return Grid("", ["what", "against", "ours, ms", "the other, ms", "ratio", "at most"], lines)


def text(costs: Costs) -> str:
    """The text for the page."""
    return f"{costs.caption}\n\n{as_markdown(grid(costs))}"


if __name__ == "__main__":
    app()
