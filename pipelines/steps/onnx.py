"""ONNX: run an ONNX model."""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import Field

from pipelines.steps.base import Step
from pipelines.steps.config import EXTENSION, Config, Int, Spelling
from pipelines.steps.model import MaxBatch, ModelUri, Names, Place, WarmUp, placed


class SessionOptions(Config):
    """How onnxruntime runs a model."""

    yaml_case: ClassVar[Literal["snake", "camel"]] = "camel"

    intra_op_threads: Annotated[Int, Field(ge=0)] = 1
    """Threads inside one operator; 0: as many as cores. One is best where several processes share a machine."""
    inter_op_threads: Annotated[Int, Field(ge=0)] = 1
    """Threads between operators; more than 1 also lets independent ones run at the same time. 0: as many as cores."""
    graph_optimization: Literal["disable", "basic", "extended", "all"] = "all"
    """How far the graph is rewritten when the model is loaded."""
    spinning: bool = False
    """Whether idle threads keep a core busy to start sooner."""
    config: dict[str, str] = Field(default_factory=dict)
    """Further session configuration entries by onnxruntime's own names, `{"session.set_denormal_as_zero": "1"}`."""


# onnxruntime's `trt_extra_plugin_lib_paths`, `backend_path` and the like.
_LIBRARY: Final = re.compile(r"(^|_)(libs?|library|libraries|plugins?|backend_path)(_|$)")


class Onnx(Step):
    """Run an ONNX model: `Onnx("model.onnx", output_names=["probabilities"])`.

    Inputs are taken by the model's names and converted where their values survive (docs/execution.md); the output holds
    the model's outputs only.
    """

    type_name: ClassVar[str] = "ONNX"
    yaml_case: ClassVar[Literal["snake", "camel"]] = "camel"

    model_uri: ModelUri = None
    """Path of the model, relative to the definition's folder, or a `file:`, `http:` or `https:` URI."""
    input_names: Names = None
    """A list is Konduit's and has no effect: inputs go by the model's names. A mapping, ours, renames:
    `{model's input: key of the data}`."""
    output_names: Names = None
    """The outputs to fetch, all if none; a mapping, ours, renames: `{model's output: key of the data}`."""
    loader_class: Annotated[str | None, Spelling(yaml="loader_class")] = None
    """Konduit's; kept when a definition is written, otherwise unused."""
    providers: Annotated[tuple[str | dict[str, dict[str, Any]], ...] | None, EXTENSION] = None
    """Execution providers, the preferred first, each a name or `{name: options}`; none: onnxruntime's CPU provider."""
    session_options: Annotated[SessionOptions, EXTENSION] = SessionOptions()
    """Threads and graph optimisation."""
    warm_up: WarmUp = False
    """Run the model on zeros while it opens: true for one row, a number for that many rows."""
    max_batch: MaxBatch = None
    """At most this many samples in one call of the model; none: the whole batch."""
    cast_inputs: Annotated[bool, EXTENSION] = False
    """Also convert inputs where values lose their meaning: floats to integers, numbers to bool."""

    @property
    def code_keys(self) -> tuple[str, ...]:
        """The providers, if an option of theirs names a library to load."""
        named = (provider for provider in self.providers or () if not isinstance(provider, str))
        options = (option for provider in named for given in provider.values() for option in given)
        return (self.key("providers"),) if any(map(_LIBRARY.search, options)) else ()

    def __init__(self, model_uri: Place = None, /, **fields: Any) -> None:
        super().__init__(**placed(model_uri, fields))
