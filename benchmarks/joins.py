"""What JOIN costs beside a loop by hand: `python -m benchmarks.joins`, about two minutes.

CPU microseconds a record, in batches of 512 of two topics in turn, each part once in each, for 1,000 and for 10,000
records that wait at the same time; all threads counted. Records are in memory in the form that each way takes: columns
for JOIN, which is run by an executor, a `dict` each for the loop, which keeps what waits in a `dict`. `save` is JOIN
with its state saved every ten batches; `near` has pairs that are next to each other.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import numpy as np

from pipelines.data.batch import Batch
from pipelines.data.columns import DenseColumn, ObjectColumn, Rows
from pipelines.data.record import RecordContext, RecordPlace, RecordPlaces, objects
from pipelines.definitions.sequence import Sequence
from pipelines.executors.executor import Executor
from pipelines.steps.keyed.join import Join
from pipelines.values import ValueType

BATCH: Final = 512
BATCHES: Final = 100
ROUNDS: Final = 5
SAVE_EVERY: Final = 10
WAITING: Final = (1_000, 10_000)
TOPICS: Final = ("camera", "torque")
PLACES: Final = objects([RecordPlace("bench", topic, 0, lane) for lane, topic in enumerate(TOPICS)])
STEP: Final = Join(by="part", topics={"left": "camera", "right": "torque"}, within=3600)


class TwoTopics:
    """The records of partition 0 of two topics in turn, a millisecond apart."""

    def record(self, row: int) -> RecordContext:
        """The record with this row number."""
        return RecordContext("bench", TOPICS[row % 2], offset=row, timestamp=1_700_000_000_000 + row, lane=row % 2)

    def places(self, rows: Rows, *, keys: bool = True) -> RecordPlaces:
        """Where these records came from, as a service's records say it."""
        return RecordPlaces(PLACES, rows % 2, rows, objects([None] * len(rows)))

    def timestamps(self, rows: Rows) -> Rows:
        """The timestamps of these records."""
        return rows + 1_700_000_000_000


def batches_of(waiting: int) -> list[Batch]:
    """Records of the second topic are of parts that the first had so many parts before."""
    random, origin, made = np.random.default_rng(1), TwoTopics(), []
    for number in range(BATCHES):
        rows = np.arange(number * BATCH, (number + 1) * BATCH)
        numbers = rows // 2 - np.where(rows % 2, waiting, 0)
        # Those before the first part are of the end, for the next round.
        parts = [f"part-{part}" for part in (numbers % (BATCH * BATCHES // 2)).tolist()]
        columns = {axis: DenseColumn(random.random(BATCH), ValueType.DOUBLE) for axis in ("x", "y", "z")}
        made.append(Batch({"part": ObjectColumn(parts, ValueType.STRING), **columns}, BATCH, rows=rows, origin=origin))
    return made


def ours(batches: list[Batch], executor: Executor, *, saves: bool = False) -> None:
    """All records once more."""
    for number, batch in enumerate(batches):
        executor.run_batch(batch)
        if saves and number % SAVE_EVERY == 0:
            executor.changes()


def by_hand(batches: list[list[dict[str, Any]]], waiting: dict[str, dict[str, Any]]) -> None:
    """All records once more."""
    for batch in batches:
        results = []
        for record in batch:
            other = waiting.pop(record["part"], None)
            if other is None:
                waiting[record["part"]] = record
            else:
                results.append({"part": record["part"], "left": other, "right": record})


def medians(ways: Mapping[str, Callable[[], None]]) -> dict[str, float]:
    """CPU microseconds a record of each way, which take turns."""
    spent: dict[str, list[float]] = {way: [] for way in ways}
    for number in range(1 + ROUNDS):
        for way, run in ways.items():
            began = time.process_time()
            run()
            if number:
                spent[way].append((time.process_time() - began) / BATCHES / BATCH * 1e6)
    return {way: statistics.median(each) for way, each in spent.items()}


def main() -> None:
    """Print a line for each number of records that wait."""
    for waiting in WAITING:
        batches, near = batches_of(waiting), batches_of(0)
        rows = [[dict(row) for row in batch.all_values()] for batch in batches]
        first, second, third = (Sequence([STEP]).open() for _ in range(3))
        kept: dict[str, dict[str, Any]] = {}
        ways: dict[str, Callable[[], None]] = {
            "join": partial(ours, batches, first),
            "save": partial(ours, batches, second, saves=True),
            "near": partial(ours, near, third),
            "by hand": partial(by_hand, rows, kept),
        }
        said = ", ".join(f"{way} {figure:.2f}" for way, figure in medians(ways).items())
        print(f"{waiting} records wait: CPU us a record: {said}", flush=True)


if __name__ == "__main__":
    main()
