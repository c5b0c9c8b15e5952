"""Results that time makes and no record: a window that is closed because nothing came for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count, islice
from typing import Final

import numpy as np

from pipelines.data.batch import Batch, listed_timestamps
from pipelines.data.columns import Column, Rows
from pipelines.data.record import RecordContext, RecordPlaces, listed_places
from pipelines.data.result import Gathered, Result

FIRST_TIMED: Final = 1 << 62
"""The first number of rows that time makes: above those of all records."""

_numbers = count(FIRST_TIMED)


def timed(columns: Mapping[str, Column], records: Sequence[RecordContext], byte_count: int = 0) -> Result:
    """Rows that come from no record of the batch, each with a number that no other row has.

    Row i has the values `columns[...][i]`, and belongs to the last record of its key, `records[i]`: results take their
    topic, key and timestamp from it. `byte_count` is about what the values take.
    """
    rows = list(islice(_numbers, len(records)))
    known = dict(zip(rows, records, strict=True))
    batch = Batch(columns, len(rows), rows=np.array(rows, np.int64), origin=_Records(known))
    return Result(batch, timed=(batch,), gathered=(Gathered(batch, byte_count),)) if rows else Result(batch)


class _Records:
    """The records of rows, by number."""

    def __init__(self, known: Mapping[int, RecordContext]) -> None:
        self._known = known

    def record(self, row: int) -> RecordContext | None:
        """The record with this row number."""
        return self._known.get(row)

    def places(self, rows: Rows, *, keys: bool = True) -> RecordPlaces:
        """Where the records with these row numbers came from."""
        return listed_places(map(self._known.get, rows.tolist()))

    def timestamps(self, rows: Rows) -> Rows:
        """The timestamps of the records with these row numbers."""
        return listed_timestamps(map(self._known.get, rows.tolist()))
