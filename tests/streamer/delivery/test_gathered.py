"""What steps have gathered for a row, as the payload of its dead letter."""

from __future__ import annotations

import json

import numpy as np

from connectors.records import Lane, Records, Span
from pipelines import Batch, Data
from pipelines.data.columns import DenseColumn
from pipelines.data.record import RecordContext
from pipelines.data.result import Gathered
from pipelines.executors.accounting import NO_ROWS
from pipelines.runners.state.timed import timed
from pipelines.values import ValueType
from streamer.agent.decodedbatch import DecodedBatch
from streamer.delivery.deadletter import gathered_json
from streamer.delivery.timedrows import TimedRows


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


def test_what_time_made_is_shared_out_among_the_sources_of_its_rows() -> None:
    columns = {"sum": DenseColumn(np.array([1, 2, 3, 4]), ValueType.INT64)}
    of = [RecordContext(source, "t", lane=Lane(source, "t-0", 0)) for source in ("kafka", "mqtt", "kafka", "kafka")]
    parts = TimedRows(["kafka", "mqtt"]).entered(timed(columns, of, 4000))
    shares = {decoded.source: (made.byte_count, made.batch.size) for decoded, part in parts for made in part.gathered}
    assert shares == {"kafka": (3000, 3), "mqtt": (1000, 1)}


def test_windows_are_freed_with_the_payloads_of_their_records() -> None:
    records = Records("s", [b"v"], None, np.array([7]), [Span(Lane("s", "t-0", 0), 0, 1)], ["t"], [0], 1)
    decoded = DecodedBatch("s", records, 7, NO_ROWS, {}, gathered=[gathered([7], [1])])
    decoded.let_go()
    assert gathered_json(decoded.gathered, 7) is None
