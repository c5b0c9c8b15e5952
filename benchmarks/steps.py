"""The gain by batches in each step: `python -m benchmarks.steps`, with `--write` into the README.

CPU microseconds a record through an executor, all threads counted: a batch of 32 (`run_batch`, the gathering of its
records included) against one record at a time (`run`). Both take turns, and the least of many runs counts: other work
of the machine can only add. Images are decoded already unless the case says otherwise.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import pipelines
from benchmarks.pages import machine, put
from benchmarks.stepcases import CASES, Case
from pipelines import Batch, Data, Graph, Image

ROWS = 32
PACKAGES = ("numpy", "onnxruntime", "opencv-python-headless")
SECONDS = 1.0
"""How long each case is measured."""


class Measured(NamedTuple):
    """CPU microseconds a record."""

    name: str
    alone: float
    together: float

    @property
    def ratio(self) -> float:
        """How many times cheaper a record is in a batch."""
        return self.alone / self.together


def main() -> None:
    """Print a table, a case a line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.steps", description=__doc__)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="how long each case is measured")
    parser.add_argument("--case", help="only cases whose name contains this")
    parser.add_argument("--write", action="store_true", help="put the table into benchmarks/README.md")
    given = parser.parse_args()
    began = time.monotonic()
    width = max(len(case.name) for case in CASES)
    print("CPU us a record".ljust(width), "one by one", f"batch of {ROWS}", "times", sep="  ")
    found = []
    for case in CASES:
        if given.case is None or given.case in case.name:
            one = measured(case, given.seconds)
            found.append(one)
            numbers = f"{one.alone:10.1f}  {one.together:11.1f}  {one.ratio:5.1f}"
            print(case.name.ljust(width), numbers, sep="  ", flush=True)
    if given.write:
        minutes = (time.monotonic() - began) / 60
        put("steps", f"{machine(minutes, packages=PACKAGES)}\n\n{table(found)}")


def table(found: list[Measured]) -> str:
    """The table in Markdown."""
    lines = [f"| step | one by one, us | batch of {ROWS}, us | times |", "| --- | ---: | ---: | ---: |"]
    lines += [f"| {one.name} | {one.alone:.1f} | {one.together:.1f} | {one.ratio:.1f} |" for one in found]
    return "\n".join(lines)


def measured(case: Case, seconds: float) -> Measured:
    """Both forms in turn for so long."""
    records = [case.record(number) for number in range(ROWS)]
    pipeline = case.step if isinstance(case.step, Graph) else pipelines.Sequence([case.step])
    with pipeline.open() as executor:

        def one_by_one(datas: list[Data]) -> None:
            for data in datas:
                executor.run(data)

        def at_once(datas: list[Data]) -> None:
            executor.run_batch(Batch.of(datas))

        alone = together = float("inf")
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            alone = min(alone, _cost(one_by_one, records))
            together = min(together, _cost(at_once, records))
    return Measured(case.name, alone, together)


def _cost(run: Callable[[list[Data]], None], records: list[Data]) -> float:
    # Fresh images: one that is decoded keeps its pixels.
    datas = [Data({key: _fresh(value) for key, value in data.items()}) for data in records]
    began = time.process_time_ns()
    run(datas)
    return (time.process_time_ns() - began) / ROWS / 1000


def _fresh(value: Any) -> Any:
    if isinstance(value, Image):
        return Image(value.encoded if value.encoded is not None else value.get_as("numpy"))
    return value


if __name__ == "__main__":
    main()
