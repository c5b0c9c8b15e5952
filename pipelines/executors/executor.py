"""`Executor`: the protocol of open pipelines, and what it gives for a record."""

from __future__ import annotations

import math
import time
from collections.abc import Hashable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Protocol, Self, TypeAlias

from pipelines.data.batch import Batch
from pipelines.data.data import Data
from pipelines.data.result import Result
from pipelines.errors import StepError
from pipelines.executors.ports import Ports
from pipelines.observe.metrics import Metrics
from pipelines.observe.observing import Observer, together
from pipelines.observe.tracing import Trace, Tracer
from pipelines.runners.state.item import Change, Item
from pipelines.steps.base import Step

Output: TypeAlias = Data | list[Data] | None
"""The results of a record: one, several, or none (it was dropped, or is held by a stateful step)."""

Outcome: TypeAlias = Output | StepError
"""For one record of several: its output or its failure."""


class Executor(Protocol):
    """An open pipeline; a context manager. Results keep the order of the input.

    Threads that use it at the same time take turns.
    """

    observer: Observer | None
    """Gets a `StepRun` for each step and batch."""

    @property
    def reads(self) -> frozenset[str] | None:
        """Input keys that the first steps read, as far as known: worth decoding early. `None`: unknown."""

    @property
    def metrics(self) -> Metrics:
        """The metrics that the steps' own code keeps, by step and name; also after `close`."""

    @property
    def stateful(self) -> bool:
        """Whether a step's results depend on earlier rows: then `tick` and `flush` have to be called."""

    @property
    def sequential_steps(self) -> Sequence[str]:
        """Names of the steps that have to see all records, in order: no second executor may run some of them."""

    @property
    def saving_steps(self) -> Mapping[str, Step]:
        """The steps whose state outlives the process where it is saved (`changes`, `load`), by name."""

    @property
    def unsaved_steps(self) -> Sequence[str]:
        """Names of the other steps whose results depend on earlier rows: their state ends with the process."""

    @property
    def opens_images(self) -> bool:
        """Whether a step may look at the pixels of images."""

    def ports(self) -> Ports:
        """The inputs and outputs of the pipeline, where its first and last steps know them: those with models do."""

    def limit(self, records: int) -> bool:
        """Have models work on at most `records` records at a time. Returns whether batches may be larger than that."""

    def run(self, data: Mapping[str, Any]) -> Output:
        """Run one record.

        Returns:
            `None` if it was dropped or is held, a list if the steps made several of it.

        Raises:
            StepError: A step failed; the error names it.
        """

    def trace(self, data: Mapping[str, Any]) -> Trace:
        """Run one record and return each step's input, output and time.

        Does not raise for a record that fails: the trace shows the failure.
        """

    def run_many(self, datas: Iterable[Mapping[str, Any]]) -> list[Outcome]:
        """The outcome of each record, in order; a record that fails harms no other."""

    def run_batch(self, batch: Batch) -> Result:
        """The result for all rows of `batch`, by row number. Raises `ContractError` if a step loses a row."""

    def tick(self, now: float, caught_up: float = math.inf) -> Result:
        """The results that are due at the time `now` in stateful steps; in seconds of a monotonic clock.

        All records that had come by `caught_up` were run; infinite: none waits.
        """

    def flush(self) -> Result:
        """The results of all rows that stateful steps still hold."""

    def forget(self, lanes: Iterable[Hashable]) -> None:
        """Discard the state that stateful steps keep for these lanes."""

    def changes(self) -> list[tuple[str, Change]]:
        """The pieces of state that have changed since the last call, each with the name of its step."""

    def load(self, lane: Hashable, items: Mapping[str, Iterable[Item]]) -> None:
        """Begin a lane with the state that `changes` gave for an earlier lane of its stream, by the name of the step.

        Each stateful step is called, also those without items. Raises `StepError` if items are damaged.
        """

    def close(self) -> None:
        """Close all steps; a second call does nothing."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def traced(executor: Executor, data: Data, number: int | None) -> Trace:
    """The trace of `executor.run(data)`, in which the record has this number; `None`: of all records run meanwhile."""
    tracer = Tracer(None if number is None else {number})
    before = executor.observer
    result: Output = None
    error: StepError | None = None
    began = time.perf_counter()
    executor.observer = together(before, tracer)
    try:
        result = executor.run(data)
    except StepError as raised:
        error = raised
    finally:
        executor.observer = before
    seconds = time.perf_counter() - began
    steps = tracer.everything() if number is None else tracer.steps(number)
    return Trace(steps, seconds, result, error)
