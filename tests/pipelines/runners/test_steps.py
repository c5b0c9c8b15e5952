"""Step configuration: spellings, Konduit's coercions, defaults, writing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from builtintypes import STEPS
from pydantic import ValidationError

import pipelines
from pipelines.errors import DefinitionError
from pipelines.steps import (
    ClassifierOutput,
    Function,
    Logging,
    Onnx,
    RegressionOutput,
    SessionOptions,
    Step,
)


def scale(data: Any) -> Any:
    return data


def wrong(step: type[Step], **fields: Any) -> str:
    with pytest.raises(ValidationError) as caught:
        step.model_validate(fields)
    return str(caught.value)


def test_steps_are_made_with_snake_case_keywords() -> None:
    assert Onnx("model.onnx", output_names=["a"]).to_dict() == {
        "@type": "ONNX",
        "modelUri": "model.onnx",
        "outputNames": ["a"],
    }
    assert Onnx(Path("models") / "m.onnx").model_uri == str(Path("models") / "m.onnx")
    assert Onnx(model_uri="m") == Onnx("m")
    assert ClassifierOutput(labels=["a", "b"]).labels == ("a", "b")


def test_fields_of_a_step_cannot_be_assigned() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        Onnx("m").model_uri = "other"  # type: ignore[misc]


@pytest.mark.parametrize("given", [{"topN": 3}, {"top_n": 3}, {"topN": "3"}, {"topN": 3.9}, {"top_n": 3.0}])
def test_both_spellings_and_konduits_number_coercions_are_read(given: dict[str, Any]) -> None:
    assert ClassifierOutput.model_validate(given).top_n == 3


@pytest.mark.parametrize(
    ("given", "expected"), [("true", True), ("false", False), (True, True), (0, False), (None, False)]
)
def test_booleans_are_read_as_konduit_reads_them(given: Any, expected: bool) -> None:
    assert ClassifierOutput.model_validate({"returnLabel": given}).return_label is expected


def test_numbers_are_read_as_strings_where_strings_are_needed() -> None:
    assert ClassifierOutput.model_validate({"labels": [0, 1]}).labels == ("0", "1")


def test_null_is_none_where_a_field_may_have_none_and_the_default_elsewhere() -> None:
    step = ClassifierOutput.model_validate(
        {"inputName": None, "labels": None, "labelName": None, "index_name": None, "probName": None, "name": None}
    )

    assert step == ClassifierOutput()
    assert (step.label_name, step.index_name, step.prob_name) == ("label", "index", "prob")
    assert Logging.model_validate({"logLevel": None, "log": None}) == Logging()


def test_the_old_spelling_of_a_key_is_read_and_the_new_one_written() -> None:
    step = Logging.model_validate({"keyfilterRegex": "a.*"})

    assert step.to_dict()["keyFilterRegex"] == "a.*"
    assert step.to_dict("yaml")["key_filter_regex"] == "a.*"


@pytest.mark.parametrize(
    ("step", "fields"),
    [
        (ClassifierOutput, {"labels": "a"}),
        (ClassifierOutput, {"topN": True}),
        (ClassifierOutput, {"topN": "many"}),
        (ClassifierOutput, {"topN": float("nan")}),
        (ClassifierOutput, {"topN": -1}),
        (Logging, {"logLevel": "info"}),
        (RegressionOutput, {"names": {"x": -1}}),
        (RegressionOutput, {"names": ["x"]}),
        (Onnx, {"sessionOptions": {"graphOptimization": "best"}}),
        (Onnx, {"maxBatch": 0}),
        (Onnx, {"providers": "CUDAExecutionProvider"}),
        (Function, {}),
        (Function, {"function": "no_colon"}),
        (Function, {"function": 5}),
    ],
)
def test_a_wrong_value_of_a_field_is_an_error_that_names_the_field(step: type[Step], fields: dict[str, Any]) -> None:
    assert next(iter(fields), "function") in wrong(step, **fields)


def test_a_field_given_in_both_spellings_is_an_error_naming_both() -> None:
    assert "given twice, as modelUri and as model_uri" in wrong(Onnx, modelUri="a", model_uri="b")


def test_the_type_of_another_step_is_an_error() -> None:
    assert '"@type" is \'ONNX\', but Logging is "LOGGING"' in wrong(Logging, **{"@type": "ONNX"})


def test_our_own_fields_are_written_only_when_set_and_read_back() -> None:
    step = Onnx(
        "m",
        name="net",
        input_names={"x": "image"},
        providers=["CPUExecutionProvider", {"CUDAExecutionProvider": {"device_id": 1}}],
        session_options=SessionOptions(intra_op_threads=4, config={"a.b": "1"}),
        warm_up=8,
        max_batch=32,
        cast_inputs=True,
    )

    assert step.to_dict("yaml") == {
        "@type": "ONNX",
        "modelUri": "m",
        "inputNames": {"x": "image"},
        "providers": ["CPUExecutionProvider", {"CUDAExecutionProvider": {"device_id": 1}}],
        "sessionOptions": {
            "intraOpThreads": 4,
            "interOpThreads": 1,
            "graphOptimization": "all",
            "spinning": False,
            "config": {"a.b": "1"},
        },
        "warmUp": 8,
        "maxBatch": 32,
        "castInputs": True,
        "name": "net",
    }
    assert Onnx.model_validate(step.to_dict("yaml")) == step
    assert Onnx.model_validate(step.to_dict("json")) == step


@pytest.mark.parametrize(("given", "expected"), [(True, True), ("true", True), (8, 8), ("8", 8), (0, 0)])
def test_warm_up_is_a_switch_or_a_number_of_rows(given: Any, expected: Any) -> None:
    found = Onnx.model_validate({"warmUp": given}).warm_up

    assert found == expected
    assert type(found) is type(expected)


def test_a_function_is_held_and_written_by_its_name() -> None:
    step = Function(scale)

    assert step.function is scale
    assert step.to_dict() == {"@type": "FUNCTION", "function": f"{__name__}:scale"}
    assert step == Function(f"{__name__}:scale")
    assert hash(step) == hash(Function(f"{__name__}:scale"))
    assert step != Function(lambda data: data)


def test_a_lambda_runs_but_cannot_be_written() -> None:
    step = Function(lambda data: data)

    assert step == step
    with pytest.raises(DefinitionError, match="move it to the top level of a module"):
        step.to_dict()


def test_every_field_says_what_it_is() -> None:
    silent = [
        f"{step.__name__}.{name}"
        for step in STEPS
        for name, field in step.model_fields.items()
        # The same field under another of its keys has no description.
        if "description" not in step.model_json_schema()["properties"][field.alias or step.key(name)]
    ]

    assert silent == []


@pytest.mark.parametrize(
    ("definition", "where"),
    [
        ('{"@type": ONNX, modelUri: m.onnx, outputNames: ["@Metadata"]}', "steps[0].outputNames"),
        ('{"@type": ONNX, modelUri: m.onnx, outputNames: {y: "@metadata"}}', "steps[0].outputNames"),
        ('{"@type": KERAS, modelUri: m.keras, outputNames: ["@type"]}', "steps[0].outputNames"),
        ('{"@type": TENSORFLOW, modelUri: m.pb, outputNames: ["@type"]}', "steps[0].outputNames"),
        ('{"@type": TENSORRT, modelUri: m.onnx, outputNames: ["@type"]}', "steps[0].outputNames"),
        ('{"@type": TVM, modelUri: m.so, outputNames: ["@type"]}', "steps[0].outputNames[0]"),
        ('{"@type": IMAGE_TO_NDARRAY, outputNames: ["@x1"]}', "steps[0].outputNames[0]"),
        ('{"@type": CLASSIFIER_OUTPUT, labelName: "@Point"}', "steps[0].labelName"),
        ('{"@type": REGRESSION_OUTPUT, names: {"@h": 0}}', "steps[0].names.@h"),
        ('{"@type": SSD_TO_BBOX, outputName: "@w"}', "steps[0].outputName"),
        ('{"@type": YOLO_BBOX, output: "@w"}', "steps[0].output"),
        ('{"@type": PYTHON, pythonConfig: {pythonCode: "x = 1", ioOutputs: {"@x1": {}}}}', "ioOutputs.@x1"),
    ],
)
def test_a_step_that_would_write_a_reserved_key_is_refused_when_it_is_loaded(definition: str, where: str) -> None:
    with pytest.raises(DefinitionError, match="reserved for internal use only") as caught:
        pipelines.loads(f"steps:\n  - {definition}\n")
    assert where in str(caught.value)
