"""`OpenPipeline`, the base of executors: opens and closes steps, takes and returns records, saves the steps' state."""

from __future__ import annotations

import logging
import math
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

from pipelines.data.batch import Batch
from pipelines.data.data import Data, as_data
from pipelines.data.result import Result
from pipelines.errors import RAISED, StepError, StreamerError, blamed
from pipelines.executors.executor import Outcome, Output, traced
from pipelines.executors.openpolicy import opened_policy
from pipelines.executors.openrunner import open_runner
from pipelines.executors.openstep import Emit, OpenStep
from pipelines.executors.ports import Ports
from pipelines.observe.metrics import Metrics, begin, end
from pipelines.observe.observing import Observer
from pipelines.observe.tracing import Trace
from pipelines.runners.runner import OpenContext, Runner, RunnerSource, StatefulRunner
from pipelines.runners.state.item import Change, Item
from pipelines.steps.base import Step

Opened = TypeVar("Opened")

_log = logging.getLogger(__name__)


class OpenPipeline(ABC):
    """Open steps; a context manager. Threads that use it at the same time take turns.

    Opening loads the models; if a step cannot be opened, those before it are closed and `StepError` names it, with the
    error as its `__cause__` (`MissingPackageError`, `RegistryError`, ...).
    A failure fails only its own records, as `OpenStep` describes. Results keep the order of the input.
    """

    def __init__(self, steps: Iterable[tuple[str, Step]], context: OpenContext, registry: RunnerSource) -> None:
        outermost = not context.step
        self.observer: Observer | None = context.observer if outermost else None
        """Gets a `StepRun` for each step and batch."""
        self._finish = context.finish if outermost else None
        self._meters = context.meters
        self._steps: list[OpenStep] = []
        self._closed = False
        self._next = 0
        # Runners keep state from record to record. `close` does not wait for a run, which may never end.
        self._turn = threading.RLock()
        try:
            for name, step in steps:
                named = replace(context, step=name)
                self._steps.append(self._opened_step(step, partial(registry.create, step, named), named))
        except BaseException:
            self.close()
            raise

    @property
    @abstractmethod
    def reads(self) -> frozenset[str] | None:
        """Input keys that the first steps read, as far as known: worth decoding early. `None`: unknown."""

    @property
    def metrics(self) -> Metrics:
        """The metrics that the steps' own code keeps, by step and name; also after `close`."""
        return self._meters

    @property
    def stateful(self) -> bool:
        """Whether a step's results depend on earlier rows: then `tick` and `flush` have to be called."""
        return any(isinstance(step.runner, StatefulRunner) for step in self._steps)

    @property
    def sequential_steps(self) -> Sequence[str]:
        """Names of the steps that have to see all records, in order: no second executor may run some of them."""
        return [step.name for step in self._steps if step.runner.sequential]

    @property
    def saving_steps(self) -> Mapping[str, Step]:
        """The steps whose state outlives the process where it is saved (`changes`, `load`), by name."""
        steps: dict[str, Step] = {}
        for step in self._steps:
            if isinstance(step.runner.inside, OpenPipeline):
                steps |= step.runner.inside.saving_steps
            elif isinstance(step.runner, StatefulRunner) and step.runner.saves:
                steps[step.name] = step.config
        return steps

    @property
    def unsaved_steps(self) -> Sequence[str]:
        """The steps whose results depend on earlier rows, and whose state ends with the process, by name."""
        steps: list[str] = []
        for step in self._steps:
            if isinstance(step.runner.inside, OpenPipeline):
                steps += step.runner.inside.unsaved_steps
            elif isinstance(step.runner, StatefulRunner) and not step.runner.saves:
                steps.append(step.name)
        return steps

    @property
    def opens_images(self) -> bool:
        """Whether a step may look at the pixels of images."""
        return any(step.runner.opens_images for step in self._steps)

    @abstractmethod
    def ports(self) -> Ports:
        """The inputs and outputs of the pipeline, where its first and last steps know them: those with models do."""

    def limit(self, records: int) -> bool:
        """Have models work on at most `records` records at a time.

        Returns:
            Whether batches may be larger than that, as every runner splits them itself.
        """
        splits = [step.runner.limit(records) for step in self._steps]
        return all(splits)

    def run(self, data: Mapping[str, Any]) -> Output:
        """Run one record.

        Returns:
            `None` if it was dropped or is held, a list if the steps made several of it.

        Raises:
            StepError: A step failed; the error names it.
        """
        (outcome,) = self.run_many([data])
        if isinstance(outcome, StepError):
            raise outcome
        return outcome

    def trace(self, data: Mapping[str, Any]) -> Trace:
        """Run one record and return each step's input, output and time.

        Does not raise for a record that fails: the trace shows the failure.
        """
        with self._turn:
            return traced(self, as_data(data), self._next)

    def run_many(self, datas: Iterable[Mapping[str, Any]]) -> list[Outcome]:
        """The outcome of each record, in order; a record that fails harms no other.

        A result that a stateful step made of several records stands at the last of them.
        """
        given = [as_data(item) for item in datas]
        with self._turn:
            first = self._next
            # Numbers go on from call to call, so that a stateful step never sees one twice.
            self._next += len(given)
            # The caller may write to these records while a step holds them, or before reading the results.
            return _outcomes(self.run_batch(Batch.of(given, first).copied()), first, len(given))

    def run_batch(self, batch: Batch) -> Result:
        """The result for all rows of `batch`, by row number. Raises `ContractError` if a step loses a row."""
        with self._turn:
            self._check_open()
            return self._ran(batch)

    @abstractmethod
    def _ran(self, batch: Batch) -> Result:
        """Run all steps on the rows; called by `run_batch`, which holds the lock."""

    def tick(self, now: float, caught_up: float = math.inf) -> Result:
        """The results that are due at the time `now` in stateful steps, run through the steps after them.

        Both are seconds of a monotonic clock. Raises `StepError` if a stateful step does.

        Args:
            now: The present.
            caught_up: All records that had come by then were run (`StatefulRunner.caught_up`); infinite: none waits.
        """

        def tick(runner: StatefulRunner) -> Result:
            runner.caught_up = caught_up
            return runner.tick(now)

        return self.drained(tick)

    def flush(self) -> Result:
        """The results of all rows that stateful steps hold, run through the steps after them. Raises as `tick` does."""
        return self.drained(lambda runner: runner.flush())

    def drained(self, emit: Emit) -> Result:
        """What `emit` gives for each stateful step, run through the steps after it. Raises as `tick` does."""
        timed: list[Batch] = []

        def noted(runner: StatefulRunner) -> Result:
            result = emit(runner)
            timed.extend(result.timed)
            return result

        with self._turn:
            self._check_open()
            result = self._drained(noted)
        result.timed = timed
        return result

    @abstractmethod
    def _drained(self, emit: Emit) -> Result:
        """Call `emit` (`tick` or `flush`) for each stateful step and run its results through the steps after it."""

    @property
    def open_steps(self) -> Sequence[OpenStep]:
        """The open steps, in order."""
        return self._steps

    def is_left_running(self, step: OpenStep) -> bool:
        """Whether a run that has ended did not wait for this step."""
        return False

    def put(self, step: OpenStep, *, in_place_of: OpenStep) -> None:
        """Run an open step of the same name and fields in place of one that this pipeline has, and close it later.

        Who calls it closes the other. Not while the pipeline runs.
        """
        self._steps[self._steps.index(in_place_of)] = step

    def forget(self, lanes: Iterable[Hashable]) -> None:
        """Discard the state that stateful steps keep for these lanes."""
        lanes = list(lanes)
        with self._turn:
            for _, runner in self._stateful():
                runner.forget(lanes)

    def changes(self) -> list[tuple[str, Change]]:
        """The pieces of state that have changed since the last call, each with the name of its step."""
        with self._turn:
            made: list[tuple[str, Change]] = []
            for name, runner in self._stateful():
                # A pipeline inside is itself no step that has state.
                made += (
                    runner.inside.changes()
                    if isinstance(runner.inside, OpenPipeline)
                    else [(name, change) for change in runner.changes()]
                )
            return made

    def load(self, lane: Hashable, items: Mapping[str, Iterable[Item]]) -> None:
        """Begin a lane with the state that `changes` gave for an earlier lane of its stream, by the name of the step.

        Each stateful step is called, also those without items. Raises `StepError` if items are damaged.
        """
        with self._turn:
            for name, runner in self._stateful():
                if isinstance(runner.inside, OpenPipeline):
                    runner.inside.load(lane, items)
                else:
                    opened(name, partial(runner.load, lane, items.get(name, ())))

    def close(self) -> None:
        """Close all runners, the last first; a second call does nothing. Exceptions of runners are logged."""
        self._closed = True
        while self._steps:
            step = self._steps.pop()
            try:
                step.close()
            except Exception:  # noqa: BLE001 - the other runners must be closed too
                _log.exception("closing the step %s failed", step.name)
        finish, self._finish = self._finish, None
        if finish is not None:
            finish()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _opened_step(self, step: Step, create: Callable[[], Runner], context: OpenContext) -> OpenStep:
        name = context.step
        metrics = self._meters.of(name)
        token = begin(metrics)
        try:
            running = opened(name, partial(open_runner, name, create, context.shared, context.opening))
        finally:
            end(token)
        try:
            return OpenStep(
                name,
                running.runner,
                metrics,
                opened(name, partial(opened_policy, context, running.runner)),
                config=step,
                turn=running.turn,
                close=running.close,
            )
        except BaseException:
            running.close()
            raise

    def _check_open(self) -> None:
        if self._closed:
            raise StreamerError("the executor is closed; open the pipeline again")

    def _stateful(self) -> list[tuple[str, StatefulRunner]]:
        self._check_open()
        return [(step.name, step.runner) for step in self._steps if isinstance(step.runner, StatefulRunner)]


def opened(name: str, open_: Callable[[], Opened]) -> Opened:
    """The result of `open_`. Raises its error as a `StepError` that names the step, with the error as its cause."""
    try:
        return open_()
    except StepError as error:
        # A step of a pipeline inside names itself, with the way to it.
        if error.step is None:
            raise StepError(f"{name}: {error}", step=name) from error
        raise
    except RAISED as raised:
        cause = blamed(raised)
        # Our own errors say enough without their class.
        message = str(cause) if isinstance(cause, StreamerError) else f"{type(cause).__name__}: {cause}"
        raise StepError(f"{name}: {message}", step=name) from cause


def _outcomes(result: Result, first: int, count: int) -> list[Outcome]:
    outcomes: list[Outcome] = [None] * count
    for row, error in result.failed.items():
        if 0 <= row - first < count and isinstance(error, StepError):
            outcomes[row - first] = error
    for position, data in enumerate(result.batch.to_list()):
        # A result of earlier calls' records alone stands at the first record of this call.
        place = max(int(result.batch.parents(position).max(initial=first)) - first, 0)
        known = outcomes[place]
        if isinstance(known, Data):
            outcomes[place] = [known, data]
        elif isinstance(known, list):
            known.append(data)
        else:
            outcomes[place] = data
    return outcomes
