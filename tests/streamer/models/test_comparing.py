"""How results of two versions are compared."""

from __future__ import annotations

import numpy as np
import pytest

from pipelines import Batch, Data
from pipelines.data.result import Result
from streamer.models.comparing import MOST_KEYS, Comparison


def compared(first: object, second: object) -> tuple[int, int, int, float]:
    comparison = Comparison()
    comparison.add(Result(Batch.of([Data({"y": first})])), Result(Batch.of([Data({"y": second})])))
    output = comparison.outputs["y"]
    return output.equal, output.different, output.missing, output.largest


@pytest.mark.parametrize(
    ("first", "second", "equal", "largest"),
    [
        (1, 1, True, 0.0),
        (3, 5, False, 2.0),
        (1.0, 1.0 + 1e-7, True, 1e-7),
        (1.0, 1.5, False, 0.5),
        (float("nan"), float("nan"), True, 0.0),
        (float("nan"), 1.0, False, 0.0),
        (float("inf"), 1.0, False, 0.0),
        ("cat", "cat", True, 0.0),
        ("cat", "dog", False, 0.0),
        ("1", 1, False, 0.0),
        (np.array([1.0, 2.0], "f4"), np.array([1.0, 2.00001], "f4"), True, 1e-5),
        (np.array([1.0, 2.0], "f4"), np.array([1.0, 4.0], "f4"), False, 2.0),
        (np.zeros(2), np.zeros(3), False, 0.0),
        (np.zeros((0, 4)), np.zeros((0, 4)), True, 0.0),
        (np.array([1.0, np.nan]), np.array([1.0, np.nan]), True, 0.0),
        (["a"], ["b"], False, 0.0),
        (True, True, True, 0.0),
        (True, False, False, 0.0),
        (np.array([1, 2]), "12", False, 0.0),
    ],
)
def test_values_are_equal_but_for_what_rounding_does(
    first: object, second: object, equal: bool, largest: float
) -> None:
    same, different, missing, apart = compared(first, second)
    assert (same, different, missing) == (int(equal), int(not equal), 0)
    assert apart == pytest.approx(largest, rel=0.2)


def test_results_are_compared_by_their_records_in_whatever_order_they_are() -> None:
    first = Batch.of([Data({"y": number}) for number in range(4)], 10)
    comparison = Comparison()
    comparison.add(Result(first), Result(first.take([3, 1, 0])))
    assert (comparison.outputs["y"].equal, comparison.outputs["y"].different) == (3, 0)


def test_an_output_that_one_version_lacks_is_missing_and_failures_are_counted_by_side() -> None:
    comparison = Comparison()
    first = Result(Batch.of([Data({"y": 1}), Data({"y": 1, "z": 2})], 0), {7: ValueError("")})
    second = Result(Batch.of([Data({"y": 1}), Data({"y": 1})], 0), {8: ValueError(""), 9: ValueError("")})
    comparison.add(first, second)
    assert comparison.outputs["z"].missing == 1
    assert comparison.failed == [1, 2]


def test_records_with_several_results_are_left_out() -> None:
    batch = Batch.of([Data({"y": 1}), Data({"y": 2})], 0).take([0, 0, 1])
    comparison = Comparison()
    comparison.add(Result(batch), Result(batch))
    assert comparison.outputs["y"].equal == 1


def test_records_cannot_make_any_number_of_outputs() -> None:
    comparison = Comparison()
    for number in range(2 * MOST_KEYS):
        batch = Batch.of([Data({f"k{number}": 1})])
        comparison.add(Result(batch), Result(batch))
    assert len(comparison.outputs) == MOST_KEYS
