"""PIPELINE: a pipeline as a step of another. Ours; Konduit Serving's design records promise it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar, Final

from pydantic import BeforeValidator, WithJsonSchema

from pipelines.late import late
from pipelines.steps.base import RunBy, Step
from pipelines.steps.config import Form

_is_pipeline: Final[Callable[[object], bool]] = late("pipelines.definitions.pipeline:is_pipeline")


def _pipeline_or_path(value: Any) -> Any:
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, str) or _is_pipeline(value):
        return value
    raise ValueError("a path, a definition or a pipeline is needed")


class PipelineStep(Step):
    """Run another pipeline as a step: `PipelineStep(graph)`, `PipelineStep("other.yaml")`.

    In a list of steps in Python, `graph` itself can stand for `PipelineStep(graph)`.
    """

    type_name: ClassVar[str] = "PIPELINE"
    run_by: ClassVar[RunBy | None] = RunBy("executor", "pipelines.runners.code.pipeline:PipelineRunner")
    parts: ClassVar[Mapping[str, str]] = {"pipeline": "pipeline"}

    pipeline: Annotated[
        Any,
        BeforeValidator(_pipeline_or_path),
        WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "object"}]}),
    ]
    """The path of the inner pipeline's definition, relative to the folder of this one, or the definition itself."""

    def __init__(self, pipeline: Any = None, /, **fields: Any) -> None:
        # Passed only if given: `None` would hide a `pipeline=` among the keywords.
        positional: dict[str, Any] = {} if pipeline is None else {"pipeline": pipeline}
        super().__init__(**positional, **fields)

    def to_dict(self, form: Form = "json") -> dict[str, Any]:
        """Plain data, the pipeline as a path or as its own definition."""
        written = super().to_dict(form)
        if not isinstance(self.pipeline, str):
            written["pipeline"] = self.pipeline.to_dict(form)
        return written
