"""What steps have gathered for a row, as the payload of its dead letter."""

from __future__ import annotations

import json

import numpy as np

from pipelines import Batch, Data
from pipelines.data.columns import DenseColumn
from pipelines.data.result import Gathered
from pipelines.values import ValueType
from streamer.delivery.deadletter import gathered_json


def gathered(rows: list[int], values: list[int], splits: list[int] | None = None) -> Gathered:
    columns = {"sum": DenseColumn(np.array(values, np.int64), ValueType.INT64)}
    starts = None if splits is None else np.array(splits, np.int64)
    return Gathered(Batch(columns, len(values), rows=np.array(rows, np.int64), splits=starts), 8)


def test_a_row_for_which_nothing_was_gathered_has_nothing() -> None:
    assert gathered_json([], 7) is None
    assert gathered_json([gathered([6, 8], [1, 2])], 7) is None


def test_one_window_is_an_object_and_several_are_a_list() -> None:
    made = [gathered([7, 8, 8], [1, 2, 3])]
    assert [json.loads(gathered_json(made, row) or b"") for row in (7, 8)] == [{"sum": 1}, [{"sum": 2}, {"sum": 3}]]


def test_what_a_later_step_made_counts() -> None:
    made = [gathered([7, 8], [1, 2]), gathered([8], [3])]
    assert [Data.from_json(gathered_json(made, row) or b"")["sum"] for row in (7, 8)] == [1, 3]


def test_a_window_is_that_of_all_its_records() -> None:
    made = [gathered([1, 2, 3, 4, 5], [10, 20], splits=[0, 2, 5])]
    assert [json.loads(gathered_json(made, row) or b"")["sum"] for row in range(1, 6)] == [10, 10, 20, 20, 20]
