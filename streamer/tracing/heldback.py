"""`HeldBack`: batches of a transaction that is open still, whose spans are sent once its outcome is known."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from streamer.agent.decodedbatch import DecodedBatch

if TYPE_CHECKING:
    from streamer.delivery.delivery import Delivery
    from streamer.tracing.finished import Finished, Outcome

MOST: Final = 8192
"""Spans that are held back at most; those of older batches are sent without an outcome."""


class HeldBack:
    """Says of each batch and its sampled records what became of their transaction. Owned by the run thread."""

    def __init__(self, put: Callable[[Finished], None], delivery: Delivery) -> None:
        self._put = put
        self._ledger, self._confirming = delivery.ledger, delivery.confirming
        self._batches: list[Finished] = []
        self._count = 0
        self._last: Outcome = "unknown"
        """The outcome of the last transaction."""

    def add(self, part: DecodedBatch, finished: Finished) -> None:
        """A batch was sent, unless its lanes had ended: then it was not, and its records come again."""
        for each in finished.records:
            if self._ledger.has_ended(part.records.lane_of(each.place)):
                each.transaction = "aborted"
        if all(each.transaction is not None for each in finished.records):
            finished.transaction = "aborted"
            self._put(finished)
            return
        self._batches.append(finished)
        self._count += len(finished)
        if not self._confirming.unconfirmed:
            # Its transaction was for records that are tried alone, and has ended already.
            self.ended(self._last)
        elif self._count > MOST:
            self.ended("unknown")

    def ended(self, outcome: Outcome) -> None:
        """The transaction of all these batches has ended so."""
        self._last = outcome
        batches, self._batches, self._count = self._batches, [], 0
        for each in batches:
            each.decide(outcome, time.time_ns())
            self._put(each)
