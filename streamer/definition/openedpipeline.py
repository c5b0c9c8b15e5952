"""A service's pipeline, opened: errors of settings that the service file gives its steps name file and line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pipelines import Pipeline, Sequence
from pipelines.definitions.walk import Part, walk
from pipelines.errors import DefinitionError, StepError
from pipelines.executors.executor import Executor
from pipelines.executors.openpolicy import PolicyError, names_of
from pipelines.executors.policy import StepPolicy
from pipelines.executors.ports import Ports
from pipelines.plugins.modelfiles import is_here, is_remote
from pipelines.steps import Keras, Onnx, Step, TensorFlow, TensorRt, Tvm
from streamer.definition.refusals import place_of
from streamer.definition.service import Service
from streamer.definition.stepsettings import policies
from streamer.models.settings import CURRENT

_MODELS = (Onnx, Keras, TensorFlow, TensorRt, Tvm)


def opened_pipeline(
    service: Service, steps: Mapping[str, StepPolicy] | None = None, *, variant: str = CURRENT, **named: Any
) -> Executor:
    """The pipeline of a variant with what the service says about it; `named` are further arguments of `Pipeline.open`.

    `steps` are the service's own `policies`, if several executors are to share how many rows they run again.

    Raises as `Pipeline.open` does, and `DefinitionError` for a step that cannot have what `steps` says of it.
    """
    pipeline = service.pipeline_of(variant)
    try:
        return pipeline.open(
            allow_code=service.allows_code,
            runners=service.runners,
            steps=policies(service.steps) if steps is None else steps,
            sources=service.sources,
            **named,
        )
    except StepError as error:
        if not isinstance(error.__cause__, PolicyError):
            raise
        part = next((part for part in walk(pipeline) if part.name == error.step), None)
        if part is None:
            raise
        raise policy_error(service, part, error.__cause__) from error


def ports_at_ends(service: Service) -> Ports:
    """The ports that the first and the last step know if they are models, without opening others.

    Other steps may connect to something. Models that are not here are not fetched.
    """
    pipeline = service.sequence()
    if not isinstance(pipeline, Sequence) or not pipeline.steps:
        return Ports()
    ends = list(_ends(service, pipeline))
    return Ports(ends[0].inputs, ends[0].optional, ends[-1].outputs)


def _ends(service: Service, pipeline: Pipeline) -> Iterator[Ports]:
    for step in dict.fromkeys((0, len(pipeline.steps) - 1)):
        yield _ports_of_model(service, pipeline, pipeline.steps[step])


def _ports_of_model(service: Service, pipeline: Pipeline, step: Step) -> Ports:
    if not isinstance(step, _MODELS) or (step.model_uri and is_remote(step.model_uri) and not is_here(step.model_uri)):
        return Ports()
    alone = Sequence([step.model_copy(update={"warm_up": False})], base=pipeline.base)
    with alone.open(allow_code=service.allows_code, runners=service.runners) as executor:
        return executor.ports()


def policy_error(service: Service, part: Part, error: PolicyError) -> DefinitionError:
    """The error with file and line of what it is about in `steps` of the service file."""
    name = next(
        name for name in names_of(part) if name in service.steps and getattr(service.steps[name], error.key) is not None
    )
    where = place_of(service.written, "steps", name, error.key)
    return DefinitionError(f"{where}steps.{name}.{error.key}: step {part.name}: {error.why}")
