"""DEEPLEARNING4J, SAMEDIFF and SAMEDIFF_TRAINING: their definitions live on, and opening says what to do."""

from __future__ import annotations

from typing import Any

import pytest

from pipelines import (
    Data,
    DeepLearning4j,
    OpenContext,
    Registry,
    RegistryError,
    RowRunner,
    RunnerFactory,
    SameDiff,
    SameDiffTraining,
    Sequence,
    StepError,
    loads,
)

STEPS = [
    (DeepLearning4j(model_uri="m.zip"), "DEEPLEARNING4J", "imported from Keras run that file with KERAS"),
    (SameDiff(model_uri="m.fb"), "SAMEDIFF", "imported from TensorFlow or ONNX run that file with TENSORFLOW or ONNX"),
    (SameDiffTraining(model_uri="m.fb"), "SAMEDIFF_TRAINING", "run the result with ONNX, or train in a FUNCTION step"),
]


@pytest.mark.parametrize(("step", "name", "text"), STEPS, ids=[name for _, name, _ in STEPS])
def test_opening_says_that_only_java_runs_it_and_what_to_do(step: Any, name: str, text: str) -> None:
    pipeline = Sequence([step])
    assert loads(pipeline.to_json()) == loads(pipeline.to_yaml()) == pipeline
    with pytest.raises(StepError, match=f"0:{name}: no runner for the step {name} is installed; only Java") as caught:
        pipeline.open()
    assert isinstance(caught.value.__cause__, RegistryError)
    assert text in str(caught.value)
    assert "docs/models.md" in str(caught.value)


class Answer(RowRunner):
    """A plug-in's runner: counts the letters of the model's place."""

    def __init__(self, step: DeepLearning4j, context: OpenContext) -> None:
        self._length = len(step.model_uri or "")

    def run(self, data: Data) -> Data:
        return Data({"length": self._length})


def test_a_plug_in_may_still_run_it() -> None:
    registry = Registry(plugins=False)
    registry.add_runner(RunnerFactory("DEEPLEARNING4J", "mine", f"{__name__}:Answer"))
    with Sequence([DeepLearning4j(model_uri="m.zip")]).open(registry=registry) as executor:
        found = executor.run(Data())
    assert found == Data({"length": 5})


def test_everything_that_trains_is_read_and_written() -> None:
    text = """
    {"@type": "SAMEDIFF_TRAINING", "modelUri": "m.fb", "numEpochs": 3, "updater": {"@class": "a.Adam", "beta1": 0.5},
     "learningRate": 0.01, "labels": ["y"], "inputFeatures": ["x"], "lossFunction": "MCXENT"}
    """
    pipeline = loads(f'{{"steps": [{text}]}}')
    (step,) = pipeline.steps
    assert step == SameDiffTraining(
        model_uri="m.fb",
        num_epochs=3,
        updater={"@class": "a.Adam", "beta1": 0.5},
        learning_rate=0.01,
        labels=["y"],
        input_features=["x"],
        loss_function="MCXENT",
    )
    assert loads(pipeline.to_json()) == loads(pipeline.to_yaml()) == pipeline
