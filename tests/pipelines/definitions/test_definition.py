"""Pipeline definitions: loading, errors with file and line, writing, sequences made in Python."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import pipelines
from pipelines import ClassifierOutput, DefinitionError, Function, Logging, Onnx, Sequence
from pipelines.definitions.definition import read_pipeline
from pipelines.definitions.documents import parse_document

DIGITS = """\
# digits
steps:
- '@type': ONNX
  modelUri: digits.onnx
  output_names: [probabilities]
- '@type': CLASSIFIER_OUTPUT
  labels: [zero, one]
id: digits
"""


def scale(data: pipelines.Data) -> pipelines.Data:
    return data


def failure(text: str) -> str:
    with pytest.raises(DefinitionError) as caught:
        pipelines.loads(text)
    return str(caught.value)


def test_a_file_is_loaded_and_knows_its_folder(tmp_path: Path) -> None:
    path = tmp_path / "digits.pipeline.yaml"
    path.write_text(DIGITS)

    pipeline = pipelines.load(path)

    assert pipeline.steps == (
        Onnx("digits.onnx", output_names=["probabilities"]),
        ClassifierOutput(labels=["zero", "one"]),
    )
    assert pipeline.id == "digits"
    assert pipeline.base == tmp_path


def test_a_relative_path_keeps_its_folder_when_the_working_directory_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "p.yaml").write_text(DIGITS)
    monkeypatch.chdir(tmp_path)

    assert pipelines.load("p.yaml").base == tmp_path


def test_text_is_json_or_yaml_by_its_content_and_starts_at_the_given_folder(tmp_path: Path) -> None:
    text = json.dumps({"steps": [{"@type": "LOGGING", "key_filter_regex": "a"}]})

    pipeline = pipelines.loads(text, base=tmp_path)

    assert pipeline == pipelines.loads("steps: [{'@type': LOGGING, keyFilterRegex: a}]")
    assert pipeline.base == tmp_path


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "steps:\n- '@type': ONNX\n  modelUrl: m",
            '3: steps[0].modelUrl: no such field; did you mean "modelUri"?',
        ),
        ("steps:\n- '@type': ONNX\n  max_batch: 0", "3: steps[0].max_batch: must be greater than or equal to 1, not 0"),
        (
            "steps:\n- '@type': CLASSIFIER_OUTPT",
            '2: steps[0].@type: no such step type: "CLASSIFIER_OUTPT"; did you mean',
        ),
        ("steps:\n- '@type': onnx", '2: steps[0].@type: no such step type: "onnx"; did you mean "ONNX"?'),
        (
            "steps:\n- '@type': XYZ",
            '2: steps[0].@type: no such step type: "XYZ"; `streamer steps` lists all types, among them ONNX, FUNCTION',
        ),
        ("steps:\n- '@type': 5", '2: steps[0].@type: no such step type: "5"'),
        (
            "steps:\n- modelUri: m",
            '2: steps[0]: "@type" is missing; `streamer steps` lists all types, among them ONNX, ',
        ),
        ("steps:\n- type: ONNX", '2: steps[0]: "@type" is missing; did you mean "@type" in place of "type"?'),
        (
            "steps:\n- onnx: {modelUri: m}",
            '2: steps[0]: "@type" is missing; write {"@type": ONNX, ...}, with its fields beside it',
        ),
        (
            "steps:\n- '@type': SKLEARN",
            '2: steps[0].@type: no such step type: "SKLEARN"; export the model as ONNX (skl2onnx; docs/scikit-learn.md',
        ),
        ("steps:\n- '@type': ONNX\n  path: m", '3: steps[0].path: no such field; did you mean "modelUri"?'),
        ("steps:\n- ONNX", "2: steps[0]: a step is a mapping with \"@type\", not 'ONNX'"),
        (
            "steps:\n- '@type': SAMEDIFF_TRAIN",
            '2: steps[0].@type: no such step type: "SAMEDIFF_TRAIN"; did you mean "SAMEDIFF_TRAINING"?',
        ),
        (
            "steps:\n- '@type': SWITCH",
            "2: steps[0].@type: SWITCH is a step of graphs: give each step a name and its inputs",
        ),
        ("outputStep: a\nsteps: []", "1: outputStep: is for graphs, which have their steps by name"),
        ("steps: []\n'@AsyncTrigger': {}", '2: @AsyncTrigger: "@type" is missing; known types are CACHING_TRIGGER,'),
        ("steps: []\nidd: x", '2: idd: no such field; did you mean "id"?'),
        ("steps: []\nqqq: x", "2: qqq: no such field; delete it: known are steps, id, name, batch, @type, "),
        ("steps: [{'@type': IMAGE_CROP, qqq: x}]", "1: steps[0].qqq: no such field; delete it: known are "),
        ("steps: []\nid: [x]", "2: id: must be a string, not a list"),
        ("steps: LOGGING", "1: steps: must be a list of steps, not 'LOGGING'"),
        ("step: []", '1: a pipeline needs "steps", a list; is "step" meant to be "steps"?'),
        ("a: 1\npipeline: {steps: []}", "1: this is a service file, not a pipeline: use streamer.load"),
        ("'@type': ONNX\nmodelUri: m", "1: this is a single step; a pipeline holds a list of them"),
        ("- '@type': ONNX", '1: a pipeline is a mapping with "steps", not a list'),
        (
            "steps:\n- {'@type': LOGGING, name: a}\n- {'@type': LOGGING, name: a}",
            '1: steps[0] and steps[1] have the same name "a"',
        ),
        ("steps:\n- '@type': FUNCTION", "2: steps[0].function: is required"),
        # JSON cannot hold these, and with NaN as its threshold a step would take every detection.
        (
            "steps:\n- '@type': SSD_TO_BBOX\n  threshold: .nan",
            "3: steps[0].threshold: must be a finite number, not nan",
        ),
        (
            "steps:\n- '@type': YOLO_BBOX\n  threshold: -.inf",
            "3: steps[0].threshold: must be a finite number, not -inf",
        ),
        (
            "steps:\n- '@type': LOGGING\n  keyFilterRegex: 'a('",
            "3: steps[0].keyFilterRegex: is not a regular expression: missing ), unterminated subpattern at position 1",
        ),
    ],
)
def test_a_mistake_in_a_definition_is_told_with_its_line_and_key(text: str, message: str) -> None:
    assert failure(text).startswith(f"<text>:{message}")


def test_errors_begin_with_the_file_as_it_was_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "p.json").write_text('{\n "steps": [\n  {"@type": "LOGGING",\n   "logLevel": "LOUD"}]}')
    monkeypatch.chdir(tmp_path)

    with pytest.raises(DefinitionError, match=r"^p\.json:4: steps\[0\]\.logLevel: must be 'ERROR', .*, not 'LOUD'$"):
        pipelines.load("p.json")


def test_unknown_keys_can_be_warnings() -> None:
    with pytest.warns(pipelines.UnknownKeyWarning) as caught:
        pipeline = pipelines.loads("steps:\n- '@type': LOGGING\n  logLevl: X\nversion: 3", unknown="warn")

    assert pipeline == Sequence([Logging()])
    assert [str(one.message) for one in caught] == [
        "<text>:4: version: no such field; ignored",
        '<text>:3: steps[0].logLevl: no such field; ignored; did you mean "logLevel"?',
    ]
    assert {one.filename for one in caught} == {__file__}


def test_the_type_of_the_pipeline_itself_is_ignored_as_in_konduit() -> None:
    assert pipelines.loads("'@type': SEQUENCE_PIPELINE\nsteps: []") == Sequence([])


def test_a_part_of_a_service_file_is_read_with_the_files_lines() -> None:
    document = parse_document("name: a\npipeline:\n  steps:\n  - '@type': ONNX\n    modelUrl: m", "svc.yaml")

    with pytest.raises(DefinitionError, match=r"^svc\.yaml:5: pipeline\.steps\[0\]\.modelUrl: no such field"):
        read_pipeline(document.at("pipeline"))


def test_a_written_pipeline_loads_equal() -> None:
    pipeline = Sequence(
        [
            Onnx("m.onnx", input_names={"x": "image"}, warm_up=True, name="net"),
            scale,
            ClassifierOutput(labels=["ja: nein", "0x1", "é\n", ""]),
            Logging(log="KEYS_AND_VALUES"),
        ],
        id="a",
        name="b",
    )

    assert pipelines.loads(pipeline.to_json()) == pipeline
    assert pipelines.loads(pipeline.to_yaml()) == pipeline
    assert json.loads(pipeline.to_json())["steps"][1] == {"@type": "FUNCTION", "function": f"{__name__}:scale"}


def test_a_lambda_cannot_be_written_and_the_error_says_what_to_do() -> None:
    with pytest.raises(DefinitionError, match="cannot be written into a definition: move it to the top level"):
        Sequence([lambda data: data]).to_json()


def test_functions_become_steps() -> None:
    assert Sequence([scale]).steps == (Function(scale),)


def test_steps_are_named_by_place_and_type_unless_they_have_a_name() -> None:
    pipeline = Sequence([Logging(), Onnx("m", name="net"), scale])

    assert [name for name, _ in pipeline.named_steps()] == ["0:LOGGING", "net", "2:FUNCTION"]


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ([Onnx], r"steps\[0\] is the class Onnx, not a step: write Onnx\(\.\.\.\)"),
        ([Logging(), "LOGGING"], r"steps\[1\] is a str; a step is a pipelines\.Step or a function"),
        (Logging(), r"Sequence takes a list of steps: Sequence\(\[Logging\(\.\.\.\)\]\)"),
        ([Logging(name="a"), Logging(name="a")], "have the same name"),
        ([Logging(), Logging(name="0:LOGGING")], "have the same name"),
    ],
)
def test_a_sequence_with_a_wrong_step_or_two_equal_names_is_an_error(steps: Any, message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        Sequence(steps)


def test_sequences_differ_by_steps_id_and_name_only(tmp_path: Path) -> None:
    assert Sequence([Logging()], base=tmp_path) == Sequence([Logging()])
    assert Sequence([Logging()]) != Sequence([Logging(log_level="DEBUG")])
    assert Sequence([], id="a") != Sequence([], id="b")
    assert Sequence([]) != []


def test_a_sequence_shows_itself_in_a_notebook_with_its_text_escaped() -> None:
    shown = Sequence([Onnx("<m>.onnx"), scale], name="<b>")._repr_html_()

    assert "0:ONNX" in shown
    assert "&lt;m&gt;.onnx" in shown
    assert f"{__name__}:scale" in shown
    assert "<b>" not in shown


@pytest.mark.slow
def test_the_schema_describes_every_step_type() -> None:
    schema = pipelines.pipeline_schema()

    types = [
        schema["$defs"][item["$ref"].rpartition("/")[2]]["properties"]["@type"]["const"]
        for item in schema["$defs"]["sequence"]["properties"]["steps"]["items"]["oneOf"]
    ]
    assert set(types) == set(pipelines.default_registry().steps)
    json.dumps(schema)


def test_opening_gives_runners_the_base_folder_the_pool_and_whether_code_is_allowed(tmp_path: Path) -> None:
    seen: list[pipelines.OpenContext] = []

    class Probe(pipelines.RowRunner):
        def run(self, data: pipelines.Data) -> pipelines.Data:
            return data

    class Factory:
        step_type, name, priority, requires = "LOGGING", "probe", 1, ()

        def create(self, step: pipelines.Step, context: pipelines.OpenContext) -> pipelines.Runner:
            seen.append(context)
            return Probe()

    registry = pipelines.Registry(plugins=False)
    registry.add_runner(Factory())
    told: list[str] = []
    with ThreadPoolExecutor(1) as pool:
        opened = Sequence([Logging()], base=tmp_path).open(pool, False, told.append, registry)
        with opened as executor:
            assert executor.run(pipelines.Data({"a": 1})) == pipelines.Data({"a": 1})

    (context,) = seen
    assert (context.base, context.pool, context.allow_code) == (tmp_path, pool, False)
    assert context.progress is not None


def test_a_loaded_pipeline_runs() -> None:
    pipeline = pipelines.loads(f"steps:\n- '@type': FUNCTION\n  function: {__name__}:scale")

    with pipeline.open() as executor:
        assert executor.run(pipelines.Data({"a": 1})) == pipelines.Data({"a": 1})
