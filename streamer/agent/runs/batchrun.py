"""`BatchRun`: decoded batches that go through the pipeline together, and their results, batch by batch."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np

from pipelines.data.batch import Batch
from pipelines.data.columns import Mask
from pipelines.data.result import NONE_HELD, Result
from pipelines.executors.accounting import NO_ROWS
from streamer.agent.decodedbatch import DecodedBatch
from streamer.models.choosing import Chosen

NOT_RUN: Final = Result(NO_ROWS)
"""The result before the calls of the pipeline. It is replaced, never changed."""


class Split(NamedTuple):
    """The result of batches that were run together, divided among them."""

    parts: list[tuple[DecodedBatch, Result]]
    """Each batch with its result. Rows that are in `shared` are held in it."""
    shared: Batch
    """Rows that the pipeline made of records of several batches."""


@dataclass(slots=True, eq=False)
class BatchRun:
    """Batches, in the order in which they were taken from the queue, that are run in the same calls of the pipeline.

    Mostly it is one batch. Several are joined for the calls, so that a model gets the records of many sources at once.
    """

    batches: list[DecodedBatch]
    batch: Batch
    """The rows of all batches, one after the other."""
    since: float
    """When the first batch was taken from the queue, on `time.monotonic`."""
    is_cut: bool = False
    """Whether the last batch has more rows, which are in a later run."""
    result: Result = field(default_factory=lambda: NOT_RUN)
    chosen: Sequence[Chosen] = ()
    """Which versions of the models its rows got, where several are open."""
    began: float = 0.0
    """When its calls began, by `time.perf_counter`."""
    seconds: float = 0.0
    """How long the calls took."""

    @classmethod
    def of(cls, batches: list[DecodedBatch], since: float | None = None) -> BatchRun:
        """These batches together, none of them run yet. `since`: as the field, if it is not now."""
        batch = batches[0].batch if len(batches) == 1 else Batch.concat([decoded.batch for decoded in batches])
        return cls(batches, batch, time.monotonic() if since is None else since)

    @property
    def ended(self) -> Sequence[DecodedBatch]:
        """The batches of which no rows are left for a later run."""
        return self.batches[:-1] if self.is_cut else self.batches

    def cut(self, size: int) -> tuple[BatchRun, BatchRun]:
        """The first `size` rows, and the others: a run that is yet to come."""
        first: list[DecodedBatch] = []
        rest = list(self.batches)
        left = size
        while rest and (rest[0].batch.size < left or (rest[0].batch.size == left and len(rest) > 1)):
            left -= rest[0].batch.size
            first.append(rest.pop(0))
        if left:
            whole = rest[0]
            part, rest[0] = whole.cut(left)
            # The ledger keeps a reference to the whole batch but needs only its records: free the values.
            whole.batch = NO_ROWS
            first.append(part)
        begun = BatchRun(
            first, self.batch.part(0, size), self.since, bool(left), self.result, self.chosen, self.began, self.seconds
        )
        return begun, BatchRun(rest, self.batch.part(size, self.batch.size), self.since, self.is_cut)

    def split(self) -> Split:
        """Each batch with its part of the result."""
        result = self.result
        if len(self.batches) == 1:
            (decoded,) = self.batches
            if self.batch.origin is not decoded.batch.origin:
                # It was joined with batches that were cut off: what its records ask is known to its own origin alone.
                result = replace(result, batch=result.batch.with_origin(decoded.batch.origin))
            return Split([(decoded, result)], NO_ROWS)
        if not (result.failed or result.dropped) and result.batch.splits is None and result.batch.same_rows(self.batch):
            return Split(list(self._in_order()), NO_ROWS)
        shared = np.zeros(result.batch.size, np.bool_)
        parts = [(decoded, self._of(decoded, shared)) for decoded in self.batches]
        return Split(parts, result.batch.take(shared) if shared.any() else NO_ROWS)

    def _in_order(self) -> Iterator[tuple[DecodedBatch, Result]]:
        edges = np.cumsum([0, *(decoded.batch.size for decoded in self.batches)]).tolist()
        ranges = [range(start, stop) for start, stop in pairwise(edges)]
        for decoded, part in zip(self.batches, self.result.batch.parts(ranges), strict=True):
            yield decoded, Result(part.with_origin(decoded.batch.origin))

    def _of(self, decoded: DecodedBatch, shared: Mask) -> Result:
        """The rows that were made of this batch's records alone; those of others too are marked in `shared`."""
        if not len(decoded.rows):
            return Result(NO_ROWS)
        # Row numbers of different batches lie in ranges that do not overlap.
        low, high = int(decoded.rows[0]), int(decoded.rows[-1])
        result = self.result
        parents = result.batch.rows
        inside = (parents >= low) & (parents <= high)
        held = NONE_HELD
        if result.batch.splits is not None:
            of_parent = np.repeat(np.arange(result.batch.size), np.diff(result.batch.splits))
            counts = np.bincount(of_parent[inside], minlength=result.batch.size)
            sizes = np.diff(result.batch.splits)
            mixed = (counts > 0) & (counts < sizes)
            shared |= mixed
            held = np.unique(parents[inside & mixed[of_parent]])
            inside = (counts > 0) & (counts == sizes)
        return Result(
            result.batch.take(inside).with_origin(decoded.batch.origin),
            {row: error for row, error in result.failed.items() if low <= row <= high},
            {row: reason for row, reason in result.dropped.items() if low <= row <= high},
            held,
        )
