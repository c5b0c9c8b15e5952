"""A service's pipeline, opened: errors of settings that the service file gives its steps name file and line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipelines.definitions.walk import Part, walk
from pipelines.errors import DefinitionError, StepError
from pipelines.executors.executor import Executor
from pipelines.executors.openpolicy import PolicyError, names_of
from pipelines.executors.policy import StepPolicy
from streamer.definition.refusals import place_of
from streamer.definition.service import Service
from streamer.definition.stepsettings import policies


def opened_pipeline(service: Service, steps: Mapping[str, StepPolicy] | None = None, **named: Any) -> Executor:
    """The pipeline with what the service says about it; `named` are further arguments of `Pipeline.open`.

    `steps` are the service's own `policies`, if several executors are to share how many rows they run again.

    Raises as `Pipeline.open` does, and `DefinitionError` for a step that cannot have what `steps` says of it.
    """
    pipeline = service.sequence()
    try:
        return pipeline.open(
            allow_code=service.allows_code,
            runners=service.runners,
            steps=policies(service.steps) if steps is None else steps,
            **named,
        )
    except StepError as error:
        if not isinstance(error.__cause__, PolicyError):
            raise
        part = next((part for part in walk(pipeline) if part.name == error.step), None)
        if part is None:
            raise
        raise policy_error(service, part, error.__cause__) from error


def policy_error(service: Service, part: Part, error: PolicyError) -> DefinitionError:
    """The error with file and line of what it is about in `steps` of the service file."""
    name = next(
        name for name in names_of(part) if name in service.steps and getattr(service.steps[name], error.key) is not None
    )
    where = place_of(service.written, "steps", name, error.key)
    return DefinitionError(f"{where}steps.{name}.{error.key}: step {part.name}: {error.why}")
