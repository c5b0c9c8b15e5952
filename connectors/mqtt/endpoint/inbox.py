"""`Inbox`: messages of clients that were not polled yet, put by the server's thread and taken by the source's."""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from connectors.mqtt.protocol.properties import Properties


class Arrival(NamedTuple):
    """One message of a client. `position` is its number among the client's, from 0; `at` is in ms since 1970."""

    position: int
    topic: str
    payload: bytes
    qos: int
    packet_id: int
    retain: bool
    dup: bool
    properties: Properties
    at: int

    @property
    def size(self) -> int:
        """Its approximate size in bytes."""
        return len(self.payload) + len(self.topic) + 100


@dataclass(eq=False, slots=True)
class Line:
    """The messages of one connection, in order. `number` counts the connections of the endpoint.

    `user` is the name that the client has logged in with, `None` where none is asked for."""

    client_id: str
    number: int
    user: str | None = None
    waiting: deque[Arrival] = field(default_factory=deque)
    """Messages that were not polled yet. Guarded by the inbox."""
    gone: bool = False
    """Whether the connection has ended. Guarded by the inbox."""
    in_hand: deque[Arrival] = field(default_factory=deque)
    """Messages that were polled and are unacknowledged. Used by the source's thread only."""


class Inbox:
    """Lines of messages, from which the source takes in turn. At most about `max_bytes` wait; see `full`."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._changed = threading.Condition()
        self._ready: dict[Line, None] = {}
        """Lines with messages, or whose end was not reported, in the order of their turns."""
        self._count = 0
        self._bytes = 0
        self._wanted = 1
        self._woken = False
        self.standing = 0
        """Messages of QoS 1 and 2 of clients that may send no more until some are acknowledged. Written by the server's
        thread."""
        self.heard_at = 0.0
        """When the last message came, on `time.monotonic`."""

    @property
    def count(self) -> int:
        """The number of messages in the queue."""
        return self._count

    @property
    def byte_count(self) -> int:
        """Bytes of the messages in the queue."""
        return self._bytes

    @property
    def full(self) -> bool:
        """Whether clients should not be read for the moment."""
        return self._bytes > self._max_bytes

    @property
    def half_empty(self) -> bool:
        """Whether it has room again, after it was full."""
        return self._bytes * 2 <= self._max_bytes

    def put(self, line: Line, arrivals: list[Arrival], *, last: bool = False) -> None:
        """Messages came. `last`: the client may send no more until some are acknowledged."""
        with self._changed:
            before = self._count
            line.waiting.extend(arrivals)
            self._count_in(line, sum(arrival.size for arrival in arrivals), len(arrivals))
            self.heard_at = time.monotonic()
            if last or not before or self._count >= self._wanted:
                self._changed.notify()

    def put_back(self, line: Line, arrivals: list[Arrival]) -> None:
        """Put messages back, to be taken again before the others of their line."""
        with self._changed:
            line.waiting.extendleft(reversed(arrivals))
            self._count_in(line, sum(arrival.size for arrival in arrivals), len(arrivals))

    def end(self, line: Line) -> None:
        """The connection has ended. Messages that came before are still taken."""
        with self._changed:
            line.gone = True
            self._ready[line] = None

    def wake(self) -> None:
        """Make a running `wait`, or the next one, return at once."""
        with self._changed:
            self._woken = True
            self._changed.notify()

    def wait(self, wanted: int, max_bytes: int, seconds: float) -> bool:
        """Wait until so many messages or bytes are there, or it is woken; whether that happened. It may also return
        earlier, when a message came, so that the caller can compute anew how long to wait."""
        with self._changed:
            self._wanted = wanted
            if seconds > 0 and not self._woken and self._count < wanted and self._bytes < max_bytes:
                self._changed.wait(seconds)
            woken, self._woken = self._woken, False
            return woken or self._count >= wanted or self._bytes >= max_bytes

    def take(self, max_records: int, max_bytes: int) -> list[tuple[Line, list[Arrival]]]:
        """Messages of the lines in turn, each line once, and lines that have ended, with no messages in the end."""
        runs: list[tuple[Line, list[Arrival]]] = []
        with self._changed:
            left, room = max_records, max_bytes
            for _ in range(len(self._ready)):
                if left <= 0 or room <= 0:
                    break
                line = next(iter(self._ready))
                del self._ready[line]
                share = max(1, left // (len(self._ready) + 1))
                some: list[Arrival] = []
                while line.waiting and len(some) < share and room > 0:
                    arrival = line.waiting.popleft()
                    some.append(arrival)
                    room -= arrival.size
                self._count_out(line, some)
                left -= len(some)
                if some or line.gone:
                    runs.append((line, some))
                if line.waiting or (line.gone and some):
                    self._ready[line] = None
        return runs

    def _count_in(self, line: Line, size: int, count: int) -> None:
        self._bytes += size
        self._count += count
        if line.waiting:
            self._ready[line] = None

    def _count_out(self, line: Line, arrivals: list[Arrival]) -> None:
        size = sum(arrival.size for arrival in arrivals)
        self._bytes -= size
        self._count -= len(arrivals)
