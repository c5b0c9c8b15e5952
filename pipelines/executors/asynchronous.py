"""The executor of a pipeline that a trigger runs: each record gets the trigger's result."""

from __future__ import annotations

import math
import threading
from collections.abc import Hashable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from pipelines.data.batch import Batch
from pipelines.data.data import Data, as_data
from pipelines.data.result import Result
from pipelines.errors import RAISED, StepError, StreamerError, blamed
from pipelines.executors.accounting import NO_ROWS
from pipelines.executors.executor import Executor, Outcome, Output, traced
from pipelines.executors.opentrigger import OpenTrigger
from pipelines.executors.ports import Ports
from pipelines.observe.metrics import Metrics
from pipelines.observe.observing import Observer
from pipelines.observe.tracing import Trace
from pipelines.runners.runner import DROPPED, rebuilt
from pipelines.runners.state.item import Change, Item
from pipelines.steps.base import Step

NO_ROW = -1
"""A row number that no record has: its trace holds no steps."""


class AsyncExecutor:
    """An open pipeline and the trigger that runs it, from the moment it is opened until it is closed.

    `run`, `run_many` and `run_batch` query the trigger for each record. Rows that a step of the pipeline holds come out
    only in later runs: `tick` and `flush` give none.
    """

    def __init__(self, name: str, executor: Executor, trigger: OpenTrigger) -> None:
        self._name = name
        self._executor = executor
        self._trigger = trigger
        self._turn = threading.Lock()
        self._closed = False
        trigger.set_callback(self._run_once)

    @property
    def observer(self) -> Observer | None:
        """Gets a `StepRun` for each step and run; in the thread of the trigger, if it has one."""
        return self._executor.observer

    @observer.setter
    def observer(self, observer: Observer | None) -> None:
        self._executor.observer = observer

    @property
    def metrics(self) -> Metrics:
        """The metrics that the steps' own code keeps, by step and name."""
        return self._executor.metrics

    @property
    def reads(self) -> frozenset[str] | None:
        """Input keys that the first steps read, as far as known; none if the trigger ignores the input."""
        return self._executor.reads if self._trigger.uses_input else frozenset()

    def ports(self) -> Ports:
        """Those of the pipeline; unknown inputs if the trigger ignores them."""
        ports = self._executor.ports()
        return ports if self._trigger.uses_input else Ports(outputs=ports.outputs)

    @property
    def stateful(self) -> bool:
        """Always `False`: results do not belong to the records that ask for them."""
        return False

    @property
    def sequential_steps(self) -> Sequence[str]:
        """The trigger: it runs the pipeline when it decides to, whatever records there are."""
        return [self._name]

    @property
    def saving_steps(self) -> Mapping[str, Step]:
        """None: no state is kept for a lane."""
        return {}

    @property
    def unsaved_steps(self) -> Sequence[str]:
        """None, as `stateful`."""
        return ()

    @property
    def opens_images(self) -> bool:
        """Whether a step may look at the pixels of the images of a record."""
        return self._trigger.uses_input and self._executor.opens_images

    def limit(self, records: int) -> bool:
        """Changes nothing, and returns `False`: the trigger decides when the steps run, one record at a time."""
        return False

    def run(self, data: Mapping[str, Any]) -> Output:
        """The trigger's result for one record: usually the latest one, as a copy that the caller may change.

        Raises `StepError` if the run that should have given it failed, `StreamerError` after `close`.
        """
        if self._closed:
            raise StreamerError("Unable to get output after trigger has been stopped: the executor is closed")
        given = as_data(data)
        try:
            return _lent(self._trigger.query(given))
        except RAISED as error:  # named by the trigger
            failure = StepError.of(self._name, blamed(error))
            raise failure from failure.__cause__

    def trace(self, data: Mapping[str, Any]) -> Trace:
        """As `run`, with a trace of the steps if the trigger runs them on this record; else without steps."""
        return traced(self, as_data(data), None if self._trigger.uses_input else NO_ROW)

    def run_many(self, datas: Iterable[Mapping[str, Any]]) -> list[Outcome]:
        """The trigger's result for each record, in order; a `StepError` for a record that fails."""
        return [self._outcome(as_data(data)) for data in datas]

    def run_batch(self, batch: Batch) -> Result:
        """The trigger's result for each row, under the row's number."""
        emitted: list[Data] = []
        positions: list[int] = []
        failed: dict[int, Exception] = {}
        dropped: dict[int, str] = {}
        datas = batch.to_list() if self._trigger.uses_input else None
        for position in range(batch.size):
            outcome = self._outcome(Data() if datas is None else datas[position])
            rows = batch.parents(position).tolist()
            if isinstance(outcome, StepError):
                failed.update(dict.fromkeys(rows, outcome))
            elif outcome is None:
                dropped.update(dict.fromkeys(rows, DROPPED))
            else:
                results = outcome if isinstance(outcome, list) else [outcome]
                emitted.extend(results)
                positions.extend([position] * len(results))
        return Result(rebuilt(emitted, positions, batch), failed, dropped)

    def tick(self, now: float, caught_up: float = math.inf) -> Result:
        """Does nothing: an asynchronous pipeline has no results that become due by time."""
        return Result(NO_ROWS)

    def flush(self) -> Result:
        """Does nothing: rows that a step still holds come out in later runs."""
        return Result(NO_ROWS)

    def forget(self, lanes: Iterable[Hashable]) -> None:
        """Does nothing: no state is kept for a lane."""

    def changes(self) -> list[tuple[str, Change]]:
        """None: no state is kept for a lane."""
        return []

    def load(self, lane: Hashable, items: Mapping[str, Iterable[Item]]) -> None:
        """Does nothing: no state is kept for a lane."""

    def close(self) -> None:
        """Stop the trigger, waiting for a run that is under way, and close the pipeline; a second call does nothing."""
        self._closed = True
        self._trigger.stop()
        self._executor.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _run_once(self, data: Data) -> Output:
        with self._turn:
            return self._executor.run(data)

    def _outcome(self, data: Data) -> Outcome:
        try:
            return self.run(data)
        except StepError as error:
            return error


def _lent(output: Output) -> Output:
    if isinstance(output, Data):
        return output.lent()
    return [data.lent() for data in output] if isinstance(output, list) else output
