"""Suspects are remembered by partition and position; a batch falls into parts by its rows."""

from __future__ import annotations

import numpy as np
import pytest

import pipelines
from connectors.records import Lane, Records, Span
from pipelines import Data
from pipelines.errors import ConnectorError
from streamer.agent.decodedbatch import DecodedBatch
from streamer.delivery.parts import failing, part_of
from streamer.delivery.suspects import Suspects
from streamer.routing.sinkroute import SinkRoute

ROUTE: SinkRoute = SinkRoute("out", None, None, None)  # type: ignore[arg-type]
A, B = Lane("in", "0", 0), Lane("in", "1", 0)


def decoded(first: int = 100, epoch: int = 0) -> DecodedBatch:
    """Rows `first` to `first + 5`: positions 10, 11, 12 of partition 0, then 10, 11, 12 of partition 1."""
    spans = [Span(Lane("in", "0", epoch), 0, 3), Span(Lane("in", "1", epoch), 3, 6)]
    positions = np.array([10, 11, 12, 10, 11, 12], np.int64)
    records = Records("in", [b""] * 6, None, positions, spans, ["in", "in"], [0, 1], 6)
    batch = pipelines.Batch.of([Data({"x": n}) for n in range(6)])
    batch = pipelines.Batch(batch.columns, 6, rows=np.arange(first, first + 6))
    return DecodedBatch("in", records, first, batch, {})


def test_a_suspect_is_known_again_in_another_lane_and_row() -> None:
    suspects = Suspects()
    assert not suspects
    suspects.add(decoded(), 101)
    suspects.add(decoded(), 104)
    again = decoded(200, epoch=7)
    assert list(suspects.rows(again)) == [(201, None), (204, None)]
    again.keep(np.array([202, 203, 204]))
    assert list(suspects.rows(again)) == [(204, None)]


def test_a_suspect_that_was_refused_alone_has_failed() -> None:
    suspects = Suspects()
    suspects.convict(decoded(), 101, ROUTE, ConnectorError("too large"), letter=False)
    ((row, error),) = suspects.rows(decoded(200))
    assert (row, str(error)) == (201, "sink out: ConnectorError: too large")
    assert suspects.refusals(decoded(200), 201) == ()
    suspects.convict(decoded(200), 201, ROUTE, ConnectorError("its letter too"), letter=True)
    assert suspects.refusals(decoded(300), 301) == ("its letter too",)
    assert suspects.refusals(decoded(300), 302) == ()


def test_a_suspect_is_forgotten_when_it_is_finished_or_another_consumer_has_it() -> None:
    suspects = Suspects()
    for row in (100, 102, 103, 105):
        suspects.add(decoded(), row)
    suspects.finished({A: 12})
    assert [row for row, _ in suspects.rows(decoded())] == [102, 103, 105]
    suspects.forget(B)
    assert [row for row, _ in suspects.rows(decoded())] == [102]
    suspects.finished({A: 13})
    assert not suspects


@pytest.mark.parametrize("multiplied", [False, True])
def test_a_part_has_its_rows_and_what_became_of_them(multiplied: bool) -> None:
    whole = decoded()
    rows = np.array([100, 101, 101, 104]) if multiplied else np.array([100, 101, 104])
    batch = pipelines.Batch.of([Data({"y": int(row)}) for row in rows])
    emitted = pipelines.Batch(batch.columns, len(rows), rows=rows)
    result = pipelines.Result(emitted, {102: ValueError("a"), 105: ValueError("b")}, {103: "filtered"})
    part, own = part_of(whole, result, np.array([101, 102, 103]))
    assert part.rows.tolist() == [101, 102, 103]  # type: ignore[union-attr]
    assert set(own.batch.rows.tolist()) == {101}
    assert (list(own.failed), list(own.dropped)) == ([102], [103])
    assert len(whole.rows) == 6, "the batch itself stays as it is"


def test_a_result_of_several_rows_is_in_a_part_that_has_all_of_them() -> None:
    batch = pipelines.Batch.of([Data({"y": n}) for n in range(3)])
    windows = pipelines.Batch(batch.columns, 3, rows=np.array([100, 101, 101, 102, 103]), splits=np.array([0, 2, 4, 5]))
    _, own = part_of(decoded(), pipelines.Result(windows), np.array([100, 101, 103]))
    assert own.batch.to_list() == [Data({"y": 0}), Data({"y": 2})]


def test_rows_that_have_failed_have_no_result() -> None:
    batch = pipelines.Batch.of([Data({"y": n}) for n in range(6)])
    result = pipelines.Result(pipelines.Batch(batch.columns, 6, rows=np.arange(100, 106)), {})
    error = ConnectorError("too large")
    part, own = failing(decoded(), result, {101: error})
    assert len(part.rows) == 6
    assert own.batch.rows.tolist() == [100, 102, 103, 104, 105]
    assert own.failed == {101: error}
