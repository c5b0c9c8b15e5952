"""What `aggregate` of WINDOW makes of the values of a window."""

from __future__ import annotations

import math
import statistics
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines import Batch, Data
from pipelines.runners.keyed.aggregates import Aggregates

FINITE = st.floats(allow_nan=False, allow_infinity=False)
INTEGERS = st.integers(-(2**63), 2**63 - 1)


def aggregated(function: str, *portions: list[Any]) -> Any:
    """The result of one window that gets the values of each portion at once."""
    content, failed = _added(function, *portions)
    assert not failed
    return content.values(np.array([0]))[0][0]


def failures(function: str, values: list[Any]) -> dict[int, str]:
    return _added(function, values)[1]


def _added(function: str, *portions: list[Any]) -> tuple[Aggregates, dict[int, str]]:
    content = Aggregates({"y": {function: "x"}})
    content.grow(1)
    content.begin(np.array([0]))
    failed: dict[int, Exception] = {}
    for portion in portions:
        read = content.read(Batch.of([Data({} if value is None else {"x": value}) for value in portion]), failed)
        if not failed:
            content.add(read, np.arange(len(portion)), np.zeros(len(portion), np.int64))
    return content, {row: str(error) for row, error in failed.items()}


@pytest.mark.parametrize(
    ("function", "values", "result"),
    [
        ("count", [1, None, "b"], 2),
        ("sum", [1, 2, 3], 6),
        ("sum", [1, 0.5], 1.5),
        ("sum", [2**62, 2**62 - 1], 2**63 - 1),
        ("sum", [2**62, 2**62], 2.0**63),
        ("sum", [2**62, 2**62, -(2**62)], 2**62),
        ("mean", [1, 2], 1.5),
        ("min", [3, 1, 2.5], 1),
        ("min", [3, 1, 0.5], 0.5),
        ("max", [-3, -7], -3),
        ("max", [-(2**63)], -(2**63)),
        ("std", [1, 3], 1.0),
        ("std", [7], 0.0),
        ("first", ["a", 2, True], "a"),
        ("last", ["a", 2, True], True),
        ("sum", [np.array([2.5], np.float32), np.array([1.0], np.float32)], 3.5),
        ("last", [np.array([[5]], np.int32)], 5),
    ],
)
def test_a_window_has_the_aggregate_with_its_type(function: str, values: list[Any], result: Any) -> None:
    made = aggregated(function, values)
    assert made == result
    assert type(made) is type(result)


@pytest.mark.parametrize("function", ["sum", "mean", "min", "max", "std", "first", "last"])
@pytest.mark.parametrize("bad", [None, math.nan, math.inf, np.array([1, 2]), [1]])
def test_a_missing_or_unusable_value_fails_its_record(function: str, bad: Any) -> None:
    assert list(failures(function, [1, bad, 2.5])) == [1]


def test_the_error_says_what_was_there() -> None:
    assert failures("sum", ["a"]) == {0: '"x" is a str; it has to be a number'}
    assert failures("sum", [True]).keys() == {0}
    assert failures("last", [None]) == {0: 'there is no value "x", which the window is made of'}


@given(st.lists(st.one_of(FINITE, INTEGERS), min_size=1, max_size=30), st.integers(0, 30))
def test_sums_are_bit_for_bit_those_of_a_loop_whatever_the_portions(values: list[Any], cut: int) -> None:
    integers = sum(value for value in values if isinstance(value, int))
    floats = 0.0
    for value in values:
        floats += value if isinstance(value, float) else 0.0
    expected: Any = float(integers) + floats if any(isinstance(value, float) for value in values) else integers
    if isinstance(expected, int) and not -(2**63) < expected < 2**63:
        expected = float(expected)
    for made in (aggregated("sum", values), aggregated("sum", values[:cut], values[cut:])):
        assert repr(made) == repr(expected)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30), st.sampled_from([0.0, 1e9]))
def test_the_deviation_is_right_also_far_from_zero(values: list[float], offset: float) -> None:
    moved = [value + offset for value in values]
    assert aggregated("std", moved) == pytest.approx(statistics.pstdev(moved), rel=1e-6, abs=1e-3)


def test_what_was_saved_goes_on_as_if_nothing_had_been() -> None:
    for function in ("count", "sum", "mean", "min", "max", "std", "first", "last"):
        content, _ = _added(function, [1, 2.5])
        again = Aggregates({"y": {function: "x"}})
        again.grow(4)
        again.begin(np.array([3]))
        again.load(3, content.saved(0))
        before, after = np.array([0]), np.array([3])
        assert again.values(after) == content.values(before)
        assert again.counts(after).tolist() == [2]
