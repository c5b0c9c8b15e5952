"""`Sequence`: a pipeline whose steps run one after the other."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from pipelines.definitions.drawing import settings_text
from pipelines.definitions.pipeline import Pipeline
from pipelines.errors import DefinitionError
from pipelines.executors.executor import Executor
from pipelines.late import late
from pipelines.plugins.registry import default_registry
from pipelines.runners.runner import OpenContext
from pipelines.steps import Function, PipelineStep, Step, Typed
from pipelines.steps.config import Form

_opened: Final[Callable[..., Executor]] = late("pipelines.executors.sequence:SequenceExecutor")


class Sequence(Pipeline):
    """Steps in the order in which they run: `Sequence([Onnx("model.onnx"), scale])`.

    A function stands for the step `Function(function)`, a pipeline for `PipelineStep(pipeline)`. Immutable; equal to
    another with equal steps, id, name and batch. Raises `DefinitionError` for an object that is not a step, and for
    steps of the same name.
    """

    def __init__(
        self,
        steps: Iterable[Step | Pipeline | Callable[..., Any]],
        *,
        id: str | None = None,
        name: str | None = None,
        base: Path | None = None,
        batch: Mapping[str, Any] | None = None,
    ) -> None:
        if isinstance(steps, Step):
            raise DefinitionError(f"Sequence takes a list of steps: Sequence([{type(steps).__name__}(...)])")
        super().__init__(id=id, name=name, base=base, batch=batch)
        self._steps = tuple(as_step(step, f"steps[{position}]") for position, step in enumerate(steps))
        self._check_names()

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps, in order."""
        return self._steps

    def named_steps(self) -> list[tuple[str, Step]]:
        """The steps with their names in errors and metrics: their own, else place and type, `0:ONNX`."""
        return [(step.name or f"{position}:{step.type_name}", step) for position, step in enumerate(self._steps)]

    def open_in(self, context: OpenContext) -> Executor:
        """`open` for a pipeline that may be a step of another; if it has no folder, paths start at that one's."""
        steps = [(context.named(name), step) for name, step in self.named_steps()]
        return _opened(steps, self._placed(context), context.registry or default_registry())

    def to_dict(self, form: Form = "json") -> dict[str, Any]:
        """The definition as plain data, keys spelled as Konduit Serving spells them in JSON or YAML.

        Raises `DefinitionError` for a function that cannot be found again by module and name.
        """
        return {"steps": [step.to_dict(form) for step in self._steps], **self._labels()}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence):
            return NotImplemented
        return (self._steps, self.id, self.name, self.batch) == (other._steps, other.id, other.name, other.batch)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Sequence({' -> '.join(name for name, _ in self.named_steps())})"

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{html.escape(name)}</td><td>{html.escape(settings_text(step))}</td></tr>"
            for name, step in self.named_steps()
        )
        title = html.escape(self.name or self.id or "pipeline")
        return f"<table><tr><th>{title}</th><th>settings</th></tr>{rows}</table>"

    def _check_names(self) -> None:
        seen: dict[str, int] = {}
        for position, (name, _) in enumerate(self.named_steps()):
            if name in seen:
                raise DefinitionError(f'steps[{seen[name]}] and steps[{position}] have the same name "{name}"')
            seen[name] = position


def as_step(step: object, place: str) -> Step:
    """The object as a step; a function or a pipeline becomes one. Raises `DefinitionError` naming the place."""
    if isinstance(step, Step):
        return step
    if isinstance(step, type) and issubclass(step, Typed):
        raise DefinitionError(f"{place} is the class {step.__name__}, not a step: write {step.__name__}(...)")
    if isinstance(step, Pipeline):
        return PipelineStep(step)
    if callable(step):
        return Function(step)
    raise DefinitionError(f"{place} is a {type(step).__name__}; a step is a pipelines.Step or a function")
