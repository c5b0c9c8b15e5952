"""`Schedule`: runs each step of a graph as soon as its inputs are there, independent steps at the same time."""

from __future__ import annotations

import time
from collections.abc import Iterable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures import Executor as Pool
from dataclasses import dataclass

from pipelines.definitions.wiring import INPUT
from pipelines.errors import StreamerError
from pipelines.executors.graph.graphrun import GraphRun, StepOutput
from pipelines.executors.graph.junction import Flow, Junction
from pipelines.executors.openstep import OpenStep

STEAL_AFTER = 0.001
"""Seconds after which a step that no thread of the pool has begun is run by the thread that waits for it."""


@dataclass(frozen=True, slots=True)
class OpenNode:
    """A step of an open graph: one with a runner, or a junction."""

    name: str
    inputs: tuple[str, ...]
    work: OpenStep | Junction


class Schedule:
    """Runs the nodes of a graph once; they are given in an order in which a node comes after its inputs.

    With a pool, steps that are ready at the same time run at the same time; junctions run in the calling thread. That
    thread never waits for a step that no other thread has begun, so that graphs inside graphs can share a pool. `late`
    holds runs of steps that earlier runs of the graph did not wait for; such a step begins only after they have ended.
    """

    def __init__(
        self, nodes: Iterable[OpenNode], graph_run: GraphRun, pool: Pool | None, late: dict[str, Future[StepOutput]]
    ) -> None:
        self._waiting = {node.name: node for node in nodes}
        self._graph_run = graph_run
        self._pool = pool
        self._late = late
        self._flows: dict[str, Flow] = {}
        self._running: dict[Future[StepOutput], tuple[OpenNode, OpenStep]] = {}
        self._started = time.monotonic()
        self.cut: list[str] = []
        """Junctions that went on without some of their inputs."""

    def run(self, entry: Flow, output: str) -> Flow:
        """The flow of the node `output`. Raises the error of a step; no step is begun after that."""
        self._flows[INPUT] = entry
        if self._pool is None:
            for node in list(self._waiting.values()):
                if isinstance(node.work, Junction):
                    self._join(node, node.work)
                else:
                    self._run_here(node, node.work)
            return self._flows[output]
        try:
            while output not in self._flows:
                self._advance(self._pool)
            return self._flows[output]
        finally:
            self._leave()

    def _advance(self, pool: Pool) -> None:
        for node, junction in self._junctions():
            if self._is_due(node, junction):
                self._join(node, junction)
                return
        ready = self._ready()
        if not (ready or self._running or self._blocking()):
            raise StreamerError("the graph has no step that could run next: its output cannot be reached")
        if len(ready) == 1 and not self._running and not self._timed():
            self._run_here(*ready[0])
            return
        for node, step in ready:
            del self._waiting[node.name]
            work = self._graph_run.begin(step, self._flows[node.inputs[0]])
            self._running[pool.submit(work)] = (node, step)
        self._await()

    def _ready(self) -> list[tuple[OpenNode, OpenStep]]:
        return [
            (node, node.work)
            for node in self._waiting.values()
            if isinstance(node.work, OpenStep) and node.inputs[0] in self._flows and not self._is_late(node.name)
        ]

    def _is_due(self, node: OpenNode, junction: Junction) -> bool:
        there = sum(name in self._flows for name in node.inputs)
        if there == len(node.inputs):
            return True
        return there > 0 and junction.timeout is not None and self._seconds() >= junction.timeout

    def _is_late(self, name: str) -> bool:
        future = self._late.get(name)
        if future is None:
            return False
        if not future.done():
            return True
        del self._late[name]
        return False

    def _join(self, node: OpenNode, junction: Junction) -> None:
        del self._waiting[node.name]
        flows = [self._flows[name] for name in node.inputs if name in self._flows]
        if len(flows) < len(node.inputs):
            self.cut.append(node.name)
        self._store(node.name, self._graph_run.join(junction, flows))

    def _run_here(self, node: OpenNode, step: OpenStep) -> None:
        self._waiting.pop(node.name, None)
        flow = self._flows[node.inputs[0]]
        self._store(node.name, self._graph_run.end(step, flow, self._graph_run.begin(step, flow)()))

    def _await(self) -> None:
        begun = any(future.running() or future.done() for future in self._running)
        timeout = self._until_due() if begun or not self._running else STEAL_AFTER
        done, _ = wait([*self._running, *self._blocking()], timeout, FIRST_COMPLETED)
        for future in [future for future in self._running if future in done]:
            node, step = self._running.pop(future)
            self._store(node.name, self._graph_run.end(step, self._flows[node.inputs[0]], future.result()))
        if not done and not begun:
            self._steal()

    def _steal(self) -> None:
        for future, (node, step) in list(self._running.items()):
            if future.cancel():
                del self._running[future]
                self._run_here(node, step)
                return

    def _junctions(self) -> list[tuple[OpenNode, Junction]]:
        return [(node, node.work) for node in self._waiting.values() if isinstance(node.work, Junction)]

    def _blocking(self) -> list[Future[StepOutput]]:
        return [self._late[name] for name in self._waiting if name in self._late]

    def _timed(self) -> bool:
        return any(junction.timeout is not None for _, junction in self._junctions())

    def _until_due(self) -> float | None:
        limits = [
            junction.timeout - self._seconds()
            for node, junction in self._junctions()
            if junction.timeout is not None and any(name in self._flows for name in node.inputs)
        ]
        return max(min(limits), 0.0) if limits else None

    def _store(self, name: str, flow: Flow) -> None:
        flow.seconds = self._seconds()
        self._flows[name] = flow

    def _seconds(self) -> float:
        return time.monotonic() - self._started

    def _leave(self) -> None:
        for future, (node, _) in self._running.items():
            if not future.cancel():
                self._late[node.name] = future
