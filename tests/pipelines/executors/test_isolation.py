"""Rows to blame: each row that can be run is run, and a function that always raises ends soon."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import pipelines
from pipelines import Batch, Data, DataError, DenseColumn, RowsFailed, StepError
from pipelines.data.columns import Rows
from pipelines.executors.isolation import TRIED, isolated
from pipelines.runners.runner import ContractError


class Work:
    """Works on numbered rows, of which some are bad, and says so in one of several ways."""

    def __init__(self, size: int, bad: set[int], manner: str = "raises") -> None:
        self.size = size
        self.bad = bad
        self.manner = manner
        self.calls = 0
        self.rows_run = 0

    def __call__(self, rows: Rows | None) -> list[int]:
        positions = list(range(self.size)) if rows is None else rows.tolist()
        self.calls += 1
        self.rows_run += len(positions)
        places = [place for place, row in enumerate(positions) if row in self.bad]
        if not places:
            return positions
        if self.manner == "raises":
            raise ValueError("some row is bad")
        named = places if self.manner == "names all" else places[:1]
        raise RowsFailed({place: DataError(f"row {positions[place]}") for place in named})


MANNERS = ("raises", "names all", "names one")


@given(st.integers(0, 60), st.sets(st.integers(0, 59)), st.sampled_from(MANNERS))
@example(60, set(range(60)), "names one")
@example(60, set(range(1, 60, 2)), "raises")
def test_every_row_that_can_be_run_is_run_once_and_in_order(size: int, bad: set[int], manner: str) -> None:
    work = Work(size, bad, manner)
    found, failed = isolated(size, work)
    assert [row for part in found for row in part] == [row for row in range(size) if row not in bad]
    assert failed.keys() == {row for row in bad if row < size}
    if manner != "raises":
        assert all(str(error) == f"row {row}" for row, error in failed.items())


@pytest.mark.slow
@pytest.mark.parametrize("manner", MANNERS)
@pytest.mark.parametrize("size", [2, TRIED, 20_000])
def test_where_everything_fails_the_calls_are_bounded(size: int, manner: str) -> None:
    work = Work(size, set(range(size)), manner)
    found, failed = isolated(size, work)
    assert not found
    assert failed.keys() == set(range(size))
    assert work.calls <= 2 * TRIED + 100


def test_a_row_that_was_not_tried_says_so_and_what_the_others_raised() -> None:
    _, failed = isolated(20_000, Work(20_000, set(range(20_000))))
    untried = [error for error in failed.values() if not isinstance(error, ValueError)]
    assert len(untried) > 19_000
    assert str(untried[0]) == (
        f"not tried alone: {20_000 - len(untried)} other records of this batch of 20000 failed and none went well, the "
        "last with ValueError: some row is bad"
    )
    assert isinstance(untried[0].__cause__, ValueError)


@pytest.mark.parametrize("manner", MANNERS)
@pytest.mark.parametrize("bad", [range(600), range(400, 20_000), range(0, 20_000, 2), range(19_000)])
@pytest.mark.slow
def test_a_long_run_of_bad_rows_costs_no_good_one(bad: range, manner: str) -> None:
    size = 20_000
    good = set(range(size)) - set(bad)
    found, failed = isolated(size, Work(size, set(bad), manner))
    assert {row for part in found for row in part} == good
    assert failed.keys() == set(bad)


def test_of_few_rows_the_only_good_one_is_found() -> None:
    for good in (0, 255, TRIED - 1):
        found, failed = isolated(TRIED, Work(TRIED, set(range(TRIED)) - {good}))
        assert found == [[good]]
        assert len(failed) == TRIED - 1


@pytest.mark.parametrize("manner", ["raises", "names one"])
def test_calls_and_rows_grow_with_the_bad_ones_and_not_with_their_square(manner: str) -> None:
    size, bad = 8192, set(range(0, 8192, 8))
    work = Work(size, bad, manner)
    isolated(size, work)
    assert work.calls <= 8 * len(bad)
    assert work.rows_run <= 20 * size


def test_one_bad_row_among_many_is_found_by_halves() -> None:
    work = Work(1 << 16, {12_345})
    _, failed = isolated(work.size, work)
    assert list(failed) == [12_345]
    assert work.calls <= 2 * 17


@pytest.mark.slow
def test_a_batch_that_cannot_be_run_again_fails_whole_unless_errors_name_the_bad_rows() -> None:
    found, failed = isolated(4, Work(4, {1}), pure=False)
    assert not found
    assert len(failed) == 4

    found, failed = isolated(TRIED, Work(TRIED, set(range(0, TRIED, 2)), "names one"), pure=False)
    assert found == [list(range(1, TRIED, 2))]

    work = Work(5000, set(range(5000)), "names one")
    _, failed = isolated(5000, work, pure=False)
    assert len(failed) == 5000
    assert work.calls <= TRIED + 1


@pytest.mark.parametrize("named", [{}, {7: DataError("x")}, {-1: DataError("x")}])
def test_naming_rows_that_are_not_there_is_the_fault_of_the_program(named: dict[int, Exception]) -> None:
    def run(rows: Rows | None) -> None:
        failure = RowsFailed({0: DataError("x")})
        failure.failures = named
        raise failure

    with pytest.raises(ContractError, match="positions that are not in the batch of 2"):
        isolated(2, run)


def test_an_error_that_no_record_can_be_blamed_for_is_raised() -> None:
    for error in (ContractError("broken"), KeyboardInterrupt()):

        def run(rows: Rows | None, error: BaseException = error) -> None:
            raise error

        with pytest.raises(type(error)):
            isolated(10, run)


def naming_the_first_bad_row(batch: Batch) -> Batch:
    for position, value in enumerate(batch["n"].values()):
        if value < 0:
            raise RowsFailed({position: DataError(f"{value} is negative")})
    return batch


def always_raising(batch: Batch) -> Batch:
    raise ZeroDivisionError("no")


def run(function: Callable[[Batch], Batch], numbers: Any) -> list[Any]:
    with pipelines.Sequence([pipelines.batched(function)]).open() as executor:
        return executor.run_many([Data({"n": n}) for n in numbers])


@pytest.mark.slow
def test_bad_rows_that_are_named_one_at_a_time_do_not_end_in_a_recursion_error() -> None:
    count = 3 * sys.getrecursionlimit()
    found = run(naming_the_first_bad_row, [n if n % 3 else -n - 1 for n in range(count)])
    for n, one in enumerate(found):
        assert isinstance(one, Data if n % 3 else StepError)
    assert "0:FUNCTION: DataError: -1 is negative" in str(found[0])


@pytest.mark.slow
def test_a_function_that_always_raises_ends_soon_and_every_record_fails_with_its_error() -> None:
    calls = 0

    def counted(batch: Batch) -> Batch:
        nonlocal calls
        calls += 1
        return always_raising(batch)

    batch = Batch({"n": DenseColumn(np.arange(100_000))}, 100_000)
    with pipelines.Sequence([pipelines.batched(counted)]).open() as executor:
        result = executor.run_batch(batch)
    assert len(result.failed) == 100_000
    assert all("ZeroDivisionError: no" in str(error) for error in result.failed.values())
    assert calls <= 1000


@pytest.mark.slow
def test_a_switch_function_that_names_one_bad_row_at_a_time_ends_too() -> None:
    class Positive(pipelines.SwitchFunction):
        type_name = "POSITIVE"

        def open(self, context: Any) -> Any:
            return lambda batch: np.zeros(naming_the_first_bad_row(batch).size, np.int64)

    graph = pipelines.GraphBuilder()
    (only,) = graph.input.switch("sign", Positive(num_outputs=1))
    with graph.build(only).open() as executor:
        found = executor.run_many([Data({"n": -1 if n % 2 else n}) for n in range(2000)])
    assert [isinstance(one, StepError) for one in found] == [bool(n % 2) for n in range(2000)]
