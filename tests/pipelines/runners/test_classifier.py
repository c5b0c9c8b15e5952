from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pipelines.data.batch import Batch
from pipelines.data.columns import MISSING, Column, DenseColumn, ObjectColumn, RaggedColumn
from pipelines.data.data import Data
from pipelines.errors import RowsFailed
from pipelines.runners.models.classifier import ClassifierOutputRunner
from pipelines.runners.runner import OpenContext
from pipelines.steps.models.classifier import ClassifierOutput


def classified(batch: Batch, **fields: Any) -> list[Data]:
    runner = ClassifierOutputRunner(ClassifierOutput(**fields), OpenContext())
    result = runner.run_batch(batch)
    assert result.rows.tolist() == batch.rows.tolist()
    return result.batch.to_list()


def one(value: Any, **fields: Any) -> dict[str, Any]:
    (found,) = classified(Batch.of([Data({"preds": value})]), **fields)
    return {key: found[key] for key in found if key != "preds"}


def failures(batch: Batch, **fields: Any) -> dict[int, str]:
    with pytest.raises(RowsFailed) as caught:
        classified(batch, **fields)
    return {row: str(error) for row, error in caught.value.failures.items()}


def f8(*values: Any) -> Any:
    return np.array(values, np.float64)


@pytest.mark.parametrize("value", [f8(0.25, 0.5, 0.25), f8([0.25, 0.5, 0.25])])
def test_one_sample_gives_probability_index_and_label(value: Any) -> None:
    found = one(value)
    assert found == {"prob": 0.5, "index": 1, "label": "1"}
    assert [type(value) for value in found.values()] == [float, int, str]


def test_several_samples_give_lists_of_as_many() -> None:
    wide = f8([0.1, 0.9], [0.8, 0.2], [0.5, 0.5])
    assert one(wide) == {"prob": [0.9, 0.8, 0.5], "index": [1, 0, 0], "label": ["1", "0", "0"]}
    assert one(wide.T)["index"] == [1, 0]


def test_no_samples_give_empty_lists() -> None:
    assert one(np.zeros((0, 3))) == {"prob": [], "index": [], "label": []}


def test_labels_and_names_are_those_given() -> None:
    found = one(f8(0, 1), labels=["cat", "dog"], label_name="animal", index_name="i", prob_name="p")
    assert found == {"p": 1.0, "i": 1, "animal": "dog"}


@pytest.mark.parametrize("hot_path", ["auto", "python"])
@pytest.mark.parametrize("labels", [["käse", "", "c"], ["a", "\ud800", "c"], None])
def test_labels_are_the_same_on_both_hot_paths(
    hot_path: str, labels: list[str] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STREAMER_NATIVE", hot_path)
    batch = Batch.of([Data({"preds": row}) for row in np.eye(3)[[2, 0, 1, 0]]])
    names = labels or ["0", "1", "2"]
    expected = [names[place] for place in (2, 0, 1, 0)]
    assert [data["label"] for data in classified(batch, labels=labels)] == expected


def test_label_and_probability_can_be_left_out() -> None:
    assert one(f8(0, 1), return_label=False, return_prob=False) == {"index": 1}


def test_all_probabilities_are_float64_of_each_sample() -> None:
    found = one(np.array([0.25, 0.75], "f4"), all_probabilities=True)["allProbabilities"]
    assert (found.dtype, found.tolist()) == (np.float64, [0.25, 0.75])
    found = one(np.array([[0.25, 0.75], [1, 0]], "f4"), all_probabilities=True)["allProbabilities"]
    assert [(row.dtype, row.tolist()) for row in found] == [(np.float64, [0.25, 0.75]), (np.float64, [1, 0])]


def test_top_n_above_one_gives_lists_of_one_as_in_konduit() -> None:
    assert one(f8(0.25, 0.75), top_n=3) == {"prob": [0.75], "index": [1], "label": ["1"]}
    assert one([0.25, 0.75], input_name="preds", top_n=3) == {"prob": [0.75], "index": [1], "label": ["1"]}
    assert one(f8(0.25, 0.75), top_n=1) == {"prob": 0.75, "index": 1, "label": "1"}


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i8", "u1"])
def test_every_type_of_number_is_widened_to_double(dtype: str) -> None:
    assert one(np.array([1, 3, 2], dtype)) == {"prob": 3.0, "index": 1, "label": "1"}


def test_lists_of_numbers_are_taken_under_a_given_name() -> None:
    assert one([0.5, 1.5], input_name="preds")["index"] == 1
    assert one([[0.5, 1.5], [1.5, 0.5]], input_name="preds")["index"] == [1, 0]


@pytest.mark.parametrize(
    "column",
    [
        lambda rows: DenseColumn(np.stack(rows)),
        lambda rows: DenseColumn(np.stack(rows)[:, np.newaxis]),
        lambda rows: RaggedColumn(np.stack(rows), np.arange(len(rows) + 1)),
        lambda rows: ObjectColumn(rows),
        lambda rows: ObjectColumn([row[np.newaxis] if at % 2 else row for at, row in enumerate(rows)]),
        lambda rows: ObjectColumn([row.tolist() for row in rows]),
    ],
)
def test_every_form_of_column_gives_the_same(column: Callable[[list[Any]], Column]) -> None:
    rows = list(np.random.default_rng(0).random((5, 4)).astype("f4"))
    found = classified(Batch({"p": column(rows)}, 5), input_name="p")
    assert [data["index"] for data in found] == [int(row.argmax()) for row in rows]
    assert [data["prob"] for data in found] == pytest.approx([float(row.max()) for row in rows])


def test_records_with_different_numbers_of_classes_and_samples_share_a_batch() -> None:
    values = [f8(1, 0, 0), f8([0, 1]), f8([0, 0, 0, 5], [5, 0, 0, 0]), f8(1, 2)]
    found = classified(Batch.of([Data({"p": value}) for value in values]))
    assert [data["index"] for data in found] == [0, 1, [3, 0], 1]
    assert [data["label"] for data in found] == ["0", "1", ["3", "0"], "1"]


def test_the_only_array_is_found_among_other_values() -> None:
    datas = [Data({"n": 5, "a": f8(0, 1)}), Data({"text": "t", "b": f8(1, 0)}), Data({"a": f8(0, 0, 1), "b": "no"})]
    assert [data["index"] for data in classified(Batch.of(datas))] == [1, 0, 2]


def test_records_without_an_array_or_with_two_fail_alone() -> None:
    datas = [Data({"a": f8(0, 1)}), Data({"n": 1}), Data({"a": f8(0, 1), "b": f8(0, 1)}), Data({"a": [0.5, 1.0]})]
    found = failures(Batch.of(datas))
    assert sorted(found) == [1, 2, 3]
    assert "no NDArray fields exist" in found[1]
    assert "multiple NDArray fields exist: a and b" in found[2]


def test_records_without_the_named_key_fail_alone() -> None:
    batch = Batch({"p": Column.of([f8(0, 1), MISSING]), "q": Column.of([1, 2])}, 2)
    assert failures(batch, input_name="p") == {1: 'Value not found for key "p"; there are q'}
    assert failures(batch, input_name="r").keys() == {0, 1}


@pytest.mark.parametrize("value", [np.zeros((2, 2, 2)), np.array(1.0), np.zeros((2, 0)), np.zeros(0)])
def test_arrays_of_another_shape_fail(value: Any) -> None:
    assert "has the shape" in failures(Batch.of([Data({"p": value})]))[0]
    mixed = Batch.of([Data({"p": f8(0, 1)}), Data({"p": value}), Data({"p": "text"})])
    assert failures(mixed, input_name="p").keys() == {1, 2}


def test_a_class_without_a_label_fails_its_record() -> None:
    rows = [f8(0, 1, 0), f8(0, 0, 1)]
    message = "the class index 2 has no label: 2 labels are given, the array has 3 classes"
    assert failures(Batch({"p": DenseColumn(np.stack(rows))}, 2), labels=["a", "b"]) == {1: message}
    ragged = RaggedColumn(np.stack([rows[0], rows[0], rows[1], rows[0]]), np.array([0, 1, 3, 4]))
    assert failures(Batch({"p": ragged}, 3), labels=["a", "b"]) == {1: message}
    mixed = Batch({"p": ObjectColumn([f8(1, 0), rows[1]])}, 2)
    assert failures(mixed, labels=["a", "b"]) == {1: message}


def test_keys_go_beside_what_is_there_and_metadata_stays() -> None:
    (found,) = classified(Batch.of([Data({"p": f8(0, 1), "id": 7}, metadata={"m": 1})]))
    assert list(found) == ["p", "id", "prob", "index", "label"]
    assert found.metadata == Data({"m": 1})


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i4"])
def test_softmax_makes_probabilities_of_logits_however_large(dtype: str) -> None:
    logits = np.array([[0, 2, -1], [600, 600, 0]], dtype)
    known = np.exp(logits.astype("f8") - logits.max(axis=1, keepdims=True))
    made = one(logits, activation="SOFTMAX", all_probabilities=True)
    assert made["index"] == [1, 0]
    assert np.array(made["allProbabilities"]) == pytest.approx(known / known.sum(axis=1, keepdims=True), abs=1e-3)
    assert made["prob"] == pytest.approx([0.8437947, 0.5], abs=1e-3)


def test_sigmoid_makes_a_probability_of_each_number_however_large() -> None:
    assert one(f8(-1000, 0, 1), activation="SIGMOID")["prob"] == pytest.approx(0.7310586)
    assert one(f8(-1000, 0, 1000), activation="SIGMOID", all_probabilities=True)["allProbabilities"].tolist() == [
        0,
        0.5,
        1,
    ]


def test_a_probability_that_is_none_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    runner = ClassifierOutputRunner(ClassifierOutput(), OpenContext(step="animals"))
    good = Batch.of([Data({"preds": np.array([0.2, 1.004])})])
    bad = Batch.of([Data({"preds": f8(0.1, 0.9)}), Data({"preds": f8(3, 14.6)})])
    for batch in (good, bad, bad):
        runner.run_batch(batch)
    assert [record.getMessage() for record in caplog.records] == [
        "animals: 14.6 is no probability of a class: if the model gives logits, set activation: SOFTMAX"
    ]


def test_no_warning_comes_where_the_probability_is_not_asked_for(caplog: pytest.LogCaptureFixture) -> None:
    one(f8(3, 14.6), return_prob=False)
    one(f8(3, 14.6), activation="SOFTMAX")
    assert not caplog.records
