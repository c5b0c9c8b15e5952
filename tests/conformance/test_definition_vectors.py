"""Definitions written by Konduit Serving, its documentation and its examples, through our reader and writer.

The vectors are `vectors/konduit-definitions` (one file each: a pipeline, a server configuration that holds one, or
a single step; `INDEX.tsv` says where each is from) and `vectors/config-keys.json` (how each type spells its keys).
A new step type joins by adding its files; nothing here lists types.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from builtintypes import PARTS, STEPS

import pipelines
from pipelines.definitions.definition import read_pipeline
from pipelines.definitions.document import Document
from pipelines.definitions.documents import read_document
from pipelines.definitions.typereader import LoadOptions, read_typed_of
from pipelines.definitions.validation import UnknownKeyWarning
from pipelines.definitions.yamlwriter import write_yaml
from pipelines.errors import DefinitionError
from pipelines.plugins.registry import default_registry
from pipelines.steps import Step, SwitchFunction, Trigger, Typed

VECTORS = Path(__file__).parent / "vectors"
FILES = sorted(path for path in (VECTORS / "konduit-definitions").iterdir() if path.suffix != ".tsv")
STEP_FILES = [
    path for path in FILES if path.name.startswith(("serialized__step-", "serialized__switchfn", "serialized__trigger"))
]
# What Konduit's documents show but Konduit itself does not understand any more: it ignores such keys.
STALE = {
    "konduit-serving-docs__configurations__README__1.yaml": (
        'README__1.yaml:10: pipeline.steps[1].input_names: no such field; did you mean "input_name"?'
    ),
    "konduit-serving-docs__quickstart__using-docker__3.yaml": (
        'using-docker__3.yaml:34: pipeline.steps[1].input_names: no such field; did you mean "input_name"?'
    ),
    "konduit-serving-docs__examples__java__server__pipeline-steps__tensorflow-step__1.yaml": (
        "tensorflow-step__1.yaml:51: pipeline.steps[1].constants: no such field"
    ),
}
# What it refuses too: a pipeline of its first format, and a step by its old name.
REFUSED = {
    "konduit-serving-docs__quickstart__quickstart-cli__1.json": (
        'quickstart-cli__1.json:13: steps[0].@type: no such step type: "ImageLoadingStep"; `streamer steps` lists'
    ),
    "konduit-serving__config-creator__train_model.json": (
        'train_model.json:2: @type: no such step type: "SAMEDIFF_TRAIN"; did you mean "SAMEDIFF_TRAINING"?'
    ),
}
EMPTY = [path for path in FILES if "__no_pipeline" in path.name]
PIPELINE_FILES = [path for path in FILES if path not in [*STEP_FILES, *EMPTY] and path.name not in STALE | REFUSED]
KEYS: dict[str, list[dict[str, Any]]] = json.loads((VECTORS / "config-keys.json").read_text())
TYPES: list[type[Typed]] = [*STEPS, *PARTS]
KONDUIT_TYPES = [found for found in TYPES if found.type_name in KEYS]


def name(value: object) -> str:
    if isinstance(value, type) and issubclass(value, Typed):
        return value.type_name
    return value.name if isinstance(value, Path) else str(value)


def form(path: Path) -> Any:
    return path.suffix[1:]


def step_of(path: Path) -> Typed:
    reading = LoadOptions(default_registry(), "error", None, lambda document, reading: "")
    return read_typed_of(read_document(path), (Step, SwitchFunction, Trigger), reading)


def listed(inputs: str | list[str]) -> list[str]:
    return inputs if isinstance(inputs, list) else [inputs]


def pipeline_document(path: Path) -> Document:
    document = read_document(path)
    return document.at("pipeline") if "pipeline" in document.data else document


@pytest.mark.parametrize("path", PIPELINE_FILES, ids=name)
def test_a_pipeline_of_konduit_loads_unmodified_and_equal_after_writing(path: Path) -> None:
    pipeline = read_pipeline(pipeline_document(path))

    given = pipeline_document(path).data["steps"]
    if isinstance(given, dict):
        steps = {name: (node.step.type_name, *node.inputs) for name, node in pipeline.steps.items()}
        assert steps == {name: (step["@type"], *listed(step["@input"])) for name, step in given.items()}
    else:
        assert [step.type_name for step in pipeline.steps] == [step["@type"] for step in given]
    assert pipelines.loads(pipeline.to_json()) == pipeline
    assert pipelines.loads(pipeline.to_yaml()) == pipeline


@pytest.mark.parametrize("path", [path for path in FILES if path.name in STALE], ids=name)
def test_a_key_that_konduit_does_not_know_is_refused_unless_it_shall_be_ignored(path: Path) -> None:
    with pytest.raises(DefinitionError) as caught:
        read_pipeline(pipeline_document(path))
    assert STALE[path.name] in str(caught.value)

    with pytest.warns(UnknownKeyWarning):
        pipeline = read_pipeline(pipeline_document(path), unknown="warn")
    assert pipelines.loads(pipeline.to_json()) == pipelines.loads(pipeline.to_yaml()) == pipeline


@pytest.mark.filterwarnings("ignore::pipelines.UnknownKeyWarning")
@pytest.mark.parametrize("path", [path for path in FILES if path.name in REFUSED], ids=name)
def test_types_that_konduit_does_not_have_any_more_are_refused_by_name(path: Path) -> None:
    single = "@type" in read_document(path).data
    with pytest.raises(DefinitionError) as caught:
        step_of(path) if single else read_pipeline(read_document(path), unknown="warn")
    assert REFUSED[path.name] in str(caught.value)


@pytest.mark.parametrize("path", [path for path in PIPELINE_FILES if path.name.startswith("serialized__")], ids=name)
def test_a_pipeline_that_konduit_wrote_is_written_back_as_it_was(path: Path) -> None:
    document = pipeline_document(path)

    written = read_pipeline(document).to_dict(form(path))

    assert json.dumps(written) == json.dumps(document.data)  # as text: the order counts too


@pytest.mark.slow
@pytest.mark.parametrize("path", STEP_FILES, ids=name)
def test_a_step_that_konduit_wrote_is_written_back_as_it_was(path: Path) -> None:
    written = step_of(path).to_dict(form(path))

    assert json.dumps(written) == json.dumps(read_document(path).data)


@pytest.mark.parametrize(
    "path", [path for path in FILES if path.suffix == ".yaml" and "serialized__pipeline-" in path.name], ids=name
)
def test_our_yaml_is_konduits_to_the_byte(path: Path) -> None:
    assert pipelines.load(path).to_yaml() == path.read_text()


@pytest.mark.parametrize("path", [path for path in STEP_FILES if path.suffix == ".yaml"], ids=name)
def test_the_yaml_of_a_step_is_konduits_to_the_byte(path: Path) -> None:
    assert write_yaml(step_of(path).to_dict("yaml")) == path.read_text()


@pytest.mark.parametrize(
    "path", [path for path in FILES if path.suffix == ".yaml" and path.with_suffix(".json") in FILES], ids=name
)
def test_json_and_yaml_of_the_same_thing_are_equal(path: Path) -> None:
    other = path.with_suffix(".json")
    if path in STEP_FILES:
        assert step_of(path) == step_of(other)
    elif path not in EMPTY:
        assert read_pipeline(pipeline_document(path)) == read_pipeline(pipeline_document(other))


@pytest.mark.parametrize("step", KONDUIT_TYPES, ids=name)
def test_keys_are_spelled_as_konduit_spells_them(step: type[Typed]) -> None:
    ours = [(step.key(field), step.key(field, "yaml")) for field in step.model_fields if not step.is_extension(field)]

    assert ours == [(row["json"], row["yaml"]) for row in KEYS[step.type_name] if row["written"]]


@pytest.mark.parametrize("step", KONDUIT_TYPES, ids=name)
def test_every_key_that_konduit_reads_is_read_in_both_spellings(step: type[Typed]) -> None:
    known = {row[spelling] for row in KEYS[step.type_name] for spelling in ("json", "yaml")}

    assert known <= step.keys().keys()


def test_the_vectors_cover_every_step_type_that_konduit_has() -> None:
    covered = {step_of(path).type_name for path in STEP_FILES}

    # Konduit cannot write this one by itself; its keys are in config-keys.json.
    assert {step.type_name for step in KONDUIT_TYPES} - covered == {"SAMEDIFF_TRAINING"}
    assert covered <= {step.type_name for step in KONDUIT_TYPES}
    video = {"MOTION", "TRACK", "ZONES", "BLUR", "DETECT", "DETECTIONS"}
    ours = {"FEATURES", "FUNCTION", "PIPELINE", "MAP", "LOOKUP", "WINDOW", "DEDUP", "CHANGE", "JOIN", *video}
    assert {step.type_name for step in STEPS} - covered == {*ours, "SAMEDIFF_TRAINING"}


def test_every_file_is_one_that_the_index_names() -> None:
    lines = (VECTORS / "konduit-definitions" / "INDEX.tsv").read_text().splitlines()[1:]
    assert {line.partition("\t")[0] for line in lines} == {path.name for path in FILES}
