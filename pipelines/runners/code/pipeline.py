"""Runs PIPELINE: another pipeline as a step, with an executor of its own."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import ClassVar

from pipelines.data.batch import Batch
from pipelines.data.result import Result
from pipelines.definitions.definition import load
from pipelines.definitions.pipeline import Pipeline
from pipelines.executors.executor import Executor
from pipelines.executors.openpipeline import OpenPipeline
from pipelines.plugins.registry import Registry
from pipelines.runners.runner import OpenContext, Runner, StatefulRunner
from pipelines.steps.code.pipeline import PipelineStep


class PipelineRunner(Runner):
    """Runs batches through the executor of the inner pipeline, in which a failing record fails alone.

    It is stateful if a step of the inner pipeline is. Opening it raises the errors of loading and opening the inner
    pipeline.
    """

    # The inner steps have searched for the rows to blame already, and need not be pure.
    pure: ClassVar[bool] = False

    _executor: Executor

    def __new__(cls, step: PipelineStep, context: OpenContext) -> PipelineRunner:
        # Whether a runner is stateful is a matter of its class, and known only when the inner pipeline is open.
        executor = _pipeline(step, context).open_in(context)
        runner = object.__new__(_StatefulPipelineRunner if executor.stateful else PipelineRunner)
        runner._executor = executor
        runner.sequential = bool(executor.sequential_steps)
        # A trigger runs its pipeline at times of its own, and may do so in a thread of its own.
        runner.inside = executor if isinstance(executor, OpenPipeline) else None
        return runner

    @property
    def opens_images(self) -> bool:  # type: ignore[override]
        return self._executor.opens_images

    @property
    def reads(self) -> frozenset[str] | None:
        return self._executor.reads

    def run_batch(self, batch: Batch) -> Result:
        return self._executor.run_batch(batch)

    def close(self) -> None:
        self._executor.close()


class _StatefulPipelineRunner(PipelineRunner, StatefulRunner):
    def tick(self, now: float) -> Result:
        return self._executor.tick(now, self.caught_up)

    def flush(self) -> Result:
        return self._executor.flush()

    def forget(self, lanes: Iterable[Hashable]) -> None:
        self._executor.forget(lanes)


def _pipeline(step: PipelineStep, context: OpenContext) -> Pipeline:
    if not isinstance(step.pipeline, str):
        pipeline: Pipeline = step.pipeline
        return pipeline
    # Another source of runners knows no types of steps.
    registry = context.registry if isinstance(context.registry, Registry) else None
    return load(context.path(step.pipeline), registry=registry)
