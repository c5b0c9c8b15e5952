"""`LastRecords`: the last record of each key, to which results belong that time makes and no record."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from pipelines.data.batch import Batch
from pipelines.data.columns import Rows
from pipelines.data.record import RecordContext
from pipelines.errors import StreamerError

NO_RECORD = RecordContext("", "")
"""The record of rows that came from no bus."""


class LastRecords:
    """The last record of each key, by code (`KeyTable`), without headers and extras. Used by one thread."""

    def __init__(self) -> None:
        self._records: dict[int, RecordContext] = {}

    def note(self, codes: Rows, batch: Batch, positions: Rows) -> None:
        """Note the records at these positions of the batch; record i is one of the key `codes[i]`."""
        origin = batch.origin
        if origin is None:
            return
        firsts = batch.rows if batch.splits is None else batch.rows[batch.splits[:-1]]
        for code, row in dict(zip(codes.tolist(), firsts[positions].tolist(), strict=True)).items():
            record = origin.record(row)
            if record is not None:
                self._records[code] = bare(record)

    def record(self, code: int) -> RecordContext:
        """The last record of this key."""
        return self._records.get(code, NO_RECORD)

    def drop(self, codes: Rows) -> None:
        """These keys are gone."""
        for code in codes.tolist():
            self._records.pop(code, None)

    def saved(self, code: int) -> list[Any]:
        """The last record of this key as values of JSON."""
        return saved_record(self.record(code))

    def load(self, code: int, saved: list[Any], lane: Hashable) -> None:
        """Take the record that `saved` gave. Raises `StreamerError` if that is damaged."""
        self._records[code] = loaded_record(saved, lane)


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
