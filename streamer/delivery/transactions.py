"""`Transactions`: results and the positions of their records become visible as one, or not at all.

    idle -a batch to send-> beginning -> open -interval, records, nothing to do, revocation, end-> committing -> idle
    open, committing -voided-> aborting -> idle: the lanes of the transaction end and are delivered again

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
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from enum import Enum
from functools import partial
from typing import Any

import numpy as np

from connectors.records import Ints, Lane
from connectors.sink import Lost, TransactionalSink, Voided
from connectors.source import TransactionToken
from pipelines.data.result import Result
from pipelines.errors import ConnectorError
from streamer.agent.decodedbatch import DecodedBatch
from streamer.definition.settings import TransactionSettings
from streamer.delivery.callthread import CallThread
from streamer.delivery.confirming import Barrier, Confirming, Upstream
from streamer.delivery.failures import ServiceStopped
from streamer.delivery.ledger import Ledger
from streamer.delivery.parts import failing, part_of
from streamer.delivery.sending import pause
from streamer.delivery.suspects import Suspects
from streamer.observe.metrics import RunMeters
from streamer.routing.sinkroute import SinkRoute, Sinks

APART = 0.025
"""Seconds between the end of a transaction and the commit of the next: Kafka's brokers take several times as long for
one that follows at once, and no longer for one that follows after 10 to 20 ms."""
CALL = 5.0
"""Seconds of one call at most, by its deadline; it is made again until its outcome is known."""
PASS_AFTER = 2.0
"""Seconds without a transaction after which one is made for positions alone, of lanes that the source has passed
beyond their last record."""
LEAST_CALL = 0.5
"""Seconds of one call when there is no time left: enough for a bus that answers."""
_TOLD_EVERY = 12
"""Attempts of a call between two lines of the log that say that it waits: a minute, by the longest pause."""
_MANY_ABORTS = 3
_COMES_AGAIN = 30.0
"""Seconds after an abort in which its records have come again, if there are any."""
SLICE = 0.05
"""Seconds of one wait, between which messages of the intake threads are served."""


class _State(Enum):
    IDLE = "idle"
    BEGINNING = "beginning"
    OPEN = "open"
    COMMITTING = "committing"
    ABORTING = "aborting"


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
        self.outcomes = Counter()
        self._sinks = sinks.all
        self._first = first
        self._dead = sinks.dead
        self._settings = settings
        self._ledger = ledger
        self._upstream = upstream
        self._meters = meters
        self._log = log
        self._barrier = Barrier(self._sinks, meters)
        self._calls = CallThread("transactions")
        self._suspects = Suspects()
        self._state = _State.IDLE
        self._call: Callable[[float], None] | None = None
        self._future: Future[None] | None = None
        self._tries = 0
        self._turned_at = 0.0
        """When the state changed last, on `time.monotonic`."""
        self._trouble = ""
        """Why the last call has to be made again; empty if it has not."""
        self._again_at = 0.0
        """When the next call is made: after a pause, where the one before it failed, or the transaction was aborted."""
        self._positions: dict[Lane, int] = {}
        """The positions after the rows that the transaction has, of all lanes that it has rows of."""
        self._passed: Mapping[Lane, int] = {}
        """The positions beyond the last records of lanes, that the transaction commits besides."""
        self._reached: dict[Lane, int] = {}
        """The last committed position of each lane."""
        self._rows = 0
        self._alone = False
        """Whether the transaction is for one suspect."""
        self._group: int | None = None
        """Which suspects the transaction has."""
        self._began_at = 0.0
        self._awaited_since = 0.0
        """Since when results have been waiting for the transaction, also for the end of the one before it. The interval
        counts from here, as it says how much later results become visible."""
        self._ended_at = 0.0
        self._aborts = 0
        """Aborts since the last commit, if not records are to blame, which are found by them."""
        self._first_abort_at = self._last_abort_at = 0.0
        self._touched: list[Lane] = []
        """The lanes to deliver again when the transaction is aborted."""
        self._rewound: set[Lane] = set()
        self._asked = False
        """Whether the sink was asked to commit: from then on only the sink knows the outcome of the transaction."""
        self._losses: list[tuple[SinkRoute, Lost]] = []
        self._ending = False
        self._confirmed: list[Ints] = []

    @property
    def waiting(self) -> tuple[float, str] | None:
        state = self._state
        # Some aborts are usual, as when partitions are taken away; and nothing comes again where these were all.
        goes_on = state is not _State.IDLE or time.monotonic() - self._last_abort_at < _COMES_AGAIN
        if self._aborts >= _MANY_ABORTS and goes_on:
            return self._first_abort_at, f"{self._aborts} transactions in a row were aborted"
        if state in (_State.IDLE, _State.OPEN):
            return None
        return self._turned_at, f"a transaction is {state.value}{f': {self._trouble}' if self._trouble else ''}"

    @property
    def unconfirmed(self) -> bool:
        """Whether there is a transaction."""
        return self._state is not _State.IDLE

    def run_next(self, seconds: float) -> None:
        """Commit meanwhile, if the transaction would be due before the batch was run."""
        if self._is_due(seconds):
            self._commit()

    def admit(
        self, decoded: DecodedBatch, result: Result, release: Callable[[], None]
    ) -> Iterator[tuple[DecodedBatch, Result]]:
        """The batch, without rows whose lanes have ended since it was run; in several parts if it holds suspects."""
        for rows, group, alone in self._suspects.parts(decoded):
            # Lanes may end while this waits.
            if len(self._owned(decoded, rows)) and (alone or (group is not None and group != self._group)):
                self._commit_and_wait(release)
            if not len(self._owned(decoded, rows)):
                continue
            self._open()
            self._alone = alone
            if group is not None:
                self._group = group
            owned = self._owned(decoded, rows)
            if not len(owned):
                continue
            self._note(decoded, owned)
            is_whole = len(owned) == len(decoded.rows)
            part, own = (decoded, result) if is_whole else part_of(decoded, result, owned)
            yield self._with_convicted(part, own)
            if alone:
                self._commit_and_wait(release)

    def sent(self) -> None:
        """The transaction has begun already."""

    def voided(self, error: Voided) -> None:
        """Abort the transaction; the batch that is being sent belongs to it."""
        if self._state is _State.OPEN:
            self._abort(str(error))

    def refusals(self, decoded: DecodedBatch, row: int) -> tuple[str, ...]:
        """Those of the transactions in which the dead letter was alone."""
        return self._suspects.refusals(decoded, row)

    def push(self) -> None:
        """Commit, unless the last transaction has only just ended; then messages begin to travel at least."""
        if self._state is not _State.OPEN:
            return
        if time.monotonic() - self._ended_at >= APART and not self.postponed:
            self._commit()
        else:
            self._barrier.sent()
            self._barrier.push()

    def confirmed(self) -> list[Ints]:
        """The rows of committed transactions. Takes the next step of the current transaction, and commits it if it is
        due."""
        self._advance()
        if self._is_due():
            self._commit()
        elif self._state is _State.IDLE and self._is_passing():
            self._awaited_since = time.monotonic()
            self._begin()
        confirmed, self._confirmed = self._confirmed, []
        return confirmed

    def hurry(self) -> None:
        """Abort a transaction whose dead letters are held back: sent now, they would acknowledge records although the
        service, not the records, may be the cause."""
        if self._state is _State.OPEN and self.postponed:
            self._abort("dead letters are held back, and there is no time to wait for them")

    def wait(self, deadline: float, *, answers: bool) -> list[tuple[SinkRoute, Lost]]:
        """Commit, and wait for the outcome. Lost messages abort the transaction and their records come again, so none
        are returned."""
        while self._state is not _State.IDLE:
            if self._state is _State.OPEN:
                if self.postponed:
                    break
                self._commit()
            self._advance()
            if self.unconfirmed:
                if time.monotonic() >= deadline:
                    raise ConnectorError(f"the transaction is {self._state.value} still", retriable=True)
                self._rest(deadline)
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
        if self._state is _State.OPEN and not self._positions.keys().isdisjoint(lanes):
            self._abort("lanes were taken away")

    def end(self, deadline: float) -> None:
        """Abort the transaction, or wait for the outcome of its commit."""
        self._ending = True
        if self._state is _State.OPEN:
            self._abort("the service has failed")
        while self.unconfirmed and time.monotonic() < deadline:
            self._advance()
            self._rest(deadline)

    def close(self) -> None:
        """End the thread of calls, when the last one has returned: sinks are closed by another thread then."""
        self._calls.close(CALL + LEAST_CALL)

    def _with_convicted(self, decoded: DecodedBatch, result: Result) -> tuple[DecodedBatch, Result]:
        """The batch; its records whose results were refused when they were tried alone have failed."""
        found = self._suspects.rows(decoded) if self._suspects else ()
        errors: dict[int, Exception] = {one.row: one.error for one in found if one.error is not None}
        return failing(decoded, result, errors) if errors else (decoded, result)

    def _owned(self, decoded: DecodedBatch, rows: Ints) -> Ints:
        """The rows among these whose lanes have not ended."""
        for lane, start, stop in decoded.records.spans:
            if self._ledger.has_ended(lane):
                rows = rows[(rows < decoded.first + start) | (rows >= decoded.first + stop)]
        return rows

    def _note(self, decoded: DecodedBatch, rows: Ints) -> None:
        """The transaction has these rows."""
        self._rows += len(rows)
        for lane, start, stop in decoded.records.spans:
            at = int(np.searchsorted(rows, decoded.first + stop))
            if at and rows[at - 1] >= decoded.first + start:
                self._positions[lane] = int(decoded.records.positions[rows[at - 1] - decoded.first]) + 1

    def _open(self) -> None:
        """Wait until a transaction is open."""
        now = time.monotonic()
        if self._state is not _State.OPEN:
            self._awaited_since = now
        least = now + LEAST_CALL
        while self._state is not _State.OPEN:
            if self._state is _State.IDLE and time.monotonic() >= self._again_at:
                self._begin()
            self._wait_for_call("results wait for a transaction", least)

    def _begin(self) -> None:
        self._began_at = time.monotonic()
        self._turn(_State.BEGINNING, self._first.begin)

    def _commit_and_wait(self, release: Callable[[], None]) -> None:
        """Commit, and wait for the outcome."""
        least = time.monotonic() + LEAST_CALL
        while self.unconfirmed:
            if self._state is _State.OPEN:
                # A suspect is sent without other records, so held dead letters are sent first.
                release()
                self._commit()
            self._wait_for_call("a transaction waits for its outcome", least)

    def _wait_for_call(self, waiting: str, least: float) -> None:
        """Wait a little for the call that is being made. Raises `ServiceStopped` when no time is left, but not before
        `least`."""
        self._advance()
        if self._state in (_State.OPEN, _State.IDLE) and self._again_at <= time.monotonic():
            return
        if self._upstream.patience() <= 0 and time.monotonic() >= least:
            raise ServiceStopped(f"{waiting}, and there is no time left; it is {self._state.value}")
        self._rest(float("inf"))
        self._upstream.serve()

    def _is_due(self, ahead: float = 0.0) -> bool:
        """Whether it is time to commit, or will be in so many seconds."""
        if self._state is not _State.OPEN:
            return False
        now = time.monotonic()
        is_full = self._rows >= self._settings.max_records
        return now - self._ended_at >= APART and (
            is_full or now + ahead - self._awaited_since >= self._settings.interval
        )

    def _is_passing(self) -> bool:
        """Whether a transaction has to be made for positions alone."""
        now = time.monotonic()
        if now < max(self._ended_at + PASS_AFTER, self._again_at) or self._ending:
            return False
        token = self._upstream.token()
        return token is not None and bool(self._passed_by(token))

    def _passed_by(self, token: TransactionToken) -> dict[Lane, int]:
        """The positions of lanes that were passed beyond their last record and are not committed yet."""
        return {
            lane: position
            for lane, position in token.passed.items()
            if position > max(self._reached.get(lane, -1), self._positions.get(lane, -1))
            and not self._ledger.has_ended(lane)
        }

    def _commit(self) -> None:
        """Begin to commit, unless dead letters of the transaction are held back."""
        if self.postponed:
            return
        # In this order: then all lanes that ended before the token was taken are known when the token is used.
        token = self._upstream.token()
        self._upstream.serve()
        if token is None or self._state is not _State.OPEN:
            return
        self._asked = False
        self._passed = self._passed_by(token)
        self._turn(_State.COMMITTING, partial(self._commit_call, {**self._positions, **self._passed}, token))

    def _commit_call(self, positions: Mapping[Lane, int], token: TransactionToken, deadline: float) -> None:
        """On the thread of calls. Waits for all confirmations first: before the commit a lost message is known by its
        row."""
        if not self._asked:
            self._barrier.sent()
            # Messages travel while the positions are added.
            self._barrier.push()
            voided = self._add_positions(positions, token, deadline)
            self._losses = self._barrier.wait(deadline, answers=True)
            if self._losses:
                error = next(iter(self._losses[0][1].values()))
                raise Voided(f"messages were lost or refused: {error}")
            if voided is not None:
                raise voided
            self._asked = True
        self._first.commit(positions, token, deadline)

    def _add_positions(self, positions: Mapping[Lane, int], token: TransactionToken, deadline: float) -> Voided | None:
        """Add the positions to the transaction. Returns why it is void: perhaps for messages that are still to be
        found."""
        try:
            self._first.add_positions(positions, token, deadline)
        except Voided as error:
            return error
        return None

    def _abort(self, why: str, losses: Sequence[tuple[SinkRoute, Lost]] = ()) -> None:
        self._log.warning("the transaction is aborted, its records come again", reason=why, records=self._rows)
        records_are_to_blame = self._suspect(losses)
        self._touched = [lane for lane in self._positions if not self._ledger.has_ended(lane)]
        for lane in self._touched:
            self._ledger.end(lane)
        self._barrier = Barrier(self._sinks, self._meters)
        # Dead letters that are held back belong to rows that come again.
        self.postponed = False
        # Trying the same records again is no use then: which of them is to blame has to be found without a pause.
        self._aborts = 0 if records_are_to_blame else self._aborts + 1
        self._last_abort_at = time.monotonic()
        if self._aborts == 1:
            self._first_abort_at = self._last_abort_at
        self._turn(_State.ABORTING, self._first.abort)

    def _suspect(self, losses: Sequence[tuple[SinkRoute, Lost]]) -> bool:
        """Note the records that may have caused the loss of messages. Returns whether records are the only cause."""
        suspected: dict[int, DecodedBatch] = {}
        for route, lost in losses:
            for row, error in lost.items():
                entry = None if error.retriable else self._ledger.open_entry(row)
                if entry is None:
                    continue
                if self._alone or self._rows == 1:
                    self._suspects.convict(entry.note, row, route, error, letter=route is self._dead)
                else:
                    suspected[row] = entry.note
        if suspected:
            self._suspects.add([(decoded, row) for row, decoded in suspected.items()])
        return bool(losses) and not any(error.retriable for _, lost in losses for error in lost.values())

    def _turn(self, state: _State, call: Callable[[float], None]) -> None:
        self._state, self._call, self._tries, self._again_at = state, call, 0, 0.0
        self._turned_at, self._trouble = time.monotonic(), ""
        self._advance()

    def _advance(self) -> None:
        """Make the call that is due, or check its outcome. Does not wait."""
        if self._call is None:
            return
        if self._future is None:
            if time.monotonic() >= self._again_at:
                self._future = self._calls.submit(partial(self._call, time.monotonic() + CALL))
            return
        if not self._future.done():
            return
        future, self._future = self._future, None
        try:
            future.result()
        except Voided as error:
            losses, self._losses = self._losses, []
            self._abort(str(error), losses)
        except ConnectorError as error:
            if not error.retriable:
                raise
            # A minute lies between two lines after the first few.
            if self._trouble != str(error) or self._tries % _TOLD_EVERY == 0:
                self._log.warning("a transaction waits", state=self._state.value, reason=str(error))
            self._trouble = str(error)
            self._again_at = time.monotonic() + pause(self._tries)
            self._tries += 1
        else:
            self._done()

    def _done(self) -> None:
        """The call has returned."""
        self._call = None
        if self._state is _State.BEGINNING:
            self._state = _State.OPEN
            self._began_at = time.monotonic()
            return
        if self._state is _State.COMMITTING:
            self._committed()
        else:
            self._aborted()
        self._state = _State.IDLE
        self._positions = {}
        self._rows = 0
        self._group = None
        self._ended_at = time.monotonic()

    def _committed(self) -> None:
        self._aborts = 0
        self._reached |= {**self._positions, **self._passed}
        self._suspects.finished(self._positions)
        self._meters.transaction("committed", time.monotonic() - self._began_at)
        self._meters.outcomes.update(self.outcomes)
        self.outcomes.clear()
        for route in self._sinks:
            self._confirmed += route.sink.confirmed()

    def _aborted(self) -> None:
        self._meters.transaction("aborted", time.monotonic() - self._began_at)
        self.outcomes.clear()
        if self._touched and not self._ending:
            self._rewound.update(self._touched)
            self._upstream.rewind(self._touched, {})
        self._again_at = time.monotonic() + pause(self._aborts - 1) if self._aborts else 0.0

    def _rest(self, deadline: float) -> None:
        """Wait a little for the calls that are under way."""
        left = min(deadline - time.monotonic(), SLICE)
        if self._future is not None:
            wait_for([self._future], timeout=max(left, 0.0))
        else:
            until = self._again_at - time.monotonic()
            time.sleep(max(min(left, until if until > 0 else SLICE), 0.0))
