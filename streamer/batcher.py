"""Batchers: when a batch is full enough to run."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from typing import Literal, NamedTuple

from connectors.records import Records
from connectors.source import Source

Reason = Literal["records", "bytes", "wait", "drain", "target"]

IDLE_WAIT = 0.1
"""Seconds of one wait for a first record; bounds how late acknowledgements and stops are noticed."""


class Closed(NamedTuple):
    """A batch that is ready, and why it was closed."""

    records: Records
    reason: Reason


class Batcher(ABC):
    """Gathers records of one source into batches. Used by the source's intake thread only."""

    def __init__(self, max_records: int, max_bytes: int) -> None:
        self.max_records = max_records
        self.max_bytes = max_bytes

    @abstractmethod
    def next(self, source: Source) -> Closed | None:
        """The next batch, or `None` if there is none yet; waits a tenth of a second for a first record."""

    def flush(self) -> Closed | None:
        """What has been gathered so far, at the end."""
        return None


class SoftBatcher(Batcher):
    """Closes at `max_records`, at `max_bytes`, or `max_wait` seconds after the oldest record came."""

    def __init__(self, max_records: int, max_bytes: int, max_wait: float) -> None:
        super().__init__(max_records, max_bytes)
        self.max_wait = max_wait

    def next(self, source: Source) -> Closed | None:
        records = source.poll(1, self.max_bytes, IDLE_WAIT)
        if not len(records):
            return None
        deadline = time.monotonic() + self.max_wait
        blocks = [records]
        count, size = len(records), records.byte_count
        while count < self.max_records and size < self.max_bytes:
            left = deadline - time.monotonic()
            more = source.poll(self.max_records - count, self.max_bytes - size, max(left, 0.0))
            if len(more):
                blocks.append(more)
                count += len(more)
                size += more.byte_count
            if left <= 0 or time.monotonic() >= deadline:
                break
        return Closed(Records.concat(blocks), _full(self, count, size) or "wait")


class HardBatcher(Batcher):
    """Closes only when `max_records` are there; at the end it gives what it has.

    For models that take one batch size. `max_age` (seconds), if given, is the longest that a record waits
    for company. A batch never holds more than `max_records`.
    """

    def __init__(self, max_records: int, max_bytes: int, max_age: float | None = None) -> None:
        super().__init__(max_records, max_bytes)
        self.max_age = max_age
        self._blocks: list[Records] = []
        self._count = 0
        self._since = 0.0

    def next(self, source: Source) -> Closed | None:
        wait = IDLE_WAIT
        if self._count and self.max_age is not None:
            wait = min(wait, max(self._since + self.max_age - time.monotonic(), 0.0))
        more = source.poll(self.max_records - self._count, self.max_bytes, wait)
        if len(more):
            if not self._count:
                self._since = time.monotonic()
            self._blocks.append(more)
            self._count += len(more)
        if self._count >= self.max_records:
            return self._close("records")
        if self._count and self.max_age is not None and time.monotonic() >= self._since + self.max_age:
            return self._close("wait")
        return None

    def flush(self) -> Closed | None:
        return self._close("drain") if self._count else None

    def _close(self, reason: Reason) -> Closed:
        records = Records.concat(self._blocks)
        self._blocks, self._count = [], 0
        return Closed(records, reason)


def _full(batcher: Batcher, count: int, size: int) -> Reason | None:
    if count >= batcher.max_records:
        return "records"
    return "bytes" if size >= batcher.max_bytes else None
