"""`Sequence`: a pipeline whose steps run one after the other."""

from __future__ import annotations

import html
import json
from collections.abc import Callable, Iterable
from concurrent.futures import Executor as Pool
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic.json_schema import models_json_schema

from pipelines.errors import DefinitionError
from pipelines.registry import Registry, default_registry
from pipelines.runner import OpenContext
from pipelines.steps import Function, Step
from pipelines.steps.base import TYPE_KEY
from pipelines.steps.config import Form
from pipelines.yamlwriter import write_yaml

if TYPE_CHECKING:
    from pipelines.executors.sequence import SequenceExecutor


class Sequence:
    """Steps in the order in which they run: `Sequence([Onnx("model.onnx"), scale])`.

    A function stands for the step `Function(function)`. Immutable; equal to another with equal steps, id and name.
    Raises `DefinitionError` for something that is no step, and for two steps of one name.
    """

    def __init__(
        self,
        steps: Iterable[Step | Callable[..., Any]],
        *,
        id: str | None = None,
        name: str | None = None,
        base: Path | None = None,
    ) -> None:
        if isinstance(steps, Step):
            raise DefinitionError(f"Sequence takes a list of steps: Sequence([{type(steps).__name__}(...)])")
        self._steps = tuple(_step(step, position) for position, step in enumerate(steps))
        self._id = id
        self._name = name
        self._base = base
        self._check_names()

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps, in order."""
        return self._steps

    @property
    def id(self) -> str | None:
        """Konduit's identifier of the pipeline, or `None`."""
        return self._id

    @property
    def name(self) -> str | None:
        """What people call it, or `None`. Ours; Konduit Serving does not have it."""
        return self._name

    @property
    def base(self) -> Path | None:
        """The folder where relative paths start; `None`: the working directory at the time of opening."""
        return self._base

    def named_steps(self) -> list[tuple[str, Step]]:
        """The steps with their names in errors and metrics: their own, else place and type, `0:ONNX`."""
        return [(step.name or f"{position}:{step.type_name}", step) for position, step in enumerate(self._steps)]

    def open(
        self,
        pool: Pool | None = None,
        allow_code: bool = True,
        progress: Callable[[str], None] | None = None,
        registry: Registry | None = None,
    ) -> SequenceExecutor:
        """An executor with every model loaded; close it, or use it in a `with`.

        `pool` may run independent work in parallel; `allow_code=False` refuses steps that run Python code of the
        user; `progress` is told what is being loaded. Raises `StepError` naming the step that cannot be opened; its
        `__cause__` says why: `MissingPackageError`, `RegistryError`, `DefinitionError`, ...
        """
        from pipelines.executors.sequence import SequenceExecutor

        base = Path.cwd() if self._base is None else self._base
        context = OpenContext(base=base, pool=pool, allow_code=allow_code, progress=progress)
        return SequenceExecutor(self.named_steps(), context, registry or default_registry())

    def to_dict(self, form: Form = "json") -> dict[str, Any]:
        """The definition as plain data, keys spelled as Konduit Serving spells them in JSON or YAML.

        Raises `DefinitionError` for a function that cannot be found again by module and name.
        """
        written: dict[str, Any] = {"steps": [step.to_dict(form) for step in self._steps]}
        if self._id is not None:
            written["id"] = self._id
        if self._name is not None:
            written["name"] = self._name
        return written

    def to_json(self) -> str:
        """The definition as JSON, which `loads` reads into an equal pipeline. Raises as `to_dict`."""
        return json.dumps(self.to_dict("json"), indent=2, ensure_ascii=False) + "\n"

    def to_yaml(self) -> str:
        """The definition as YAML, which `loads` reads into an equal pipeline. Raises as `to_dict`."""
        return write_yaml(self.to_dict("yaml"))

    @staticmethod
    def json_schema(registry: Registry | None = None) -> dict[str, Any]:
        """A JSON schema of definitions, for editors; reading accepts more spellings than it names."""
        steps = (registry or default_registry()).steps
        refs, schema = models_json_schema([(step, "validation") for step in steps.values()])
        for type_name, step in steps.items():
            inner = schema["$defs"][refs[step, "validation"]["$ref"].rpartition("/")[2]]
            inner["properties"] = {TYPE_KEY: {"const": type_name}, **inner.get("properties", {})}
            inner["required"] = [TYPE_KEY, *inner.get("required", [])]
            inner["additionalProperties"] = True
        return {
            "type": "object",
            "title": "Pipeline",
            "properties": {
                "steps": {"type": "array", "items": {"oneOf": [refs[step, "validation"] for step in steps.values()]}},
                "id": {"type": "string"},
                "name": {"type": "string"},
            },
            "required": ["steps"],
            "$defs": schema["$defs"],
        }

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence):
            return NotImplemented
        return (self._steps, self._id, self._name) == (other._steps, other._id, other._name)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Sequence({' -> '.join(name for name, _ in self.named_steps())})"

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{html.escape(name)}</td><td>{html.escape(_settings(step))}</td></tr>"
            for name, step in self.named_steps()
        )
        title = html.escape(self._name or self._id or "pipeline")
        return f"<table><tr><th>{title}</th><th>settings</th></tr>{rows}</table>"

    def _check_names(self) -> None:
        seen: dict[str, int] = {}
        for position, (name, _) in enumerate(self.named_steps()):
            if name in seen:
                raise DefinitionError(f'steps[{seen[name]}] and steps[{position}] have the same name "{name}"')
            seen[name] = position


def _step(step: object, position: int) -> Step:
    if isinstance(step, Step):
        return step
    if isinstance(step, type) and issubclass(step, Step):
        raise DefinitionError(f"steps[{position}] is the class {step.__name__}, not a step: write {step.__name__}(...)")
    if callable(step):
        return Function(step)
    raise DefinitionError(f"steps[{position}] is a {type(step).__name__}; a step is a pipelines.Step or a function")


def _settings(step: Step) -> str:
    if isinstance(step, Function):
        return step.label
    shown = {key: value for key, value in step.to_dict().items() if key not in (TYPE_KEY, "name")}
    text = ", ".join(f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in shown.items())
    return text if len(text) <= 300 else f"{text[:297]}..."
