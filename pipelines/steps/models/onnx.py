"""ONNX: run an ONNX model."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from pipelines.steps.base import RunBy, Step
from pipelines.steps.config import EXTENSION, Config, Form, Int, Spelling
from pipelines.steps.models.executionoptions import PROVIDERS, SESSION_OPTIONS
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
    """Whether idle threads keep a core busy, so that they start sooner."""
    config: Annotated[dict[str, str], SESSION_OPTIONS] = Field(default_factory=dict)
    """Further session configuration entries by onnxruntime's own names, `{"session.set_denormal_as_zero": "1"}`."""


class Onnx(Step):
    """Run an ONNX model: `Onnx("model.onnx", output_names=["probabilities"])`.

    Each input gets the value that has its name, converted to its element type if no value is lost (docs/execution.md).
    The result holds the model's outputs only, or with `keep_other_values` the record's other values, too.
    """

    type_name: ClassVar[str] = "ONNX"
    run_by: ClassVar[RunBy | None] = RunBy(
        "onnxruntime", "pipelines.runners.models.onnx:OnnxRunner", ("onnxruntime",), extra="onnx"
    )
    yaml_case: ClassVar[Literal["snake", "camel"]] = "camel"

    model_uri: ModelUri = None
    """Path of the model, relative to the definition's folder, or a `file:`, `http:` or `https:` URI."""
    input_names: Names = None
    """A mapping `{model's input: key of the record}`, for inputs that are called otherwise in the record. A list, the
    only form that Konduit Serving has, has no effect: values are found by the model's own input names."""
    output_names: OutputNames = None
    """The outputs to compute; default: all. A list of the model's names, or a mapping `{model's output: key of the
    record}` that renames them (which Konduit Serving does not have)."""
    loader_class: Annotated[str | None, Spelling(yaml="loader_class")] = None
    """A setting of Konduit Serving; no effect here."""
    inputs: Annotated[dict[str, str | FeatureList] | None, EXTENSION] = None
    """`{model's input: key of the data}`, or the values that are stacked into the input as by FEATURES:
    `{X: [temp, {field: hour, default: 0}]}`, of the input's own element type."""
    providers: Annotated[tuple[str | dict[str, dict[str, Any]], ...] | None, EXTENSION, PROVIDERS] = None
    """Execution providers, the preferred first, each a name or `{name: options}`; default: onnxruntime's CPU
    provider."""
    session_options: Annotated[SessionOptions, EXTENSION] = SessionOptions()
    """Threads and graph optimisation of onnxruntime."""
    warm_up: WarmUp = False
    """Run the model on zeros when it is opened, so that the first records need not wait: `true` for one sample, a
    number for that many."""
    max_batch: MaxBatch = None
    """The most samples in one call of the model; default: the whole batch."""
    cast_inputs: Annotated[bool, EXTENSION] = False
    """Also convert floats to integers (the fraction is cut off) and numbers to bool; otherwise a record that needs this
    fails."""
    keep_other_values: Annotated[bool, EXTENSION] = False
    """Whether to keep the other keys of the record, for steps behind this one that need them. A value that has the name
    of an input that is stacked here goes all the same."""

    @model_validator(mode="after")
    def _check_inputs(self) -> Onnx:
        if self.inputs is None:
            return self
        if isinstance(self.input_names, dict):
            raise ValueError('"inputs" says where inputs come from, and so does the mapping "inputNames": keep one')
        stacked = {name for name, source in self.inputs.items() if not isinstance(source, str)}
        shared = next(
            (source for source in self.inputs.values() if isinstance(source, str) and source in stacked), None
        )
        if shared is not None:
            raise ValueError(f'"{shared}" is an input that is stacked here: rename the value that another input takes')
        return self

    def to_dict(self, form: Form = "json") -> dict[str, Any]:
        """Plain data with `@type` first, as `form` spells it."""
        data = super().to_dict(form)
        if self.inputs is not None:
            data["inputs"] = {
                name: source if isinstance(source, str) else written(source, form)
                for name, source in self.inputs.items()
            }
        return data

    def __init__(self, model_uri: Place = None, /, **fields: Any) -> None:
        super().__init__(**placed(model_uri, fields))
