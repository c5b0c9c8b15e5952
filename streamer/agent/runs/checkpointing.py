"""`Checkpointing`: what the run thread does for checkpoints, where the state of the steps is saved.

It loads the state of lanes before their first record is run, passes over records that the state has seen, and has a
checkpoint taken when all that was run is confirmed. Where the state is saved in the transactions of results, these take
what has changed, as they are committed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any, Final

from connectors.records import Lane
from pipelines.errors import ConnectorError, DefinitionError, StreamerError
from streamer.agent.assembly import Assembly
from streamer.agent.decodedbatch import DecodedBatch
from streamer.agent.intakes import Intakes
from streamer.agent.runs.batchruns import DrainTime
from streamer.delivery.delivery import Delivery
from streamer.delivery.failures import ServiceStopped
from streamer.state.checkpoints import Checkpoints
from streamer.state.store import StateStore
from streamer.state.transactionalcheckpoints import TransactionalCheckpoints

_HEARS_WITHIN: Final = 10.0
"""Seconds within which a member of a group hears that it has lost a partition: three heartbeats of Kafka's clients."""


class Checkpointing:
    """The checkpoints of a service, as its run thread needs them. Owned by the run thread."""

    def __init__(
        self,
        checkpoints: Checkpoints[StateStore],
        assembly: Assembly,
        delivery: Delivery,
        intakes: Intakes,
        drain: DrainTime,
        settle: Callable[[], ConnectorError | None],
        rest: Callable[[], None],
        log: Any,
    ) -> None:
        """`settle` waits until all that was sent is confirmed, or returns why it is not; `rest` waits a moment."""
        self.checkpoints = checkpoints
        self._assembly = assembly
        self._delivery = delivery
        self._intakes = intakes
        self._drain = drain
        self._settle = settle
        self._rest = rest
        self._log = log
        self._is_whole = True
        """Whether all that the steps gave was delivered: not between running a batch, or a tick, and delivering it."""
        self._unforgotten: set[Lane] = set()
        """Finished lanes whose state is to be forgotten once it is saved."""
        self._ended: list[Lane] = []
        """Lanes that have ended while the steps ran: records of theirs may be run yet."""
        self.by_transactions = isinstance(checkpoints, TransactionalCheckpoints)
        """Whether the state is saved in transactions: these commit the positions, too."""

    @contextmanager
    def running(self) -> Iterator[None]:
        """While this lasts, the steps run and what they give is delivered. If that fails, their state has lost some of
        it, and is not saved any more."""
        self._is_whole = False
        yield
        self._is_whole = True
        if self._ended:
            lanes, self._ended = self._ended, []
            self.forget(lanes)

    def begin_lanes(self, *, surely: bool = False) -> None:
        """Load the state of lanes that are new: what is due by time must not wait for their first record.

        `surely`: of all of them, however long what was sent takes to be confirmed.
        """
        # At the end only if there are records to be run.
        if not (self.by_transactions and self._drain.begun):
            self._load_new(self._settle_for_sure if surely else self._settle_now)

    def _load_new(self, settled: Callable[[], bool]) -> None:
        """Load the state of all lanes that are new, once what was sent is confirmed, or not if `settled` says so."""
        checkpoints, ledger = self.checkpoints, self._delivery.ledger
        for lane, position in self._intakes.lanes.items():
            # One that takes the place of another waits for the records of that one.
            if checkpoints.has(lane) or checkpoints.before(lane) is not None or ledger.has_ended(lane):
                continue
            if self.by_transactions and not settled():
                return
            if not ledger.has_ended(lane):
                self._load(lane, position)

    def enter(self, decoded: DecodedBatch) -> None:
        """Enter a batch into the ledger, the state of its lanes being loaded, and finish the rows that the state has
        seen already."""
        lanes = dict.fromkeys(span.lane for span in decoded.records.spans)
        new = [lane for lane in lanes if not (self.checkpoints.has(lane) or self._delivery.ledger.has_ended(lane))]
        if new and self.by_transactions:
            self._settle_for_sure()
        for lane in new:
            if not self._delivery.ledger.has_ended(lane):
                self._begin(lane, self._intakes.lanes.get(lane, -1))
        if new:
            # Those that began with them, too: a step that joins topics looks for these records among theirs.
            self._load_new(self._settle_for_sure)
        self._delivery.enter(decoded)
        seen = self.checkpoints.seen(decoded.records)
        if seen is not None:
            self._delivery.pass_over(decoded, seen)

    def save(self) -> bool:
        """Take a checkpoint if all that was run is confirmed; whether it was taken, or transactions had done that."""
        if not (self._is_whole and self._delivery.is_settled):
            return False
        if not self.by_transactions:
            if not self.checkpoints.save():
                return False
            self._intakes.note(self.checkpoints.note)
        if self._unforgotten:
            lanes, self._unforgotten = list(self._unforgotten), set()
            self._assembly.executor.forget(lanes)
            self.checkpoints.end(lanes)
        return True

    def save_at_the_end(self) -> None:
        """`save`; an error is logged, as the service ends in any case."""
        try:
            self.save()
        except StreamerError as error:
            # The next run gets the records since the last checkpoint again.
            self._log.error("the last state could not be saved", error=str(error))

    def forget(self, lanes: Collection[Lane]) -> None:
        """These lanes have ended, or have no more records: then their state is forgotten once it is saved."""
        if not self._is_whole:
            self._ended += lanes
            return
        ended = [lane for lane in lanes if self._delivery.ledger.has_ended(lane)]
        self._unforgotten.update(set(lanes).difference(ended))
        self._unforgotten.difference_update(ended)
        self._assembly.executor.forget(ended)
        self.checkpoints.end(ended)

    def _settle_now(self) -> bool:
        return self._settle() is None

    def _settle_for_sure(self) -> bool:
        """Wait until all that was sent is confirmed: brokers that read the state wait for an open transaction, too."""
        while (trouble := self._settle()) is not None:
            self._log.warning(
                "records wait for the transaction before them, to load the state that it leaves", error=str(trouble)
            )
            if self._drain.patience() <= 0:
                raise ServiceStopped("the state could not be loaded before the end")
            self._rest()
        return True

    def _begin(self, lane: Lane, position: int | None) -> None:
        """Load the state of a lane whose first records are there, all of an earlier lane of its partition being run."""
        before = self.checkpoints.before(lane)
        if before is not None:
            while not self._delivery.ledger.has_ended(before):
                trouble = self._settle()
                if trouble is None and self.save():
                    break
                self._log.warning("records wait until the state of those before them is saved", error=str(trouble))
                if self._drain.begun:
                    raise ServiceStopped("the state could not be saved before the end")
                self._rest()
            self._assembly.executor.forget([before])
            self.checkpoints.end([before])
            if not self._delivery.ledger.has_ended(before):
                # All its records are in the state, and those of the new lane are others, whatever their positions.
                position = None
        self._load(lane, position)

    def _load(self, lane: Lane, position: int | None) -> None:
        """Load the state of a lane. If it is not that of the position, that may be since another process has the
        partition already, which this one is yet to hear."""
        try:
            self.checkpoints.begin(lane, position, self._intakes.noted(lane))
        except DefinitionError:
            until = time.monotonic() + _HEARS_WITHIN
            while not self._delivery.ledger.has_ended(lane):
                if not self.checkpoints.moves or time.monotonic() > until or self._drain.patience() <= 0:
                    raise
                self._rest()
                self._intakes.serve()
