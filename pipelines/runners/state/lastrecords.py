"""`LastRecords`: the last record of each key, to which results belong that time makes and no record."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Final

import numpy as np

from pipelines.data.batch import NO_TIMESTAMP, Batch
from pipelines.data.columns import Rows
from pipelines.data.record import RecordContext, RecordPlace
from pipelines.errors import StreamerError
from pipelines.runners.state.keytable import grown

NO_RECORD: Final = RecordContext("", "")
"""The record of rows that came from no bus."""
_FIRST: Final = 64


class LastRecords:
    """The last record of each key, by code (`KeyTable`), without headers and extras. Used by one thread.

    Kept in columns, as a context for each record of a batch would cost more than a window does.
    """

    def __init__(self) -> None:
        self._places = np.zeros(_FIRST, object)
        self._places[:] = None
        self._offsets = np.zeros(_FIRST, np.int64)
        self._keys = np.zeros(_FIRST, object)
        self._timestamps = np.zeros(_FIRST, np.int64)

    def note(self, codes: Rows, batch: Batch, positions: Rows) -> None:
        """Note the records at these positions of the batch; record i is one of the key `codes[i]`.

        Of several records of a key the last one counts.
        """
        if batch.origin is None or not len(codes):
            return
        records = batch.places(positions)
        self._grow(int(codes.max()))
        # Of a code that is there repeatedly, the last assignment stays.
        self._places[codes] = records.places[0] if len(records.places) == 1 else records.places[records.numbers]
        self._offsets[codes] = records.offsets
        self._keys[codes] = records.keys
        self._timestamps[codes] = batch.timestamps()[positions]

    def record(self, code: int) -> RecordContext:
        """The last record of this key."""
        place: RecordPlace | None = self._places[code] if code < len(self._places) else None
        if place is None:
            return NO_RECORD
        timestamp = int(self._timestamps[code])
        return RecordContext(
            place.source,
            place.topic,
            place.partition,
            int(self._offsets[code]),
            self._keys[code],
            timestamp=None if timestamp == NO_TIMESTAMP else timestamp,
            lane=place.lane,
        )

    def drop(self, codes: Rows) -> None:
        """These keys are gone."""
        known = codes[codes < len(self._places)]
        self._places[known] = self._keys[known] = None

    def saved(self, code: int) -> list[Any]:
        """The last record of this key as values of JSON."""
        return saved_record(self.record(code))

    def load(self, code: int, saved: list[Any], lane: Hashable) -> None:
        """Take the record that `saved` gave. Raises `StreamerError` if that is damaged."""
        record = loaded_record(saved, lane)
        self._grow(code)
        self._places[code] = RecordPlace(record.source, record.topic, record.partition, lane)
        self._offsets[code], self._keys[code] = record.offset, record.key
        self._timestamps[code] = NO_TIMESTAMP if record.timestamp is None else record.timestamp

    def _grow(self, code: int) -> None:
        before = len(self._places)
        if code < before:
            return
        room = max(2 * before, code + 1)
        self._places, self._keys = grown(self._places, room), grown(self._keys, room)
        self._places[before:] = self._keys[before:] = None
        self._offsets, self._timestamps = grown(self._offsets, room), grown(self._timestamps, room)


def saved_record(record: RecordContext) -> list[Any]:
    """A record, without headers and extras, as values of JSON."""
    key = None if record.key is None else record.key.decode("latin-1")
    return [record.source, record.topic, record.partition, record.offset, key, record.timestamp]


def loaded_record(saved: list[Any], lane: Hashable) -> RecordContext:
    """The record that `saved_record` gave, in this lane. Raises `StreamerError` if that is damaged."""
    try:
        source, topic, partition, offset, key, timestamp = saved
        return RecordContext(
            str(source),
            str(topic),
            int(partition),
            int(offset),
            None if key is None else key.encode("latin-1"),
            timestamp=None if timestamp is None else int(timestamp),
            lane=lane,
        )
    except (TypeError, ValueError, AttributeError):
        raise StreamerError(f"the last record of a saved key is damaged: {str(saved)[:60]}") from None


def bare(record: RecordContext) -> RecordContext:
    """The record without headers and extras, which may be large."""
    return RecordContext(
        record.source,
        record.topic,
        record.partition,
        record.offset,
        record.key,
        timestamp=record.timestamp,
        lane=record.lane,
    )
