"""Row numbers as a range: the same numbers are the same rows, however they are held."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines import Batch, Data
from pipelines.data.result import Result
from pipelines.data.rowrange import RowNumbers, as_array, as_range, row_range
from pipelines.executors.accounting import all_emitted

FIRST = st.integers(0, 2**50)
RANGES = st.builds(row_range, FIRST, st.integers(0, 40))
NUMBERS = RANGES | st.lists(FIRST, max_size=8).map(lambda rows: np.array(rows, np.int64))


def batch(rows: RowNumbers) -> Batch:
    return Batch.of([Data({"x": place}) for place in range(len(rows))]).numbered(rows, None)


@given(RANGES)
def test_an_array_of_numbers_that_follow_each_other_is_that_range(rows: range) -> None:
    array = as_array(rows)
    assert array.dtype == np.int64
    assert array.tolist() == list(rows)
    assert as_range(array) == as_range(array.copy()) == rows


@given(st.lists(st.integers(0, 6), max_size=6))
def test_only_consecutive_numbers_are_a_range(numbers: list[int]) -> None:
    follow = all(after == before + 1 for before, after in pairwise(numbers))
    found = as_range(np.array(numbers, np.int64))
    assert (found is not None) == follow
    assert found is None or list(found) == numbers


@given(NUMBERS, NUMBERS)
def test_batches_have_the_same_rows_if_their_numbers_are_equal(one: RowNumbers, other: RowNumbers) -> None:
    assert batch(one).same_rows(batch(other)) == (list(one) == list(other))
    assert batch(one).same_rows(batch(as_array(one).copy()))


@given(NUMBERS, st.data())
def test_parts_and_what_is_put_together_again_have_the_numbers_of_the_rows(
    rows: RowNumbers, data: st.DataObject
) -> None:
    whole = batch(rows)
    at = data.draw(st.integers(0, len(rows)))
    parts = [whole.part(0, at), whole.part(at, len(rows))]
    assert [part.rows.tolist() for part in parts] == [list(rows[:at]), list(rows[at:])]
    assert Batch.concat(parts).same_rows(whole)
    assert Batch.concat(parts).row_range == whole.row_range
    assert whole.take(slice(at, None)).same_rows(parts[1])
    assert Batch.concat(parts[::-1]).rows.tolist() == [*rows[at:], *rows[:at]]


@given(RANGES)
def test_a_copy_of_the_row_numbers_changes_nothing(rows: range) -> None:
    whole = batch(rows)
    copied = Batch(whole.columns, whole.size, rows=whole.rows.copy())
    assert copied.row_range == rows
    assert all_emitted(Result(copied), whole)
    assert all_emitted(Result(whole.with_columns({})), whole)


def test_rows_of_several_records_are_no_range() -> None:
    windows = Batch({}, 2, rows=np.arange(4), splits=np.array([0, 2, 4]))
    assert windows.row_range is None
    assert not windows.same_rows(Batch({}, 4))
    assert windows.same_rows(Batch({}, 2, rows=np.arange(4), splits=np.array([0, 2, 4])))
    assert not windows.same_rows(Batch({}, 2, rows=np.arange(4), splits=np.array([0, 1, 4])))


@pytest.mark.parametrize("rows", [range(0, 6, 2), range(3, 0, -1)])
def test_a_range_of_another_step_is_held_as_an_array(rows: range) -> None:
    given = Batch({}, 3, rows=rows)
    assert given.rows.tolist() == list(rows)
    assert given.row_range is None
