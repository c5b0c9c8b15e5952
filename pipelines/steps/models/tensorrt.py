"""TENSORRT: run an ONNX model with TensorRT."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, field_validator

from pipelines.steps.base import RunBy, Step
from pipelines.steps.config import EXTENSION, Config, Int
from pipelines.steps.models.executionoptions import PROVIDER_OPTIONS
from pipelines.steps.models.model import ModelUri, Names, OutputNames, Place, WarmUp, placed
from pipelines.steps.models.onnx import SessionOptions


class NamedDimension(Config):
    """The lengths of an input's or output's axes."""

    yaml_case: ClassVar[Literal["snake", "camel"]] = "camel"

    name: str
    """Name of the input or output."""
    dimensions: tuple[Annotated[Int, Field(ge=1)], ...]
    """The lengths of all its axes, the batch first: `[1, 3, 224, 224]`."""


Dimensions = tuple[NamedDimension, ...] | None


class TensorRt(Step):
    """Run an ONNX model with TensorRT: `TensorRt("model.onnx", use_fp16=True)`.

    onnxruntime's TensorRT provider runs it. If that is not available, CUDA or the CPU runs it, with a warning in the
    log; with `strict` opening the step fails instead.
    """

    type_name: ClassVar[str] = "TENSORRT"
    run_by: ClassVar[RunBy | None] = RunBy(
        "onnxruntime", "pipelines.runners.models.tensorrt:TensorRtRunner", ("onnxruntime",), extra="onnx"
    )
    yaml_case: ClassVar[Literal["snake", "camel"]] = "camel"

    model_uri: ModelUri = None
    """Path of the ONNX model, relative to the definition's folder, or a `file:`, `http:` or `https:` URI."""
    input_names: Names = None
    """A mapping `{model's input: key of the record}`, for inputs that are called otherwise in the record. A list, the
    only form that Konduit Serving has, has no effect: values are found by the model's own input names."""
    output_names: OutputNames = None
    """The outputs to compute; default: all. A list of the model's names, or a mapping `{model's output: key of the
    record}` that renames them (which Konduit Serving does not have)."""
    batch_size: Annotated[Int, Field(ge=0)] = 0
    """The most samples in one call of the model; 0: as many as `maxDimensions` allows, or without it the whole
    batch."""
    use_fp16: bool = False
    """Whether TensorRT may compute in half precision."""
    max_workspace_size: Annotated[Int, Field(ge=0)] = 0
    """Bytes of GPU memory that TensorRT may use while it builds and runs the engine; 0: its own default."""
    min_dimensions: Dimensions = None
    """The smallest shape of each input; needs `maxDimensions` and `optimalDimensions` for the same inputs."""
    max_dimensions: Dimensions = None
    """The largest shape of each input; larger batches are split to its first length."""
    optimal_dimensions: Dimensions = None
    """The shape of each input that the engine is built for."""
    output_dimensions: Dimensions = None
    """No effect here: the model itself declares its outputs."""
    strict: Annotated[bool, EXTENSION] = False
    """Whether opening fails, instead of a warning, if TensorRT is not available."""
    provider_options: Annotated[dict[str, Any], EXTENSION, PROVIDER_OPTIONS] = Field(default_factory=dict)
    """Further options of the provider by onnxruntime's names, `{"trt_engine_cache_enable": true}`; they override those
    that the fields above set."""
    session_options: Annotated[SessionOptions, EXTENSION] = SessionOptions()
    """Threads and graph optimisation of onnxruntime."""
    warm_up: WarmUp = False
    """Run the model on zeros when it is opened, which builds the engine: `true` for one sample, a number for that
    many."""
    cast_inputs: Annotated[bool, EXTENSION] = False
    """Also convert floats to integers (the fraction is cut off) and numbers to bool; otherwise a record that needs this
    fails."""

    def __init__(self, model_uri: Place = None, /, **fields: Any) -> None:
        super().__init__(**placed(model_uri, fields))

    @field_validator("min_dimensions", "max_dimensions", "optimal_dimensions")
    @classmethod
    def _once(cls, given: Dimensions) -> Dimensions:
        names = [dimensions.name for dimensions in given or ()]
        if len(set(names)) < len(names):
            raise ValueError("an input is named twice")
        return given
