"""The times of records: of the bus, of arrival, of a value; which records have none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pipelines.data.batch import Batch, JoinedOrigins
from pipelines.data.columns import MISSING, Column, Rows
from pipelines.data.record import RecordContext, RecordPlaces, listed_places
from pipelines.errors import DataError
from pipelines.runners.state.recordtimes import NO_TIME, RecordTimes
from pipelines.runners.state.timed import timed
from pipelines.steps.timefield import TimeConfig

NOW = 1_767_225_600_123
LATER = NOW + 3_600_000


class Stamps:
    """Records with these timestamps, numbered from `first`; no others."""

    def __init__(self, *stamps: int, first: int = 0) -> None:
        self.stamps = np.array(stamps, np.int64)
        self.first = first

    def record(self, row: int) -> RecordContext | None:
        return None

    def places(self, rows: Rows, *, keys: bool = True) -> RecordPlaces:
        return listed_places([None] * len(rows))

    def timestamps(self, rows: Rows) -> Rows:
        at = rows - self.first
        inside = (at >= 0) & (at < len(self.stamps))
        return np.where(inside, self.stamps[np.where(inside, at, 0)], -1)


def clock() -> float:
    return NOW / 1000


def values(*at: Any) -> Batch:
    return Batch({"at": Column.of(list(at))}, len(at))


def test_the_time_of_a_record_is_that_of_the_bus_or_else_that_of_its_arrival() -> None:
    batch = Batch({}, 3, origin=Stamps(5, -1, 7))
    assert RecordTimes("timestamp", clock=clock).of(batch).times.tolist() == [5, NOW, 7]
    assert RecordTimes("timestamp", clock=clock).of(Batch({}, 2)).times.tolist() == [NOW, NOW]


def test_of_a_record_made_of_several_it_is_the_time_of_the_first() -> None:
    batch = Batch({}, 2, rows=np.array([2, 0, 1]), splits=np.array([0, 1, 3]), origin=Stamps(5, 6, 7))
    assert batch.timestamps().tolist() == [7, 5]


def test_records_of_several_origins_have_each_the_time_of_its_own() -> None:
    origin = JoinedOrigins([Stamps(5, 6), Stamps(7, first=2)])
    assert Batch({}, 4, origin=origin).timestamps().tolist() == [5, 6, 7, -1]


def test_a_row_that_time_made_has_the_time_of_its_last_record() -> None:
    made = timed({}, [RecordContext("s", "t", timestamp=5), RecordContext("s", "t")]).batch
    assert made.timestamps().tolist() == [5, -1]


def test_the_time_of_arrival_does_not_go_back_with_the_clock() -> None:
    moments = iter([5.0, 4.0, 6.0])
    times = RecordTimes("arrival", clock=lambda: next(moments))
    assert [times.of(Batch({}, 1)).times.tolist() for _ in range(3)] == [[5000], [5000], [6000]]


def test_a_value_is_the_time_and_a_record_without_one_fails_alone() -> None:
    times = RecordTimes(TimeConfig(field="at", unit="s"), clock=clock)
    known = times.of(values(1.5, MISSING, "x", 3, float("nan"), -1))
    assert known.times.tolist() == [1500, NO_TIME, NO_TIME, 3000, NO_TIME, NO_TIME]
    assert {row: type(error) for row, error in known.failed.items()} == dict.fromkeys([1, 2, 4, 5], DataError)
    assert str(known.failed[1]) == '"at" is not the time of the record: it is missing'
    assert times.of(Batch({}, 1)).failed.keys() == {0}
    assert times.reads == {"at"}


def test_texts_are_times() -> None:
    times = RecordTimes(TimeConfig(field="at", unit="rfc3339"), clock=clock)
    assert times.of(values("2026-01-01T00:00:00.123Z", "yesterday")).times.tolist() == [NOW, NO_TIME]


@pytest.mark.parametrize("kind", ["timestamp", TimeConfig(field="at", unit="ms")])
def test_a_time_too_far_in_the_future_fails_its_record(kind: Any) -> None:
    batch = Batch({"at": Column.of([NOW, LATER, LATER + 1])}, 3, origin=Stamps(NOW, LATER, LATER + 1))
    known = RecordTimes(kind, ahead=3600, clock=clock).of(batch)
    assert known.times.tolist() == [NOW, LATER, NO_TIME]
    assert str(known.failed[2]) == (
        "its time, 2026-01-01T01:00:00.124Z, is more than 3600 s in the future (ahead); is the clock of its sender "
        "right?"
    )
    assert not RecordTimes(kind, clock=clock).of(batch).failed


def test_an_empty_batch_has_no_times() -> None:
    assert RecordTimes("timestamp", ahead=1, clock=clock).of(Batch({}, 0)).times.tolist() == []
