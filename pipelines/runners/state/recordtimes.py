"""`RecordTimes`: the time of each record of a batch, as steps with windows and durations count it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, NamedTuple

import numpy as np

from pipelines.data.batch import Batch
from pipelines.data.columns import Rows
from pipelines.data.times import LATEST, UNKNOWN, times_of, why_no_time
from pipelines.errors import DataError
from pipelines.steps.timefield import TimeConfig

NO_TIME: Final = -1
"""The time of a record that has none."""
TimeOfRecord = Literal["timestamp", "arrival"] | TimeConfig
"""What the time of a record is: the timestamp of its record on the bus, or its arrival where the bus knows none; the
time at which it is run; or a value."""


class Timed(NamedTuple):
    """The times of a batch's records."""

    times: Rows
    """Milliseconds since 1970, `int64 (N,)`; `NO_TIME` where `failed` has the row."""
    failed: dict[int, Exception]
    """The rows whose time is missing, cannot be read or is too far in the future, by position."""


class RecordTimes:
    """The times of records. One that is said by the record itself has to be a time that can be read."""

    def __init__(self, kind: TimeOfRecord, *, ahead: float | None = None, clock: Callable[[], float]) -> None:
        """`ahead`: seconds by which a time may be in the future; `None`: no limit.

        `clock` gives seconds since 1970 (`OpenContext.clock`). Times of arrival do not go back when it does.
        """
        self._kind = kind
        self._ahead = ahead
        self._clock = clock
        self._latest = 0

    @property
    def reads(self) -> frozenset[str]:
        """The keys of the values that are read."""
        return frozenset([self._kind.field]) if isinstance(self._kind, TimeConfig) else frozenset()

    def of(self, batch: Batch) -> Timed:
        """The time of each record of the batch, and which have none."""
        failed: dict[int, Exception] = {}
        now = int(self._clock() * 1000)
        self._latest = max(self._latest, now)
        if self._kind == "arrival":
            return Timed(np.full(batch.size, self._latest, np.int64), failed)
        if isinstance(self._kind, TimeConfig):
            times = self._said(batch, self._kind, failed)
        else:
            times = batch.timestamps()
            times = np.where(times < 0, self._latest, times)
        if self._ahead is not None and batch.size:
            times = self._without_future(times, now, self._ahead, failed)
        return Timed(times, failed)

    @staticmethod
    def _said(batch: Batch, said: TimeConfig, failed: dict[int, Exception]) -> Rows:
        column = batch.get(said.field)
        times = times_of(column, said.unit)
        for row in np.flatnonzero(times == UNKNOWN).tolist():
            failed[row] = DataError(
                f'"{said.field}" is not the time of the record: {why_no_time(column, row, said.unit)}'
            )
        return times

    @staticmethod
    def _without_future(times: Rows, now: int, ahead: float, failed: dict[int, Exception]) -> Rows:
        latest = min(now + int(ahead * 1000), LATEST)
        if times.max() <= latest:
            return times
        early = times > latest
        for row in np.flatnonzero(early).tolist():
            failed[row] = DataError(
                f"its time, {_text(int(times[row]))}, is more than {ahead:g} s in the future (ahead); is the clock of "
                "its sender right?"
            )
        return np.where(early, NO_TIME, times)


def _text(milliseconds: int) -> str:
    return f"{np.datetime64(milliseconds, 'ms')}Z"
