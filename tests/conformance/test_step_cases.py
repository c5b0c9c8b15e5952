"""What Konduit Serving made of recorded inputs, step by step. Its JSON arrays are little-endian."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import pipelines
from pipelines.data import Data
from pipelines.errors import StepError, StreamerError

# Where the reference's own code is wrong we do what its documents promise.
BETTER: dict[str, dict[str, Any]] = {
    # The reference loops over as many rows as there are classes: it fails for fewer rows, and drops rows for more.
    "classifier_batch_2x3": {"prob": [0.7, 0.5], "index": [1, 0], "label": ["1", "0"]},
    "classifier_batch_3x2": {"prob": [0.7, 0.5, 0.9], "index": [1, 0, 0], "label": ["1", "0", "0"]},
    # It cannot widen a FLOAT array of rank one; it can one of rank two.
    "classifier_rank1_float": {"prob": 0.699999988079071, "index": 1, "label": "b"},
}

# Our texts say the same; the reference's second one has a slip ("no image NDArray exist").
MESSAGES = {
    "classifier_two_arrays": "NDArray field name was not provided and could not be inferred: "
    "multiple NDArray fields exist: preds and other",
    "classifier_no_array": "NDArray field name was not provided and could not be inferred: no NDArray field exists",
    "ssd_too_few_labels": "Predicted label index was 3 but only 2 labels were provided",
    "ssd_missing_input": 'Value not found for key "detection_boxes"',
    "bbox_to_point_ambiguous": "Bounding box field name was not provided and could not be inferred: "
    "multiple BoundingBox (or List<BoundingBox>) fields exist: b1 and b2",
    "bbox_to_point_none": "Bounding box field name was not provided and could not be inferred: "
    "no BoundingBox (or List<BoundingBox>) fields exist",
}

# What cannot work for any record is refused when the pipeline is opened.
REFUSED = {
    "yolo_no_classes": "numClasses or classLabels must be given",
    "bbox_filter_empty_classes": "classesToKeep must name at least one label",
}


def cases() -> list[Any]:
    lines = (Path(__file__).parent / "vectors" / "step-cases.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    return [pytest.param(row, id=row["name"]) for row in rows]


def data(form: dict[str, Any]) -> Data:
    return Data.from_json(json.dumps(form), byte_order="little")


@pytest.mark.parametrize("row", cases())
def test_a_recorded_input_gives_the_recorded_output(row: dict[str, Any]) -> None:
    given = data(row["input"])
    if row["name"] in REFUSED:
        with pytest.raises(StreamerError, match=REFUSED[row["name"]]):
            pipelines.loads(json.dumps(row["pipeline"])).open()
        return
    with pipelines.loads(json.dumps(row["pipeline"])).open() as executor:
        (found,) = executor.run_many([given])
        # The same among other records, as in a stream.
        crowd = executor.run_many([data({}), given, given])
    name = row["name"]
    if name in MESSAGES:
        assert isinstance(found, StepError)
        assert MESSAGES[name] in str(found)
        assert str(crowd[1]) == str(found)
        return
    wanted = data(row["input"]) if name in BETTER else data(row["output"] if "output" in row else row["output_approx"])
    wanted.update(BETTER.get(name, {}))
    assert found == wanted
    assert crowd[1:] == [wanted, wanted]


def test_every_reference_error_is_accounted_for() -> None:
    refused = {row.values[0]["name"] for row in cases() if "error" in row.values[0]}
    assert refused <= BETTER.keys() | MESSAGES.keys() | REFUSED.keys()
