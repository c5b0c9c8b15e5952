"""`RoundBatcher`: batches with one record of each lane at most, such as one frame of each camera."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, Self

import numpy as np

from connectors.records import Lane, Records
from connectors.source import Source
from streamer.batching.batcher import IDLE_WAIT, Batcher, Closed, Reason, without_lanes
from streamer.batching.roundsizer import RoundSizer
from streamer.definition.settings import BatchSettings

NO_LIMIT: Final = 1 << 20
"""`max_records` of a batcher whose size is learned, before the first measurement."""


class RoundBatcher(Batcher):
    """Full when every live lane has given a record, at `max_records`, or at `max_bytes`.

    Otherwise it is closed `max_wait` seconds after its oldest record was received. With 0 it never waits: while the
    pipeline is busy, the next records come, and the next batch takes one of each lane.
    """

    type_name = "round"

    def __init__(self, max_records: int | None, max_bytes: int, max_wait: float) -> None:
        """`max_records` is `None` where `rounds` is to say how many."""
        super().__init__(max_records or NO_LIMIT, max_bytes, max_wait)
        self.rounds: RoundSizer | None = None if max_records else RoundSizer()
        """Learns how many records are best run together; `None`: `max_records` is given."""
        self._lanes_in_batch: set[Lane] = set()
        self._later: list[Records] = []

    @classmethod
    def of(cls, settings: BatchSettings) -> Self:
        """The batcher for one source of a service with these settings."""
        most = None if settings.learns_size else settings.max_records
        return cls(most, settings.max_bytes, settings.max_wait)

    def gather(self, source: Source) -> list[Records]:
        """Wait for records, a tenth of a second at most, and add the first of each lane. Returns the new ones."""
        before = len(self._blocks)
        self._begin()
        limit = self._limit()
        # Polls cost more than a small round: those that could bring no new record are left out.
        all_polled = False
        if not self._count and limit > 1:
            self._poll(source, limit, self.max_bytes, 0.0)
            all_polled = bool(self._count)
        if not self._count:
            self._poll(source, 1, self.max_bytes, IDLE_WAIT)
        if self._count and not self.starved and self.full() is None:
            wait = min(max(self.deadline() - self.clock(), 0.0), IDLE_WAIT)
            if all_polled and not wait:
                return self._blocks[before:]
            left = limit - self._count
            self._add(source.poll_without(self._lanes_in_batch, left, self._bytes_left(), wait))
            self.starved = source.starved()
        return self._blocks[before:]

    def forget(self, lanes: Collection[Lane]) -> None:
        """Remove the records of these lanes, which have ended, also those that wait for later batches."""
        super().forget(lanes)
        self._lanes_in_batch.difference_update(lanes)
        self._later = [left for block in self._later if len(left := without_lanes(block, lanes))]

    def flush(self) -> Closed | None:
        """The next batch of the records gathered so far, when no more come; call it until it returns `None`."""
        self._begin()
        return super().flush()

    @property
    def holds_any(self) -> bool:
        """Whether gathered records wait to be given out, in this batch or a later one."""
        return self._count > 0 or bool(self._later)

    def _limit(self) -> int:
        return self.max_records if self.rounds is None else self.rounds.size(len(self.lanes))

    def full(self) -> Reason | None:
        """When each live lane has given a record, or has another that waits; at `max_records` and `max_bytes`."""
        if self._count >= self._limit():
            return "records"
        # A lane that has more already does not wait for the others.
        if self._later or all(lane in self._lanes_in_batch for lane in self.lanes):
            return "round"
        return "bytes" if self._bytes >= self.max_bytes else None

    def _add(self, records: Records) -> None:
        """Add the first record of each lane that has none in the batch, as many as it may have; the others wait."""
        if records.received is None:
            # Those that wait for later batches have come now, too.
            records.received = self.clock()
        firsts: list[int] = []
        room = max(self._limit() - self._count, 1)
        for lane, start, _ in records.spans:
            if lane not in self._lanes_in_batch and len(firsts) < room:
                self._lanes_in_batch.add(lane)
                firsts.append(start)
        if len(firsts) == len(records):
            super()._add(records)
            return
        rows = np.array(firsts, np.int64)
        super()._add(records.take(rows))
        self._later.append(records.take(np.setdiff1d(np.arange(len(records)), rows)))

    def _begin(self) -> None:
        if not self._count and self._later:
            later, self._later = self._later, []
            self._add(Records.concat(later))

    def _close(self, reason: Reason) -> Closed:
        self._lanes_in_batch = set()
        return super()._close(reason)
