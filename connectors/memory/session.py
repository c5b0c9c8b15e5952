"""`MemorySession`: the state that a bus keeps for one client, like the session of an MQTT broker."""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Iterable

from connectors.message import Message


class MemorySession:
    """Messages that wait for one client, and its unacknowledged ones. May be used by all threads.

    It delivers at most `window` unacknowledged messages (`None`: any number). When the client connects again it gets
    the unacknowledged ones once more, in their order, before all others: call `connect` for a connection that was cut.
    `forget` simulates a broker that has lost the session, with all its messages.
    """

    def __init__(self, *, window: int | None = None) -> None:
        self.window = window
        self.changed = threading.Condition()
        """Guards the session, and is notified of every change."""
        self.ended = False
        """Whether no more messages will be fed."""
        self.lost = 0
        """How often the session was lost."""
        self.acknowledged = 0
        """Messages that were acknowledged so far."""
        self.acknowledgements = 0
        """Calls that acknowledged messages."""
        self._numbers = itertools.count()
        self._waiting: deque[tuple[int, Message]] = deque()
        self._given: dict[int, Message] = {}

    @property
    def waiting(self) -> int:
        """Messages that were not delivered yet."""
        return len(self._waiting)

    @property
    def full(self) -> bool:
        """Whether the window of unacknowledged messages is full, so that nothing is delivered."""
        return self.window is not None and len(self._given) >= self.window

    def feed(self, messages: Iterable[Message]) -> None:
        """Add these messages."""
        with self.changed:
            self._waiting.extend((next(self._numbers), message) for message in messages)
            self.changed.notify_all()

    def end(self) -> None:
        """No more messages will be fed."""
        with self.changed:
            self.ended = True
            self.changed.notify_all()

    def connect(self) -> None:
        """The client connects or reconnects: unacknowledged messages are delivered to it once more."""
        with self.changed:
            self._waiting.extendleft(reversed(self._given.items()))
            self._given = {}
            self.changed.notify_all()

    def forget(self) -> None:
        """Lose the session with its messages. The client notices that when it polls."""
        with self.changed:
            self._waiting.clear()
            self._given = {}
            self.lost += 1
            self.changed.notify_all()

    def give(self) -> tuple[int, Message] | None:
        """The next message and its number in the session; `None` if the queue is empty or the window is full."""
        if self.full or not self._waiting:
            return None
        number, message = self._waiting.popleft()
        self._given[number] = message
        return number, message

    def acknowledge(self, numbers: Iterable[int]) -> None:
        """The messages with these numbers are done. Unknown numbers are ignored."""
        with self.changed:
            done = [number for number in numbers if self._given.pop(number, None) is not None]
            self.acknowledged += len(done)
            self.acknowledgements += bool(done)
            self.changed.notify_all()
