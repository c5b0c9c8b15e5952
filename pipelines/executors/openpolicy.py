"""The policies of a pipeline's steps: found by the steps' names and types, checked, and made ready to run."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce

from pipelines.definitions.pipeline import Pipeline
from pipelines.definitions.walk import Part, walk
from pipelines.errors import DefinitionError, nearest
from pipelines.executors.errorclasses import error_class
from pipelines.executors.policy import NO_POLICY, StepPolicy
from pipelines.executors.retrying import Retrying
from pipelines.observe.metrics import RETRIES, RETRIES_TEXT
from pipelines.runners.runner import OpenContext, Runner, StatefulRunner
from pipelines.steps.base import Step
from pipelines.steps.flow.graph import GraphStep


class PolicyError(DefinitionError):
    """A step cannot have the policy that it was given.

    `key` is the part of it that is wrong, `retry` or `timeout`, `why` says why.
    """

    def __init__(self, key: str, why: str) -> None:
        super().__init__(f"{key}: {why}")
        self.key = key
        self.why = why


class UnknownStepError(DefinitionError):
    """No step has the name or type. `name` is what it was called."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f'steps: "{name}" {why}')
        self.name = name
        self.why = why


def by_step(pipeline: Pipeline, policies: Mapping[str, StepPolicy]) -> dict[str, StepPolicy]:
    """The policy of each step that has one, by the step's name, `outer/inner` for one of a pipeline inside another.

    `policies` are by the name of a step, as it is there or inside its own pipeline only, or by a type, which means all
    steps of that type. What a step's name says counts before what its type says. Pipelines in files of their own are
    read. Raises `UnknownStepError` for what is no step.
    """
    parts = list(walk(pipeline))
    for name in policies:
        _check_name(name, parts)
    resolved: dict[str, StepPolicy] = {}
    for part in parts:
        if isinstance(part.what, Step):
            given = [policies[name] for name in reversed(names_of(part)) if name in policies]
            if given:
                resolved[part.name] = reduce(_over, given, NO_POLICY)
    return resolved


def _over(general: StepPolicy, special: StepPolicy) -> StepPolicy:
    return StepPolicy(
        general.retry if special.retry is None else special.retry,
        general.timeout if special.timeout is None else special.timeout,
    )


def names_of(part: Part) -> list[str]:
    """What a step is called in settings, the most special first: name, name inside its own pipeline, type."""
    return list(dict.fromkeys([part.name, part.name.rpartition("/")[2], part.what.type_name]))


def _check_name(name: str, parts: list[Part]) -> None:
    steps = [part for part in parts if isinstance(part.what, Step)]
    if any(name in names_of(part) for part in steps):
        return
    joint = next((part for part in parts if isinstance(part.what, GraphStep) and name in names_of(part)), None)
    if joint is not None:
        raise UnknownStepError(
            name, f"is a {joint.what.type_name}, which only joins or splits branches: it is never run again"
        )
    known = list(dict.fromkeys([*(part.name for part in steps), *(part.what.type_name for part in steps)]))
    there = f"there are {', '.join(known)}" if known else "the pipeline has none"
    raise UnknownStepError(name, f"names no step{nearest(name, known)}; {there}")


def opened_policy(context: OpenContext, runner: Runner) -> Retrying | None:
    """What runs the rows of the step that is opened again; `None` if nothing does.

    Raises `PolicyError` if the step cannot have its policy, and the errors of `error_class` for errors that are named.
    """
    retry = context.policy.retry
    check_policy(context.policy, stateful=isinstance(runner, StatefulRunner), ends_calls=runner.ends_calls)
    if retry is None:
        return None
    classes = tuple(error_class(error, allowed=context.allow_code) for error in retry.on)
    counter = context.metrics.counter(RETRIES, RETRIES_TEXT)
    return Retrying(context.step, retry, classes, retry.budgets.of(context.step), counter, context.stopping)


def check_policy(policy: StepPolicy, *, stateful: bool, ends_calls: bool) -> None:
    """Raise `PolicyError` if a runner of this kind does not allow its step's policy."""
    if policy.retry is not None and stateful:
        raise PolicyError(
            "retry",
            "the step keeps state from record to record, and a record that comes again would count twice; remove it, "
            "or have only the steps before it retried",
        )
    if policy.timeout is not None and not ends_calls:
        raise PolicyError(
            "timeout",
            "only a call of an async function for one record can be ended from outside, and this step makes none; "
            "remove it: for steps that hang there is limits.stuck of a service, and streamer run --workers, which ends "
            "the process and runs the other records in a new one",
        )
