"""The executor of a graph: rows run through branches, and none is lost where branches split and join."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, wait
from dataclasses import replace
from functools import partial

import numpy as np

from pipelines.data.batch import Batch
from pipelines.data.result import Result
from pipelines.definitions.wiring import INPUT, Node, above
from pipelines.errors import DefinitionError, StepError
from pipelines.executors.accounting import NO_ROWS, accounted
from pipelines.executors.graph.graphrun import GraphRun, StepOutput
from pipelines.executors.graph.junction import Flow, Junction
from pipelines.executors.graph.lineage import Lineage
from pipelines.executors.graph.schedule import OpenNode, Schedule
from pipelines.executors.openpipeline import OpenPipeline, opened
from pipelines.executors.openstep import Emit, OpenStep
from pipelines.executors.ports import Ports
from pipelines.runners.runner import OpenContext, RunnerSource, StatefulRunner
from pipelines.steps import GraphStep, Step

CLOSE_WAIT = 1.0
"""Seconds that `close` waits for running steps whose result nobody needs any more."""

_log = logging.getLogger(__name__)


class GraphExecutor(OpenPipeline):
    """An open graph of steps; `OpenPipeline` says how it is opened, used and closed.

    A record that fails on any way to the output has failed (but see `First`); one that is dropped on all its ways, or
    that a MERGE misses in one of its inputs, is dropped. Independent branches run at the same time on the pool; the
    results do not depend on that. Opening raises `StepError` if a step that holds records stands on one of several
    ways to a step that aligns rows.
    """

    def __init__(self, nodes: Mapping[str, Node], output: str, context: OpenContext, registry: RunnerSource) -> None:
        self._late: dict[str, Future[StepOutput]] = {}
        steps = {name: node.step for name, node in nodes.items() if isinstance(node.step, Step)}
        super().__init__([(context.named(name), step) for name, step in steps.items()], context, registry)
        self._pool = context.pool
        self._output = output
        try:
            works: dict[str, OpenStep | Junction] = dict(zip(steps, self._steps, strict=True))
            for name, node in nodes.items():
                if isinstance(node.step, GraphStep):
                    full = context.named(name)
                    works[name] = opened(full, partial(node.step.open, full, node.inputs, context))
            self._nodes = [OpenNode(name, node.inputs, works[name]) for name, node in nodes.items()]
            _check_state(nodes, works)
        except BaseException:
            self.close()
            raise

    def ports(self) -> Ports:
        """The inputs of the steps that get the records themselves, and the outputs of the last step."""
        first = [node for node in self._nodes if INPUT in node.inputs]
        runners = [node.work.runner for node in first if isinstance(node.work, OpenStep)]
        inputs = Ports.of_inputs(runner.ports() for runner in runners) if len(runners) == len(first) else Ports()
        last = next((node.work for node in self._nodes if node.name == self._output), None)
        outputs = last.runner.ports().outputs if isinstance(last, OpenStep) else None
        return Ports(inputs.inputs, inputs.optional, outputs)

    @property
    def reads(self) -> frozenset[str] | None:
        keys: frozenset[str] | None = None
        passing = {INPUT}
        for node in self._nodes:
            if not passing.issuperset(node.inputs):
                continue
            work = node.work if isinstance(node.work, Junction) else node.work.runner
            passes = work.passes if isinstance(work, Junction) else work.keeps_keys
            if work.reads is None:
                continue
            keys = work.reads if keys is None else keys | work.reads
            if passes:
                passing.add(node.name)
        return keys

    @property
    def opens_images(self) -> bool:
        """Whether a step or a function of the graph may look at the pixels of images."""
        return super().opens_images or any(
            isinstance(node.work, Junction) and node.work.opens_images for node in self._nodes
        )

    def _ran(self, batch: Batch) -> Result:
        return self._run(batch, None) if batch.size else Result(batch)

    def close(self) -> None:
        """Close all runners, the last first; a second call does nothing. Exceptions of runners are logged.

        Steps that `First` left running get a little time to end. A step that hangs, and its runner, are left as they
        are, with a warning: a runner must not be closed while it is used.
        """
        wait(self._late.values(), CLOSE_WAIT)
        hung = {name for name, future in self._late.items() if not future.done()}
        if hung:
            _log.warning("steps that were given up run still, and are not closed: %s", ", ".join(sorted(hung)))
            left = [node.work for node in self._nodes if node.name in hung]
            self._steps = [step for step in self._steps if step not in left]
        super().close()

    def is_left_running(self, step: OpenStep) -> bool:
        left = (self._late.get(node.name) for node in self._nodes if node.work is step)
        return any(future is not None and not future.done() for future in left)

    def put(self, step: OpenStep, *, in_place_of: OpenStep) -> None:
        super().put(step, in_place_of=in_place_of)
        self._nodes = [replace(node, work=step) if node.work is in_place_of else node for node in self._nodes]

    def _drained(self, emit: Emit) -> Result:
        return self._run(NO_ROWS, emit) if self.stateful else Result(NO_ROWS)

    def _run(self, batch: Batch, emit: Emit | None) -> Result:
        lineage = Lineage(batch)
        graph_run = GraphRun(lineage, self.observer, emit, self._meters)
        schedule = Schedule(self._nodes, graph_run, self._pool, self._late)
        flow = schedule.run(Flow(lineage.entered), self._output)
        out = lineage.outside(flow.batch)
        held = graph_run.held()
        failed = flow.failed
        if schedule.cut:
            failed = {**self._missed(schedule.cut[0], batch, out, flow, held), **failed}
        if not (failed or flow.dropped or held):
            return Result(out, gathered=graph_run.gathered)
        held_rows = np.array(sorted(held), np.int64)
        return accounted(Result(out, failed, flow.dropped, held_rows, gathered=graph_run.gathered), "")

    def _missed(self, name: str, batch: Batch, out: Batch, flow: Flow, held: set[int]) -> dict[int, Exception]:
        known = set(out.rows.tolist()) | flow.failed.keys() | flow.dropped.keys() | held
        error = StepError(f"{name}: no input that has this record was there in time", step=name)
        return dict.fromkeys(set(batch.rows.tolist()) - known, error)


def _check_state(nodes: Mapping[str, Node], works: Mapping[str, OpenStep | Junction]) -> None:
    for step, joint in _stateful_before(nodes, works):
        work = works[joint]
        if isinstance(work, Junction) and work.timeout is not None:
            raise _misplaced(step, works, f'"{joint}" may go on without it, and its state would be wrong')
        runner = works[step]
        keeps_rows = isinstance(runner, OpenStep) and runner.runner.keeps_rows
        aligns = isinstance(nodes[joint].step, GraphStep) and nodes[joint].step.aligns  # type: ignore[union-attr]
        if aligns and not keeps_rows and INPUT in above(nodes, joint, without=step):
            raise _misplaced(step, works, f'"{joint}" would miss them, because records also reach it another way')


def _stateful_before(nodes: Mapping[str, Node], works: Mapping[str, OpenStep | Junction]) -> Iterator[tuple[str, str]]:
    stateful = {
        name for name, work in works.items() if isinstance(work, OpenStep) and isinstance(work.runner, StatefulRunner)
    }
    if not stateful:
        return
    for joint in nodes:
        for step in sorted(above(nodes, joint) & stateful - {joint}):
            yield step, joint


def _misplaced(step: str, works: Mapping[str, OpenStep | Junction], why: str) -> StepError:
    name = works[step].name
    message = f"{name}: this step holds records, and {why}; put it before the branches part, or after they join"
    error = StepError(message, step=name)
    error.__cause__ = DefinitionError(message)
    return error
