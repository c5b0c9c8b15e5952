"""One run of a graph: the rows that each step takes and gives, and the `StepRun`s for the observer."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter
from typing import TypeVar

from pipelines.data.batch import Batch
from pipelines.data.result import Gathered, Result
from pipelines.errors import step_of
from pipelines.executors.accounting import held_after, joined
from pipelines.executors.graph.junction import Flow, Junction
from pipelines.executors.graph.lineage import Lineage
from pipelines.executors.openstep import Emit, OpenStep
from pipelines.observe.metrics import Metrics, begin, end
from pipelines.observe.observing import Observer, StepRun
from pipelines.runners.runner import StatefulRunner

Fate = TypeVar("Fate")


@dataclass(slots=True)
class StepOutput:
    """The results of one step. Their rows have record numbers if the step is stateful, else ids of the lineage.

    It stands in for the observer while the step runs in a thread of the pool.
    """

    results: list[Result]
    runs: list[StepRun] = field(default_factory=list)
    """Runs to report to the observer, later, in the thread that runs the graph."""

    def step(self, run: StepRun) -> None:
        self.runs.append(run)


class GraphRun:
    """One run. Rows have ids of the lineage; for stateful steps they have the numbers of their records.

    `emit` calls `tick` or `flush` of a stateful step, after the step has run the rows that reach it.
    """

    def __init__(self, lineage: Lineage, observer: Observer | None, emit: Emit | None, metrics: Metrics) -> None:
        self._lineage = lineage
        self._metrics = metrics
        self._observer = observer
        self._emit = emit
        self._held: dict[str, set[int]] = {}
        self.gathered: list[Gathered] = []
        """As `Result.gathered`."""

    def begin(self, step: OpenStep, flow: Flow) -> Callable[[], StepOutput]:
        """A function that runs the step on the rows of `flow`; any thread may call it."""
        observed = self._observer is not None
        if isinstance(step.runner, StatefulRunner):
            return partial(_work, step, self._lineage.outside(flow.batch), observed, self._emit)
        return partial(_work, step, flow.batch, observed, None)

    def end(self, step: OpenStep, flow: Flow, done: StepOutput) -> Flow:
        """The flow after a step, from the flow before it and the step's output."""
        for run in done.runs:
            if self._observer is not None:
                if not isinstance(step.runner, StatefulRunner):
                    run.inside(self._lineage.roots)
                self._observer.step(run)
        result = done.results[0] if len(done.results) == 1 else joined(done.results)
        if isinstance(step.runner, StatefulRunner):
            for part in done.results:
                self._held[step.name] = held_after(self._held.get(step.name, set()), part)
            self.gathered += result.gathered
            failed, dropped = dict(result.failed), dict(result.dropped)
            batch = self._lineage.returned(step.name, result.batch, flow.batch)
        else:
            failed, dropped = self._by_record(result.failed), self._by_record(result.dropped)
            if len(result.held):
                self._held[step.name] = self._lineage.all_roots(result.held.tolist())
            batch = self._lineage.adopted(step.name, result.batch)
        return Flow(batch, {**failed, **flow.failed}, {**dropped, **flow.dropped})

    def join(self, junction: Junction, flows: Sequence[Flow]) -> Flow:
        """The flow after a junction."""
        began = perf_counter()
        token = begin(self._metrics.of(junction.name))
        try:
            flow = junction.run(flows, self._lineage)
        finally:
            end(token)
        if self._observer is not None:
            failures = (error for error in flow.failed.values() if step_of(error) == junction.name)
            errors = Counter(type(error.__cause__ or error).__name__ for error in failures)
            seconds, thread = perf_counter() - began, threading.get_native_id()
            given = [part.batch for part in flows]
            run = StepRun(junction.name, type(junction).__name__, began, seconds, thread, given, flow.batch, errors)
            run.inside(self._lineage.roots)
            self._observer.step(run)
        return flow

    def held(self) -> set[int]:
        """The numbers of the records that steps hold since this run."""
        return set().union(*self._held.values())

    def _by_record(self, fates: Mapping[int, Fate]) -> dict[int, Fate]:
        return {root: fate for row, fate in fates.items() for root in self._lineage.roots(row).tolist()}


def _work(step: OpenStep, batch: Batch, observed: bool, emit: Emit | None) -> StepOutput:
    done = StepOutput([])
    if batch.size:
        done.results.append(step.run(batch, done if observed else None))
    if emit is not None:
        emitted = step.emitted(emit, done if observed else None)
        if emitted is not None:
            done.results.append(emitted)
    return done
