"""Fields of a pipeline's steps set from outside: the definition stays as it is, a model differs by environment."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from pipelines.definitions.asynchronous import Async
from pipelines.definitions.definition import load
from pipelines.definitions.graph import Graph
from pipelines.definitions.pipeline import Pipeline
from pipelines.definitions.sequence import Sequence
from pipelines.definitions.wiring import Node
from pipelines.errors import DefinitionError, nearest
from pipelines.steps import GraphStep, Step
from pipelines.steps.code.pipeline import PipelineStep
from pipelines.steps.config import Config


def overridden(pipeline: Pipeline, settings: Mapping[str, Any]) -> Pipeline:
    """The pipeline with these fields of its steps set: `{"ONNX.modelUri": "b.onnx", "clean.args.limit": 3}`.

    Before the first dot stands a step's name, `outer/inner` for one in a pipeline inside another, or a type, which
    means all steps of that type; then a field, in any spelling that definitions have, and keys inside that field.
    Pipelines in files of their own are read where a step in them is meant. Raises `DefinitionError` for a step or field
    that does not exist, or a value that does not fit.
    """
    if not settings:
        return pipeline
    work = _Overriding(settings)
    changed = work.pipeline(pipeline, "", Path.cwd())
    for key in settings:
        if key not in work.used:
            raise DefinitionError(_nameless(key, list(dict.fromkeys([*work.names, *work.types]))))
    return changed


def _nameless(key: str, known: list[str]) -> str:
    if key in known:
        return f'"{key}" names a step, and no field of it: write "{key}.field: value", a line for each field'
    if not known:
        return f'"{key}" names no step: the pipeline has none'
    hint = nearest(key.partition(".")[0], known)
    return f'"{key}" names no step; say "STEP.field" with one of {", ".join(known)}{hint}'


class _Overriding:
    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.settings = settings
        self.used: set[str] = set()
        self.names: list[str] = []
        self.types: list[str] = []

    def pipeline(self, pipeline: Pipeline, outer: str, base: Path) -> Pipeline:
        base = pipeline.base or base
        if isinstance(pipeline, Async):
            inner = self.pipeline(pipeline.pipeline, outer, base)
            return pipeline if inner is pipeline.pipeline else pipeline.running(inner)
        labels: dict[str, Any] = {key: getattr(pipeline, key) for key in ("id", "name", "base", "batch")}
        if isinstance(pipeline, Graph):
            nodes = {
                name: Node(self.step(name, node.step, outer, base), node.inputs)
                for name, node in pipeline.steps.items()
            }
            same = all(nodes[name].step is node.step for name, node in pipeline.steps.items())
            return pipeline if same else Graph(nodes, pipeline.output, **labels)
        if isinstance(pipeline, Sequence):
            steps = [self.step(name, step, outer, base) for name, step in pipeline.named_steps()]
            return pipeline if all(map(_is, steps, pipeline.steps)) else Sequence(steps, **labels)
        return pipeline  # a subclass from elsewhere, whose steps are unknown

    def step(self, name: str, step: Any, outer: str, base: Path) -> Any:
        if isinstance(step, PipelineStep):
            step = self._inside(name, step, outer, base)
        self.names.append(outer + name)
        self.types.append(step.type_name)
        for key, value in self.settings.items():
            # Names may hold dots, fields do not.
            for called in (outer + name, name, step.type_name):
                if key.startswith(f"{called}."):
                    self.used.add(key)
                    step = _with(step, key, key[len(called) + 1 :].split("."), value)
                    break
        return step

    def _inside(self, name: str, step: PipelineStep, outer: str, base: Path) -> PipelineStep:
        inner = step.pipeline
        if isinstance(inner, str):
            inner = load(base / inner)
        changed = self.pipeline(inner, f"{outer}{name}/", base)
        return step if changed is inner else _remade(step, {"pipeline": changed})


def _is(before: object, after: object) -> bool:
    return before is after


def _with(step: Step | GraphStep, key: str, path: list[str], value: Any) -> Any:
    known = type(step).keys()
    field = known.get(path[0])
    if field is None:
        raise DefinitionError(
            f'"{key}": {step.type_name} has no field "{path[0]}"; '
            f"it has {', '.join(dict.fromkeys(map(step.key, known.values())))}{nearest(path[0], known)}"
        )
    try:
        return _remade(step, {field: _inner(getattr(step, field), path[1:], value, key)})
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise DefinitionError(f'"{key}": {first["msg"].removeprefix("Value error, ")}') from None


def _inner(held: Any, path: list[str], value: Any, key: str) -> Any:
    if not path:
        return _like(held, value, key)
    held = {} if held is None else held.to_dict() if isinstance(held, Config) else held
    if not isinstance(held, Mapping):
        what = "a list: give all of it" if isinstance(held, (list, tuple)) else repr(held)
        outer = key.removesuffix("." + ".".join(path))
        raise DefinitionError(f'"{key}": there is nothing called "{path[0]}" inside {outer}, which is {what}')
    return {**held, path[0]: _inner(held.get(path[0]), path[1:], value, key)}


def _like(held: Any, value: Any, key: str) -> Any:
    # An environment variable is text; the value that it replaces says whether a number is meant, if the field does not.
    if not isinstance(value, str) or not isinstance(held, (bool, int, float)):
        return value
    kind: TypeAdapter[Any] = TypeAdapter(bool if isinstance(held, bool) else int | float)
    try:
        return kind.validate_python(value)
    except ValidationError:
        raise DefinitionError(f'"{key}": {value!r} is not of the type of {held!r}, which it would replace') from None


def _remade(step: Any, changed: Mapping[str, Any]) -> Any:
    given = {field: getattr(step, field) for field in step.model_fields_set}
    return type(step)(**{**given, **changed})
