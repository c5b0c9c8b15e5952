"""`RecordTime`: the time that a source's records say themselves becomes their time, in place of that of the bus."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from connectors.codec import Decoded, RecordsOrigin
from connectors.config import SourceConfig
from connectors.records import Ints, Records
from pipelines.data.batch import Batch
from pipelines.data.columns import Column
from pipelines.data.times import times_of, why_no_time
from pipelines.observe.meters import Counts
from pipelines.steps.timefield import TimeConfig
from streamer.routing.provenance import record_column


class RecordTime:
    """The times of one source's records.

    Sinks with `timestamp: source`, `into: {timestamp: KEY}` and `data.record.timestamp` have it. A record without a
    time that can be read keeps that of the bus, and is counted; the first of them is logged.
    """

    def __init__(self, time: TimeConfig, source: SourceConfig, untimed: Counts, log: Any) -> None:
        """`untimed` counts the records without a time, by the source's name."""
        self.field = time.field
        self._unit = time.unit
        self._into = source.into.get("timestamp")
        self._source = source.label
        self._untimed = untimed
        self._log = log
        # `rate()` in Prometheus needs a zero before the first.
        untimed[self._source] += 0

    @classmethod
    def of(cls, source: SourceConfig, untimed: Counts, log: Any) -> RecordTime | None:
        """Those of this source; `None`: they are the bus's."""
        return None if source.time is None else cls(source.time, source, untimed, log)

    def put(self, decoded: Decoded, records: Records, first: int) -> Decoded:
        """The same rows, whose origin has these times. `decoded` is what a codec made of `records`, the first of which
        has the row number `first`.
        """
        batch = decoded.batch
        times, places = self._times(batch), batch.rows - first
        stamps = _stamps(times, places, records)
        if (times < 0).any():
            self._count(np.setdiff1d(places, places[times >= 0]), batch, records, first)
        origin = batch.origin if isinstance(batch.origin, RecordsOrigin) else RecordsOrigin(records, first)
        batch = batch.with_origin(replace(origin, records=origin.records.with_timestamps(stamps)))
        if self._into is not None:
            batch = batch.with_columns({self._into: record_column(batch, "timestamp")})
        return Decoded(batch, decoded.failed, decoded.samples)

    def _times(self, batch: Batch) -> Ints:
        column = batch.columns.get(self.field)
        return np.full(batch.size, -1, np.int64) if column is None else times_of(column, self._unit)

    def _count(self, untimed: Ints, batch: Batch, records: Records, first: int) -> None:
        """Count the records at these places of the block."""
        if len(untimed) and not self._untimed[self._source]:
            record = records.context(int(untimed[0]))
            row = int(np.flatnonzero(batch.rows == first + untimed[0])[0])
            column = batch.columns.get(self.field) or Column.absent(batch.size)
            self._log.warning(
                "a record does not say its time, and has that of the bus; others are counted",
                source=self._source,
                at=f"{record.topic}[{record.partition}]@{record.offset}",
                reason=f"{self.field}: {why_no_time(column, row, self._unit)}",
            )
        self._untimed[self._source] += len(untimed)


def _stamps(times: Ints, places: Ints, records: Records) -> Ints:
    """The time of each record of the block; of one with several rows that of the first that has one."""
    known = times >= 0
    if len(times) == len(records) and known.all() and np.array_equal(places, np.arange(len(records))):
        return times
    stamps = records.timestamp_column().copy()
    # The last one that is written stays.
    stamps[places[known][::-1]] = times[known][::-1]
    return stamps
