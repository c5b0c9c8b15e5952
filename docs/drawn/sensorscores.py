"""The scores of all machines of `streamer demo sensors` over time: faults, and when each crosses the limit of alerts.

The simulation is without chance but for its seeds, so the model gives the same scores whenever this is drawn.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from pipelines import Data
from streamer.demo.machines import example
from streamer.demo.machines.hall import WINDOWS, Failing, Hall, plan

SECONDS: Final = 20.0
"""How long the demo runs by default."""
LIMIT: Final = 1.0
"""The score from which on `alerts.yaml` takes a machine to have a fault."""
IN_A_ROW: Final = 3
"""How many such scores in a row it takes for an alert."""
LABEL: Final = (
    "Scores of twelve machines over twenty seconds. Eight stay below the limit of 1 all the time. Four leave the "
    "others one after another, soon after a fault begins in them, cross the limit and stay above it."
)
_WIDTH, _LEFT, _RIGHT, _TOP, _HIGH = 500, 34, 12, 50, 230
_ROW: Final = 20
_STYLE: Final = """
  text { font: 13px system-ui, -apple-system, "Segoe UI", sans-serif; fill: #1f2328 }
  .title { font-size: 15px; font-weight: 600 }
  .small { font-size: 12px; fill: #59636e }
  polyline { fill: none; stroke: #8b949e; stroke-width: 0.8; stroke-opacity: 0.6 }
  .axis { stroke: #d1d9e0 } .limit { stroke: #cf222e; stroke-width: 1.5; stroke-dasharray: 5 4 } .over { fill: #cf222e }
  .begin { stroke-width: 1; stroke-dasharray: 2 3 } .paper { fill: #fff }
  .fault polyline { stroke-width: 1.4; stroke-opacity: 1 }
  .fault polyline, .fault line, .fault circle, .fault path { stroke: var(--line) }
  .a { --line: #0969da } .b { --line: #bc4c00 } .c { --line: #1a7f5a } .d { --line: #8250df }
  circle { fill: #fff; stroke-width: 2 } path { stroke-width: 2.5 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 } .small { fill: #9198a1 } .axis { stroke: #3d444d } .paper, circle { fill: #0d1117 }
    .limit { stroke: #ff7b72 } .over { fill: #ff7b72 }
    .a { --line: #58a6ff } .b { --line: #f0883e } .c { --line: #3fb987 } .d { --line: #bc8cff }
  }
"""

Scores = npt.NDArray[np.float64]


class Course(NamedTuple):
    """The scores of a run of the demo's machines."""

    machines: list[str]
    scores: Scores
    """A row for each window, a column for each machine; windows begin `1 / WINDOWS` seconds after one another."""
    faults: list[Failing]

    def alert(self, failing: Failing) -> float | None:
        """Seconds from the beginning of the fault to its alert; `None` if there is none."""
        over = np.lib.stride_tricks.sliding_window_view(self._of(failing) >= LIMIT, IN_A_ROW)
        after = np.flatnonzero(over.all(axis=1)) + IN_A_ROW - 1
        begun = after[after / WINDOWS >= failing.begins]
        return float(begun[0] / WINDOWS - failing.begins) if len(begun) else None

    def false_alerts(self) -> int:
        """Scores above the limit of machines that had no fault yet."""
        seconds = np.arange(len(self.scores)) / WINDOWS
        begins = {failing.machine: failing.begins for failing in self.faults}
        return sum(
            int((self.scores[seconds < begins.get(name, SECONDS), number] > LIMIT).sum())
            for number, name in enumerate(self.machines)
        )

    def _of(self, failing: Failing) -> Scores:
        scores: Scores = self.scores[:, self.machines.index(failing.machine)]
        return scores


def write(folder: Path) -> list[Path]:
    """Run the pipeline on the machines, and write `sensor-scores.svg`. Returns its path."""
    file = folder / "sensor-scores.svg"
    file.write_text(drawing(measured()))
    return [file]


def measured() -> Course:
    """The pipeline of `sensors.yaml` on every window that the demo's machines measure in its time."""
    faults = plan(SECONDS)
    hall = Hall(faults)
    turns = int(SECONDS * WINDOWS)
    windows = [hall.window(machine, turn / WINDOWS) for turn in range(turns) for machine in range(len(hall.places))]
    records = [
        Data({"vibration": window.vibration.astype(np.float32), "temperature": np.float32(window.temperature)})
        for window in windows
    ]
    # The broker's address is only written into the service, which is not started.
    with example.services("localhost:1883", "drawn")[0].pipeline.open() as executor:
        results = executor.run_many(records)
    scores = np.array([result["score"] for result in results], np.float64).reshape(turns, len(hall.places))
    return Course([name for _, name in hall.places], scores, faults)


def drawing(course: Course) -> str:
    """A line for each machine, the limit, and for each fault its beginning and its alert, as SVG."""
    bottom = _TOP + _HIGH
    height = bottom + 44 + _ROW * len(course.faults) + 8
    inside = "\n".join([*_axes(course, bottom), *_sound(course), *_faulty(course, bottom)])
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" '
        f'viewBox="0 0 {_WIDTH} {height}" role="img" '
        f'aria-label="{escape(LABEL)}">\n<style>{_STYLE}</style>\n'
        f'<rect class="paper" width="{_WIDTH}" height="{height}"/>\n{inside}\n</svg>\n'
    )


def _axes(course: Course, bottom: float) -> Iterator[str]:
    yield f'<text class="title" x="{_LEFT - 24}" y="22">Scores of twelve machines, a line each</text>'
    legend = "score of each window; dotted: a fault begins; ring: its alert"
    yield f'<text class="small" x="{_LEFT - 24}" y="40">{legend}</text>'
    for score in range(int(_top_of(course)) + 1):
        y = _y(course, score)
        yield f'<line class="axis" x1="{_LEFT}" y1="{y}" x2="{_WIDTH - _RIGHT}" y2="{y}"/>'
        yield f'<text class="small" x="{_LEFT - 8}" y="{y + 4}" text-anchor="end">{score}</text>'
    for second in range(0, int(SECONDS) + 1, 5):
        anchor = "end" if second == SECONDS else "middle"
        yield f'<text class="small" x="{_x(second)}" y="{bottom + 18}" text-anchor="{anchor}">{second} s</text>'
    limit = _y(course, LIMIT)
    yield f'<line class="limit" x1="{_LEFT}" y1="{limit}" x2="{_WIDTH - _RIGHT}" y2="{limit}"/>'
    yield f'<text class="over" x="{_LEFT + 6}" y="{limit - 6}">alert above</text>'


def _sound(course: Course) -> Iterator[str]:
    failing = {fault.machine for fault in course.faults}
    for number, name in enumerate(course.machines):
        if name not in failing:
            yield _line(course, number)


def _faulty(course: Course, bottom: float) -> Iterator[str]:
    for row, failing in enumerate(course.faults):
        begin, after = _x(failing.begins), course.alert(failing)
        y = bottom + 44 + _ROW * row
        parts = [
            f'<line class="begin" x1="{begin}" y1="{_TOP}" x2="{begin}" y2="{bottom}"/>',
            _line(course, course.machines.index(failing.machine)),
            f'<path d="M{_LEFT - 24} {y - 4}h18"/>',
        ]
        found = "no alert"
        if after is not None:
            at = failing.begins + after
            score = course.scores[round(at * WINDOWS), course.machines.index(failing.machine)]
            parts.append(f'<circle cx="{_x(at)}" cy="{_y(course, score)}" r="4"/>')
            found = f"alert after {after:.1f} s"
        text = f"{failing.machine}: {failing.fault}, begins at {failing.begins:.1f} s, {found}"
        parts.append(f'<text x="{_LEFT}" y="{y}">{escape(text)}</text>')
        yield f'<g class="fault {"abcd"[row]}">' + "\n".join(parts) + "</g>"


def _line(course: Course, machine: int) -> str:
    points = " ".join(
        f"{_x(turn / WINDOWS)},{_y(course, score)}" for turn, score in enumerate(course.scores[:, machine])
    )
    return f'<polyline points="{points}"/>'


def _x(seconds: float) -> float:
    return round(_LEFT + seconds / SECONDS * (_WIDTH - _LEFT - _RIGHT), 1)


def _y(course: Course, score: float) -> float:
    return round(_TOP + _HIGH * (1 - score / _top_of(course)), 1)


def _top_of(course: Course) -> float:
    return float(np.ceil(course.scores.max()))
