import json
from typing import Any

import numpy as np
import pytest

from connectors.codecs.json import JsonConfig
from pipelines.data.batch import Batch
from pipelines.data.columns import DenseColumn
from pipelines.data.data import Data
from pipelines.errors import RowsFailed, StreamerError
from pipelines.runners.models.regression import RegressionOutputRunner
from pipelines.runners.runner import OpenContext
from pipelines.steps.models.regression import RegressionOutput


def named(batch: Batch, names: Any, input_name: str | None = None) -> list[Data]:
    runner = RegressionOutputRunner(RegressionOutput(names=names, input_name=input_name), OpenContext())
    return runner.run_batch(batch).batch.to_list()


def test_one_sample_gives_a_double_a_name() -> None:
    for value in (np.array([1, 2, 3], "f4"), np.array([[1, 2, 3]], "f4")):
        (found,) = named(Batch.of([Data({"p": value})]), {"a": 0, "c": 2})
        assert (found["a"], found["c"]) == (1.0, 3.0)
        assert isinstance(found["a"], float)
        assert list(found) == ["p", "a", "c"]


@pytest.mark.parametrize("rows", [1, 3, 500])
@pytest.mark.parametrize("dtype", ["f2", "f4"])
def test_narrow_floats_have_the_digits_that_arrays_have_in_json(dtype: str, rows: int) -> None:
    samples = np.random.default_rng(0).standard_normal((rows, 3)).astype(dtype)
    samples[0] = [0.1, 1e-7, 3.5]
    batch = Batch({"p": DenseColumn(samples)}, rows)
    found = named(batch, {"a": 0, "b": 1, "c": 2})
    written = [json.loads(one) for one in JsonConfig().build().encode(Batch.of(found)).values]
    assert [[one["a"], one["b"], one["c"]] for one in written] == [one["p"] for one in written]
    assert written[0]["a"] == 0.1
    assert np.array([[data["a"], data["b"], data["c"]] for data in found]).astype(dtype).tolist() == samples.tolist()


def test_narrow_floats_that_are_no_numbers_stay_so() -> None:
    (found,) = named(Batch.of([Data({"p": np.array([np.nan, np.inf, -0.0], "f4")})]), {"a": 0, "b": 1, "c": 2})
    assert [str(found[key]) for key in "abc"] == ["nan", "inf", "-0.0"]


def test_several_samples_of_narrow_floats_have_their_digits_too() -> None:
    (found,) = named(Batch.of([Data({"p": np.array([[0.1], [0.2]], "f4")})]), {"a": 0})
    assert found["a"] == [0.1, 0.2]


def test_several_samples_give_lists() -> None:
    (found,) = named(Batch.of([Data({"p": np.array([[1.0, 2.0], [3.0, 4.0]])})]), {"b": 1})
    assert found["b"] == [2.0, 4.0]


def test_a_dense_column_gives_dense_columns() -> None:
    runner = RegressionOutputRunner(RegressionOutput(names={"b": 1}), OpenContext())
    batch = Batch({"p": DenseColumn(np.arange(6, dtype="f4").reshape(3, 2))}, 3)
    column = runner.run_batch(batch).batch["b"]
    assert isinstance(column, DenseColumn)
    assert column.array.tolist() == [1.0, 3.0, 5.0]


def test_records_of_different_widths_share_a_batch() -> None:
    values = [np.array([1.0, 2.0]), np.array([[1.0, 3.0, 0.0]]), [4.0, 5.0], np.array([[1.0, 6.0], [1.0, 7.0]])]
    found = named(Batch.of([Data({"p": value}) for value in values]), {"b": 1}, input_name="p")
    assert [data["b"] for data in found] == [2.0, 3.0, 5.0, [6.0, 7.0]]


def test_numbers_have_the_digits_of_their_own_array_whatever_the_next_record_brings() -> None:
    values = [np.array([0.1, 1], "f4"), np.array([0.1, 2]), np.array([0.1, 3], "f2"), [0.1, 4.0]]
    datas = [Data({"p": value}) for value in values]
    assert [one["a"] for one in named(Batch.of(datas), {"a": 0}, "p")] == [0.1] * 4


def test_a_record_that_lacks_a_column_fails_alone() -> None:
    datas = [Data({"p": np.array([1.0, 2.0])}), Data({"p": np.array([1.0])})]
    with pytest.raises(RowsFailed) as caught:
        named(Batch.of(datas), {"a": 0, "b": 1})
    message = '"b" is column 1, but the array has 1 columns, counted from 0'
    assert {row: str(error) for row, error in caught.value.failures.items()} == {1: message}


def test_a_batch_that_lacks_a_column_fails_as_a_whole() -> None:
    with pytest.raises(RowsFailed) as caught:
        named(Batch({"p": DenseColumn(np.zeros((3, 1)))}, 3), {"b": 1})
    assert sorted(caught.value.failures) == [0, 1, 2]


@pytest.mark.parametrize("names", [None, {}])
def test_names_are_needed_when_it_opens(names: Any) -> None:
    with pytest.raises(StreamerError, match='REGRESSION_OUTPUT needs "names"'):
        RegressionOutputRunner(RegressionOutput(names=names), OpenContext())
