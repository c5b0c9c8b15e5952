"""Rows are chosen by SQL expressions, and by several conditions that must all hold."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pipelines.conditions.condition import condition, singly
from pipelines.data.batch import Batch
from pipelines.data.columns import MISSING, Column
from pipelines.errors import DefinitionError


def chosen(when: Any, **columns: list[Any]) -> tuple[list[int], dict[int, str]]:
    batch = Batch({key: Column.of(values) for key, values in columns.items()}, len(next(iter(columns.values()))))
    mask, failures = condition(when).rows(batch)
    assert mask.dtype == np.bool_
    return np.flatnonzero(mask).tolist(), {row: str(error) for row, error in failures.items()}


def test_a_row_is_chosen_if_the_expression_is_true_and_not_if_it_is_missing() -> None:
    assert chosen("f > 80 or lower(room) = 'freezer'", f=[81, 80, MISSING, 0], room=["a", "b", "Freezer", MISSING]) == (
        [0, 2],
        {},
    )
    assert chosen("topic not like '%/bridge/%'", topic=["z/bridge/state", "z/lamp", MISSING]) == ([1], {})
    assert chosen("none > 1", f=[1, 2]) == ([], {})
    assert chosen("none is null", f=[1, 2]) == ([0, 1], {})
    assert chosen("f = null", f=[1, 2]) == ([], {})


def test_a_row_with_a_value_of_another_type_fails_and_its_neighbours_do_not() -> None:
    rows, failures = chosen("temp > 5", temp=[6, "warm", 4, MISSING])
    assert rows == [0]
    assert list(failures) == [1]
    assert failures[1].startswith('"temp" is a text; temp > 5 needs a number')


def test_of_a_list_all_must_hold_and_a_row_that_is_left_out_is_no_error_of_a_later_condition() -> None:
    when: list[Any] = [{"kind": "sensor"}, "temp > 5"]
    rows, failures = chosen(when, kind=["sensor", "lamp", "sensor", "sensor"], temp=[6, "warm", "hot", 4])
    assert rows == [0]
    assert list(failures) == [2]
    assert condition(when).names == {"kind", "temp"}


def test_conditions_are_told_one_by_one() -> None:
    assert list(singly(None)) == []
    assert list(singly("a > 1")) == ["a > 1"]
    assert list(singly({"a": 1})) == [{"a": 1}]
    assert list(singly(["a > 1", {"a": 1}])) == ["a > 1", {"a": 1}]


@pytest.mark.parametrize("when", ["temp", "temp > ", "temp + 1", "sum(temp) > 1", "rules:urgent"])
def test_what_is_no_condition_is_refused(when: str) -> None:
    if when == "temp":
        assert condition(when).names == {"temp"}
        return
    with pytest.raises(DefinitionError):
        condition(when)
