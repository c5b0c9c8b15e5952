"""`MemoryTransactions`: messages to memory topics, held until they are committed together with positions."""

from __future__ import annotations

import itertools
import threading
import time
from collections import deque
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Protocol

from connectors.memory.faults import Faults
from connectors.memory.source import MemorySource
from connectors.memory.topic import MemoryTopic
from connectors.message import Message
from connectors.records import Lane
from connectors.sink import Voided
from connectors.source import TransactionToken
from pipelines.errors import ConnectorError

PAUSE = 0.005
"""Seconds between two checks whether the topics can be reached again."""
MOST_CLIENTS = 3
"""How often a client that was fenced is replaced within `CLIENTS_SECONDS`."""
CLIENTS_SECONDS = 600.0

_committing = threading.Lock()
_clients: dict[str, int] = {}
"""The number of the present client of each identity."""
_numbers = itertools.count()


class TransactionSink(Protocol):
    """What `MemoryTransactions` asks of each sink that shares it."""

    def arrive_all(self, deadline: float) -> None:
        """Wait until the transaction has all sent messages."""

    def look(self) -> None:
        """Learn which messages are confirmed or lost by now."""

    def forget(self) -> None:
        """Drop the state of all sent messages."""


class MemoryTransactions:
    """One transaction at a time, of all sinks that share this object.

    A later client of the same `identity` fences an earlier one, as does a transaction that is open for longer than
    `timeout` seconds: the earlier one can only abort, by which it takes the identity back. `faults` makes it fail.
    """

    def __init__(self, faults: Faults, identity: str | None = None, timeout: float = 60.0) -> None:
        self.faults = faults
        self.sinks: list[TransactionSink] = []
        self.is_open = False
        """Whether a transaction has begun."""
        self._identity = identity
        self._timeout = timeout
        self._client = -1
        self._began_at = 0.0
        self._messages: list[tuple[MemoryTopic, Message]] = []
        self._void: str | None = None
        self._asked = False
        """Whether a commit was called whose outcome is not known."""
        self._carried_out = False
        self._replaced: deque[float] = deque(maxlen=MOST_CLIENTS)

    def connect(self) -> None:
        """Take the identity, unless this client has taken it before."""
        if self._client < 0:
            self._take_over()

    def add(self, topic: MemoryTopic, messages: list[Message]) -> None:
        """Add these messages for this topic to the transaction."""
        self._messages.extend((topic, message) for message in messages)

    def void(self, why: str) -> None:
        """The transaction cannot be committed any more."""
        self._void = self._void or why

    def begin(self, deadline: float) -> None:
        """As `TransactionalSink.begin`."""
        if self.is_open:
            raise ConnectorError("a transaction has begun already; commit or abort it first")
        self._reach(deadline)
        self._check_fence()
        self._began_at = time.monotonic()
        self.is_open = True

    def add_positions(self, positions: Mapping[Lane, int], token: TransactionToken, deadline: float) -> None:
        """As `TransactionalSink.add_positions`: the positions are checked, as Kafka's brokers do. As there, the
        transaction may be void for messages that no barrier has named yet."""
        source = self._source(token)
        self._reach(deadline)
        for sink in self.sinks:
            sink.look()
        self._check(positions, token, source)

    def commit(self, positions: Mapping[Lane, int], token: TransactionToken, deadline: float) -> None:
        """As `TransactionalSink.commit`."""
        source = self._source(token)
        self._asked = True
        self._reach(deadline)
        if not self._carried_out:
            for sink in self.sinks:
                sink.arrive_all(deadline)
            self._carry_out(positions, token, source)
        if self.faults.silent > 0:
            self.faults.silent -= 1
            raise ConnectorError("the topics do not say whether the transaction is committed", retriable=True)
        self._forget()

    def abort(self, deadline: float) -> None:
        """As `TransactionalSink.abort`."""
        self._reach(deadline)
        if self._asked:
            raise ConnectorError("the outcome of the commit is not known; commit again", retriable=True)
        if self._fence() is not None:
            now = time.monotonic()
            if len(self._replaced) == MOST_CLIENTS and now - self._replaced[0] < CLIENTS_SECONDS:
                raise ConnectorError(
                    f"another process has taken the transactional identity {self._identity} over, {MOST_CLIENTS} times "
                    "in ten minutes; give each process its own"
                )
            self._replaced.append(now)
            self._take_over()
        for sink in self.sinks:
            sink.forget()
        self._forget()

    def close(self) -> None:
        """Drop uncommitted messages."""
        self._forget()

    def _source(self, token: TransactionToken) -> MemorySource:
        source = token.member
        if not (self.is_open and isinstance(source, MemorySource)):
            raise ConnectorError("no transaction has begun, or the source is not a memory source")
        return source

    def _check(self, positions: Mapping[Lane, int], token: TransactionToken, source: MemorySource) -> None:
        """Raise `Voided` if these positions cannot be committed in this transaction."""
        self._check_fence()
        if self._void is not None:
            raise Voided(f"the transaction is void: {self._void}")
        if strangers := [lane for lane in positions if lane not in token.lanes or not source.owns(lane)]:
            raise Voided(f"the transaction is void, the source does not have these lanes: {strangers}")

    def _carry_out(self, positions: Mapping[Lane, int], token: TransactionToken, source: MemorySource) -> None:
        # One commit at a time: each holds the locks of several topics.
        with _committing, ExitStack() as locks:
            for topic in {source.topic, *(topic for topic, _ in self._messages)}:
                locks.enter_context(topic.changed)
            try:
                self._check(positions, token, source)
            except Voided:
                self._asked = False
                raise
            for topic, message in self._messages:
                topic.append(message)
            source.commit(positions)
            self._carried_out = True

    def _reach(self, deadline: float) -> None:
        while self.faults.away is not None:
            if time.monotonic() >= deadline:
                raise ConnectorError(f"the topics cannot be reached: {self.faults.away}", retriable=True)
            time.sleep(PAUSE)

    def _check_fence(self) -> None:
        if (why := self._fence()) is not None:
            raise Voided(why)

    def _fence(self) -> str | None:
        if self._identity is not None and _clients.get(self._identity) != self._client:
            return f"another process has taken the transactional identity {self._identity} over"
        if self.is_open and time.monotonic() - self._began_at > self._timeout:
            return f"the transaction was open for longer than {self._timeout:g} s"
        return None

    def _take_over(self) -> None:
        self._client = next(_numbers)
        if self._identity is not None:
            _clients[self._identity] = self._client

    def _forget(self) -> None:
        self.is_open = self._asked = self._carried_out = False
        self._void = None
        self._messages.clear()
