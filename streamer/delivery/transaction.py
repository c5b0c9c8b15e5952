"""`SinkTransaction`: the present transaction of all sinks, and the calls that begin, commit and abort it.

idle -begin-> beginning -> open -commit-> committing -> idle
beginning, open, committing -abort-> aborting -> idle
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Any, Final

import numpy as np

from connectors.records import Ints, Lane
from connectors.sink import Lost, TransactionalSink, Voided
from connectors.source import TransactionToken
from streamer.agent.decodedbatch import DecodedBatch
from streamer.delivery.confirming import Barrier
from streamer.delivery.retriedcall import RetriedCall
from streamer.delivery.statesaving import Saving
from streamer.observe.metrics import RunMeters
from streamer.routing.sinkroute import SinkRoute

_TOLD_EVERY = 12
"""Attempts of a call between two lines of the log that say that it waits: a minute, by the longest pause."""

Losses = Sequence[tuple[SinkRoute, Lost]]
"""Lost messages by sink and row."""


class State(Enum):
    """Where a transaction is in its life."""

    IDLE = "idle"
    """There is none."""
    BEGINNING = "beginning"
    OPEN = "open"
    COMMITTING = "committing"
    ABORTING = "aborting"


_RETURNED: Final = {State.BEGINNING: State.OPEN, State.COMMITTING: State.IDLE, State.ABORTING: State.IDLE}
"""The state after each one whose call has returned."""


@dataclass(slots=True)
class Contents:
    """What one transaction has."""

    began_at: float = 0.0
    positions: dict[Lane, int] = field(default_factory=dict)
    """The positions after its rows, of all lanes that it has rows of."""
    timed: set[Lane] = field(default_factory=set)
    """The lanes of rows that time made, which count for no position."""
    timed_rows: list[tuple[DecodedBatch, Ints]] = field(default_factory=list)
    """Batches of such rows, each with those that it has."""
    state: Saving | None = None
    """What it saves of the steps' state, once it is being committed."""
    passed: Mapping[Lane, int] = field(default_factory=dict)
    """The positions beyond the last records of lanes, that it commits besides."""
    rows: int = 0
    group: int | None = None
    """Which suspects it has."""
    alone: bool = False
    """Whether it is for one suspect."""
    touched: Sequence[Lane] = ()
    """The lanes to deliver again when it is aborted."""

    def add(self, decoded: DecodedBatch, rows: Ints) -> None:
        """Note that it has these rows of a batch."""
        self.rows += len(rows)
        if decoded.timed:
            self.timed_rows.append((decoded, rows))
        for lane, start, stop in decoded.records.spans:
            at = int(np.searchsorted(rows, decoded.first + stop))
            if not (at and rows[at - 1] >= decoded.first + start):
                continue
            if decoded.timed:
                self.timed.add(lane)
            else:
                self.positions[lane] = int(decoded.records.positions[rows[at - 1] - decoded.first]) + 1

    @property
    def lanes(self) -> set[Lane]:
        """The lanes that it has rows or state of."""
        return {*self.positions, *self.timed, *(() if self.state is None else self.state.lanes)}

    @property
    def committed(self) -> dict[Lane, int]:
        """All positions that it commits."""
        saved = {} if self.state is None else self.state.positions
        return {**saved, **self.positions, **self.passed}


class SinkTransaction:
    """One transaction at a time. Calls that may block run on a thread of their own, all else on the run thread."""

    def __init__(self, first: TransactionalSink, sinks: Sequence[SinkRoute], meters: RunMeters, log: Any) -> None:
        """`first` begins, commits and aborts the transactions of all `sinks`."""
        self.state = State.IDLE
        self.turned_at = 0.0
        """When the state changed last by a call, on `time.monotonic`."""
        self.ended_at = 0.0
        self.contents = Contents()
        self.calls = RetriedCall("transactions")
        self.barrier = Barrier(sinks, meters)
        self._new_barrier = partial(Barrier, sinks, meters)
        self._first = first
        self._log = log
        self._losses: Losses = ()
        self._asked = False
        """Whether the sink was asked to commit: from then on only the sink knows the outcome of the transaction."""

    @property
    def name(self) -> str:
        """Its state and what hinders it, for people."""
        return f"{self.state.value}{f': {self.calls.trouble}' if self.calls.trouble else ''}"

    @property
    def is_ready(self) -> bool:
        """Whether it waits for no call: messages may be sent, or the next transaction may begin."""
        return self.state in (State.OPEN, State.IDLE) and self.calls.again_at <= time.monotonic()

    def begin(self) -> None:
        """Begin a transaction."""
        self.contents.began_at = time.monotonic()
        self._turn(State.BEGINNING, self._first.begin)

    def commit(self, token: TransactionToken) -> None:
        """Commit its messages and positions."""
        self._asked = False
        self._turn(State.COMMITTING, partial(self._commit_call, self.contents, token))

    def abort(self) -> None:
        """Make its messages invisible for good."""
        self.barrier = self._new_barrier()
        self._turn(State.ABORTING, self._first.abort)

    def advance(self) -> State | None:
        """Look at the outcome of the call of this state; the state that has ended by it. Does not wait.

        Raises `Voided` if the transaction has to be aborted, `ConnectorError` if the sink is broken for good.
        """
        if self.state in (State.IDLE, State.OPEN):
            return None
        calls, tries, trouble = self.calls, self.calls.tries, self.calls.trouble
        if not calls.has_returned():
            # A minute lies between two lines after the first few.
            if calls.tries > tries and (calls.trouble != trouble or tries % _TOLD_EVERY == 0):
                self._log.warning("a transaction waits", state=self.state.value, reason=calls.trouble)
            return None
        ended, self.state = self.state, _RETURNED[self.state]
        if self.state is State.OPEN:
            self.contents.began_at = time.monotonic()
        else:
            self.ended_at = time.monotonic()
        return ended

    def lost(self) -> Losses:
        """The lost messages that made it void, once."""
        losses, self._losses = self._losses, ()
        return losses

    def _turn(self, state: State, call: Callable[[float], None]) -> None:
        self.state, self.turned_at, self.calls.again_at = state, time.monotonic(), 0.0
        self.calls.start(call)

    def _commit_call(self, contents: Contents, token: TransactionToken, deadline: float) -> None:
        """On the thread of calls. Waits for all confirmations first: before the commit a lost message is known by its
        row."""
        positions = contents.committed
        if not self._asked:
            if contents.state is not None:
                contents.state.send(deadline)
            self.barrier.sent()
            # Messages travel while the positions are added.
            self.barrier.push()
            voided = self._add_positions(positions, token, deadline)
            self._losses = self.barrier.wait(deadline, answers=True)
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
