"""Times in records: numbers of each unit and texts, whole columns as row by row; all else is no time."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.data.columns import MISSING, Column, DenseColumn
from pipelines.data.times import LATEST, UNKNOWN, Unit, times_of, why_no_time
from pipelines.data.wirecolumn import WireColumn
from pipelines.errors import RowsFailed, WireError
from pipelines.values import ValueType

PER_MS: dict[Unit, float] = {"s": 0.001, "ms": 1, "us": 1000, "ns": 1_000_000}
UNITS = st.sampled_from([*PER_MS])
MOMENT = 1_767_225_600_123


def times(values: list[Any], unit: Unit) -> list[int]:
    return list(times_of(Column.of(values), unit).tolist())


@pytest.mark.parametrize(
    ("unit", "value", "milliseconds"),
    [
        ("s", 1_767_225_600, 1_767_225_600_000),
        ("s", 1_767_225_600.123, MOMENT),
        ("s", 0, 0),
        ("s", -1, UNKNOWN),
        ("s", MOMENT, UNKNOWN),
        ("ms", MOMENT, MOMENT),
        ("ms", MOMENT + 0.6, MOMENT + 1),
        ("ms", LATEST, LATEST),
        ("ms", LATEST + 1, UNKNOWN),
        ("us", MOMENT * 1000 + 999, MOMENT),
        ("ns", MOMENT * 1_000_000 + 999_999, MOMENT),
        ("ns", 2**63 - 1, 9_223_372_036_854),
        ("us", -(2**63), UNKNOWN),
        ("ms", math.nan, UNKNOWN),
        ("ms", math.inf, UNKNOWN),
        ("ms", True, UNKNOWN),
        ("ms", str(MOMENT), UNKNOWN),
        ("ms", [MOMENT], UNKNOWN),
        ("rfc3339", MOMENT, UNKNOWN),
        ("rfc3339", "2026-01-01T00:00:00.123Z", MOMENT),
        ("rfc3339", "2026-01-01t01:00:00.1239999999+01:00", MOMENT),
        ("rfc3339", "2025-12-31 19:00:00.123-05:00", MOMENT),
        ("rfc3339", "2026-01-01T00:00:00z", MOMENT - 123),
        ("rfc3339", "2026-01-01T00:00:00", UNKNOWN),
        ("rfc3339", "2026-01-01", UNKNOWN),
        ("rfc3339", "2026-13-01T00:00:00Z", UNKNOWN),
        ("rfc3339", "2026-01-01T00:00:00+25:00", UNKNOWN),
        ("rfc3339", "1969-12-31T23:59:59Z", UNKNOWN),
        ("rfc3339", "0001-01-01T00:00:00+23:00", UNKNOWN),
        ("rfc3339", "9999-12-31T23:59:59-23:00", UNKNOWN),
        ("rfc3339", "٢٠٢٦-01-01T00:00:00Z", UNKNOWN),
        ("rfc3339", "2026-01-01T00:00:00Z" * 100_000, UNKNOWN),
        ("rfc3339", "", UNKNOWN),
    ],
)
def test_a_value_is_a_time_or_not(unit: Unit, value: Any, milliseconds: int) -> None:
    column = Column.of([value, MISSING])
    assert times_of(column, unit).tolist() == [milliseconds, UNKNOWN]
    why = why_no_time(column, 0, unit)
    assert (why is None) == (milliseconds != UNKNOWN)
    assert len(why or "") < 200
    assert why_no_time(column, 1, unit) == "it is missing"


NUMBERS = st.integers(-(2**63), 2**63 - 1) | st.floats() | st.integers(0, 2 * 10**12)


@given(st.lists(st.just(MISSING) | NUMBERS | st.text(max_size=3) | st.booleans()), st.sampled_from(get_args(Unit)))
def test_a_value_has_the_same_time_whatever_its_neighbours_are(values: list[Any], unit: Unit) -> None:
    together = times(values, unit)
    assert together == [times([value], unit)[0] for value in values]
    assert all(time == UNKNOWN or 0 <= time <= LATEST for time in together)


@given(st.lists(st.integers(0, LATEST // 1000), min_size=1), UNITS)
def test_whole_seconds_are_read_in_every_unit(seconds: list[int], unit: Unit) -> None:
    given = [int(second * 1000 * PER_MS[unit]) if unit != "s" else second for second in seconds]
    given = [value for value in given if value < 2**63]
    expected = [int(value / PER_MS[unit]) if unit in ("s", "ms") else value // int(PER_MS[unit]) for value in given]
    assert times(given, unit) == expected


@given(st.integers(0, LATEST), st.integers(-23 * 60, 23 * 60))
def test_texts_of_every_offset_are_read(milliseconds: int, offset: int) -> None:
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds)
    try:
        text = moment.astimezone(timezone(timedelta(minutes=offset))).isoformat()
    except OverflowError:
        return
    # Python writes years after 1970 only: its local time may lie before.
    assert times([text], "rfc3339") == [milliseconds]


def test_numbers_of_a_dense_column_are_read_where_rows_have_them() -> None:
    present = np.array([True, False, True])
    column = DenseColumn(np.array([5, -7, 9]), ValueType.INT64, present)
    assert times_of(column, "ms").tolist() == [5, UNKNOWN, 9]


def test_a_value_that_cannot_be_decoded_is_no_time() -> None:
    def decode(entries: Any) -> Column:
        wrong = {row: WireError("broken") for row, entry in enumerate(entries) if entry == b"x"}
        if wrong:
            raise RowsFailed(wrong)
        return Column.of([int(entry) for entry in entries])

    column = WireColumn([b"5", b"x"], decode)
    assert times_of(column, "ms").tolist() == [5, UNKNOWN]
    assert "broken" in str(why_no_time(column, 1, "ms"))
