"""A step that holds records: windows by count, for tests of what becomes of the records of a window."""

from __future__ import annotations

import time
from itertools import accumulate
from typing import Any, ClassVar

import numpy as np

import pipelines
from pipelines import Data


class WindowStep(pipelines.Step):
    """`size` records become their sum; each window begins `stride` records after the last."""

    type_name: ClassVar[str] = "TEST_WINDOWS"
    size: int = 3
    stride: int = 3
    seconds: float = 0.0
    """How long each record takes."""


class Windows(pipelines.StatefulRunner):
    """Windows by count over all records."""

    def __init__(self, step: WindowStep) -> None:
        self.size, self.stride, self.seconds = step.size, step.stride, step.seconds
        self.waiting: list[tuple[int, int]] = []

    def run_batch(self, batch: pipelines.Batch) -> pipelines.Result:
        time.sleep(self.seconds * batch.size)
        full: list[list[tuple[int, int]]] = []
        for one in zip(batch.rows.tolist(), batch["x"].values(), strict=True):
            self.waiting.append(one)
            if len(self.waiting) == self.size:
                full.append(list(self.waiting))
                del self.waiting[: self.stride]
        return pipelines.Result(made(full), held=np.array([row for row, _ in self.waiting], np.int64))

    def tick(self, now: float) -> pipelines.Result:
        return pipelines.Result(made([]))

    def flush(self) -> pipelines.Result:
        waiting, self.waiting = self.waiting, []
        return pipelines.Result(made([waiting] if waiting else []))

    def forget(self, lanes: Any) -> None:
        self.waiting = []


def made(full: list[list[tuple[int, int]]]) -> pipelines.Batch:
    batch = pipelines.Batch.of([Data({"y": sum(x for _, x in one)}) for one in full])
    rows = np.array([row for one in full for row, _ in one], np.int64)
    splits = np.array([0, *accumulate(map(len, full))], np.int64)
    return pipelines.Batch(batch.columns, batch.size, rows=rows, splits=splits)


class WindowFactory:
    step_type, name, priority, requires = "TEST_WINDOWS", "test", 0, ()

    def create(self, step: Any, context: pipelines.OpenContext) -> pipelines.Runner:
        return Windows(step)


class WithWindows(pipelines.Sequence):
    """A pipeline that opens with a registry of its own."""

    def open(self, *args: Any, **settings: Any) -> Any:
        registry = pipelines.Registry(plugins=False)
        registry.add_step(WindowStep)
        registry.add_runner(WindowFactory())
        return super().open(*args, **{**settings, "registry": registry})
