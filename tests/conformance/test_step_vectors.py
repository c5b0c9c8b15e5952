"""What Konduit Serving made of recorded inputs, step by step and graph by graph, and what it does with absent keys.

The vectors are `vectors/step-cases.jsonl` (its JSON arrays are little-endian) and `vectors/step-defaults.jsonl`. Where
the reference's own code is wrong we do what its documents promise: the tables here name those rows, and why.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest
from builtintypes import PARTS, STEPS

import pipelines
from pipelines.data.data import Data
from pipelines.errors import DefinitionError, StepError, StreamerError

VECTORS = Path(__file__).parent / "vectors"

# The reference is wrong: what its documents promise instead, of the keys that differ.
BETTER: dict[str, dict[str, Any]] = {
    # It loops over as many rows as there are classes: it fails for fewer rows, and drops rows for more.
    "classifier_batch_2x3": {"prob": [0.7, 0.5], "index": [1, 0], "label": ["1", "0"]},
    "classifier_batch_3x2": {"prob": [0.7, 0.5, 0.9], "index": [1, 0, 0], "label": ["1", "0", "0"]},
    # It cannot widen a FLOAT array of rank one; it can one of rank two.
    "classifier_rank1_float": {"prob": 0.699999988079071, "index": 1, "label": "b"},
}

# The record fails in both, with a text that says the same; the reference's second one has a slip ("no image NDArray").
MESSAGES = {
    "classifier_two_arrays": "NDArray field name was not provided and could not be inferred: "
    "multiple NDArray fields exist: preds and other",
    "classifier_no_array": "NDArray field name was not provided and could not be inferred: no NDArray fields exist",
    "ssd_too_few_labels": "Predicted label index was 3 but only 2 labels were provided",
    "ssd_missing_input": 'Value not found for key "detection_boxes"',
    "bbox_to_point_ambiguous": "Bounding box field name was not provided and could not be inferred: "
    "multiple BoundingBox (or List<BoundingBox>) fields exist: b1 and b2",
    "bbox_to_point_none": "Bounding box field name was not provided and could not be inferred: "
    "no BoundingBox (or List<BoundingBox>) fields exist",
    "graph_switch_int_x": 'Input data field "sel" has type "STRING", must be INT64 (long)',
    "graph_switch_string_5": 'Input data field "sel" has type "INT64", must be String',
    "graph_merge_duplicate_key": 'Error during merging: Data instance already has key "k" and allowOverwrite is false',
}

# What cannot work for any record is refused when the pipeline is opened.
NOT_OPENED = {
    "yolo_no_classes": "numClasses or classLabels must be given",
    "bbox_filter_empty_classes": "classesToKeep must name at least one label",
}

# A graph whose output cannot be reached does not load. The reference loads these, and one it even "runs", by returning
# its input.
NOT_LOADED = {
    "graph_unreachable_output": 'steps.a.@input: there is no step "nosuch"',
    "graph_single_unreachable_step_returns_input": 'steps.a.@input: there is no step "nosuch"',
}

# Of these the reference takes an absent key for null, 0 or false, because it constructs them from what is there; a
# file written by hand means the documented default (the reference writes every value that is not null).
NULL_IN_THE_REFERENCE = {
    "FRAME_CAPTURE",
    "IMAGE_RESIZE",
    "IMAGE_TO_NDARRAY",
    "LOGGING",
    "SHOW_IMAGE",
    "TENSORRT",
    "VIDEO_CAPTURE",
}


def rows(file: str, key: str) -> list[Any]:
    listed = [json.loads(line) for line in (VECTORS / file).read_text(encoding="utf-8").splitlines()]
    return [pytest.param(row, id=row[key]) for row in listed]


CASES = rows("step-cases.jsonl", "name")
DEFAULTS = rows("step-defaults.jsonl", "type")


def data(form: dict[str, Any]) -> Data:
    return Data.from_json(json.dumps(form), byte_order="little")


def run(row: dict[str, Any]) -> Any:
    """What becomes of the input, which must be the same alone and among other records, as in a stream."""
    with pipelines.loads(json.dumps(row["pipeline"])).open() as executor:
        (alone,) = executor.run_many([data(row["input"])])
        crowd = executor.run_many([data({}), data(row["input"]), data({}), data(row["input"])])
    for found in crowd[1::2]:
        assert str(found) == str(alone) if isinstance(alone, StepError) else found == alone
    return alone


@pytest.mark.parametrize("row", CASES)
def test_a_recorded_input_gives_the_recorded_output_or_error(row: dict[str, Any]) -> None:
    name = row["name"]
    if name in NOT_LOADED:
        with pytest.raises(DefinitionError) as refused:
            pipelines.loads(json.dumps(row["pipeline"]))
        assert NOT_LOADED[name] in str(refused.value)
    elif name in NOT_OPENED:
        with pytest.raises(StreamerError) as unopened:
            pipelines.loads(json.dumps(row["pipeline"])).open()
        assert NOT_OPENED[name] in str(unopened.value)
    elif name in MESSAGES:
        found = run(row)
        assert isinstance(found, StepError)
        assert MESSAGES[name] in str(found)
    elif name in BETTER:
        wanted = data(row["input"])
        wanted.update(BETTER[name])
        assert run(row) == wanted
    else:
        assert run(row) == data(row["output"] if "output" in row else row["output_approx"])


def test_every_row_in_the_tables_is_one_where_the_reference_fails_or_is_wrong() -> None:
    listed = {case.values[0]["name"]: case.values[0] for case in CASES}
    tables: list[Collection[str]] = [BETTER, MESSAGES, NOT_OPENED, NOT_LOADED]
    names = {name for table in tables for name in table}
    assert sum(map(len, tables)) == len(names)
    assert names <= listed.keys()
    assert {name for name, row in listed.items() if "error" in row} <= names
    for name in MESSAGES:
        assert "error" in listed[name]


@pytest.mark.parametrize("row", DEFAULTS)
def test_absent_keys_mean_the_documented_defaults(row: dict[str, Any]) -> None:
    (found,) = [one for one in (*STEPS, *PARTS) if one.type_name == row["type"]]
    documented = row["documented_defaults"]

    assert found.model_validate({"@type": row["type"]}).to_dict() == documented
    assert found.model_validate(documented).to_dict() == documented
    assert (documented != row["when_keys_absent"]) == (row["type"] in NULL_IN_THE_REFERENCE)


@pytest.mark.parametrize("row", [row for row in DEFAULTS if row.values[0]["type"] in NULL_IN_THE_REFERENCE])
def test_an_explicit_null_is_what_an_absent_key_is_to_the_reference(row: dict[str, Any]) -> None:
    (found,) = [one for one in STEPS if one.type_name == row["type"]]
    nulls = {key: None for key in row["documented_defaults"] if key != "@type"}

    written = found.model_validate({"@type": row["type"], **nulls}).to_dict()

    read_as_null = {key: value for key, value in row["when_keys_absent"].items() if value != []}
    assert {key: value for key, value in written.items() if key in read_as_null} == read_as_null
