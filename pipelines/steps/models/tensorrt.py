"""TENSORRT: run an ONNX model with TensorRT."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, field_validator

from pipelines.steps.base import RunBy, Step
from pipelines.steps.config import EXTENSION, Config, Int
from pipelines.steps.models.model import ModelUri, Names, OutputNames, Place, WarmUp, placed
from pipelines.steps.models.onnx import SessionOptions, runs_code


class NamedDimension(Config):
    """The lengths of an input's or output's axes."""

    yaml_case: ClassVar[Literal["snake", "camel"]] = "camel"

    name: str
    """The input or output."""
    dimensions: tuple[Annotated[Int, Field(ge=1)], ...]
    """All its axes, the batch first: `[1, 3, 224, 224]`."""


Dimensions = tuple[NamedDimension, ...] | None


class TensorRt(Step):
    """Run an ONNX model with TensorRT: `TensorRt("model.onnx", use_fp16=True)`.

    onnxruntime's TensorRT provider runs it. Where that is not there, CUDA or the CPU do, with a warning, unless
    `strict`.
    """

    type_name: ClassVar[str] = "TENSORRT"
    run_by: ClassVar[RunBy | None] = RunBy(
        "onnxruntime", "pipelines.runners.models.tensorrt:TensorRtRunner", ("onnxruntime",), extra="onnx"
    )
    yaml_case: ClassVar[Literal["snake", "camel"]] = "camel"

    model_uri: ModelUri = None
    """Path of the ONNX model, relative to the definition's folder, or a `file:`, `http:` or `https:` URI."""
    input_names: Names = None
    """A list is Konduit's and has no effect: inputs go by the model's names. A mapping, ours, renames:
    `{model's input: key of the data}`."""
    output_names: OutputNames = None
    """The outputs to fetch, all if none; a mapping, ours, renames: `{model's output: key of the data}`."""
    batch_size: Annotated[Int, Field(ge=0)] = 0
    """At most this many samples in one call of the model; 0: as many as `maxDimensions` allow, else the whole batch."""
    use_fp16: bool = False
    """Whether TensorRT may compute in half precision."""
    max_workspace_size: Annotated[Int, Field(ge=0)] = 0
    """Bytes of GPU memory that TensorRT may use while it builds and runs the engine; 0: its own default."""
    min_dimensions: Dimensions = None
    """The smallest shape of each input; given together with the other two, for the same inputs."""
    max_dimensions: Dimensions = None
    """The largest shape of each input; batches are cut to its first length."""
    optimal_dimensions: Dimensions = None
    """The shape of each input that the engine is built for."""
    output_dimensions: Dimensions = None
    """Konduit's; kept when a definition is written, otherwise unused: the model itself declares its outputs."""
    strict: Annotated[bool, EXTENSION] = False
    """Whether it is an error, not a warning, if TensorRT is not there."""
    provider_options: Annotated[dict[str, Any], EXTENSION] = Field(default_factory=dict)
    """Further options of the provider by onnxruntime's names, `{"trt_engine_cache_enable": true}`; they go before those
    made of the fields above."""
    session_options: Annotated[SessionOptions, EXTENSION] = SessionOptions()
    """Threads and graph optimisation."""
    warm_up: WarmUp = False
    """Run the model on zeros while it opens, which builds the engine: true for one row, a number for that many rows."""
    cast_inputs: Annotated[bool, EXTENSION] = False
    """Also convert inputs where values lose their meaning: floats to integers, numbers to bool."""

    @property
    def code_keys(self) -> tuple[str, ...]:
        """The options of the provider and of the session, if one of them may name machine code."""
        keys = (self.key("provider_options"),) if runs_code(self.provider_options) else ()
        return (*keys, self.key("session_options")) if runs_code(self.session_options.config) else keys

    def __init__(self, model_uri: Place = None, /, **fields: Any) -> None:
        super().__init__(**placed(model_uri, fields))

    @field_validator("min_dimensions", "max_dimensions", "optimal_dimensions")
    @classmethod
    def _once(cls, given: Dimensions) -> Dimensions:
        names = [one.name for one in given or ()]
        if len(set(names)) < len(names):
            raise ValueError("an input is named twice")
        return given
