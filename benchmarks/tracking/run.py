"""IDF1 of TRACK beside the package trackers: `python -m benchmarks.tracking.run`; `--write` puts it on the page."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console

from benchmarks.environments import ROOT, python_of
from benchmarks.pages import machine, put
from benchmarks.table import Grid, as_markdown, as_rich
from benchmarks.tracking.identity import identity, together
from benchmarks.tracking.ours import tracked
from benchmarks.tracking.scenes import SEEDS, Frame, Ints, scenes

RESULTS = ROOT / "benchmarks" / "tracking-results.json"
"""The measurements that the page shows."""
PACKAGES = ("numpy", "lap")
OURS: dict[str, dict[str, Any]] = {
    "TRACK, BYTE_TRACK": {},
    "TRACK, SORT": {"algorithm": "SORT"},
    "TRACK, hits: 3": {"hits": 3},
}
"""Fields of TRACK: its defaults, and tracks that are confirmed later."""
_SAME = {"track_activation_threshold": 0.5, "minimum_consecutive_frames": 2, "minimum_iou_threshold": 0.2}
THEIRS: dict[str, tuple[str, dict[str, Any]]] = {
    "trackers, ByteTrack": ("ByteTrackTracker", {**_SAME, "high_conf_det_threshold": 0.5}),
    "trackers, SORT": ("SORTTracker", _SAME),
    "ByteTrack, its defaults": ("ByteTrackTracker", {}),
    "SORT, its defaults": ("SORTTracker", {}),
}
"""Class and arguments of each tracker of the package: the defaults of TRACK as far as both have them, and its own."""
_ALL = "all of them"

app = typer.Typer(add_completion=False)


@dataclass
class Scores:
    """How well each tracker did."""

    idf1: dict[str, dict[str, float]] = field(default_factory=dict)
    """By tracker and scene."""
    made_up: dict[str, int] = field(default_factory=dict)
    """Tracks of false detections, in all scenes, by tracker."""
    caption: str = ""


@app.command()
def main(
    peers: Annotated[bool, typer.Option("--peers", help="With the package trackers, in its own environment.")] = False,
    seeds: Annotated[int, typer.Option(help="Sequences of each scene.")] = SEEDS,
    write: Annotated[bool, typer.Option("--write", help="Keep the results and refresh the page.")] = False,
) -> None:
    """Have trackers follow the objects of generated scenes, and print how much of the truth has the right id.

    Example: python -m benchmarks.tracking.run --peers
    """
    console = Console(width=None if sys.stdout.isatty() else 150)
    began = time.monotonic()
    made = {name: [sequence(seed) for seed in range(seeds)] for name, sequence in scenes().items()}
    flat = [frames for sequences in made.values() for frames in sequences]
    found = Scores()
    for name, fields in OURS.items():
        _score(found, name, made, [tracked(frames, **fields) for frames in flat])
    if peers:
        python = str(python_of("trackers", console.print))
        for name, ids in zip(THEIRS, _theirs(python, flat), strict=True):
            _score(found, name, made, ids)
    found.caption = machine((time.monotonic() - began) / 60, f", {seeds} sequences of each scene", PACKAGES)
    console.print(as_rich(grid(found)))
    console.print(found.caption, highlight=False, markup=False)
    if write:
        RESULTS.write_text(json.dumps(asdict(found), indent=1) + "\n", encoding="utf-8")
        put("tracking", text(found))


def grid(found: Scores) -> Grid:
    """A line for each scene and one of tracks of nothing, a column for each tracker."""
    lines = [
        [scene, *(f"{scores[scene]:.3f}" for scores in found.idf1.values())]
        for scene in next(iter(found.idf1.values()), {})
    ]
    lines.append(["tracks of false detections", *map(str, found.made_up.values())])
    return Grid("IDF1", ["scene", *found.idf1], lines, left=1)


def text(found: Scores) -> str:
    """The text for the page."""
    return f"{found.caption}\n\n{as_markdown(grid(found))}"


def _score(found: Scores, name: str, made: dict[str, list[list[Frame]]], ids: Sequence[Sequence[Ints]]) -> None:
    """Note how well the tracker of this name did, which gave these ids to the boxes of each sequence in turn."""
    each = iter(ids)
    counts = {scene: together(identity(frames, next(each)) for frames in made[scene]) for scene in made}
    counts[_ALL] = together(counts.values())
    found.idf1[name] = {scene: count.idf1 for scene, count in counts.items()}
    found.made_up[name] = counts[_ALL].made_up


def _theirs(python: str, sequences: list[list[Frame]]) -> list[list[list[Ints]]]:
    asked = {
        "trackers": list(THEIRS.values()),
        "sequences": [
            [{"time": round(one.time, 3), "boxes": one.boxes.tolist(), "scores": one.scores.tolist()} for one in frames]
            for frames in sequences
        ],
    }
    done = subprocess.run(
        [python, "-m", "benchmarks.programs.trackers"],
        cwd=ROOT, input=json.dumps(asked), capture_output=True, text=True, timeout=1800, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"trackers failed:\n{done.stderr[-3000:]}")
    return [[[np.array(ids, np.int64) for ids in frames] for frames in run] for run in json.loads(done.stdout)]


if __name__ == "__main__":
    app()
