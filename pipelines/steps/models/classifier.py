"""CLASSIFIER_OUTPUT: label, index and probability from a classifier's output."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from pipelines.steps.base import RunBy, Step
from pipelines.steps.config import EXTENSION, Int, Key


class ClassifierOutput(Step):
    """Adds label, index and probability of the most probable class to the record.

    The input is an array of probabilities of C classes, `[C]` or `[1, C]` for one sample (single values are added) or
    `[N, C]` for N samples (lists of N values are added). For a model that gives logits `activation` makes them
    probabilities.
    """

    type_name: ClassVar[str] = "CLASSIFIER_OUTPUT"
    run_by: ClassVar[RunBy | None] = RunBy("numpy", "pipelines.runners.models.classifier:ClassifierOutputRunner")

    input_name: str | None = None
    """Key of the probabilities; default: the record's only array."""
    return_label: bool = True
    """Whether to add the label."""
    return_index: bool = True
    """Whether to add the class index, counted from 0."""
    return_prob: bool = True
    """Whether to add the probability."""
    label_name: Key = "label"
    """Key of the label, STRING."""
    index_name: Key = "index"
    """Key of the class index, INT64."""
    prob_name: Key = "prob"
    """Key of the probability, DOUBLE."""
    labels: tuple[str, ...] | None = None
    """Labels of the classes 0, 1, ...; default, or if empty: "0", "1", ..."""
    top_n: Annotated[Int, Field(ge=0)] | None = None
    """If above 1, the values for one sample are lists of one element, as in Konduit Serving; still only the most
    probable class is added."""
    all_probabilities: bool = False
    """Whether to add the probabilities of all classes as a float64 array `[C]` under the key `allProbabilities`."""
    activation: Annotated[Literal["NONE", "SOFTMAX", "SIGMOID"], EXTENSION] = "NONE"
    """What makes probabilities of the numbers: nothing, as they are some; `SOFTMAX` of a sample's numbers, for models
    that give logits of classes of which one is right; `SIGMOID` of each number, where each class is a question of its
    own."""
