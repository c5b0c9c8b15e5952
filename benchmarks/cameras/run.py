"""`python -m benchmarks.cameras.run`: measure cameras, print the tables, and with `--write` put them into the page."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks.cameras.figures import NAMES, SMALL, Figures, grids
from benchmarks.cameras.material import write_film, write_model
from benchmarks.environments import CAMERA_PEERS, ROOT, TITLES, python_of
from benchmarks.pages import machine, put
from benchmarks.run import Say
from benchmarks.table import as_markdown, as_rich

RESULTS = ROOT / "benchmarks" / "cameras-results.json"
"""The measurements that the page shows."""
PACKAGES = ("av", "numpy", "onnxruntime", "opencv-python-headless")
FILMS = {"720p": (1280, 720), "1080p": (1920, 1080)}
_PROGRAMS = {"decode": ("decode", False), "ours-bare": ("ours", False), "ours": ("ours", True)}
_PROGRAMS |= {"floor": ("floor", True), "handwritten": ("handwritten", True)} | {
    name: (one, True) for name, one in CAMERA_PEERS.items()
}
_PATIENCE = 900.0

app = typer.Typer(add_completion=False)


@app.command()
def main(
    peers: Annotated[bool, typer.Option("--peers", help="With the OpenCV loop and Roboflow's pipeline.")] = False,
    peer: Annotated[list[str] | None, typer.Option("--peer", help="With this one only; may be repeated.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="One film, a fifth of the pictures: does it run?")] = False,
    rounds: Annotated[int, typer.Option(help="Rounds of each film.")] = 3,
    pictures: Annotated[int, typer.Option(help="Pictures of a film.")] = 600,
    write: Annotated[bool, typer.Option("--write", help="Keep the results and refresh the page.")] = False,
) -> None:
    """Have several programs run the same films in turn, and print the cost of a picture in each.

    Example: python -m benchmarks.cameras.run --peers --rounds 5
    """
    console = Console(width=None if sys.stdout.isatty() else 150)
    began = time.monotonic()
    found = Figures()
    bar = Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
        console=console, transient=True,
    )  # fmt: skip
    with bar, tempfile.TemporaryDirectory(prefix="streamer-bench-") as name:
        folder, say = Path(name), Say(console, bar)
        programs = _installed(found, say, list(CAMERA_PEERS) if peers else peer or [])
        films = {"720p": FILMS["720p"]} if quick else FILMS
        times = 1 if quick else rounds
        alone = {name: programs[name] for name in ("decode", "ours-bare")}
        say.expect((len(films) * len(programs) + len(alone)) * times + 4)
        model = write_model(folder / "model.onnx")
        for film, (width, height) in films.items():
            path = write_film(folder / f"{film}.mp4", width, height, pictures // 5 if quick else pictures)
            _films(found, say, film, [str(path), str(model)], programs, times)
        # So many that starting and ending, which a meter cannot tell apart from pictures, count little.
        path = write_film(folder / "small.mp4", 160, 80, pictures if quick else 10 * pictures)
        _films(found, say, SMALL, [str(path)], alone, times)
        _live(found, say, str(model), 3.0 if quick else 15.0)
    found.caption = machine((time.monotonic() - began) / 60, packages=PACKAGES)
    for program, why in found.left_out.items():
        console.print(f"left out: {TITLES[program]}: {why}", highlight=False, markup=False)
    for grid in grids(found):
        console.print(as_rich(grid))
    console.print(found.caption, highlight=False, markup=False)
    if write:
        RESULTS.write_text(json.dumps(asdict(found), indent=1) + "\n", encoding="utf-8")
        put("cameras", text(found))


def text(found: Figures) -> str:
    """The text for the page."""
    left = [f"- Left out: {TITLES[name]}: {why}." for name, why in found.left_out.items()]
    return "\n\n".join([found.caption, *map(as_markdown, grids(found)), *left])


def _installed(found: Figures, say: Say, peers: list[str]) -> dict[str, str]:
    """The interpreter of each program; those of others that cannot be installed are left out."""
    programs = {name: sys.executable for name in NAMES if name not in CAMERA_PEERS}
    for name in peers:
        try:
            programs[name] = str(python_of(name, say.note))
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            found.left_out[name] = f"it could not be installed ({type(error).__name__})"
    return programs


def _films(found: Figures, say: Say, film: str, arguments: list[str], programs: dict[str, str], rounds: int) -> None:
    costs = found.cpu.setdefault(film, {})
    for number in range(rounds):
        # To and fro, so that a machine that grows slower harms none alone.
        for name in list(programs)[:: 1 if number % 2 == 0 else -1]:
            program, with_model = _PROGRAMS[name]
            told = _ran(programs[name], program, arguments if with_model else arguments[:1])
            costs.setdefault(name, []).append(told["cpu_us"])
            say.step(f"{film}, {NAMES[name]}, round {number + 1} of {rounds}: {told['cpu_us']:,.0f} us")


def _live(found: Figures, say: Say, model: str, seconds: float) -> None:
    for case, size, fps, count, pause in (
        ("latency", FILMS["720p"], 30, 1, 0.0),
        ("age", FILMS["720p"], 30, 2, 0.1),
        ("one", FILMS["1080p"], 10, 1, 0.0),
        ("four", FILMS["1080p"], 10, 4, 0.0),
    ):
        with ExitStack() as stack:
            urls = [stack.enter_context(_camera(*size, fps)) for _ in range(count)]
            told = found.live[case] = _ran(sys.executable, "live", [str(seconds), str(pause), model, *urls])
        told["expected"] = round(seconds * (min(fps * count, 1 / pause) if pause else fps * count))
        say.step(f"live, {case}: {json.dumps(told)}")


def _ran(python: str, program: str, arguments: list[str]) -> dict[str, Any]:
    command = [python, "-m", f"benchmarks.programs.cameras.{program}", *arguments]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=_PATIENCE, check=False, env=_environment()
    )
    if done.returncode:
        raise RuntimeError(f"{program} failed:\n{done.stderr[-3000:]}")
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


@contextmanager
def _camera(width: int, height: int, fps: int) -> Iterator[str]:
    """A camera in a process of its own; its URL."""
    command = [sys.executable, "-m", "benchmarks.programs.cameras.camera", str(width), str(height), str(fps)]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=_environment()
    ) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}


if __name__ == "__main__":
    app()
