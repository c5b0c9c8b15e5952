"""`Transactions`: results and the positions of their records become visible as one, or not at all.

One begins with a batch to send; it is committed after an interval or so many records, when there is nothing to do, at a
revocation and at the end. A void one is aborted: its lanes end and are delivered again.

What steps remember is saved in the transaction that has what they gave for the same records. So it is taken from them
as a commit begins, between two batches, when all that was run has been sent; and nothing is committed between running a
batch and sending all of its results. Suspects are cut out of their batch before it is run.

A row stays open in the ledger until the transaction with its messages is committed. The transaction commits, for each
lane that it has rows of, the position after the last of them: rows are sent in order, so that none before is missing.
It also commits positions behind what the bus never delivers (`TransactionToken.passed`); a transaction without rows is
made for these alone, where no other comes soon.
Calls that may block run on a thread of their own; everything else happens on the run thread, which goes on running
batches while a transaction commits, and waits for its outcome only before it sends again.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from connectors.records import Ints, Lane
from connectors.sink import Lost, TransactionalSink, Voided
from connectors.source import TransactionToken
from pipelines.data.result import Result
from pipelines.errors import ConnectorError
from streamer.agent.decodedbatch import NONE_PASSED, DecodedBatch
from streamer.definition.settings import TransactionSettings
from streamer.delivery.confirming import Confirming, Upstream
from streamer.delivery.failures import ServiceStopped
from streamer.delivery.ledger import Ledger
from streamer.delivery.parts import failing, part_of
from streamer.delivery.retriedcall import LEAST_CALL
from streamer.delivery.sending import pause
from streamer.delivery.statesaving import TransactionState
from streamer.delivery.suspects import Part, Suspects
from streamer.delivery.transaction import Contents, Losses, SinkTransaction, State
from streamer.observe.metrics import RunMeters
from streamer.routing.sinkroute import SinkRoute, Sinks

APART = 0.025
"""Seconds between the end of a transaction and the commit of the next: Kafka's brokers take several times as long for
one that follows at once, and no longer for one that follows after 10 to 20 ms."""
PASS_AFTER = 2.0
"""Seconds without a transaction after which one is made for positions alone, of lanes that the source has passed
beyond their last record."""
_MANY_ABORTS = 3
_COMES_AGAIN = 30.0
"""Seconds after an abort in which its records have come again, if there are any."""


@dataclass(slots=True)
class Aborts:
    """Aborts since the last commit, if not records are to blame, which are found by them. Times are monotonic."""

    count: int = 0
    first_at: float = 0.0
    last_at: float = 0.0

    def add(self, *, records_are_to_blame: bool) -> None:
        """Note one more: trying the same records again is no use if they are to blame, so these do not add up."""
        self.count = 0 if records_are_to_blame else self.count + 1
        self.last_at = time.monotonic()
        if self.count == 1:
            self.first_at = self.last_at


class Transactions(Confirming):
    """One transaction at a time, of all sinks; see the module."""

    def __init__(
        self,
        sinks: Sinks,
        first: TransactionalSink,
        settings: TransactionSettings,
        ledger: Ledger,
        upstream: Upstream,
        meters: RunMeters,
        log: Any,
    ) -> None:
        """`first` begins, commits and aborts the transactions of all `sinks`."""
        self.state: TransactionState | None = None
        """What the steps remember, to be saved in the transactions; `None`: nothing is."""
        self.outcomes = Counter()
        self._together: Callable[[Iterable[Lane]], set[Lane]] = set
        self._sinks = sinks.all
        self._letters = sinks.letters
        self._settings = settings
        self._ledger = ledger
        self._upstream = upstream
        self._meters = meters
        self._log = log
        self._transaction = SinkTransaction(first, sinks.all, meters, log)
        self._suspects = Suspects()
        self._reached: dict[Lane, int] = {}
        """The last committed position of each lane."""
        self._awaited_since = 0.0
        """Since when results have been waiting for the transaction, also for the end of the one before it. The interval
        counts from here, as it says how much later results become visible."""
        self._aborts = Aborts()
        self._rewound: set[Lane] = set()
        self._ending = False
        self._confirmed: list[Ints] = []

    @property
    def waiting(self) -> tuple[float, str] | None:
        state, aborts = self._transaction.state, self._aborts
        # Some aborts are usual, as when partitions are taken away; and nothing comes again where these were all.
        goes_on = state is not State.IDLE or time.monotonic() - aborts.last_at < _COMES_AGAIN
        if aborts.count >= _MANY_ABORTS and goes_on:
            return aborts.first_at, f"{aborts.count} transactions in a row were aborted"
        if state in (State.IDLE, State.OPEN):
            return None
        return self._transaction.turned_at, f"a transaction is {self._transaction.name}"

    @property
    def unconfirmed(self) -> bool:
        """Whether there is a transaction."""
        return self._transaction.state is not State.IDLE

    def run_next(self, seconds: float) -> None:
        """Commit meanwhile, if the transaction would be due before the batch was run."""
        if self._is_due(seconds):
            self._commit()

    def admit(
        self, decoded: DecodedBatch, result: Result, release: Callable[[], None]
    ) -> Iterator[tuple[DecodedBatch, Result]]:
        """The batch, without rows whose lanes have ended since it was run; in several parts if it holds suspects."""
        for rows, group, alone in self._parts(decoded):
            # Lanes may end while this waits. Where steps remember records, the part was made way for before it was run.
            if self.state is None and len(self._owned(decoded, rows)) and self._is_apart(group, alone=alone):
                self._commit_and_wait(release)
            if not len(self._owned(decoded, rows)):
                continue
            self._open()
            owned = self._owned(decoded, rows)
            contents = self._transaction.contents
            contents.alone = alone
            if group is not None:
                contents.group = group
            if not len(owned):
                continue
            contents.add(decoded, owned)
            is_whole = len(owned) == len(decoded.rows)
            part, part_result = (decoded, result) if is_whole else part_of(decoded, result, owned)
            errors = self._suspects.convicted(part)
            # Records whose results were refused when they were tried alone have failed.
            yield failing(part, part_result, errors) if errors else (part, part_result)
            if alone and self.state is None:
                self._commit_and_wait(release)

    def keep_together(self, together: Callable[[Iterable[Lane]], set[Lane]]) -> None:
        self._together = together

    def apart(self, decoded: DecodedBatch) -> list[DecodedBatch]:
        """Suspects are cut out before they are run, where steps remember records: what they have seen cannot be saved
        in part."""
        if self.state is None or not self._suspects:
            return [decoded]
        parts = [decoded.part(rows) for rows, _, _ in self._suspects.parts(decoded)]
        return parts if len(parts) > 1 else [decoded]

    def make_way(self, decoded: DecodedBatch | None, release: Callable[[], None]) -> None:
        """Commit what was sent, if the part of a batch is to be in another transaction."""
        if self.state is None or not (self._suspects or self._transaction.contents.alone):
            return
        _, group, alone = Part(NONE_PASSED, None) if decoded is None else self._suspects.part(decoded)
        if self._transaction.contents.alone or self._is_apart(group, alone=alone):
            self._commit_and_wait(release)

    def voided(self, error: Voided) -> None:
        """Abort the transaction; the batch that is being sent belongs to it."""
        if self._transaction.state is State.OPEN:
            self._abort(str(error))

    def refusals(self, decoded: DecodedBatch, row: int) -> tuple[str, ...]:
        """Those of the transactions in which the dead letter was alone."""
        return self._suspects.refusals(decoded, row)

    def push(self) -> None:
        """Commit, unless the last transaction has only just ended, or state would have to be saved sooner than the
        interval says; then messages begin to travel at least."""
        if self._transaction.state is not State.OPEN:
            return
        is_apart = time.monotonic() - self._transaction.ended_at >= APART
        if is_apart and not self.postponed and self.state is None:
            self._commit()
        else:
            self._transaction.barrier.sent()
            self._transaction.barrier.push()

    def confirmed(self) -> list[Ints]:
        """The rows of committed transactions. Takes the next step of the current transaction, and commits it if it is
        due."""
        self._advance()
        if self._is_due():
            self._commit()
        elif self._transaction.state is State.IDLE and self._is_passing():
            self._awaited_since = time.monotonic()
            self._transaction.begin()
        confirmed, self._confirmed = self._confirmed, []
        return confirmed

    def hurry(self) -> None:
        """Abort a transaction whose dead letters are held back: sent now, they would acknowledge records although the
        service, not the records, may be the cause."""
        if self._transaction.state is State.OPEN and self.postponed:
            self._abort("dead letters are held back, and there is no time to wait for them")

    def wait(self, deadline: float, *, answers: bool) -> list[tuple[SinkRoute, Lost]]:
        """Commit, and wait for the outcome. Lost messages abort the transaction and their records come again, so none
        are returned."""
        while self._transaction.state is not State.IDLE:
            if self._transaction.state is State.OPEN:
                if self.postponed:
                    break
                self._commit()
            self._advance()
            if self.unconfirmed:
                if time.monotonic() >= deadline:
                    raise ConnectorError(f"the transaction is {self._transaction.state.value} still", retriable=True)
                self._transaction.calls.rest(deadline)
        return []

    def keeps_up(self, seconds: float) -> bool:
        """Transactions are committed when they are due."""
        return True

    def lanes_ended(self, lanes: Collection[Lane]) -> None:
        """A transaction with rows of these lanes must not be committed. One that commits already has been decided."""
        for lane in lanes:
            if lane in self._rewound:
                self._rewound.discard(lane)
            else:
                self._suspects.forget(lane)
            self._reached.pop(lane, None)
        if self._transaction.state is State.OPEN and not self._transaction.contents.lanes.isdisjoint(lanes):
            self._abort("lanes were taken away")

    def end(self, deadline: float) -> None:
        """Abort the transaction, also one that is only beginning, or wait for the outcome of its commit."""
        self._ending = True
        while self.unconfirmed:
            if self._transaction.state is State.OPEN:
                self._abort("the service has failed")
            if time.monotonic() >= deadline:
                break
            self._advance()
            self._transaction.calls.rest(deadline)

    def close(self) -> None:
        """End the thread of calls, when the last one has returned: sinks are closed by another thread then."""
        self._transaction.calls.close()

    def _parts(self, decoded: DecodedBatch) -> Iterable[Part]:
        """The parts of a batch that was run, to be sent one after the other: one only, where steps remember records."""
        return self._suspects.parts(decoded) if self.state is None else (self._suspects.part(decoded),)

    def _is_apart(self, group: int | None, *, alone: bool) -> bool:
        """Whether suspects of this group have to be in another transaction than the present one."""
        return alone or (group is not None and group != self._transaction.contents.group)

    def _owned(self, decoded: DecodedBatch, rows: Ints) -> Ints:
        """The rows among these whose lanes have not ended."""
        for lane, start, stop in decoded.records.spans:
            if self._ledger.has_ended(lane):
                rows = rows[(rows < decoded.first + start) | (rows >= decoded.first + stop)]
        return rows

    def _open(self) -> None:
        """Wait until a transaction is open."""
        now = time.monotonic()
        if self._transaction.state is not State.OPEN:
            self._awaited_since = now
        least = now + LEAST_CALL
        while self._transaction.state is not State.OPEN:
            if self._transaction.state is State.IDLE and time.monotonic() >= self._transaction.calls.again_at:
                self._transaction.begin()
            self._wait_for_call("results wait for a transaction", least)

    def _commit_and_wait(self, release: Callable[[], None]) -> None:
        """Commit, and wait for the outcome."""
        least = time.monotonic() + LEAST_CALL
        while self.unconfirmed:
            if self._transaction.state is State.OPEN:
                # A suspect is sent without other records, so held dead letters are sent first.
                release()
                self._commit()
            self._wait_for_call("a transaction waits for its outcome", least)

    def _wait_for_call(self, waiting: str, least: float) -> None:
        """Wait a little for the call that is being made. Raises `ServiceStopped` when no time is left, but not before
        `least`."""
        self._advance()
        if self._transaction.is_ready:
            return
        if self._upstream.patience() <= 0 and time.monotonic() >= least:
            raise ServiceStopped(f"{waiting}, and there is no time left; it is {self._transaction.state.value}")
        self._transaction.calls.rest(float("inf"))
        self._upstream.serve()

    def _is_due(self, ahead: float = 0.0) -> bool:
        """Whether it is time to commit, or will be in so many seconds."""
        if self._transaction.state is not State.OPEN:
            return False
        now = time.monotonic()
        is_full = self._transaction.contents.rows >= self._settings.max_records
        return now - self._transaction.ended_at >= APART and (
            is_full or now + ahead - self._awaited_since >= self._settings.interval
        )

    def _is_passing(self) -> bool:
        """Whether a transaction has to be made for positions alone, or for what time has changed in the state."""
        now = time.monotonic()
        if now < max(self._transaction.ended_at + PASS_AFTER, self._transaction.calls.again_at) or self._ending:
            return False
        token = self._upstream.token()
        if token is not None and self._passed_by(token):
            return True
        return self.state is not None and self.state.has_changed()

    def _passed_by(self, token: TransactionToken) -> dict[Lane, int]:
        """The positions of lanes that were passed beyond their last record and are not committed yet."""
        return {
            lane: position
            for lane, position in token.passed.items()
            if position > max(self._reached.get(lane, -1), self._transaction.contents.positions.get(lane, -1))
            and not self._ledger.has_ended(lane)
            and (self.state is None or self.state.has(lane))
        }

    def _commit(self) -> None:
        """Begin to commit, unless dead letters of the transaction are held back, or the service has failed: then what
        steps remember may be of records whose results were not sent."""
        if self.postponed or self._ending:
            return
        # In this order: then all lanes that ended before the token was taken are known when the token is used.
        token = self._upstream.token()
        self._upstream.serve()
        if token is None or self._transaction.state is not State.OPEN:
            return
        contents = self._transaction.contents
        contents.passed = self._passed_by(token)
        if self.state is not None:
            contents.state = self.state.saving({**contents.positions, **contents.passed}, contents.timed)
        self._transaction.commit(token)

    def _abort(self, why: str, losses: Losses = ()) -> None:
        contents = self._transaction.contents
        self._log.warning("the transaction is aborted, its records come again", reason=why, records=contents.rows)
        # Which of the records is to blame has to be found without a pause.
        self._aborts.add(records_are_to_blame=self._suspect(losses))
        contents.touched = [lane for lane in self._together(contents.lanes) if not self._ledger.has_ended(lane)]
        for lane in contents.touched:
            self._ledger.end(lane)
        # Dead letters that are held back belong to rows that come again.
        self.postponed = False
        self._transaction.abort()

    def _suspect(self, losses: Losses) -> bool:
        """Note the records that may have caused the loss of messages. Returns whether records are the only cause."""
        contents = self._transaction.contents
        suspected: dict[int, DecodedBatch] = {}
        for route, lost in losses:
            for row, error in lost.items():
                decoded = None if error.retriable else self._ledger.note_of(row)
                if decoded is None:
                    continue
                again = decoded.timed and self._suspects.is_suspect(decoded, row)
                if contents.alone or contents.rows == 1 or again:
                    self._suspects.convict(decoded, row, route, error, letter=route in self._letters)
                else:
                    suspected[row] = decoded
        if suspected:
            self._suspects.add([(decoded, row) for row, decoded in suspected.items()])
        return bool(losses) and not any(error.retriable for _, lost in losses for error in lost.values())

    def _advance(self) -> None:
        """Go on with the transaction, if the call that is under way has returned. Does not wait."""
        try:
            ended = self._transaction.advance()
        except Voided as error:
            self._abort(str(error), self._transaction.lost())
            return
        if ended is State.COMMITTING:
            self._committed(self._transaction.contents)
        elif ended is State.ABORTING:
            self._aborted(self._transaction.contents)

    def _committed(self, contents: Contents) -> None:
        self._transaction.contents = Contents()
        self._aborts.count = 0
        self._reached |= contents.committed
        if contents.state is not None:
            contents.state.committed()
        self._suspects.finished(contents.positions)
        for decoded, rows in contents.timed_rows:
            self._suspects.finished_rows(decoded, rows)
        self._meters.transaction("committed", time.monotonic() - contents.began_at)
        self._meters.outcomes.update(self.outcomes)
        self.outcomes.clear()
        for route in self._sinks:
            self._confirmed += route.sink.confirmed()

    def _aborted(self, contents: Contents) -> None:
        self._transaction.contents = Contents()
        self._meters.transaction("aborted", time.monotonic() - contents.began_at)
        self.outcomes.clear()
        if contents.touched and not self._ending:
            self._rewound.update(contents.touched)
            self._upstream.rewind(contents.touched, {})
        self._transaction.calls.again_at = (
            time.monotonic() + pause(self._aborts.count - 1) if self._aborts.count else 0.0
        )
