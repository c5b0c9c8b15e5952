"""What one run of a graph does to its rows: into each step, out of it, and who is told."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter
from typing import TypeAlias, TypeVar

from pipelines.data.batch import Batch
from pipelines.data.result import Result
from pipelines.executors.graph.junction import Flow, Junction
from pipelines.executors.graph.lineage import Lineage
from pipelines.executors.openstep import OpenStep
from pipelines.executors.settling import joined
from pipelines.observe.metrics import Metrics, begin, end
from pipelines.observe.observing import Observer, StepRun
from pipelines.runners.runner import StatefulRunner

Emit: TypeAlias = Callable[[StatefulRunner], Result]

Fate = TypeVar("Fate")


@dataclass(slots=True)
class Done:
    """What the work of a step has given: the results of a stateful step under record numbers, else under ids."""

    results: list[Result]
    told: list[StepRun] = field(default_factory=list)
    """What the observer is to be told, by the thread that it belongs to."""

    def step(self, run: StepRun) -> None:
        """Note what the observer is to be told."""
        self.told.append(run)


class Turn:
    """One run. Steps work on rows under ids, stateful steps under the numbers of their records.

    `emit` is what stateful steps are asked for beside running what reaches them: `tick` or `flush`.
    """

    def __init__(self, lineage: Lineage, observer: Observer | None, emit: Emit | None, metrics: Metrics) -> None:
        self._lineage = lineage
        self._metrics = metrics
        self._observer = observer
        self._emit = emit
        self._held: dict[str, set[int]] = {}

    def begin(self, step: OpenStep, flow: Flow) -> Callable[[], Done]:
        """The work of a step, to be done in any thread."""
        observed = self._observer is not None
        if isinstance(step.runner, StatefulRunner):
            return partial(_work, step, self._lineage.outside(flow.batch), observed, self._emit)
        return partial(_work, step, flow.batch, observed, None)

    def end(self, step: OpenStep, flow: Flow, done: Done) -> Flow:
        """What goes on behind a step, for what its work has given."""
        for told in done.told:
            if self._observer is not None:
                if not isinstance(step.runner, StatefulRunner):
                    told.inside(self._lineage.roots)
                self._observer.step(told)
        result = done.results[0] if len(done.results) == 1 else joined(done.results)
        if isinstance(step.runner, StatefulRunner):
            for one in done.results:
                self._hold(step.name, one)
            failed, dropped = dict(result.failed), dict(result.dropped)
            batch = self._lineage.returned(step.name, result.batch, flow.batch)
        else:
            failed, dropped = self._by_record(result.failed), self._by_record(result.dropped)
            if len(result.held):
                self._held[step.name] = self._lineage.all_roots(result.held.tolist())
            batch = self._lineage.adopted(step.name, result.batch)
        return Flow(batch, {**failed, **flow.failed}, {**dropped, **flow.dropped})

    def join(self, junction: Junction, flows: Sequence[Flow]) -> Flow:
        """What goes on behind a junction."""
        began = perf_counter()
        token = begin(self._metrics.of(junction.name))
        try:
            flow = junction.run(flows, self._lineage)
        finally:
            end(token)
        if self._observer is not None:
            own = (error for error in flow.failed.values() if getattr(error, "step", None) == junction.name)
            errors = Counter(type(error.__cause__ or error).__name__ for error in own)
            seconds, thread = perf_counter() - began, threading.get_native_id()
            given = [one.batch for one in flows]
            run = StepRun(junction.name, type(junction).__name__, began, seconds, thread, given, flow.batch, errors)
            run.inside(self._lineage.roots)
            self._observer.step(run)
        return flow

    def held(self) -> set[int]:
        """The numbers of the records that stateful steps hold since this run."""
        return set().union(*self._held.values())

    def _hold(self, step: str, result: Result) -> None:
        held = self._held.setdefault(step, set())
        held -= set(result.rows.tolist()) | result.failed.keys() | result.dropped.keys()
        held.update(result.held.tolist())

    def _by_record(self, fates: Mapping[int, Fate]) -> dict[int, Fate]:
        return {root: fate for row, fate in fates.items() for root in self._lineage.roots(row).tolist()}


def _work(step: OpenStep, batch: Batch, observed: bool, emit: Emit | None) -> Done:
    done = Done([])
    if batch.size:
        done.results.append(step.run(batch, done if observed else None))
    if emit is not None:
        emitted = step.emitted(emit, done if observed else None)
        if emitted is not None:
            done.results.append(emitted)
    return done
