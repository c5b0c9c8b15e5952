"""`MemorySessionSource`: records from a session of a bus in this process."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Mapping

from connectors.measures import Measure
from connectors.memory.block import block
from connectors.memory.session import MemorySession
from connectors.memory.topic import size_of
from connectors.message import Message
from connectors.records import Lane, Records
from connectors.source import Event, LaneBegan, LaneEnded, Replays, Settle, Source, SourceEnded
from pipelines.errors import ConnectorError


class MemorySessionSource(Source):
    """Delivers the messages of a `MemorySession` (by default its own, without a window).

    It behaves as with a bus such as MQTT: the bus has no positions, so they are numbers of arrival; unacknowledged
    messages come again when a source reconnects to the session; and the session's window may be full.
    """

    replays = Replays.SESSION

    def __init__(self, session: MemorySession | None = None, *, name: str = "memory") -> None:
        self.name = name
        self.session = MemorySession() if session is None else session
        self._lane = Lane(name, "0", -1)
        self._next = 0
        self._lost = 0
        self._under_way: deque[tuple[int, int]] = deque()
        self._in_hand: set[int] = set()
        self._events: list[Event] = []
        self._open = False
        self._woken = False
        self._end_reported = False

    def open(self, settle: Settle | None = None, *, commits: bool = True) -> None:
        """Connect to the session."""
        self._open = True
        self._connect()

    def poll(self, max_records: int, max_bytes: int, timeout: float) -> Records:
        """As `Source.poll`. `ConnectorError` when it is not open."""
        if not self._open:
            raise ConnectorError(f"{self.name} is not open")
        deadline = time.monotonic() + timeout
        rows: list[tuple[int, Message]] = []
        size = 0
        with self.session.changed:
            while True:
                if self.session.lost != self._lost:
                    # The gathered records belong to the lane that ends: they are delivered before the new lane begins.
                    if rows:
                        break
                    self._events.append(LaneEnded(self._lane, finish=True))
                    self._connect()
                while len(rows) < max_records and (size < max_bytes or not rows):
                    delivery = self.session.give()
                    if delivery is None:
                        break
                    number, message = delivery
                    if number in self._in_hand:
                        # Sent again by the session after a reconnect: it was polled already.
                        continue
                    self._in_hand.add(number)
                    self._under_way.append((self._next, number))
                    rows.append((self._next, message))
                    size += size_of(message)
                    self._next += 1
                left = deadline - time.monotonic()
                if len(rows) >= max_records or size >= max_bytes or left <= 0 or self._woken:
                    break
                if self._tell_end() or (rows and self.starved()):
                    break
                self.session.changed.wait(left)
            self._woken = False
        return block(self.name, self.name, {self._lane: rows}, size) if rows else Records.empty(self.name)

    def acknowledge(self, positions: Mapping[Lane, int], *, wait: bool = False) -> None:
        """As `Source.acknowledge`, in the order of arrival; it never has to wait."""
        position = positions.get(self._lane, -1)
        done: list[int] = []
        while self._under_way and self._under_way[0][0] < position:
            done.append(self._under_way.popleft()[1])
        if done:
            self._in_hand.difference_update(done)
            self.session.acknowledge(done)

    def rewind(self, lanes: Iterable[Lane]) -> None:
        """As `Source.rewind`: it connects to the session again."""
        if self._lane in lanes:
            self._events.append(LaneEnded(self._lane, finish=self.session.lost != self._lost))
            self._connect()

    def events(self) -> list[Event]:
        """As `Source.events`."""
        events, self._events = self._events, []
        return events

    def close(self) -> None:
        """Disconnect; the session keeps unacknowledged messages."""
        self._open = False

    def starved(self) -> bool:
        """As `Source.starved`: the window is full."""
        return bool(self._under_way) and self.session.full

    def wake(self) -> None:
        """As `Source.wake`."""
        with self.session.changed:
            self._woken = True
            self.session.changed.notify_all()

    def metrics(self) -> list[Measure]:
        """Lost sessions, and unacknowledged records."""
        return [
            Measure("sessions_lost", "Sessions that the bus has forgotten.", self._lost),
            Measure("unacknowledged_records", "Records handed out.", len(self._under_way), "gauge"),
        ]

    def lag(self) -> Mapping[tuple[str, int], int]:
        """Messages that wait in the session."""
        return {(self.name, 0): self.session.waiting}

    def _connect(self) -> None:
        self._lost = self.session.lost
        self.session.connect()
        self._under_way.clear()
        self._in_hand.clear()
        self._end_reported = False
        self._lane = Lane(self.name, "0", self._lane.epoch + 1)
        self._events.append(LaneBegan(self._lane, self.name, 0, self._next))

    def _tell_end(self) -> bool:
        if self._end_reported or not self.session.ended or self.session.waiting:
            return False
        self._end_reported = True
        self._events.append(SourceEnded(self.name))
        return True
