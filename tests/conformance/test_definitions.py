"""Definitions written by Konduit Serving, its documentation and its examples, through our reader and writer.

The vectors are `vectors/konduit-definitions` (one file each: a pipeline, a server configuration that holds one, or
a single step), `vectors/config-keys.json` (how each type spells its keys) and `vectors/step-defaults.jsonl`.
A new step type joins by adding its files; nothing here lists types.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import pipelines
from pipelines.definition import read_pipeline
from pipelines.documents import Document, read_document
from pipelines.steps import PARTS, STEPS, Typed
from pipelines.validation import validated
from pipelines.yamlwriter import write_yaml

VECTORS = Path(__file__).parent / "vectors"
FILES = sorted((VECTORS / "konduit-definitions").iterdir())
STEP_FILES = [
    path for path in FILES if path.name.startswith(("serialized__step-", "serialized__switchfn", "serialized__trigger"))
]
PIPELINE_FILES = [path for path in FILES if path not in STEP_FILES]
KEYS: dict[str, list[dict[str, Any]]] = json.loads((VECTORS / "config-keys.json").read_text())
DEFAULTS: dict[str, dict[str, Any]] = {
    row["type"]: row for row in map(json.loads, (VECTORS / "step-defaults.jsonl").read_text().splitlines())
}
TYPES: list[type[Typed]] = [*STEPS, *PARTS]
KONDUIT_TYPES = [found for found in TYPES if found.type_name in KEYS]


def name(value: object) -> str:
    return value.name if isinstance(value, Path) else value.type_name if isinstance(value, type) else str(value)


def form(path: Path) -> Any:
    return path.suffix[1:]


def step_of(path: Path) -> Typed:
    document = read_document(path)
    (found,) = [one for one in KONDUIT_TYPES if one.type_name == document.data["@type"]]
    return validated(found, document)


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


@pytest.mark.parametrize("path", [path for path in PIPELINE_FILES if path.name.startswith("serialized__")], ids=name)
def test_a_pipeline_that_konduit_wrote_is_written_back_as_it_was(path: Path) -> None:
    document = pipeline_document(path)

    written = read_pipeline(document).to_dict(form(path))

    assert json.dumps(written) == json.dumps(document.data)  # as text: the order counts too


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


@pytest.mark.parametrize("path", [path for path in FILES if path.with_suffix(".json") in FILES], ids=name)
def test_json_and_yaml_of_the_same_thing_are_equal(path: Path) -> None:
    other = path.with_suffix(".json")
    if path in STEP_FILES:
        assert step_of(path) == step_of(other)
    else:
        assert read_pipeline(pipeline_document(path)) == read_pipeline(pipeline_document(other))


@pytest.mark.parametrize("step", KONDUIT_TYPES, ids=name)
def test_keys_are_spelled_as_konduit_spells_them(step: type[Typed]) -> None:
    ours = [(step.key(field), step.key(field, "yaml")) for field in step.model_fields if not step.is_extension(field)]

    assert ours == [(row["json"], row["yaml"]) for row in KEYS[step.type_name] if row["written"]]


@pytest.mark.parametrize("step", KONDUIT_TYPES, ids=name)
def test_every_key_that_konduit_reads_is_read_in_both_spellings(step: type[Typed]) -> None:
    known = {row[spelling] for row in KEYS[step.type_name] for spelling in ("json", "yaml")}

    assert known <= step.keys().keys()


@pytest.mark.parametrize("step", [step for step in KONDUIT_TYPES if step.type_name in DEFAULTS], ids=name)
def test_absent_keys_mean_the_documented_defaults(step: type[Typed]) -> None:
    documented = DEFAULTS[step.type_name]["documented_defaults"]

    assert step.model_validate({"@type": step.type_name}).to_dict() == documented
    assert step.model_validate(documented).to_dict() == documented


def test_the_vectors_cover_every_step_type_that_konduit_has() -> None:
    covered = {step_of(path).type_name for path in STEP_FILES}

    assert covered == {step.type_name for step in KONDUIT_TYPES}
    assert {step.type_name for step in STEPS} - covered == {"FUNCTION", "PIPELINE"}
