"""A step whose state is saved: sums of three numbers of a key, which also come out by time."""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

import pipelines
from pipelines import Batch, Data, Result
from pipelines.data.columns import Column
from pipelines.data.record import RecordContext
from pipelines.data.result import Gathered
from pipelines.runners.state.item import Change, Item
from pipelines.runners.state.timed import timed


class SumStep(pipelines.Step):
    """Sums of three `x` of each `k`."""

    type_name: ClassVar[str] = "TEST_SUMS"


class Sums(pipelines.StatefulRunner):
    """By lane and key: the numbers of the open sum, and the last record."""

    saves: ClassVar[bool] = True

    def __init__(self) -> None:
        self.open: dict[tuple[Hashable, str], tuple[list[int], RecordContext]] = {}
        self.changed: set[tuple[Hashable, str]] = set()
        self.due = False
        """Whether the next tick closes all sums."""

    def run_batch(self, batch: Batch) -> Result:
        rows, sums, keys = [], [], []
        for row, data in zip(batch.rows.tolist(), batch.to_list(), strict=True):
            assert data.record is not None
            place = data.record.lane, str(data["k"])
            numbers = [*self.open.get(place, ([], None))[0], data.get_int64("x")]
            self.changed.add(place)
            self.open[place] = numbers, replace(data.record, headers=(), extras={})
            if len(numbers) == 3:
                del self.open[place]
                rows.append(row)
                sums.append(numbers)
                keys.append(place[1])
        held = np.setdiff1d(batch.rows, np.array(rows, np.int64))
        columns = {"y": Column.of([sum(numbers) for numbers in sums]), "k": Column.of(keys)}
        made = Batch(columns, len(rows), rows=np.array(rows, np.int64), origin=batch.origin)
        return Result(made, held=held, gathered=(Gathered(made, 0),) if rows else ())

    def tick(self, now: float) -> Result:
        if not self.due:
            return timed({}, [])
        self.due = False
        return self.flush()

    def flush(self) -> Result:
        gone, self.open = self.open, {}
        self.changed |= gone.keys()
        sums = Column.of([sum(numbers) for numbers, _ in gone.values()])
        return timed({"y": sums, "k": Column.of([key for _, key in gone])}, [record for _, record in gone.values()])

    def forget(self, lanes: Iterable[Hashable]) -> None:
        for place in [place for place in self.open if place[0] in lanes]:
            del self.open[place]
        self.changed = {place for place in self.changed if place[0] not in lanes}

    def changes(self) -> Iterable[Change]:
        changed, self.changed = self.changed, set()
        for lane, key in changed:
            known = self.open.get((lane, key))
            value = None if known is None else json.dumps([known[0], known[1].topic, known[1].offset]).encode()
            yield Change(lane, key, 0, value)

    def load(self, lane: Hashable, items: Iterable[Item]) -> None:
        for item in items:
            numbers, topic, offset = json.loads(item.value)
            record = RecordContext("memory", topic, offset=offset, key=item.key.encode(), lane=lane)
            self.open[lane, item.key] = numbers, record


class SumFactory:
    step_type, name, priority, requires = "TEST_SUMS", "test", 0, ()

    def __init__(self) -> None:
        self.runners: list[Sums] = []

    def create(self, step: Any, context: pipelines.OpenContext) -> pipelines.Runner:
        self.runners.append(Sums())
        return self.runners[-1]


class WithSums(pipelines.Sequence):
    """A pipeline that opens with a registry of its own."""

    factory: ClassVar[SumFactory] = SumFactory()

    def open(self, *args: Any, **settings: Any) -> Any:
        registry = pipelines.Registry(plugins=False)
        registry.add_step(SumStep)
        registry.add_runner(self.factory)
        return super().open(*args, **{**settings, "registry": registry})


def numbers(*pairs: tuple[str, int]) -> list[Data]:
    return [Data({"k": key, "x": number}) for key, number in pairs]
