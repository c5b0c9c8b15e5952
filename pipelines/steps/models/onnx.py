"""ONNX: run an ONNX model."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import Field, model_validator

from pipelines.steps.base import RunBy, Step
from pipelines.steps.config import EXTENSION, Config, Form, Int, Spelling
from pipelines.steps.models.features import FeatureList, written
from pipelines.steps.models.model import MaxBatch, ModelUri, Names, OutputNames, Place, WarmUp, placed


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


# onnxruntime's `trt_extra_plugin_lib_paths`, `op_packages` and the like; the last two are addresses in memory.
_CODE_OPTION: Final = re.compile(
    r"(^|[._])(libs?|library|libraries|plugins?|backend_path|op_packages|so_folder|external_\w+|user_compute_stream)([._]|$)",
    re.IGNORECASE,
)
# A text that may be a path: of a library, or of an engine or another compiled model, which is machine code as well.
_FILE: Final = re.compile(r"[/\\.]")


def runs_code(options: Mapping[str, Any]) -> bool:
    """Whether options of an execution provider may name machine code: a library, an address, or any file."""
    return any(
        _CODE_OPTION.search(name) or (isinstance(value, str) and _FILE.search(value) and not _is_number(value))
        for name, value in options.items()
    )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


class Onnx(Step):
    """Run an ONNX model: `Onnx("model.onnx", output_names=["probabilities"])`.

    Inputs are taken by the model's names and converted where their values survive (docs/execution.md); the output holds
    the model's outputs only.
    """

    type_name: ClassVar[str] = "ONNX"
    run_by: ClassVar[RunBy | None] = RunBy(
        "onnxruntime", "pipelines.runners.models.onnx:OnnxRunner", ("onnxruntime",), extra="onnx"
    )
    yaml_case: ClassVar[Literal["snake", "camel"]] = "camel"

    model_uri: ModelUri = None
    """Path of the model, relative to the definition's folder, or a `file:`, `http:` or `https:` URI."""
    input_names: Names = None
    """A list is Konduit's and has no effect: inputs go by the model's names. A mapping, ours, renames:
    `{model's input: key of the data}`."""
    output_names: OutputNames = None
    """The outputs to fetch, all if none; a mapping, ours, renames: `{model's output: key of the data}`."""
    loader_class: Annotated[str | None, Spelling(yaml="loader_class")] = None
    """Konduit's; kept when a definition is written, otherwise unused."""
    inputs: Annotated[dict[str, str | FeatureList] | None, EXTENSION] = None
    """`{model's input: key of the data}`, or the values that are stacked into the input as by FEATURES:
    `{X: [temp, {field: hour, default: 0}]}`, of the input's own element type."""
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

    @model_validator(mode="after")
    def _check_inputs(self) -> Onnx:
        if self.inputs is None:
            return self
        if isinstance(self.input_names, dict):
            raise ValueError('"inputs" says where inputs come from, and so does the mapping "inputNames": keep one')
        stacked = {name for name, taken in self.inputs.items() if not isinstance(taken, str)}
        shared = next((taken for taken in self.inputs.values() if isinstance(taken, str) and taken in stacked), None)
        if shared is not None:
            raise ValueError(f'"{shared}" is an input that is stacked here: rename the value that another input takes')
        return self

    def to_dict(self, form: Form = "json") -> dict[str, Any]:
        """Plain data with `@type` first, as `form` spells it."""
        found = super().to_dict(form)
        if self.inputs is not None:
            found["inputs"] = {
                name: taken if isinstance(taken, str) else written(taken, form) for name, taken in self.inputs.items()
            }
        return found

    @property
    def code_keys(self) -> tuple[str, ...]:
        """The providers and the session's options, if one of them may name machine code."""
        named = (provider for provider in self.providers or () if not isinstance(provider, str))
        found = any(runs_code(options) for provider in named for options in provider.values())
        keys = (self.key("providers"),) if found else ()
        return (*keys, self.key("session_options")) if runs_code(self.session_options.config) else keys

    def __init__(self, model_uri: Place = None, /, **fields: Any) -> None:
        super().__init__(**placed(model_uri, fields))
