"""Suspects are remembered by partition and position; a batch falls into parts by its rows."""

from __future__ import annotations

import math
from collections.abc import Collection

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

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
    suspects.add([(decoded(), 101), (decoded(), 104)])
    again = decoded(200, epoch=7)
    assert [(one.row, one.alone, one.error) for one in suspects.rows(again)] == [(201, True, None), (204, True, None)]
    again.keep(np.array([202, 203, 204]))
    assert [one.row for one in suspects.rows(again)] == [204]


def test_a_suspect_that_was_refused_alone_has_failed() -> None:
    suspects = Suspects()
    suspects.convict(decoded(), 101, ROUTE, ConnectorError("too large"), letter=False)
    ((row, _, alone, error),) = suspects.rows(decoded(200))
    assert (row, alone, str(error)) == (201, True, "sink out: ConnectorError: too large")
    assert suspects.refusals(decoded(200), 201) == ()
    suspects.convict(decoded(200), 201, ROUTE, ConnectorError("its letter too"), letter=True)
    assert suspects.refusals(decoded(300), 301) == ("its letter too",)
    assert suspects.refusals(decoded(300), 302) == ()


def test_a_suspect_is_forgotten_when_it_is_finished_or_another_consumer_has_it() -> None:
    suspects = Suspects()
    suspects.add([(decoded(), row) for row in (100, 102, 103, 105)])
    suspects.finished({A: 12})
    assert [one.row for one in suspects.rows(decoded())] == [102, 103, 105]
    suspects.forget(B)
    assert [one.row for one in suspects.rows(decoded())] == [102]
    suspects.finished({A: 13})
    assert not suspects


def test_each_half_of_the_suspects_is_a_part_with_what_is_between_them() -> None:
    suspects = Suspects()
    suspects.add([(decoded(), row) for row in (105, 100, 102, 103)])
    parts = [(part.rows.tolist(), part.alone) for part in suspects.parts(decoded())]
    assert parts == [([100, 101, 102], False), ([103, 104, 105], False)]
    suspects.add([(decoded(), row) for row in (100, 101, 102)])
    parts = [(part.rows.tolist(), part.alone) for part in suspects.parts(decoded())]
    assert parts == [([100], True), ([101], False), ([102], True), ([103, 104, 105], False)]


class Bus:
    """Carries out transactions of the records of one partition, by the parts of their batches, as the service does."""

    def __init__(self, count: int, bad: Collection[int], requests: int) -> None:
        self.count, self.bad, self.requests = count, bad, requests
        self.suspects = Suspects()
        self.committed: list[int] = []
        self.buried: list[int] = []
        self.transactions = 0
        self._first = 0

    def run(self, batch: int) -> None:
        """Until all records are committed, in batches of so many."""
        while len(self.committed) < self.count:
            at = len(self.committed)
            decoded = self._batch(np.arange(at, min(at + batch, self.count)))
            open_rows: list[int] = []
            group: int | None = None
            for part in self.suspects.parts(decoded):
                if open_rows and (part.alone or part.group not in (None, group)):
                    if not self._commit(decoded, open_rows):
                        break
                    open_rows, group = [], None
                open_rows += part.rows.tolist()
                group = group if part.group is None else part.group
                if part.alone:
                    if not self._commit(decoded, open_rows):
                        break
                    open_rows, group = [], None
            else:
                if open_rows:
                    self._commit(decoded, open_rows)

    def _batch(self, positions: np.ndarray) -> DecodedBatch:
        self._first += 1000
        count = len(positions)
        records = Records("in", [b""] * count, None, positions, [Span(A, 0, count)], ["in"], [0], 6)
        batch = pipelines.Batch.of([Data({"x": int(n)}) for n in positions])
        batch = pipelines.Batch(batch.columns, count, rows=np.arange(self._first, self._first + count))
        return DecodedBatch("in", records, self._first, batch, {})

    def _commit(self, decoded: DecodedBatch, rows: list[int]) -> bool:
        self.transactions += 1
        positions = {row: int(decoded.records.positions[row - decoded.first]) for row in rows}
        convicted = {one.row for one in self.suspects.rows(decoded) if one.error is not None} & set(rows)
        refused = {
            positions[row] % self.requests for row in rows if positions[row] in self.bad and row not in convicted
        }
        lost = [row for row in rows if positions[row] % self.requests in refused]
        if not lost:
            self.buried += [positions[row] for row in sorted(convicted)]
            self.committed += positions.values()
            self.suspects.finished({A: len(self.committed)})
            return True
        if len(rows) == 1:
            self.suspects.convict(decoded, rows[0], ROUTE, ConnectorError("too large"), letter=False)
        else:
            self.suspects.add([(decoded, row) for row in lost])
        return False


@given(
    count=st.integers(1, 70),
    bad=st.sets(st.integers(0, 69), max_size=4),
    requests=st.integers(1, 4),
    batch=st.integers(1, 70),
)
@example(count=64, bad={21}, requests=1, batch=64)
@example(count=64, bad={63}, requests=3, batch=64)
@example(count=70, bad={17, 52}, requests=2, batch=70)
def test_bad_records_are_found_in_few_transactions_wherever_they_are(
    count: int, bad: set[int], requests: int, batch: int
) -> None:
    bus = Bus(count, bad, requests)
    bus.run(batch)
    assert bus.committed == list(range(count))
    assert bus.buried == sorted(number for number in bad if number < count)
    halvings = math.ceil(math.log2(min(batch, count)) + 1)
    # Of each bad one, a transaction that fails and one that does not at each halving; two more in the end. Of several
    # requests, one more with what is beside the halves and was sent in another request.
    each = 2 if requests == 1 else 3
    assert bus.transactions <= math.ceil(count / batch) + len(bus.buried) * (each * halvings + 3) + 1


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
