"""`Replies`: replies to clients until they are confirmed, begun by the sink's thread and settled by the server's."""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import NamedTuple

from connectors.records import Ints

PATIENCE = 1.0
"""Seconds that a client may leave a reply unacknowledged while there is no room for other clients' replies."""


class Reply(NamedTuple):
    """A message for one client; `rows` are those that it answers."""

    number: int
    client_id: str
    topic: str
    payload: bytes
    qos: int
    headers: tuple[tuple[str, str], ...]
    correlation: bytes | None
    rows: Ints
    sink: Replies

    @property
    def size(self) -> int:
        """Its approximate size in bytes."""
        return len(self.payload) + len(self.topic) + 100


class Replies:
    """The unconfirmed replies of one sink, at most about `max_bytes` of them.

    A client has `timeout` seconds to acknowledge one.
    """

    def __init__(self, max_bytes: int, timeout: float) -> None:
        self.timeout = timeout
        self._max_bytes = max_bytes
        self._changed = threading.Condition()
        self._open: dict[int, tuple[float, Reply]] = {}
        self._bytes = 0
        self._number = 0
        self._confirmed: list[Ints] = []

    def begin(
        self,
        client_id: str,
        topic: str,
        payload: bytes,
        qos: int,
        headers: tuple[tuple[str, str], ...],
        correlation: bytes | None,
        rows: Ints,
        deadline: float,
    ) -> Reply | None:
        """Register a reply that is about to be sent; `None` if there is no room before the deadline."""
        with self._changed:
            self._number += 1
            reply = Reply(self._number, client_id, topic, payload, qos, headers, correlation, rows, self)
            while self._open and self._bytes + reply.size > self._max_bytes:
                rest = deadline - time.monotonic()
                if rest <= 0:
                    return None
                self._changed.wait(rest)
            self._open[reply.number] = (time.monotonic(), reply)
            self._bytes += reply.size
            return reply

    def settle(self, reply: Reply) -> None:
        """Settle a reply: the client has it, or is gone."""
        with self._changed:
            if self._open.pop(reply.number, None) is None:
                return
            self._bytes -= reply.size
            self._confirmed.append(reply.rows)
            self._changed.notify_all()

    def give_up(self) -> None:
        """Settle all replies: their clients are gone."""
        with self._changed:
            self._confirmed += [reply.rows for _, reply in self._open.values()]
            self._open.clear()
            self._bytes = 0
            self._changed.notify_all()

    def wait(self, deadline: float) -> int:
        """Wait until all are settled; returns how many are unsettled at the deadline."""
        with self._changed:
            while self._open and (rest := deadline - time.monotonic()) > 0:
                self._changed.wait(rest)
            return len(self._open)

    def confirmed(self) -> list[Ints]:
        """The rows of replies that were confirmed since the last call."""
        with self._changed:
            confirmed, self._confirmed = self._confirmed, []
        return confirmed

    def behind(self) -> float:
        """Seconds since the oldest unconfirmed reply was sent."""
        with self._changed:
            oldest = next(iter(self._open.values()), None)
        return 0.0 if oldest is None else time.monotonic() - oldest[0]

    def hoarders(self, now: float) -> set[str]:
        """The clients that have not taken an answer for `PATIENCE` seconds, and that hold as many bytes of answers as
        each may if all that hold any get the same share of the room, or the most."""
        held: Counter[str] = Counter()
        late: set[str] = set()
        with self._changed:
            for sent, reply in self._open.values():
                held[reply.client_id] += reply.size
                if now - sent > PATIENCE:
                    late.add(reply.client_id)
        least = min(self._max_bytes / max(1, len(held)), max((held[client] for client in late), default=0))
        return {client for client in late if held[client] >= least}

    def overdue(self, now: float) -> list[Reply]:
        """Replies that were not acknowledged in time."""
        with self._changed:
            replies: list[Reply] = []
            for sent, reply in self._open.values():
                if now - sent <= self.timeout:
                    break
                replies.append(reply)
            return replies
