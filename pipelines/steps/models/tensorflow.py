"""TENSORFLOW, ND4JTENSORFLOW and KERAS: run a model of TensorFlow or Keras."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pipelines.steps.base import RunBy, Step
from pipelines.steps.config import EXTENSION
from pipelines.steps.models.model import MaxBatch, ModelUri, Names, OutputNames, Place, WarmUp, placed


class TensorFlow(Step):
    """Run a frozen graph or a SavedModel of TensorFlow: `TensorFlow("frozen.pb", output_names=["y/Softmax"])`.

    Names are those of the graph, `scope/operation` or `scope/operation:1`, or of a SavedModel's signature.
    """

    type_name: ClassVar[str] = "TENSORFLOW"
    run_by: ClassVar[RunBy | None] = RunBy(
        "tensorflow", "pipelines.runners.models.tensorflow:TensorFlowRunner", ("tensorflow",), extra="tensorflow"
    )

    input_names: Names = None
    """Names of the model's inputs, which are also the keys of the record; default: all of the signature, or the graph's
    placeholders. A mapping `{model's input: key of the record}` (not in Konduit Serving) reads other keys."""
    output_names: OutputNames = None
    """Names of the outputs to compute, which are also the keys of the result; `name:1` is the second output of an
    operation. Default: all of the signature, or the operations of the graph that no other one reads. A mapping
    `{model's output: key of the result}` (not in Konduit Serving) renames them."""
    model_uri: ModelUri = None
    """Path of the frozen graph (`.pb`) or of the SavedModel (its folder, or its `.pb` if it has no variables), or
    a `file:`, `http:` or `https:` URI of a file."""
    warm_up: WarmUp = False
    """Run the model on zeros when it is opened, so that the first records need not wait: `true` for one sample, a
    number for that many."""
    max_batch: MaxBatch = None
    """The most samples in one call of the model; default: the whole batch."""
    cast_inputs: Annotated[bool, EXTENSION] = False
    """Also convert floats to integers (the fraction is cut off) and numbers to bool; otherwise a record that needs this
    fails."""

    @property
    def code_keys(self) -> tuple[str, ...]:
        """The model: operations of a graph read and write files."""
        return (self.key("model_uri"),)

    def __init__(self, model_uri: Place = None, /, **fields: Any) -> None:
        super().__init__(**placed(model_uri, fields))


class Nd4jTensorFlow(TensorFlow):
    """The same as TENSORFLOW. Konduit Serving runs models of TensorFlow in two ways, which are one here."""

    type_name: ClassVar[str] = "ND4JTENSORFLOW"
    run_by: ClassVar[RunBy | None] = RunBy(
        "tensorflow", "pipelines.runners.models.tensorflow:TensorFlowRunner", ("tensorflow",), extra="tensorflow"
    )

    def __init__(self, model_uri: Place = None, /, **fields: Any) -> None:
        super().__init__(**placed(model_uri, fields))


class Keras(Step):
    """Run a Keras model: `Keras("model.keras")`.

    `input_names` and `output_names` are in the order of the model's inputs and outputs.
    """

    type_name: ClassVar[str] = "KERAS"
    run_by: ClassVar[RunBy | None] = RunBy(
        "keras", "pipelines.runners.models.keras:KerasRunner", ("keras",), extra="tensorflow"
    )
    yaml_case: ClassVar[Literal["snake", "camel"]] = "camel"

    model_uri: ModelUri = None
    """Path of the model, `.keras` or HDF5 (`.h5`), relative to the definition's folder, or a `file:`, `http:` or
    `https:` URI."""
    input_names: Names = None
    """Keys of the record for the model's inputs, in the model's order; default: the inputs' own names. Or a mapping
    `{model's input: key of the record}` (not in Konduit Serving)."""
    output_names: OutputNames = None
    """Keys of the result for the model's outputs, in the model's order; default: `default` for a single output,
    otherwise the outputs' own names. Or a mapping `{model's output: key of the result}` (not in Konduit Serving)."""
    warm_up: WarmUp = False
    """Run the model on zeros when it is opened, so that the first records need not wait: `true` for one sample, a
    number for that many."""
    max_batch: MaxBatch = None
    """The most samples in one call of the model; default: the whole batch."""
    cast_inputs: Annotated[bool, EXTENSION] = False
    """Also convert floats to integers (the fraction is cut off) and numbers to bool; otherwise a record that needs this
    fails."""

    def __init__(self, model_uri: Place = None, /, **fields: Any) -> None:
        super().__init__(**placed(model_uri, fields))
