"""`Work`: one batch on its way from an intake thread to the run thread."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from connectors.records import Ints, Records
from pipelines.batch import Batch

SOURCE_BITS: Final = 48
"""A row number is the source's index shifted left by this, plus the source's count of rows."""


def source_index(row: int) -> int:
    """Index of the source that this row came from."""
    return row >> SOURCE_BITS


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
