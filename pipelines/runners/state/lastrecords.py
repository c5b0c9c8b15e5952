"""`LastRecords`: the last record of each key, to which results belong that time makes and no record."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Final, NamedTuple

import numpy as np

from pipelines.data.batch import NO_TIMESTAMP, Batch
from pipelines.data.columns import Rows
from pipelines.data.record import RecordContext, RecordPlace
from pipelines.errors import StreamerError
from pipelines.runners.state.keytable import grown

NO_RECORD: Final = RecordContext("", "")
"""The record of rows that came from no bus: they are one stream."""
_FIRST: Final = 64


class BareRecord(NamedTuple):
    """A record without headers and extras, which may be large. Its context is made when it is needed, as that costs."""

    place: RecordPlace | None
    """`None`: it came from no bus."""
    offset: int = 0
    key: bytes | None = None
    timestamp: int = NO_TIMESTAMP
    """Milliseconds since 1970, or `NO_TIMESTAMP`."""

    def context(self) -> RecordContext:
        """The same as a context; `NO_RECORD` if it came from no bus."""
        if self.place is None:
            return NO_RECORD
        return RecordContext(
            self.place.source,
            self.place.topic,
            self.place.partition,
            self.offset,
            self.key,
            timestamp=None if self.timestamp == NO_TIMESTAMP else self.timestamp,
            lane=self.place.lane,
        )


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
        if code >= len(self._places):
            return NO_RECORD
        offset, timestamp = int(self._offsets[code]), int(self._timestamps[code])
        return BareRecord(self._places[code], offset, self._keys[code], timestamp).context()

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
        self._places[code], self._offsets[code], self._keys[code], self._timestamps[code] = record

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


def loaded_record(saved: list[Any], lane: Hashable) -> BareRecord:
    """The record that `saved_record` gave, in this lane. Raises `StreamerError` if that is damaged."""
    try:
        source, topic, partition, offset, key, timestamp = saved
        return BareRecord(
            RecordPlace(str(source), str(topic), int(partition), lane),
            int(offset),
            None if key is None else key.encode("latin-1"),
            NO_TIMESTAMP if timestamp is None else int(timestamp),
        )
    except (TypeError, ValueError, AttributeError):
        raise StreamerError(f"the last record of a saved key is damaged: {str(saved)[:60]}") from None


def bare_records(batch: Batch, positions: Rows) -> list[BareRecord]:
    """The records of the rows at these positions of the batch; of a row made of several records the first."""
    records = batch.places(positions)
    places = records.places[records.numbers].tolist()
    timestamps = batch.timestamps()[positions].tolist()
    return list(map(BareRecord, places, records.offsets.tolist(), records.keys.tolist(), timestamps))
