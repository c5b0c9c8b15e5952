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
    """The model's inputs, which are also the keys of the data; none: the signature's, or the graph's placeholders. A
    mapping, ours, renames: `{model's input: key of the data}`."""
    output_names: OutputNames = None
    """The outputs to fetch, `name:k` for the k-th output of an operation; they are also the keys of the result. None:
    the signature's, or the operations of the graph that nothing reads. A mapping, ours, renames."""
    model_uri: ModelUri = None
    """Path of the frozen graph (`.pb`) or of the SavedModel (its folder, or its `.pb` if it has no variables), or
    a `file:`, `http:` or `https:` URI of a file."""
    warm_up: WarmUp = False
    """Run the model on zeros while it opens: true for one row, a number for that many rows."""
    max_batch: MaxBatch = None
    """At most this many samples in one call of the model; none: the whole batch."""
    cast_inputs: Annotated[bool, EXTENSION] = False
    """Also convert inputs where values lose their meaning: floats to integers, numbers to bool."""

    @property
    def code_keys(self) -> tuple[str, ...]:
        """The model: operations of a graph read and write files."""
        return (self.key("model_uri"),)

    def __init__(self, model_uri: Place = None, /, **fields: Any) -> None:
        super().__init__(**placed(model_uri, fields))


class Nd4jTensorFlow(TensorFlow):
    """The same as TENSORFLOW: Konduit's two ways to run a model of TensorFlow are one here."""

    type_name: ClassVar[str] = "ND4JTENSORFLOW"
    run_by: ClassVar[RunBy | None] = RunBy(
        "tensorflow", "pipelines.runners.models.tensorflow:TensorFlowRunner", ("tensorflow",), extra="tensorflow"
    )

    def __init__(self, model_uri: Place = None, /, **fields: Any) -> None:
        super().__init__(**placed(model_uri, fields))


class Keras(Step):
    """Run a Keras model: `Keras("model.keras")`.

    Inputs and outputs go by their order in the model.
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
    """Keys of the data for the model's inputs, in the model's order; none: the model's own names. A mapping, ours:
    `{model's input: key of the data}`."""
    output_names: OutputNames = None
    """Keys of the result for the model's outputs, in the model's order; none: `default` for the only one, else the
    model's own names. A mapping, ours: `{model's output: key of the data}`."""
    warm_up: WarmUp = False
    """Run the model on zeros while it opens: true for one row, a number for that many rows."""
    max_batch: MaxBatch = None
    """At most this many samples in one call of the model; none: the whole batch."""
    cast_inputs: Annotated[bool, EXTENSION] = False
    """Also convert inputs where values lose their meaning: floats to integers, numbers to bool."""

    def __init__(self, model_uri: Place = None, /, **fields: Any) -> None:
        super().__init__(**placed(model_uri, fields))
