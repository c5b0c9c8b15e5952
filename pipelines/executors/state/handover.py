"""What steps know and hold goes over from one open pipeline to another of the same definition.

The open steps change places: the pipeline that goes on has those with the state, and the other one gets fresh ones in
their place. So records that a step holds, tracks and counts go on as they are, and each pipeline closes what it has.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final, NamedTuple

from pipelines.data.result import Result
from pipelines.executors.accounting import NO_ROWS
from pipelines.executors.executor import Executor
from pipelines.executors.openpipeline import OpenPipeline
from pipelines.executors.openstep import OpenStep
from pipelines.runners.runner import StatefulRunner
from pipelines.steps.base import Step
from pipelines.steps.code.pipeline import PipelineStep

_LONGEST: Final = 60
"""How long the text of a value may be that an error names."""


class _Place(NamedTuple):
    pipeline: OpenPipeline
    step: OpenStep

    @property
    def is_left(self) -> bool:
        """Whether the step still runs for a run that did not wait for it."""
        return self.pipeline.is_left_running(self.step)


def differences(before: Executor, after: Executor) -> dict[str, str]:
    """Why stateful steps cannot go over: those that only one of two open pipelines has, or whose fields differ.

    By the step's name, as texts for people: `"track" has another maxAge, 2.0 and not 1.0`. A step with a model of its
    own never goes over: its state is of that model.
    """
    old, new = _stateful(before), _stateful(after)
    gone = {name: f'"{name}" is not there any more' for name in old if name not in new}
    added = {name: f'"{name}" is new' for name in new if name not in old}
    changed = {name: _difference(name, old[name].step.config, new[name].step.config) for name in old if name in new}
    return {**{name: why for name, why in changed.items() if why}, **gone, **added}


def hand_over(before: Executor, after: Executor) -> None:
    """Have `after` go on with the stateful steps of `before` that both have, and others whose runner is `carried`.

    Neither may be running. `before` has fresh steps then: it can be closed, or get the state back in the same way.
    """
    others = _places(after)
    for name, old in _places(before).items():
        new = others.get(name)
        if new is None or _difference(name, old.step.config, new.step.config) or old.is_left or new.is_left:
            continue
        old.pipeline.put(new.step, in_place_of=old.step)
        new.pipeline.put(old.step, in_place_of=new.step)
        old.pipeline.metrics.exchange(new.pipeline.metrics, name)


def flushed(executor: Executor, names: Collection[str]) -> Result:
    """The results of the rows that these stateful steps hold, run through the steps after them.

    Raises `StepError` if a step does.
    """
    runners = [place.step.runner for name, place in _stateful(executor).items() if name in names]

    def flush(runner: StatefulRunner) -> Result:
        if runner in runners:
            return runner.flush()
        return runner.inside.drained(flush) if isinstance(runner.inside, OpenPipeline) else Result(NO_ROWS)

    return executor.drained(flush) if runners and isinstance(executor, OpenPipeline) else Result(NO_ROWS)


def _places(executor: Executor | None) -> dict[str, _Place]:
    return {place.step.name: place for place in _carried(executor)}


def _stateful(executor: Executor) -> dict[str, _Place]:
    return {name: place for name, place in _places(executor).items() if isinstance(place.step.runner, StatefulRunner)}


def _carried(executor: Executor | None) -> Iterator[_Place]:
    if not isinstance(executor, OpenPipeline):
        return
    for step in executor.open_steps:
        inside = step.runner.inside
        if isinstance(step.config, PipelineStep) and isinstance(inside, OpenPipeline):
            # The pipeline itself has no state, and the models of its other steps may be new.
            if not executor.is_left_running(step):
                yield from _carried(inside)
        elif step.runner.carried:
            yield _Place(executor, step)


def _difference(name: str, before: Step, after: Step) -> str:
    """Why the state of a step does not fit another; empty if it does."""
    if type(before) is not type(after):
        return f'"{name}" was {before.type_name}, and is {after.type_name}'
    if getattr(after, "model_uri", None):
        return f'"{name}" has a model of its own, which its state belongs to'
    for field in type(before).model_fields:
        if getattr(before, field) != getattr(after, field):
            values = repr(getattr(before, field)), repr(getattr(after, field))
            said = "" if max(map(len, values)) > _LONGEST else f", {values[1]} and not {values[0]}"
            return f'"{name}" has another {type(before).key(field, "yaml")}{said}'
    return ""
