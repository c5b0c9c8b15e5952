"""Times that values of records say: numbers since 1970 in a unit, and texts."""

from __future__ import annotations

import re
from datetime import datetime
from functools import lru_cache
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from pipelines.data.columns import MISSING, Column, DenseColumn
from pipelines.data.describing import described
from pipelines.data.numberscolumn import NumbersColumn
from pipelines.errors import RowsFailed
from pipelines.values import ValueType
from pipelines.values.native import INT64_MAX

Ints = npt.NDArray[np.int64]
Unit = Literal["s", "ms", "us", "ns", "rfc3339"]
UNKNOWN: Final = -1
LATEST: Final = 253_402_300_799_999
"""The last millisecond of the year 9999: a later time is one of another unit."""


def times_of(column: Column, unit: Unit) -> Ints:
    """The time of each row, `int64 (N,)` milliseconds since 1970; `UNKNOWN` where `why_no_time` gives a reason.

    Integers are cut to whole milliseconds, numbers with a fraction are rounded to them, as a float of seconds is never
    exact.
    """
    numbers = None if unit == "rfc3339" else _numbers(column)
    if numbers is not None:
        return _of_numbers(numbers, column.mask, unit)
    known = [_time(value, unit) for value in _values(column)]
    return np.array([UNKNOWN if isinstance(time, str) else time for time in known], np.int64)


def why_no_time(column: Column, row: int, unit: Unit) -> str | None:
    """Why this row has no time; `None` if it has one."""
    try:
        time = _time(column[row], unit)
    except RowsFailed as error:
        return str(error)
    return time if isinstance(time, str) else None


def _numbers(column: Column) -> npt.NDArray[Any] | None:
    """The numbers of a column of nothing else, anything in rows that lack one."""
    if isinstance(column, NumbersColumn):
        # Its integers are small enough to be exact.
        return None if column.whole.any() else column.storage
    if isinstance(column, DenseColumn) and column.type in (ValueType.INT64, ValueType.DOUBLE):
        return column.storage
    return None


def _of_numbers(numbers: npt.NDArray[Any], present: npt.NDArray[np.bool_] | None, unit: Unit) -> Ints:
    good = (numbers >= 0) & (numbers <= _MOST[unit])
    if present is not None:
        good &= present
    times = _milliseconds(np.where(good, numbers, 0), unit)
    return np.where(good & (times <= LATEST), times, UNKNOWN)


def _milliseconds(numbers: npt.NDArray[Any], unit: Unit) -> Ints:
    times, per = _TIMES[unit], _PER[unit]
    if numbers.dtype.kind == "f":
        return np.rint(numbers * times / per).astype(np.int64)
    milliseconds: Ints = numbers.astype(np.int64) * times // per
    return milliseconds


def _values(column: Column) -> list[Any]:
    values: list[Any] = [MISSING] * len(column)
    for row, value in column.cells({}):
        values[row] = value
    return values


def _time(value: Any, unit: Unit) -> int | str:
    """Milliseconds since 1970, or why there are none."""
    if value is MISSING:
        return "it is missing"
    if unit == "rfc3339":
        return _of_text(value) if isinstance(value, str) else f"it is {described(value)}, and no text"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return f"it is {described(value)}, and no number"
    milliseconds = int(_of_numbers(np.array([value if abs(value) <= INT64_MAX else float(value)]), None, unit)[0])
    if milliseconds == UNKNOWN:
        return f"{value} {unit} since 1970 is no time between then and the year 9999; is the unit another?"
    return milliseconds


def _of_text(text: str) -> int | str:
    match = _RFC3339.fullmatch(text)
    if match is None:
        return f"{text[:_SHOWN]!r} is no time like 2026-01-31T12:30:00Z, with the offset from UTC"
    date, minute, second, fraction, offset = match.groups()
    try:
        begin = _minute(date, minute, offset)
    except ValueError as error:
        return f"{text[:_SHOWN]!r} is no time: {error}"
    milliseconds = begin + int(second) * 1000 + (int(fraction[1:4].ljust(3, "0")) if fraction else 0)
    return milliseconds if 0 <= milliseconds <= LATEST else f"{text[:_SHOWN]!r} is not between 1970 and the year 9999"


@lru_cache(1024)
def _minute(date: str, minute: str, offset: str) -> int:
    """The beginning of a minute, in milliseconds since 1970. Records of one time share it: to read it costs most."""
    moment = datetime.fromisoformat(f"{date}T{minute}{'+00:00' if offset in ('Z', 'z') else offset}")
    return int(moment.timestamp()) * 1000


_SHOWN: Final = 60
_RFC3339: Final = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt ]([0-9]{2}:[0-9]{2}):([0-5][0-9])(\.[0-9]+)?([Zz]|[+-][0-9]{2}:[0-9]{2})",
    re.ASCII,
)
_TIMES: Final[dict[Unit, int]] = {"s": 1000, "ms": 1, "us": 1, "ns": 1}
_PER: Final[dict[Unit, int]] = {"s": 1, "ms": 1, "us": 1000, "ns": 1_000_000}
_MOST: Final[dict[Unit, float]] = {"s": 1e15, "ms": 1e18, "us": 1e21, "ns": 1e24}
"""Larger numbers are no times, and their milliseconds could be too large for 64 bits."""
