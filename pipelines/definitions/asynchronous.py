"""`Async`: a pipeline that a trigger runs, independently of calls."""

from __future__ import annotations

import html
from collections.abc import Callable
from typing import Any, Final

from pipelines.definitions.drawing import settings_text
from pipelines.definitions.pipeline import Pipeline
from pipelines.errors import DefinitionError
from pipelines.executors.executor import Executor
from pipelines.executors.opentrigger import Clock
from pipelines.late import late
from pipelines.runners.runner import OpenContext
from pipelines.steps import Step, Trigger
from pipelines.steps.config import Form

TRIGGER_KEY: Final = "@AsyncTrigger"
"""Key of the trigger in definitions and in errors."""

_opened: Final[Callable[..., Executor]] = late("pipelines.executors.asynchronous:AsyncExecutor")


class Async(Pipeline):
    """A pipeline with a trigger that runs it: `Async(Sequence([...]), SimpleLoopTrigger(frequency_ms=200))`.

    It runs from the moment it is opened. Id, name and folder are those of the pipeline. Immutable; equal to another
    with an equal pipeline and trigger. `clock` is for tests.
    """

    def __init__(self, pipeline: Pipeline, trigger: Trigger, *, clock: Clock | None = None) -> None:
        if isinstance(pipeline, Async) or not isinstance(pipeline, Pipeline):
            raise DefinitionError(f"a trigger runs a Sequence or a Graph, not {type(pipeline).__name__}")
        if not isinstance(trigger, Trigger):
            raise DefinitionError(f"a trigger is needed, not {type(trigger).__name__}")
        super().__init__(id=pipeline.id, name=pipeline.name, base=pipeline.base, batch=pipeline.batch)
        self._pipeline = pipeline
        self._trigger = trigger
        self._clock = clock or Clock()

    @property
    def pipeline(self) -> Pipeline:
        """The pipeline that the trigger runs."""
        return self._pipeline

    @property
    def trigger(self) -> Trigger:
        """Decides when the pipeline runs."""
        return self._trigger

    @property
    def steps(self) -> Any:
        """The steps of the pipeline."""
        return self._pipeline.steps

    def running(self, pipeline: Pipeline) -> Async:
        """Another pipeline that the same trigger runs."""
        return Async(pipeline, self._trigger, clock=self._clock)

    def named_steps(self) -> list[tuple[str, Step]]:
        """The steps that runners run, with their names in errors and metrics."""
        return list(self._pipeline.named_steps())

    def open_in(self, context: OpenContext) -> Executor:
        """`open` for a pipeline that may be a step of another; if it has no folder, paths start at that one's."""
        trigger = self._trigger.open(self._clock)
        return _opened(context.named(TRIGGER_KEY), self._pipeline.open_in(context), trigger)

    def to_dict(self, form: Form = "json") -> dict[str, Any]:
        """The definition as plain data, keys spelled as Konduit Serving spells them in JSON or YAML.

        Raises `DefinitionError` for a function that cannot be found again by module and name.
        """
        return {**self._pipeline.to_dict(form), TRIGGER_KEY: self._trigger.to_dict(form)}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Async):
            return NotImplemented
        return bool(self._pipeline == other._pipeline and self._trigger == other._trigger)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Async({self._pipeline!r}, {self._trigger.type_name})"

    def _repr_html_(self) -> str:
        settings = html.escape(settings_text(self._trigger))
        return f"{self._pipeline._repr_html_()}<p>{self._trigger.type_name} {settings}</p>"
