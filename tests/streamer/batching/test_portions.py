"""Portions of a batch: a record of several rows is never divided."""

from __future__ import annotations

import numpy as np
import pytest

from pipelines import Batch
from pipelines.data.columns import Column
from pipelines.data.result import Result
from streamer.batching.sizer import run_in_portions, whole_records

ROWS = [4, 4, 5, 6, 6, 6, 7]


def batch(rows: list[int]) -> Batch:
    return Batch({"a": Column.of(list(range(len(rows))))}, len(rows), rows=np.array(rows, np.int64))


@pytest.mark.parametrize(
    ("start", "size", "stop"),
    [
        (0, 1, 2),
        (0, 2, 2),
        (0, 3, 3),
        (0, 4, 3),
        (0, 5, 3),
        (0, 6, 6),
        (0, 9, 7),
        (3, 1, 6),
        (3, 3, 6),
        (6, 1, 7),
        (2, 1, 3),
    ],
)
def test_portions_end_behind_a_record(start: int, size: int, stop: int) -> None:
    assert whole_records(batch(ROWS), start, size) == stop


def test_all_rows_are_run_once_and_a_record_in_one_call() -> None:
    calls: list[list[int]] = []

    def run(portion: Batch) -> Result:
        calls.append(portion.rows.tolist())
        return Result(portion)

    for size in range(1, 8):
        calls.clear()
        result, done = run_in_portions(run, batch(ROWS), size)
        assert (done, result.batch.rows.tolist()) == (7, ROWS)
        assert [number for call in calls for number in sorted(set(call))] == [4, 5, 6, 7]


def test_a_run_that_is_ended_ends_behind_a_record() -> None:
    assert run_in_portions(Result, batch(ROWS), 1, lambda: False)[1] == 2
    assert run_in_portions(Result, batch([1, 2, 3]), 1, lambda: False)[1] == 1
