"""Texts have the digits that a model's numbers have in their own float type; values are those of the model."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import pipelines
from connectors.codecs.registry import codec_of
from pipelines import Data
from pipelines.data.batch import Batch
from pipelines.data.columns import Column
from pipelines.hotpath import HotPath

ONCE = np.array([0.05, 0.95], "f4")
WIDE = float(np.float32(0.95))


def results(steps: list[dict[str, Any]], *records: dict[str, Any]) -> Batch:
    with pipelines.loads(json.dumps({"steps": steps})).open() as executor:
        return executor.run_batch(Batch.of([Data(record) for record in records])).batch


def written(batch: Batch, codec: str | dict[str, Any] = "json") -> list[str]:
    encoded = codec_of(codec).encode(batch)
    assert not encoded.failed
    return [bytes(one or b"").decode() for one in encoded.values]


def classified(array: Any, **fields: Any) -> Batch:
    step = {"@type": "CLASSIFIER_OUTPUT", "inputName": "x", "returnLabel": False, "returnIndex": False, **fields}
    found = results([step], {"x": array}, {"x": array})
    return found.without(["x"])


def test_a_probability_of_float32_is_written_with_its_own_digits_and_stays_the_value_that_it_is(
    hot_path: HotPath,
) -> None:
    found = classified(ONCE)
    assert written(found) == ['{"prob":0.95}'] * 2
    assert written(found, {"type": "csv", "names": ["prob"]}) == ["0.95"] * 2
    assert written(found, {"type": "json", "pretty": True}) == ['{\n  "prob": 0.95\n}'] * 2
    assert found["prob"].array.tolist() == [WIDE] * 2
    assert codec_of("protodata").encode(found).values[0] == Data({"prob": WIDE}).to_bytes()


@pytest.mark.parametrize(
    ("fields", "array", "text"),
    [
        ({"allProbabilities": True}, ONCE, '{"prob":0.95,"allProbabilities":[0.05,0.95]}'),
        ({}, np.stack([ONCE, ONCE]), '{"prob":[0.95,0.95]}'),
        ({"allProbabilities": True}, np.stack([ONCE]), '{"prob":0.95,"allProbabilities":[0.05,0.95]}'),
        ({}, ONCE.astype("f2"), '{"prob":0.95}'),
        ({}, ONCE.astype("f8"), '{"prob":0.949999988079071}'),
    ],
    ids=["all", "several samples", "one sample", "float16", "float64"],
)
def test_so_are_lists_and_arrays_of_them_and_those_of_other_floats(
    hot_path: HotPath, fields: dict[str, Any], array: Any, text: str
) -> None:
    assert written(classified(array, **fields)) == [text] * 2


def test_it_is_so_for_chosen_rows_and_for_rows_that_were_put_together(hot_path: HotPath) -> None:
    column = classified(ONCE)["prob"]
    for same in (column.take(np.array([1, 0])), column.part(0, 2)):
        assert written(Batch({"prob": same}, 2)) == ['{"prob":0.95}'] * 2
    joined = Column.concat([column, column])
    assert written(Batch({"prob": joined}, 4)) == ['{"prob":0.95}'] * 4
    # Beside a DOUBLE that is one of its own, no digits are left out.
    mixed = Column.concat([column, Column.of([WIDE])])
    assert written(Batch({"prob": mixed}, 3))[2] == f'{{"prob":{WIDE}}}'


@pytest.mark.parametrize("kind", ["f4", "f8"])
def test_boxes_of_a_model_of_float32_have_its_digits(hot_path: HotPath, kind: str) -> None:
    record = {
        "detection_boxes": np.array([[[0.1, 0.2, 0.3, 0.4]]], "f4").astype(kind),
        "detection_scores": np.array([[0.95]], "f4").astype(kind),
    }
    found = results([{"@type": "SSD_TO_BBOX", "outputName": "boxes"}], record)
    (text,) = written(found)
    (box,) = json.loads(text)["boxes"]
    numbers = [0.2, 0.4, 0.1, 0.3, 0.95]
    expected = numbers if kind == "f4" else [float(np.float32(number)) for number in numbers]
    assert [box[name] for name in ("x1", "x2", "y1", "y2", "probability")] == expected
    assert found["boxes"][0][0].probability == WIDE
