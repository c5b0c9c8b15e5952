"""Fields of steps that are set from outside the definition."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import pipelines
from pipelines import Function, Graph, Logging, Onnx, PipelineStep, Sequence
from pipelines.definitions.overriding import overridden
from pipelines.definitions.pipeline import Pipeline
from pipelines.errors import DefinitionError

ROW: Pipeline = Sequence(
    [
        Onnx("a.onnx"),
        Onnx("b.onnx", name="second"),
        Function("m:f", name="v1.2", args={"limit": 3, "deep": {"on": True}}),
    ],
    id="x",
    base=Path("/models"),
)


def steps(pipeline: Any) -> list[Any]:
    return [step for _, step in pipeline.named_steps()]


def test_a_type_means_all_its_steps_and_the_pipeline_itself_stays() -> None:
    found = overridden(ROW, {"ONNX.modelUri": "c.onnx"})
    assert [step.model_uri for step in steps(found)[:2]] == ["c.onnx", "c.onnx"]
    assert [step.model_uri for step in steps(ROW)[:2]] == ["a.onnx", "b.onnx"]
    assert (found.id, found.base) == ("x", Path("/models"))
    assert steps(found)[2] == steps(ROW)[2]


@pytest.mark.parametrize("key", ["second.modelUri", "second.model_uri"])
def test_a_name_means_one_step_in_any_spelling_of_the_field(key: str) -> None:
    found = overridden(ROW, {key: "c.onnx"})
    assert [step.model_uri for step in steps(found)[:2]] == ["a.onnx", "c.onnx"]


def test_a_step_without_a_name_is_called_by_place_and_type() -> None:
    assert steps(overridden(ROW, {"0:ONNX.modelUri": "c.onnx"}))[0].model_uri == "c.onnx"


def test_keys_inside_a_field_are_set_beside_the_others() -> None:
    found = overridden(ROW, {"v1.2.args.limit": 4, "v1.2.args.deep.off": False, "v1.2.concurrency": 2})
    assert steps(found)[2].args == {"limit": 4, "deep": {"on": True, "off": False}}
    assert steps(found)[2].concurrency == 2


@pytest.mark.parametrize(("text", "value"), [("4", 4), ("0.5", 0.5)])
def test_text_that_stands_for_a_number_becomes_one(text: str, value: float) -> None:
    assert steps(overridden(ROW, {"v1.2.args.limit": text}))[2].args["limit"] == value


def test_a_graph_keeps_its_wiring() -> None:
    graph = Graph({"a": (Onnx("a.onnx"), "input"), "b": (Onnx("b.onnx"), "a")}, output="b")
    found = overridden(graph, {"b.modelUri": "c.onnx"})
    assert found == Graph({"a": (Onnx("a.onnx"), "input"), "b": (Onnx("c.onnx"), "a")}, output="b")


def test_a_step_of_a_pipeline_inside_is_meant_by_its_long_name_its_name_and_its_type() -> None:
    outer = Sequence([PipelineStep(Sequence([Onnx("a.onnx", name="model")]), name="in"), Onnx("z.onnx")])
    for key in ("in/model.modelUri", "model.modelUri"):
        found: Any = overridden(outer, {key: "c.onnx"})
        assert found.steps[0].pipeline.steps[0].model_uri == "c.onnx"
        assert found.steps[1].model_uri == "z.onnx"
    assert "z.onnx" not in json.dumps(overridden(outer, {"ONNX.modelUri": "c.onnx"}).to_dict())


def test_a_pipeline_in_a_file_of_its_own_is_read_and_keeps_its_folder(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "in.yaml").write_text("steps: [{'@type': ONNX, modelUri: a.onnx}]")
    (tmp_path / "out.yaml").write_text("steps: [{'@type': PIPELINE, pipeline: deep/in.yaml, name: in}]")
    outer: Any = pipelines.load(tmp_path / "out.yaml")
    found: Any = overridden(outer, {"in/0:ONNX.modelUri": "c.onnx"})
    assert found.steps[0].pipeline.steps[0].model_uri == "c.onnx"
    assert found.steps[0].pipeline.base == tmp_path / "deep"
    assert overridden(outer, {"in.name": "other"}).steps[0].pipeline == "deep/in.yaml"


def test_steps_behind_a_trigger_can_be_overridden() -> None:
    waiting = pipelines.Async(ROW, pipelines.SimpleLoopTrigger(frequency_ms=5))
    found: Any = overridden(waiting, {"second.modelUri": "c.onnx"})
    assert found.trigger == waiting.trigger
    assert steps(found)[1].model_uri == "c.onnx"


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"secnd.modelUri": "c"}, '; did you mean "second"?'),
        ({"modelUri": "c"}, '"modelUri" names no step'),
        ({"second.modelUrl": "c"}, '; did you mean "modelUri"?'),
        ({"v1.2.concurrency": 0}, '"v1.2.concurrency": Input should be greater than or equal to 1'),
        ({"v1.2.args.limit": "many"}, "'many' is not of the type of 3"),
        ({"second.modelUri.deep": "c"}, """there is nothing called "deep" inside second.modelUri, which is 'b.onnx'"""),
        ({"second": {"modelUri": "c"}}, '"second" names a step, and no field of it: write "second.field: value"'),
    ],
)
def test_a_wrong_override_is_an_error_with_its_key(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(DefinitionError) as raised:
        overridden(ROW, settings)
    assert said in str(raised.value)


def test_an_element_of_a_list_cannot_be_set_alone() -> None:
    row = Sequence([Onnx("a.onnx", name="risk", inputs={"x": ["temp", "vib"]})])
    with pytest.raises(DefinitionError, match=r'called "0" inside risk\.inputs\.x, which is a list: give all of it'):
        overridden(row, {"risk.inputs.x.0": "load"})


def test_without_settings_the_pipeline_is_the_same_object() -> None:
    assert overridden(ROW, {}) is ROW
    assert overridden(Sequence([Logging()]), {"LOGGING.logLevel": "ERROR"}) != Sequence([Logging()])
