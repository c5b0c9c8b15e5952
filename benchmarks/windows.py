"""What WINDOW and CHANGE cost beside loops by hand: `python -m benchmarks.windows [--peers]`, about nine minutes.

CPU microseconds a record of windows of 128 samples of three numbers, in batches of 512, all threads counted, for 1,000
keys and for 10,000. Records are in memory in the form that each way takes: columns for WINDOW, which is run by an
executor, a `dict` each for the others. The ways take turns, and the median of the rounds counts, as more windows end in
some than in others; so many rounds are run before that the windows of all keys have begun to end.

`gap` and `save` are WINDOW with a gap, and with its state saved every ten batches; `overlap` has windows that begin
every 32 samples, and is beside such a loop. `time` has the mean of a number in windows of ten seconds. `change` is
CHANGE of a score, which is high for one device in a hundred, beside a loop with a `dict` of states; nearly all records
change nothing. With `--peers` also Bytewax's `collect`, which is installed first. Quix Streams has windows only with a
broker, so it is not here.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from benchmarks.environments import ROOT, python_of
from connectors.codec import RecordsOrigin
from connectors.records import Lane, Records, Span
from pipelines.data.batch import Batch
from pipelines.data.columns import DenseColumn, ObjectColumn
from pipelines.executors.sequence import SequenceExecutor
from pipelines.plugins.registry import default_registry
from pipelines.runners.runner import OpenContext, StatefulRunner
from pipelines.steps.base import Step
from pipelines.steps.keyed.change import Change
from pipelines.steps.keyed.window import Window
from pipelines.values import ValueType

KEYS: Final = (1_000, 10_000)
SIZE: Final = 128
BATCH: Final = 512
BATCHES: Final = 200
ROUNDS: Final = 5
SAVE_EVERY: Final = 10
AXES: Final = ("ax", "ay", "az")
STEP: Final = Window(by="device", size=SIZE, values=AXES, output_name="samples")
WAYS: Final[Mapping[str, Step]] = {
    "window": STEP,
    "gap": STEP.model_copy(update={"gap": 3600.0}),
    "save": STEP,
    "overlap": STEP.model_copy(update={"every": 32}),
    "time": Window(by="device", size="10s", time="arrival", aggregate={"mean": {"mean": "ax"}}),
    "change": Change(by="device", value="score", on=0.9, off=0.7, after=3),
}
"""Steps by the name of the line that is printed."""


def origin_of(number: int, keys: Sequence[bytes]) -> RecordsOrigin:
    """The records of a batch: of one partition, a millisecond apart, as a service has them."""
    positions = np.arange(number * BATCH, (number + 1) * BATCH)
    spans = [Span(Lane("bench", "0", 0), 0, BATCH)]
    records = Records(
        "bench",
        [b""] * BATCH,
        keys,
        positions,
        spans,
        ["topic"],
        [0],
        0,
        timestamps=lambda: positions + 1_700_000_000_000,
    )
    return RecordsOrigin(records, number * BATCH)


def batches_of(keys: int) -> list[Batch]:
    """Records of so many devices, in no order."""
    random = np.random.default_rng(1)
    faulty = random.random(keys) < 0.01
    made = []
    for number in range(BATCHES):
        numbers = random.integers(0, keys, BATCH)
        devices = [f"device-{key}" for key in numbers.tolist()]
        columns = {axis: DenseColumn(random.random(BATCH), ValueType.DOUBLE) for axis in AXES}
        scores = random.random(BATCH) * 0.3 + np.where(faulty[numbers], 0.69, 0.0)
        columns["score"] = DenseColumn(scores, ValueType.DOUBLE)
        rows = range(number * BATCH, (number + 1) * BATCH)
        made.append(
            Batch(
                {"device": ObjectColumn(devices, ValueType.STRING), **columns},
                BATCH,
                rows=rows,
                origin=origin_of(number, [device.encode() for device in devices]),
            )
        )
    return made


class Ours:
    """A step in an executor."""

    def __init__(self, batches: list[Batch], way: str) -> None:
        self._batches = batches
        self._runner: StatefulRunner | None = None
        self._executor = SequenceExecutor([(way, WAYS[way])], OpenContext(), self)
        self._saves = way == "save"

    def check_runners(self, runners: Mapping[str, str]) -> None:
        """There are no names to check."""

    def create(self, step: Any, context: OpenContext) -> StatefulRunner:
        """The runner, which this keeps, to save its state."""
        self._runner = default_registry().create(step, context)  # type: ignore[assignment]
        assert self._runner is not None
        return self._runner

    def run(self) -> None:
        """All records once more."""
        for number, batch in enumerate(self._batches):
            self._executor.run_batch(batch)
            if self._saves and number % SAVE_EVERY == 0:
                assert self._runner is not None
                for _ in self._runner.changes():
                    pass


class ByHand:
    """A list for each key, and an array of it when it is full; nothing is checked or saved."""

    def __init__(self, batches: list[Batch], every: int) -> None:
        self._batches = [[dict(row) for row in batch.all_values()] for batch in batches]
        self._every = every
        self._samples: dict[str, list[tuple[float, ...]]] = {}

    def run(self) -> None:
        """All records once more."""
        samples = self._samples
        for batch in self._batches:
            for record in batch:
                some = samples.setdefault(record["device"], [])
                some.append((record["ax"], record["ay"], record["az"]))
                if len(some) == SIZE:
                    np.array(some, np.float32)
                    del some[: self._every]


class StatesByHand:
    """The state of each key in a `dict`, with thresholds and records in a row; nothing is checked or saved."""

    def __init__(self, batches: list[Batch]) -> None:
        self._batches = [[dict(row) for row in batch.all_values()] for batch in batches]
        self._states: dict[str, list[Any]] = {}
        self._changes: list[dict[str, Any]] = []

    def run(self) -> None:
        """All records once more."""
        for batch in self._batches:
            self._changes.clear()
            for record in batch:
                known = self._states.setdefault(record["device"], ["off", 0])
                score = record["score"]
                state = "on" if score >= 0.9 else "off" if score < 0.7 else known[0]
                known[1] = 0 if state == known[0] else known[1] + 1
                if known[1] == 3:
                    self._changes.append({**record, "state": state, "before": known[0]})
                    known[:] = [state, 0]


def median(ways: Mapping[str, Callable[[], None]], keys: int) -> dict[str, float]:
    """CPU microseconds a record of each way, which take turns."""
    spent: dict[str, list[float]] = {way: [] for way in ways}
    filling = -(-2 * SIZE * keys // (BATCH * BATCHES))
    for number in range(filling + ROUNDS):
        for way, run in ways.items():
            began = time.process_time()
            run()
            if number >= filling:
                spent[way].append((time.process_time() - began) / BATCHES / BATCH * 1e6)
    return {way: statistics.median(each) for way, each in spent.items()}


def bytewax(keys: int) -> float:
    """The same of Bytewax, in a process of its own."""
    python = python_of("bytewax", print)
    command = [str(python), "-m", "benchmarks.programs.windows.collect", *map(str, (keys, 2 * SIZE * keys, SIZE))]
    runs = [subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout for _ in range(3)]
    return statistics.median(float(run.split()[0]) for run in runs)


def main() -> None:
    """Print a line for each way and number of keys."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.windows", description=__doc__)
    parser.add_argument("--peers", action="store_true", help="also Bytewax, which is installed first")
    peers = parser.parse_args().peers
    window = 0.0
    print("way          keys  us/record  of the loop")
    for keys in KEYS:
        batches = batches_of(keys)
        ways: dict[str, Callable[[], None]] = {way: Ours(batches, way).run for way in WAYS}
        ways |= {"loop": ByHand(batches, SIZE).run, "loop overlap": ByHand(batches, 32).run}
        ways |= {"loop change": StatesByHand(batches).run}
        spent = median(ways, keys)
        if peers:
            spent["bytewax"] = bytewax(keys)
        for way, micros in spent.items():
            beside = spent[next((f"loop {of}" for of in ("overlap", "change") if of in way), "loop")]
            print(f"{way:12} {keys:5} {micros:9.2f} {micros / beside:9.2f}", flush=True)
        if window:
            print(f"{KEYS[1]} keys cost {spent['window'] / window:.2f} of {KEYS[0]}")
        window = spent["window"]


if __name__ == "__main__":
    main()
