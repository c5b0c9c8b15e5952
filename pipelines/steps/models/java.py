"""DEEPLEARNING4J, SAMEDIFF and SAMEDIFF_TRAINING: models that only Java's libraries read.

Definitions with them can be read and written; opening them is an error that says what to do instead.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pipelines.steps.base import Step
from pipelines.steps.config import Int, Spelling
from pipelines.steps.models.model import ModelUri

_REBUILD = "else rebuild the network in PyTorch or Keras, give it the parameters and export it to ONNX (docs/models.md)"


class DeepLearning4j(Step):
    """A model of the Java library Deeplearning4j (a zip file), which cannot be run here."""

    type_name: ClassVar[str] = "DEEPLEARNING4J"
    yaml_case: ClassVar[Literal["snake", "camel"]] = "camel"
    instead: ClassVar[str] = (
        "only Java reads Deeplearning4j models: if it was imported from Keras run that file with KERAS, " + _REBUILD
    )

    model_uri: ModelUri = None
    """Path or URL of the model."""
    input_names: tuple[str, ...] | None = None
    """Keys of the data for the model's inputs."""
    output_names: tuple[str, ...] | None = None
    """Keys of the result for the model's outputs."""
    debug_mode: bool = False
    """A setting of Konduit Serving; no effect here."""
    verbose_mode: bool = False
    """A setting of Konduit Serving; no effect here."""
    loader_class: Annotated[str | None, Spelling(yaml="loader_class")] = None
    """A Java class that loads the model, in Konduit Serving; no effect here."""


class SameDiff(Step):
    """A model of the Java library SameDiff (a FlatBuffers file), which cannot be run here."""

    type_name: ClassVar[str] = "SAMEDIFF"
    yaml_case: ClassVar[Literal["snake", "camel"]] = "camel"
    instead: ClassVar[str] = (
        "only Java reads SameDiff models: if it was imported from TensorFlow or ONNX run that file with TENSORFLOW or "
        "ONNX, " + _REBUILD
    )

    model_uri: ModelUri = None
    """Path or URL of the model."""
    output_names: tuple[str, ...] | None = None
    """Variables to compute."""
    debug_mode: bool = False
    """A setting of Konduit Serving; no effect here."""
    verbose_mode: bool = False
    """A setting of Konduit Serving; no effect here."""


class SameDiffTraining(Step):
    """Training of a model of the Java library SameDiff on the records, which cannot be run here."""

    type_name: ClassVar[str] = "SAMEDIFF_TRAINING"
    yaml_case: ClassVar[Literal["snake", "camel"]] = "camel"
    instead: ClassVar[str] = (
        "only Java trains SameDiff models: train outside the pipeline and run the result with ONNX, or train in a "
        "FUNCTION step (docs/models.md)"
    )

    model_uri: ModelUri = None
    """Path or URL of the model."""
    l1: float = -1.0
    """L1 regularisation; negative: none."""
    l2: float = -1.0
    """L2 regularisation; negative: none."""
    model_save_output_path: str | None = None
    """Where the trained model is written."""
    num_epochs: Int = 1
    """Number of epochs; Konduit Serving ignores it."""
    input_features: tuple[str, ...] | None = None
    """Keys of the features."""
    loss_variables: tuple[str, ...] | None = None
    """Variables of the loss."""
    labels: tuple[str, ...] | None = None
    """Keys of the labels."""
    target_variables: tuple[str, ...] | None = None
    """Variables to train."""
    weight_decay_coefficient: float = 0.0
    """Weight decay."""
    weight_decay_apply_learning_rate: bool = True
    """Whether the learning rate scales the weight decay."""
    updater: dict[str, Any] | None = None
    """ND4J's updater, by its Java class: `{"@class": "org.nd4j.linalg.learning.config.Adam"}`."""
    learning_rate: float | None = None
    """Learning rate of the updater."""
    learning_rate_schedule: dict[str, Any] | None = None
    """ND4J's schedule of the learning rate, by its Java class."""
    initial_loss_type: str | None = "FLOAT"
    """ND4J's data type of the loss."""
    loss_function: str | None = None
    """ND4J's loss function."""
    debug_mode: bool = False
    """A setting of Konduit Serving; no effect here."""
    verbose_mode: bool = False
    """A setting of Konduit Serving; no effect here."""
