"""Steps whose state is saved: rows that they hold are finished, and time makes rows of its own."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any, ClassVar

import numpy as np
import pytest

import pipelines
from pipelines import Batch, Data, Result
from pipelines.data.columns import Column
from pipelines.data.record import RecordContext
from pipelines.executors.sequence import SequenceExecutor
from pipelines.runners.runner import ContractError, OpenContext, StatefulRunner
from pipelines.runners.state.timed import FIRST_TIMED, timed


class Pairs(StatefulRunner):
    """Sums of two rows; the second is the parent. What is left comes out by time."""

    saves: ClassVar[bool] = True

    def __init__(self) -> None:
        self.kept: list[int] = []
        self.record = RecordContext("s", "t", key=b"a")

    def run_batch(self, batch: Batch) -> Result:
        rows, sums = [], []
        for row, n in zip(batch.rows.tolist(), batch["n"].values(), strict=True):
            self.kept.append(n)
            if len(self.kept) == 2:
                rows.append(row)
                sums.append(sum(self.kept))
                self.kept = []
        held = np.setdiff1d(batch.rows, np.array(rows, np.int64))
        made = Batch({"n": Column.of(sums)}, len(rows), rows=np.array(rows, np.int64), origin=batch.origin)
        return Result(made, held=held)

    def tick(self, now: float) -> Result:
        kept, self.kept = self.kept, []
        return timed({"n": Column.of(kept)}, [self.record] * len(kept))

    def flush(self) -> Result:
        return self.tick(0.0)

    def forget(self, lanes: Iterable[Hashable]) -> None:
        self.kept = []


class Named(pipelines.Step):
    type_name: ClassVar[str] = "NAMED"


def sequence(*runners: Any) -> SequenceExecutor:
    class Source:
        def check_runners(self, runners: Any) -> None: ...

        def create(self, step: Any, context: OpenContext) -> Any:
            return waiting.pop(0)

    waiting = list(runners)
    return SequenceExecutor([(f"s{n}", Named()) for n in range(len(runners))], OpenContext(), Source())


def numbers(*values: int, first: int = 0) -> Batch:
    return Batch.of([Data({"n": n}) for n in values], first)


def test_rows_that_went_into_the_state_are_finished_and_results_have_one_parent() -> None:
    executor = sequence(Pairs())
    result = executor.run_batch(numbers(1, 2, 3))
    assert (result.batch.rows.tolist(), result.batch["n"].values(), result.held.tolist()) == ([1], [3], [])
    assert executor.run_batch(numbers(4, first=3)).batch["n"].values() == [7]


def test_a_result_may_not_name_rows_of_an_earlier_batch() -> None:
    class Late(Pairs):
        def run_batch(self, batch: Batch) -> Result:
            return Result(Batch({}, 1, rows=np.array([0])), held=batch.rows)

    executor = sequence(Late())
    executor.run_batch(numbers(1))
    with pytest.raises(ContractError, match="row 0 came out and never went in"):
        executor.run_batch(numbers(1, first=1))


def test_what_time_makes_has_numbers_of_its_own_and_says_which_records_it_belongs_to() -> None:
    first, second = Pairs(), Pairs()
    executor = sequence(first, second)
    executor.run_batch(numbers(1, 2, 3))
    result = executor.tick(0.0)
    # The first step gave 3, which the second one added to what it had.
    assert result.batch["n"].values() == [6]
    (row,) = result.batch.rows.tolist()
    assert row >= FIRST_TIMED
    assert [batch.rows.tolist() for batch in result.timed] == [[row]]
    assert result.timed[0].row(0).record == first.record == result.batch.row(0).record


def test_a_row_of_time_that_a_later_step_refuses_fails_under_its_number() -> None:
    class Refuse(pipelines.RowRunner):
        def run(self, data: Data) -> Data:
            raise ValueError("no")

    executor = sequence(Pairs(), Refuse())
    executor.run_batch(numbers(1))
    result = executor.flush()
    (batch,) = result.timed
    assert list(result.failed) == batch.rows.tolist()
    assert batch["n"].values() == [1]
