"""`DecodedBatch`: a batch on its way from an intake thread to the run thread, with its records and row numbers."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from connectors.records import Ints, Records
from pipelines.data.batch import Batch
from pipelines.data.result import Gathered
from pipelines.data.rowrange import RowNumbers, as_array, row_range
from streamer.batching.residence import Arrivals
from streamer.delivery.deadletter import Letter

SOURCE_BITS: Final = 48
"""A row number is the source's index shifted left by this, plus the source's count of rows."""
NONE_PASSED: Final = np.zeros(0, np.int64)
"""Of a batch from which no row passes by."""


@dataclass(slots=True)
class DecodedBatch:
    """A decoded batch with the records it came from. Row `i` of `records` has the number `first + i`."""

    source: str
    records: Records
    first: int
    batch: Batch
    failed: Mapping[int, Exception]
    """Rows that could not be decoded, by row number."""
    tombstones: list[int] = field(default_factory=list)
    """Numbers of the rows without a payload."""
    passed: Ints = field(default_factory=lambda: NONE_PASSED)
    """Numbers of the rows that pass by, `int64`, rising: the source's `where` leaves them out."""
    stamps: Ints | None = None
    """Timestamps of all rows, in milliseconds since 1970; `None` if the latency of this batch is not measured."""
    kept: bool = True
    """Whether the payloads of `records` are still there."""
    arrivals: Arrivals | None = None
    """When its records came into the process; `None`: not known."""
    letters: dict[int, Letter] = field(default_factory=dict)
    """The dead letters that were sent for its rows, to be sent again if one is lost."""
    gathered: list[Gathered] = field(default_factory=list)
    """What steps have made of its rows and of earlier records, for the dead letters of those that fail."""
    picture_bytes: int = 0
    """Bytes that its images take once they are decoded, as far as that matters; of a part of a batch, of all parts."""
    timed: bool = False
    """Whether its rows were made by time and come from no record: they count for no position."""
    rows: RowNumbers = field(init=False)
    """Numbers of the rows to run, rising: not those whose lane has ended, or that another part of the batch has."""

    def cut(self, size: int) -> tuple[DecodedBatch, DecodedBatch]:
        """The first `size` rows of the batch, with those among them that failed or are empty, and the others."""
        edge = int(self.batch.row_numbers[size])
        at = bisect_left(self.rows, edge)
        first, rest = copy(self), copy(self)
        first.rows, rest.rows = self.rows[:at], self.rows[at:]
        first.batch, rest.batch = self.batch.part(0, size), self.batch.part(size, self.batch.size)
        first.failed = {row: error for row, error in self.failed.items() if row < edge}
        rest.failed = {row: error for row, error in self.failed.items() if row >= edge}
        first.tombstones = [row for row in self.tombstones if row < edge]
        rest.tombstones = [row for row in self.tombstones if row >= edge]
        at = int(np.searchsorted(self.passed, edge))
        first.passed, rest.passed = self.passed[:at], self.passed[at:]
        return first, rest

    def fail(self, errors: Mapping[int, Exception]) -> None:
        """These rows fail without being run."""
        self.failed = {**self.failed, **errors}
        self.batch = self.batch.take(~np.isin(self.batch.rows, np.fromiter(errors, np.int64)))

    def apart(self, rows: Ints) -> list[DecodedBatch]:
        """The batch in parts, in order: each of these rows, which rise, is a part, and what lies between two of them.

        Rows that are not run belong to the part before them.
        """
        parts: list[DecodedBatch] = []
        rest = self
        for row in rows.tolist():
            at = int(np.searchsorted(rest.batch.rows, row))
            if at:
                before, rest = rest.cut(at)
                parts.append(before)
            count = int(np.searchsorted(rest.batch.rows, row, side="right"))
            if count == rest.batch.size:
                break
            alone, rest = rest.cut(count)
            parts.append(alone)
        return [*parts, rest]

    def part(self, rows: Ints) -> DecodedBatch:
        """A part of the batch with these rows."""
        part = copy(self)
        part.keep(rows)
        return part

    def let_go(self) -> None:
        """Free the payloads: they are no longer needed."""
        self.records = self.records.without_payloads()
        self.gathered.clear()
        self.kept = False

    def keep(self, rows: Ints) -> None:
        """Remove all rows but these."""
        kept = set(rows.tolist())
        numbers = as_array(self.rows)
        self.rows = numbers[np.isin(numbers, rows)]
        self.batch = self.batch.take(np.isin(self.batch.rows, rows))
        self.failed = {row: error for row, error in self.failed.items() if row in kept}
        self.tombstones = [row for row in self.tombstones if row in kept]
        self.passed = self.passed[np.isin(self.passed, rows)]

    def place(self, row: int) -> str:
        """Topic, partition and offset of a row's record, as text."""
        records, index = self.records, row - self.first
        partition = records.partitions[records.span_of(index)]
        place = f"{records.topic_of(index)}[{partition}]@{int(records.positions[index])}"
        name = records.keys[index] if records.keys_are_names and records.keys is not None else None
        return place if name is None else f"{place} ({name.decode(errors='replace')})"

    def __post_init__(self) -> None:
        self.rows = row_range(self.first, len(self.records))
