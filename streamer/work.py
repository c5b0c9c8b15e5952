"""`Work`: one batch on its way from an intake thread to the run thread, and the numbers of its rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from connectors.codec import RecordsOrigin
from connectors.records import Ints, Records
from pipelines.batch import Batch
from streamer.deadletter import Letter

SOURCE_BITS: Final = 48
"""A row number is the source's index shifted left by this, plus the source's count of rows."""


@dataclass(slots=True)
class Work:
    """A decoded batch with the records it came from. Row `i` of `records` has the number `first + i`."""

    source: str
    records: Records
    first: int
    batch: Batch
    failed: Mapping[int, Exception]
    """Rows that could not be decoded, by row number."""
    tombstones: list[int] = field(default_factory=list)
    """Numbers of the rows without a payload."""
    stamps: Ints | None = None
    """Timestamps of all rows, where this batch is one whose latency is measured."""
    letters: dict[int, Letter] = field(default_factory=dict)
    """The dead letters that were sent of these rows: what to go by if one of them is lost."""
    rows: Ints = field(init=False)
    """Numbers of the rows to be run: all, but for those that left because their lane has ended."""

    def __post_init__(self) -> None:
        # By this very array the ledger knows that all of the batch is meant.
        origin = self.batch.origin
        if isinstance(origin, RecordsOrigin) and origin.rows is not None:
            self.rows = origin.rows
        else:
            self.rows = np.arange(self.first, self.first + len(self.records), dtype=np.int64)
