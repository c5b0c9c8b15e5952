"""The table of the camera measurements, beside their goals."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.environments import TITLES
from benchmarks.table import Grid

NAMES = {
    "decode": "PyAV decodes, nothing else (the floor)",
    "ours-bare": "streamer without a model",
    "floor": "the same work without a service: decode, scale, run",
    "ours": "streamer",
    "handwritten": "PyAV loop, by hand (the baseline)",
    "cameras-opencv": TITLES["cameras-opencv"],
    "cameras-roboflow": TITLES["cameras-roboflow"],
}

SMALL = "160x80"
"""The film of small pictures. The service's own cost of a picture does not depend on its size, and is less than the
differences between rounds in the decoding of large ones."""


@dataclass
class Figures:
    """The measurements; a list holds a value for each round."""

    cpu: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    """CPU microseconds for a picture, by film and program."""
    live: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The results of the program `live`, by case."""
    left_out: dict[str, str] = field(default_factory=dict)
    caption: str = ""

    def ratio(self, film: str, program: str, other: str) -> float | None:
        """CPU of a program by that of another one, the median over rounds; `None` if one was not measured."""
        mine, theirs = self.cpu[film].get(program, []), self.cpu[film].get(other, [])
        return statistics.median(a / b for a, b in zip(mine, theirs, strict=True)) if mine and theirs else None


def grids(found: Figures) -> list[Grid]:
    """The tables."""
    costs = [
        [film, NAMES[name], f"{min(rounds):,.0f}", f"{statistics.median(rounds):,.0f}"]
        for film, programs in found.cpu.items()
        for name in NAMES
        if (rounds := programs.get(name))
    ]
    return [
        Grid("CPU microseconds for a picture", ["film", "program", "least", "median"], costs),
        Grid("Aims", ["what", "film", "at most", "measured"], _aims(found)),
    ]


def _aims(found: Figures) -> list[Sequence[str]]:
    lines: list[Sequence[str]] = []
    for film in (film for film in found.cpu if film != SMALL):
        for what, program, other, most in (
            ("service / hand-written PyAV loop", "ours", "handwritten", 1.10),
            ("service / OpenCV loop", "ours", "cameras-opencv", 0.80),
            ("service without model / decode alone", "ours-bare", "decode", 1.30),
            ("service / the same work without a service", "ours", "floor", None),
        ):
            ratio = found.ratio(film, program, other)
            aim = "" if most is None else f"{most:.2f}"
            lines.append([what, film, aim, "not measured" if ratio is None else f"{ratio:.2f}"])
    if (small := found.cpu.get(SMALL)) is not None:
        each = zip(small["ours-bare"], small["decode"], strict=True)
        share = statistics.median(ours - decoding for ours, decoding in each) / 1000
        lines.append(["agent's share of a picture (without model less decode), ms", SMALL, "0.2", f"{share:.2f}"])
    if (latency := found.live.get("latency")) is not None:
        for at, most in ((0, 3), (1, 15)):
            what = f"receive to result beyond the model, {('p50', 'p99')[at]}, ms"
            lines.append([what, "720p live", str(most), f"{latency['rest'][at]:.1f}{_starved(latency)}"])
    if (age := found.live.get("age")) is not None:
        what = "age at inference p50, model of 100 ms, 2 x 30 fps, ms"
        lines.append([what, "720p live", "25", f"{age['age'][0]:.1f}{_starved(age)}"])
    one, four = found.live.get("one"), found.live.get("four")
    if one is not None and four is not None:
        lines.append(["memory per camera, MB", "1080p live", "30", f"{(four['rss'] - one['rss']) / 3e6:.1f}"])
    return lines


def _starved(told: Mapping[str, Any]) -> str:
    """A remark if fewer pictures were run than should have been: the machine had no time for them, and times of those
    that were say little about the service."""
    seen, expected = told["pictures"], told.get("expected", 0)
    return "" if seen >= 0.9 * expected else f" (the machine was busy: {seen} of {expected} pictures)"
