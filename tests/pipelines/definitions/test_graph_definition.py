"""Definitions of graphs: reading, what is wrong with them, building in Python, pictures, pipelines as steps."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import pipelines
from pipelines import (
    AnyOf,
    Async,
    Data,
    DefinitionError,
    Function,
    FunctionSwitch,
    Graph,
    GraphBuilder,
    IntSwitch,
    Logging,
    Merge,
    Pipeline,
    PipelineStep,
    Registry,
    Sequence,
    StepError,
    StringSwitch,
    Switch,
    SwitchOutput,
    TimeLoopTrigger,
)

SWITCH = """\
outputStep: end
steps:
  sw: {'@type': SWITCH, '@input': input, switchFn: {'@type': INT_SWITCH, numOutputs: 2, fieldName: n}}
  l: {'@type': SWITCH_OUTPUT, '@input': sw, outputNum: 0}
  r: {'@type': SWITCH_OUTPUT, '@input': sw, outputNum: 1}
  log: {'@type': LOGGING, '@input': l}
  end: {'@type': ANY, '@input': [log, r]}
"""


def plus(data: Data) -> Data:
    return Data({"n": data["n"] + 1})


def failure(text: str) -> str:
    with pytest.raises(DefinitionError) as caught:
        pipelines.loads(text)
    return str(caught.value)


def test_a_graph_is_read_with_the_names_and_inputs_of_its_steps() -> None:
    graph = pipelines.loads(SWITCH)

    assert isinstance(graph, Graph)
    assert graph.output == "end"
    assert graph.steps["sw"].step == Switch(switch_fn=IntSwitch(num_outputs=2, field_name="n"))
    assert graph.steps["end"].inputs == ("log", "r")
    assert graph.named_steps() == [("log", Logging())]
    assert pipelines.loads(graph.to_json()) == pipelines.loads(graph.to_yaml()) == graph


def test_inputs_are_a_text_or_a_list_under_either_name_for_every_step() -> None:
    text = SWITCH.replace("'@type': LOGGING, '@input': l", "'@type': LOGGING, '@inputs': [l]")
    text = text.replace("'@type': SWITCH_OUTPUT, '@input': sw, outputNum: 0", "'@inputs': sw, '@type': SWITCH_OUTPUT")
    text = text.replace("'@type': SWITCH_OUTPUT}", "'@type': SWITCH_OUTPUT, output_num: '0'}")
    assert pipelines.loads(text) == pipelines.loads(SWITCH)
    one = pipelines.loads("steps: {m: {'@type': MERGE, '@input': input}}")
    assert one.to_dict() == {"outputStep": "m", "steps": {"m": {"@type": "MERGE", "@input": ["input"]}}}
    assert pipelines.loads(one.to_json()) == one


def test_names_that_yaml_reads_as_numbers_are_names() -> None:
    graph = pipelines.loads(
        "outputStep: 2\nsteps:\n  1: {'@type': LOGGING, '@input': input}\n  2: {'@type': LOGGING, '@input': 1}"
    )
    assert list(graph.steps) == ["1", "2"]
    assert graph.steps["2"].inputs == ("1",)


def step(name: str, kind: str, inputs: str, more: str = "") -> str:
    return f"  {name}: {{'@type': {kind}, '@input': {inputs}{more}}}\n"


LOG = step("log", "LOGGING", "input")


@pytest.mark.parametrize(
    ("written", "wrong", "message"),
    [
        ("[log, r]", "[logg, r]", '7: steps.end.@input: there is no step "logg"; did you mean "log"?'),
        ("'@input': l}", "'@input': x}", '6: steps.log.@input: there is no step "x"; there are input, sw'),
        ("outputNum: 1", "outputNum: 2", '5: steps.r: outputNum is 2; the 2 branches of "sw" are numb'),
        ("outputNum: 1", "outputNum: 0", "3: steps.sw: there is no SWITCH_OUTPUT for branch 1"),
        ("numOutputs: 2", "numOutputs: 4", "3: steps.sw: there is no SWITCH_OUTPUT for branch 2 and 3"),
        ("numOutputs: 2", "numOutputs: 0", "3: steps.sw.switchFn.numOutputs: must be greater than 0"),
        ("INT_SWITCH", "INT_SWITCHH", '3: steps.sw.switchFn.@type: no such switch function type: "INT_'),
        ("'@type': INT_SWITCH, ", "", '3: steps.sw.switchFn: "@type" is missing; known types are FUNC'),
        ("fieldName: n", "fieldNam: n", '3: steps.sw.switchFn.fieldNam: no such field; did you mean "fi'),
        (", switchFn", ", swichFn", '3: steps.sw.swichFn: no such field; did you mean "switchFn"?'),
        ("'@input': sw, outputNum: 1", "'@input': log, outputNum: 1", "5: steps.r.@input: the input of a"),
        ("ANY", "MERGE", '7: steps.end.@input: "r" and the inputs before it are on different branches'),
        ("[log, r]", "[log]", '5: steps.r: no step reads its output, and the outputStep is "end"; a'),
        ("outputStep: end", "outputStep: log", "7: steps.end: no step reads its output, and the"),
        ("outputStep: end", "outputStep: ende", '1: outputStep: there is no step "ende"; did you mean "e'),
        ("'@type': LOGGING, '@input': l", "'@type': LOGGING", '6: steps.log: "@input" is missing; name a'),
        ("'@input': l}", "'@input': l, '@inputs': l}", '6: steps.log: "@input" and "@inputs" are the sa'),
        ("'@input': l}", "'@input': [l, r]}", "6: steps.log.@input: LOGGING has one input, not 2; join"),
        ("'@input': l}", "'@input': []}", '6: steps.log: has no input; name a step, or "input" for th'),
        ("'@input': l}", "'@input': [{}]}", "6: steps.log.@input: must be the name of a step or a lis"),
        ("[log, r]", "[log, r, log]", '7: steps.end.@input: "log" is an input twice'),
        ("LOGGING", "LOGGIN", '6: steps.log.@type: no such step type: "LOGGIN"; did you mean "LOGGING"'),
        ("  log:", "  input:", '6: steps.input: no step may be called "input"'),
        ("  log: {", "  log: 5 #", '6: steps.log: a step is a mapping with "@type" and "@input", not 5'),
    ],
)
def test_a_mistake_in_a_switch_is_told_with_its_line_and_step(written: str, wrong: str, message: str) -> None:
    assert failure(SWITCH.replace(written, wrong)).startswith(f"<text>:{message}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("outputStep: a\nsteps: {}", "2: steps: a graph needs a step at least"),
        (
            "steps:\n" + step("a", "LOGGING", "c") + step("b", "LOGGING", "a") + step("c", "LOGGING", "b"),
            "2: steps.a.@input: runs in a circle: a -> b -> c -> a",
        ),
        ("steps:\n" + step("a", "LOGGING", "a"), "2: steps.a.@input: runs in a circle: a -> a"),
        (
            "steps:\n" + LOG + step("other", "LOGGING", "input"),
            '1: steps: "log" and "other" are both outputs; join them, and name the one output with outputStep',
        ),
        ("outputStep: log\nsteps:\n" + LOG + "outputs: x", '4: outputs: no such field; did you mean "outputStep"?'),
        ("steps:\n" + LOG + "'@AsyncTrigger': {'@type': LOOP}", '3: @AsyncTrigger.@type: no such trigger type: "LOOP"'),
        (
            "steps:\n" + LOG + "'@AsyncTrigger': {'@type': TIME_LOOP_TRIGGER, offset: 5}",
            "3: @AsyncTrigger.frequencyMs: is required",
        ),
        (
            "steps:\n  c: {'@type': COMBINE, '@input': input, combineFn: {'@type': ENSEMBLE, weights: [1, 2]}}",
            "2: steps.c: there are 2 weights for 1 inputs",
        ),
        (
            "steps:\n  s: {'@type': SWITCH, '@input': input, switchFn:\n"
            "    {'@type': STRING_SWITCH, numOutputs: 1, fieldName: k, map: {a: 1}}}",
            '2: steps.s.switchFn: map: "a" goes to branch 1, but the 1 branches (numOutputs) are numbered from 0 to 0',
        ),
    ],
)
def test_a_mistake_in_a_graph_is_told_with_its_line_and_step(text: str, message: str) -> None:
    assert failure(text).startswith(f"<text>:{message}")


@pytest.mark.parametrize(
    ("steps", "output", "message"),
    [
        ({}, None, "a graph needs a step at least"),
        ({"a": Logging()}, None, r'step "a": a step and its input are needed: \(Logging, "input"\)'),
        ({"a": (Logging, "input")}, None, r'step "a" is the class Logging, not a step: write Logging\(\.\.\.\)'),
        ({"a": (5, "input")}, None, 'step "a" is a int; a step is a pipelines.Step or a function'),
        ({"a": (Logging(), "b")}, None, 'step "a": there is no step "b"'),
        ({"a": (Logging(), "input")}, "b", 'outputStep: there is no step "b"'),
        ({"": (Logging(), "input")}, None, 'step "": a step needs a name'),
    ],
)
def test_a_mistake_in_a_graph_made_in_python_is_told_with_its_step(
    steps: dict[str, Any], output: str | None, message: str
) -> None:
    with pytest.raises(DefinitionError, match=message):
        Graph(steps, output)


def test_the_builder_makes_the_graph_that_a_definition_makes() -> None:
    builder = GraphBuilder()
    left, right = builder.input.switch("sw", IntSwitch(field_name="n", num_outputs=2))
    built = builder.build(builder.any(left.then("log", Logging()), right, name="end"))

    text = (
        SWITCH.replace("l:", "sw_0:")
        .replace("r:", "sw_1:")
        .replace("[log, r]", "[log, sw_1]")
        .replace(": l}", ": sw_0}")
    )
    assert built == pipelines.loads(text)
    assert built == Graph(
        {
            "sw": (Switch(switch_fn=IntSwitch(field_name="n", num_outputs=2)), "input"),
            "sw_0": (SwitchOutput(output_num=0), "sw"),
            "sw_1": (SwitchOutput(output_num=1), "sw"),
            "log": (Logging(), "sw_0"),
            "end": (AnyOf(), ["log", "sw_1"]),
        }
    )


def test_steps_that_join_branches_need_no_name() -> None:
    builder = GraphBuilder()
    first = builder.input.merge_with(builder.input.then("a", Logging()))
    assert (first.name, first.merge_with(builder.input).name, builder.any(first).name) == ("merge", "merge_2", "any")


def test_the_builder_refuses_a_name_that_is_taken_and_a_stage_of_another_graph() -> None:
    builder = GraphBuilder()
    stage = builder.input.then("a", Logging())
    with pytest.raises(DefinitionError, match='there is a step "a" already'):
        stage.then("a", Logging())
    with pytest.raises(DefinitionError, match=r'step "merge": Stage\(input\) is not of this graph'):
        builder.merge(stage, GraphBuilder().input)


def test_graphs_differ_by_steps_inputs_output_id_and_name_only(tmp_path: Path) -> None:
    steps: dict[str, Any] = {"a": (Logging(), "input"), "b": (Merge(), ["a", "input"])}
    assert Graph(steps, base=tmp_path) == Graph(dict(reversed(steps.items())))
    assert Graph(steps) != Graph({**steps, "b": (Merge(), ["input", "a"])})
    assert Graph(steps, id="x") != Graph(steps)
    assert Graph(steps) != Sequence([Logging()])


def test_functions_of_switches_and_joints_are_written_by_their_names() -> None:
    builder = GraphBuilder()
    (only,) = builder.input.switch("sw", FunctionSwitch(plus, num_outputs=1))
    graph = builder.build(only.then("plus", plus), id="g", name="n")
    assert graph.to_dict()["steps"]["sw"]["switchFn"] == {
        "@type": "FUNCTION_SWITCH",
        "function": f"{__name__}:plus",
        "numOutputs": 1,
    }
    assert pipelines.loads(graph.to_yaml()) == graph
    assert graph.steps["plus"].step == Function(plus)


def test_a_graph_shows_itself_with_its_text_escaped() -> None:
    builder = GraphBuilder()
    branches = builder.input.switch("<sw>", StringSwitch(field_name="k", num_outputs=2, map={"a": 0}))
    graph = builder.build(builder.any(*branches), name="<b>")

    shown = graph._repr_html_()
    assert shown.startswith("<svg ")
    assert "&lt;sw&gt;_0" in shown
    assert "<b>" not in shown
    assert "<sw>" not in shown
    text = graph.mermaid()
    assert text.startswith("flowchart LR\n")
    assert "&lt;sw&gt;<br/>SWITCH" in text
    assert "-->|1|" in text
    assert repr(graph).startswith("Graph(input -> <sw>, <sw> -> <sw>_0")


def test_every_kind_of_pipeline_is_a_pipeline() -> None:
    graph = Graph({"a": (Logging(), "input")})
    for pipeline in (Sequence([]), graph, Async(graph, TimeLoopTrigger(frequency_ms=5))):
        assert isinstance(pipeline, Pipeline)
    assert not isinstance(Logging(), Pipeline)


def test_pipelines_are_steps_of_pipelines() -> None:
    inner = Sequence([plus, plus])
    builder = GraphBuilder()
    graph = builder.build(builder.any(builder.input.then("inner", inner)))
    outer = Sequence([plus, graph, inner])

    assert outer.steps[1] == PipelineStep(graph)
    with outer.open() as executor:
        assert executor.run(Data({"n": 0})) == Data({"n": 5})
    assert pipelines.loads(outer.to_json()) == outer
    assert pipelines.loads(outer.to_yaml()) == outer


def test_an_error_in_a_pipeline_inside_names_the_way_to_the_step() -> None:
    def refuse(data: Data) -> Data:
        raise ValueError("no")

    outer = Sequence([Graph({"deep": (Sequence([refuse]), "input")})])
    with outer.open() as executor, pytest.raises(StepError) as caught:
        executor.run(Data({"n": 1}))
    assert str(caught.value) == "0:PIPELINE/deep/0:FUNCTION: ValueError: no"
    with pytest.raises(StepError, match=r"^0:PIPELINE/deep/0:ONNX: .*m\.onnx"):
        Sequence([Graph({"deep": (Sequence([pipelines.Onnx("m.onnx")]), "input")})]).open()


def test_a_pipeline_inside_may_be_a_file_with_a_folder_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    inner = {"steps": [{"@type": "FUNCTION", "function": f"{__name__}:plus"}]}
    (tmp_path / "parts" / "inner.json").write_text(
        json.dumps({"steps": [{"@type": "PIPELINE", "pipeline": "deep.json"}]})
    )
    (tmp_path / "parts" / "deep.json").write_text(json.dumps(inner))
    outer = {"steps": {"a": {"@type": "PIPELINE", "@input": "input", "pipeline": "parts/inner.json"}}}
    (tmp_path / "outer.json").write_text(json.dumps(outer))

    graph = pipelines.load(tmp_path / "outer.json")

    assert graph.to_dict() == {"outputStep": "a", **outer}
    with graph.open() as executor:
        assert executor.run(Data({"n": 1})) == Data({"n": 2})
    with pytest.raises(StepError, match=r"^a/0:PIPELINE/0:FUNCTION: the step runs code .*function.* not allowed here"):
        graph.open(allow_code=False)


def test_a_mistake_in_a_nested_pipeline_is_told_with_its_own_file_and_line(tmp_path: Path) -> None:
    inline = "steps:\n- '@type': PIPELINE\n  pipeline:\n    steps:\n    - '@type': LOGGIN"
    assert failure(inline).startswith('<text>:5: steps[0].pipeline.steps[0].@type: no such step type: "LOGGIN"')
    (tmp_path / "inner.yaml").write_text("steps:\n- '@type': LOGGIN")
    (tmp_path / "outer.yaml").write_text("steps:\n- '@type': PIPELINE\n  pipeline: inner.yaml")
    with pytest.raises(DefinitionError, match=r"inner\.yaml:2: steps\[0\]\.@type: no such step type"):
        pipelines.load(tmp_path / "outer.yaml")
    (tmp_path / "outer.yaml").write_text("steps:\n- '@type': PIPELINE\n  pipeline: inne.yaml")
    with pytest.raises(DefinitionError, match=r"outer\.yaml:3: steps\[0\]\.pipeline: .*inne\.yaml: no such file; did"):
        pipelines.load(tmp_path / "outer.yaml")
    (tmp_path / "inner.yaml").write_text("steps:\n- '@type': PIPELINE\n  pipeline: inner.yaml")
    with pytest.raises(DefinitionError, match=r"inner\.yaml:3: steps\[0\]\.pipeline: is a file that this"):
        pipelines.load(tmp_path / "inner.yaml")
    assert failure("steps: [{'@type': PIPELINE, pipeline: 5}]") == (
        '<text>:1: steps[0].pipeline: a pipeline is a mapping with "steps", not 5'
    )


def test_switch_functions_graph_steps_and_triggers_can_be_added() -> None:
    class Even(pipelines.SwitchFunction):
        type_name = "EVEN"

        def open(self, context: pipelines.OpenContext) -> Any:
            return lambda batch: batch["n"].array % 2

    registry = Registry(plugins=False)
    registry.add_type(Even)
    text = SWITCH.replace("INT_SWITCH, numOutputs: 2, fieldName: n", "EVEN, numOutputs: 2")

    graph = pipelines.loads(text, registry=registry)

    with graph.open() as executor:
        assert executor.run_many([Data({"n": n}) for n in (3, 4)]) == [Data({"n": 3}), Data({"n": 4})]
    assert graph.to_dict()["steps"]["sw"]["switchFn"] == {"@type": "EVEN", "numOutputs": 2}
    assert "EVEN" in registry.types(pipelines.SwitchFunction)
    assert "EVEN" not in registry.steps


def test_the_schema_accepts_graphs_and_triggers_and_rejects_invalid_ones() -> None:
    schema = jsonschema.Draft202012Validator(pipelines.pipeline_schema())
    trigger = {"@type": "TIME_LOOP_TRIGGER", "frequencyMs": 5}
    graph = pipelines.loads(SWITCH).to_dict()
    for right in (graph, {**graph, "@AsyncTrigger": trigger}, {"steps": [], "@AsyncTrigger": trigger}):
        schema.validate(right)
    lacking = {name: value for name, value in graph["steps"]["log"].items() if name != "@input"}
    wrongs: list[dict[str, Any]] = [
        {"steps": {}},
        {**graph, "@AsyncTrigger": {"@type": "LOOP"}},
        {**graph, "steps": {**graph["steps"], "log": lacking}},
        {**graph, "steps": {**graph["steps"], "sw": {"@type": "SWITCH", "@input": "input", "switchFn": {}}}},
        {"steps": [graph["steps"]["end"]]},
    ]
    for wrong in wrongs:
        with pytest.raises(jsonschema.ValidationError):
            schema.validate(wrong)


@pytest.mark.slow
def test_importing_the_core_starts_no_thread_and_loads_no_executor_of_graphs() -> None:
    code = (
        "import sys, threading, pipelines; assert threading.active_count() == 1; "
        "assert not {'pipelines.executors.graph.graph', 'onnxruntime', 'cv2'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.slow
def test_parts_of_graphs_load_no_executor_before_they_are_opened() -> None:
    code = """
import sys
from pipelines.steps import CachingTrigger, IntSwitch, Merge, Switch
from pipelines.steps.flow.combine import ArgMax, Combine

def loaded():
    return [name for name in sys.modules if name.startswith(("pipelines.executors", "pipelines.runners"))]

parts = [CachingTrigger(frequency_ms=1), Switch(switch_fn=IntSwitch(num_outputs=2, field_name="n")), Merge(), ArgMax()]
assert not loaded(), loaded()
assert type(parts[2].open("m", inputs=("a", "b"), context=None)).__name__ == "MergeJunction"
assert loaded()
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_mistake_of_a_graph_and_of_the_fields_of_its_steps_is_told() -> None:
    text = """
steps:
  a: {"@type": LOGING, "@input": input}
  b: {"@type": SWITCH, "@input": input, switchFunction: {"@type": DATA_INT, feildName: x}, colour: red}
  c: {"@type": LOGGING}
"""
    with pytest.raises(DefinitionError) as caught:
        pipelines.loads(text)
    said = "\n".join(caught.value.problems)
    for place in ("steps.a.@type: no such", "steps.b.switchFunction", "steps.b.colour: no such field", "steps.c: "):
        assert place in said
