"""Rows that time makes and no record: they are entered into the ledger as records of their own, and can fail like them.

A window that is closed because nothing came for it has no record in flight. What it gives belongs to the last record of
its key: topic, partition, key and timestamp are that record's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, cast

import numpy as np

from connectors.records import Lane, Records, Span
from pipelines.data.batch import Batch, Origin
from pipelines.data.columns import Rows
from pipelines.data.record import RecordContext, RecordPlaces
from pipelines.data.result import Gathered, Result
from pipelines.executors.accounting import NO_ROWS
from streamer.agent.decodedbatch import SOURCE_BITS, DecodedBatch

TIMED: Final = 1 << (SOURCE_BITS - 1)
"""Of the rows of a source, the first number of those that time makes."""


class TimedRows:
    """Numbers rows that time makes, source by source. Owned by the run thread."""

    def __init__(self, sources: Sequence[str]) -> None:
        """`sources`: the names of the sources, in the order of their numbers."""
        self._sources = list(sources)
        self._next = [(number << SOURCE_BITS) + TIMED for number in range(len(sources))]

    def entered(self, result: Result) -> Iterable[tuple[DecodedBatch, Result]]:
        """The rows of a result of `tick` or `flush`, a batch and a result for each source and step."""
        for batch in result.timed:
            records = [cast(RecordContext, batch.row(position).record) for position in range(batch.size)]
            for name in dict.fromkeys(record.source for record in records):
                positions = [position for position, record in enumerate(records) if record.source == name]
                yield self._of_source(name, batch, positions, records, result)

    def _of_source(
        self, name: str, batch: Batch, positions: Sequence[int], records: Sequence[RecordContext], result: Result
    ) -> tuple[DecodedBatch, Result]:
        number = self._sources.index(name)
        first = self._next[number]
        self._next[number] += len(positions)
        of = [records[position] for position in positions]
        stamps = np.array([-1 if record.timestamp is None else record.timestamp for record in of], np.int64)
        block = Records(
            name,
            [None] * len(of),
            [record.key for record in of],
            np.array([record.offset for record in of], np.int64),
            [Span(cast(Lane, record.lane), at, at + 1) for at, record in enumerate(of)],
            [record.topic for record in of],
            [record.partition for record in of],
            0,
            timestamps=lambda: stamps,
        )
        decoded = DecodedBatch(name, block, first, NO_ROWS, {}, timed=True)
        numbers = {int(batch.rows[position]): first + at for at, position in enumerate(positions)}
        return decoded, _renumbered(result, numbers)


def _renumbered(result: Result, numbers: dict[int, int]) -> Result:
    """The part of a result whose rows have these numbers, under their new ones."""
    chosen = np.isin(result.batch.rows, np.fromiter(numbers, np.int64))
    batch = result.batch.take(chosen)
    origin = batch.origin
    given = {new: old for old, new in numbers.items()}
    batch = batch.numbered(
        np.array([numbers[row] for row in batch.rows.tolist()], np.int64),
        None if origin is None else _Renumbered(origin, given),
    )
    return Result(
        batch,
        {numbers[row]: error for row, error in result.failed.items() if row in numbers},
        {numbers[row]: reason for row, reason in result.dropped.items() if row in numbers},
        gathered=[_of_rows(made, numbers) for made in result.gathered],
    )


def _of_rows(made: Gathered, numbers: dict[int, int]) -> Gathered:
    """The part of what steps made whose rows have these numbers, under their new ones."""
    batch = made.batch.take(np.isin(made.batch.rows, np.fromiter(numbers, np.int64)))
    batch = batch.numbered(np.array([numbers[row] for row in batch.rows.tolist()], np.int64), None)
    return Gathered(batch, made.byte_count * batch.size // max(made.batch.size, 1))


@dataclass(frozen=True, slots=True)
class _Renumbered:
    """The origin of rows that have other numbers now."""

    origin: Origin
    before: dict[int, int]
    """The numbers that the origin knows, by the new ones."""

    def record(self, row: int) -> RecordContext | None:
        """The record with this number."""
        return self.origin.record(self.before[row])

    def places(self, rows: Rows, *, keys: bool = True) -> RecordPlaces:
        """Where these records came from."""
        return self.origin.places(np.array([self.before[row] for row in rows.tolist()], np.int64), keys=keys)

    def timestamps(self, rows: Rows) -> Rows:
        """The timestamps of these records."""
        return self.origin.timestamps(np.array([self.before[row] for row in rows.tolist()], np.int64))
