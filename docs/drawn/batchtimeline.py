"""The timeline of some consecutive batches, as `streamer run --profile` wrote their times."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from pathlib import Path
from statistics import fmean
from typing import Any, Final, NamedTuple

from pageblocks import ROOT

from connectors.kafka.config import KafkaSinkConfig
from streamer.demo.images.example import digits
from streamer.demo.images.feeder import Feeder
from streamer.demo.images.score import Score
from streamer.devbroker import create_topics

RATE: Final = 2000
"""Records that are sent a second."""
SHOWN: Final = 5
"""Batches in the picture."""
STAGES: Final = {
    "poll": "more records are awaited",
    "decode": "payloads become arrays",
    "run": "the pipeline",
    "encode": "results become payloads",
    "send": "they are handed to the producer",
}
"""The stages in their order, and what is done in each."""
_SECONDS: Final = 120.0

_WIDTH, _LEFT, _RIGHT, _TOP, _ROW, _BAR = 500, 162, 14, 78, 26, 16
_STYLE: Final = """
  text { font: 13px system-ui, -apple-system, "Segoe UI", sans-serif; fill: #1f2328 }
  .title { font-size: 15px; font-weight: 600 }
  .small { font-size: 12px; fill: #59636e }
  .axis { stroke: #d1d9e0 } .paper { fill: #fff }
  .poll { fill: #c4ccd4 } .decode { fill: #bc4c00 } .run { fill: #1a7f5a } .encode { fill: #8250df }
  .send { fill: #0969da }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 } .small { fill: #9198a1 } .axis { stroke: #3d444d } .paper { fill: #0d1117 }
    .poll { fill: #484f58 } .decode { fill: #f0883e } .run { fill: #3fb987 } .encode { fill: #bc8cff }
    .send { fill: #58a6ff }
  }
"""


class Stage(NamedTuple):
    """A stage of a batch, in milliseconds of the profile's clock."""

    began: float
    lasted: float

    @property
    def ended(self) -> float:
        """When it ended."""
        return self.began + self.lasted


class Batch(NamedTuple):
    """A batch of a profile."""

    records: int
    stages: dict[str, Stage]

    @property
    def began(self) -> float:
        """When its first record came."""
        return min(stage.began for stage in self.stages.values())

    @property
    def took(self) -> float:
        """Milliseconds from its first record to the end of its last stage."""
        return max(stage.ended for stage in self.stages.values()) - self.began


def write(folder: Path, bootstrap: str) -> list[Path]:
    """Run the digits service on this broker, and write `batch-timeline.svg`. Returns its path."""
    with tempfile.TemporaryDirectory() as place:
        batches = batches_of(profile(Path(place), bootstrap, "digits"))
    file = folder / "batch-timeline.svg"
    file.write_text(drawing(typical(batches)))
    return [file]


def profile(folder: Path, bootstrap: str, name: str, seconds: float = 8.0) -> list[dict[str, Any]]:
    """The events of a profile of the digits service, to which images were sent for so long. `name` is the beginning of
    its topics' names. Raises `TimeoutError` or `subprocess.SubprocessError` if its predictions do not come in time."""
    example = ROOT / "examples" / "digits"
    for file in ("digits.onnx", "digits.pipeline.yaml"):
        shutil.copy(example / file, folder)
    text = (example / "digits.yaml").read_text()
    text = re.sub(r"\bdigits\.(images|predictions|dead)\b", rf"{name}.\1", text)
    (folder / "digits.yaml").write_text(text.replace("group: digits", f"group: {name}"))
    create_topics(bootstrap, {f"{name}.{topic}": 1 for topic in ("images", "predictions", "dead")})
    environment = {**os.environ, "KAFKA_BOOTSTRAP_SERVERS": bootstrap}
    streamer = [sys.executable, "-m", "streamer"]
    command = [*streamer, "run", "digits.yaml", "--profile", "profile.json"]
    with (
        (folder / "run.log").open("wb") as log,
        subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log) as service,  # noqa: S603
    ):
        try:
            _await_running(folder / "run.log")
            count = _feed(bootstrap, f"{name}.images", seconds)
            tap = ["tap", f"{name}.predictions", "--from", "earliest", "--count", str(count), "--json"]
            subprocess.run(  # noqa: S603
                [*streamer, *tap], env=environment, check=True, stdout=subprocess.DEVNULL, timeout=_SECONDS
            )
        finally:
            service.send_signal(signal.SIGTERM)
            service.wait(_SECONDS)
    events: list[dict[str, Any]] = json.loads((folder / "profile.json").read_text())
    return events


def _await_running(log: Path) -> None:
    deadline = time.monotonic() + _SECONDS
    while '"event": "running"' not in log.read_text():
        if time.monotonic() > deadline:
            raise TimeoutError(f"the service did not start in time:\n{log.read_text()}")
        time.sleep(0.1)


def _feed(bootstrap: str, topic: str, seconds: float) -> int:
    """Send images at a steady rate, as the demo does. Returns how many. Raises `TimeoutError` if they are not confirmed
    in time."""
    images = digits()
    sink = KafkaSinkConfig(name="feeder", bootstrap=bootstrap, topic=topic).build()
    sink.open()
    try:
        score = Score(images.labels, round(RATE * seconds) + 1)
        feeder = Feeder(sink, images, score, "drawn", rate=RATE, seconds=seconds)
        feeder.start()
        deadline = time.monotonic() + _SECONDS
        while not feeder.done:
            if time.monotonic() > deadline:
                feeder.stop()
                raise TimeoutError("the images were not sent in time")
            time.sleep(0.1)
    finally:
        sink.close()
    return round(RATE * seconds)


def batches_of(events: Iterable[dict[str, Any]]) -> list[Batch]:
    """The batches whose records went through every stage together, in their order. Others were divided on the way."""
    ranges: dict[tuple[int, int], dict[str, Stage]] = {}
    done = dict.fromkeys(STAGES, 0)
    stages = [event for event in events if event["ph"] == "X" and event["cat"] == "stage"]
    for event in sorted(stages, key=lambda event: event["ts"]):
        first, name = done[event["name"]], event["name"]
        done[name] += event["args"]["rows"]
        ranges.setdefault((first, done[name]), {})[name] = Stage(event["ts"] / 1000, event["dur"] / 1000)
    return [
        Batch(stop - first, stages) for (first, stop), stages in sorted(ranges.items()) if len(stages) == len(STAGES)
    ]


def typical(batches: Sequence[Batch]) -> Sequence[Batch]:
    """Of all `SHOWN` batches one after another those that took the median time. Raises `ValueError` if there are not so
    many."""
    if len(batches) < SHOWN:
        raise ValueError(f"the profile has {len(batches)} batches; {SHOWN} are shown")
    groups = [batches[at : at + SHOWN] for at in range(len(batches) - SHOWN + 1)]
    return sorted(groups, key=lambda group: max(batch.took for batch in group))[len(groups) // 2]


def drawing(batches: Sequence[Batch]) -> str:
    """A row for each batch, all on one scale in milliseconds from its first record on, and the mean time of each stage,
    as SVG."""
    bottom = _TOP + _ROW * len(batches)
    height = bottom + 52 + 20 * len(STAGES)
    inside = "\n".join([*_axis(batches, bottom), *_bars(batches), *_legend(batches, bottom + 54)])
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" '
        f'viewBox="0 0 {_WIDTH} {height}" role="img" '
        f'aria-label="{escape(label(batches))}">\n<style>{_STYLE}</style>\n'
        f'<rect class="paper" width="{_WIDTH}" height="{height}"/>\n{inside}\n</svg>\n'
    )


def label(batches: Sequence[Batch]) -> str:
    """What is seen, for whoever sees no pictures."""
    means = ", ".join(f"{stage} {_mean(batches, stage):.2f} ms" for stage in STAGES)
    return (
        f"{len(batches)} consecutive batches, a row each, with their stages one after the other on one scale. "
        f"Mean times: {means}."
    )


def _axis(batches: Sequence[Batch], bottom: float) -> Iterator[str]:
    longest = max(batch.took for batch in batches)
    yield f'<text class="title" x="12" y="22">{len(batches)} consecutive batches of the digits service</text>'
    scale = f"{RATE:,} records a second; a row begins with the first of its records"
    yield f'<text class="small" x="12" y="40">{scale}</text>'
    step = next(step for step in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 10**6) if longest / step <= 10)
    for millisecond in range(0, int(longest) + 1, step):
        x, unit = _x(longest, millisecond), "" if millisecond else " ms"
        yield f'<line class="axis" x1="{x}" y1="{_TOP - 8}" x2="{x}" y2="{bottom}"/>'
        yield f'<text class="small" x="{x}" y="{_TOP - 14}" text-anchor="middle">{millisecond}{unit}</text>'


def _bars(batches: Sequence[Batch]) -> Iterator[str]:
    longest = max(batch.took for batch in batches)
    for row, batch in enumerate(batches):
        y = _TOP + _ROW * row
        later = batch.began - batches[0].began
        yield f'<text class="small" x="12" y="{y + 13}">+{later:.1f} ms</text>'
        yield f'<text class="small" x="{_LEFT - 8}" y="{y + 13}" text-anchor="end">{batch.records} records</text>'
        for name in STAGES:
            stage = batch.stages[name]
            left, right = (_x(longest, at - batch.began) for at in (stage.began, stage.ended))
            yield f'<rect class="{name}" x="{left}" y="{y}" width="{max(right - left, 0.8):.1f}" height="{_BAR}"/>'


def _legend(batches: Sequence[Batch], top: float) -> Iterator[str]:
    yield f'<text class="small" x="12" y="{top - 22}">Mean of these batches:</text>'
    for row, (name, meaning) in enumerate(STAGES.items()):
        y = top + 20 * row
        yield f'<rect class="{name}" x="12" y="{y - 11}" width="12" height="12"/>'
        yield f'<text x="32" y="{y}">{name}</text>'
        yield f'<text x="152" y="{y}" text-anchor="end">{_mean(batches, name):.2f} ms</text>'
        yield f'<text class="small" x="166" y="{y}">{escape(meaning)}</text>'


def _mean(batches: Sequence[Batch], stage: str) -> float:
    return fmean(batch.stages[stage].lasted for batch in batches)


def _x(longest: float, milliseconds: float) -> float:
    return round(_LEFT + milliseconds / longest * (_WIDTH - _LEFT - _RIGHT), 1)
