"""How long records are in a service: `Arrivals` says when those of a batch came, `Residence` counts what they took."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from itertools import accumulate, chain, pairwise
from typing import Any, Final

import numpy as np

from pipelines.data.rowrange import RowNumbers, as_array
from streamer.batching.waiting import WaitRule
from streamer.definition.settings import BatcherSettings
from streamer.observe.metrics import RunMeters

FEW: Final = 32
"""Blocks that are counted one by one: with more numpy is faster."""


class Arrivals:
    """When the records of a batch came into the process, by blocks of records that came together."""

    __slots__ = ("_first", "_stops", "blocks", "decoding", "decoding_began", "gathering")

    def __init__(self, first: int, blocks: Sequence[tuple[float, int]]) -> None:
        """`first`: the number of the batch's first row."""
        self.blocks = blocks
        """Seconds on `time.monotonic`, and how many records came then, in the order of the rows."""
        self.decoding = 0.0
        """Seconds that it took to decode the records, once that is known."""
        self.decoding_began = 0.0
        """When that began, by `time.perf_counter`."""
        self.gathering = 0.0
        """Seconds that it took to gather the records, before they were decoded."""
        self._first = first
        self._stops: list[int] | None = None

    def of(self, rows: RowNumbers) -> Sequence[tuple[float, int]]:
        """As `blocks`, of these rows alone. They rise, and are rows of the batch."""
        blocks = self.blocks
        if isinstance(rows, range):
            if len(blocks) == 1:
                return [(blocks[0][0], len(rows))]
            if len(rows) == sum([count for _, count in blocks]):
                return blocks
        if self._stops is None:
            self._stops = list(accumulate([count for _, count in blocks], initial=self._first))
        places: list[int] = np.searchsorted(as_array(rows), self._stops).tolist()
        return [(at, stop - start) for (at, _), (start, stop) in zip(blocks, pairwise(places), strict=True)]


class Residence:
    """Counts how long records were in a service, and tells the wait rule how long batches take. For the run thread."""

    def __init__(self, meters: RunMeters, batch: BatcherSettings, log: Any) -> None:
        self.rule = None if batch.target is None else WaitRule(batch.target)
        """Says how long records wait for others; `None`: the service has no target."""
        self._meters = meters
        self._log = log
        meters.batch_wait.set(batch.wait)

    def handed_over(self, arrivals: Arrivals | None, rows: RowNumbers, since: float) -> None:
        """The results of these rows of a batch were handed over to the sinks, or the rows had none.

        `since` is when the batch was taken from the queue, in seconds on `time.monotonic`.
        """
        now = time.monotonic()
        if arrivals is not None:
            self._count(arrivals.of(rows), now)
            # Decoding takes its part of the target, too, in another thread.
            since -= arrivals.decoding
        rule = self.rule
        if rule is None:
            return
        rule.handed_over(since, now)
        self._meters.batch_wait.set(rule.max_wait)
        if rule.is_out_of_reach(now):
            self._log.warning(
                "batches take longer than batch.target_latency for a minute now, though records do not wait for "
                "others; raise limits.parallel if there are cores left, or target_latency",
                target_latency=rule.target,
                batches_take=rule.expected,
            )

    def _count(self, blocks: Sequence[tuple[float, int]], now: float) -> None:
        residence, late = self._meters.residence, 0
        latest = -math.inf if self.rule is None else now - self.rule.target
        if len(blocks) <= FEW:
            for at, count in blocks:
                residence.add_one(now - at, count)
                if at < latest:
                    late += count
        else:
            times, counts = np.fromiter(chain.from_iterable(blocks), np.float64, 2 * len(blocks)).reshape(-1, 2).T
            residence.add(now - times, counts)
            late = int(counts[times < latest].sum())
        if late:
            self._meters.late.value += late
