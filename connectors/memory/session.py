"""`MemorySession`: what a bus keeps for one client, as an MQTT broker does for its session."""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Iterable

from connectors.message import Message


class MemorySession:
    """Messages that wait for one client, and those which it was given and has not acknowledged. For all threads.

    It hands out at most `window` messages that are not acknowledged (`None`: any number). When the client connects
    again it gets the unacknowledged ones once more, in their order, before all others: call `connect` for a connection
    that was cut. `forget` is the fault of a broker that lost the session: everything in it is gone.
    """

    def __init__(self, *, window: int | None = None) -> None:
        self.window = window
        self.changed = threading.Condition()
        """Guards everything here, and is notified when anything changes."""
        self.ended = False
        """Whether nothing more will be fed."""
        self.lost = 0
        """How often the session was lost."""
        self.acknowledged = 0
        """Messages that were acknowledged so far."""
        self.acknowledgements = 0
        """Calls that acknowledged some."""
        self._numbers = itertools.count()
        self._waiting: deque[tuple[int, Message]] = deque()
        self._given: dict[int, Message] = {}

    @property
    def waiting(self) -> int:
        """Messages that were not handed out yet."""
        return len(self._waiting)

    @property
    def full(self) -> bool:
        """Whether it hands out nothing before something is acknowledged."""
        return self.window is not None and len(self._given) >= self.window

    def feed(self, messages: Iterable[Message]) -> None:
        """Hand these out, too."""
        with self.changed:
            self._waiting.extend((next(self._numbers), message) for message in messages)
            self.changed.notify_all()

    def end(self) -> None:
        """Nothing more will be fed."""
        with self.changed:
            self.ended = True
            self.changed.notify_all()

    def connect(self) -> None:
        """The client is there, perhaps again: records that it has not acknowledged are delivered to it once more."""
        with self.changed:
            self._waiting.extendleft(reversed(self._given.items()))
            self._given = {}
            self.changed.notify_all()

    def forget(self) -> None:
        """Lose the session: the client, which notices it when it polls, gets nothing of what was in it."""
        with self.changed:
            self._waiting.clear()
            self._given = {}
            self.lost += 1
            self.changed.notify_all()

    def give(self) -> tuple[int, Message] | None:
        """The next message and its number in the session; `None` if none waits or the window is full."""
        if self.full or not self._waiting:
            return None
        number, message = self._waiting.popleft()
        self._given[number] = message
        return number, message

    def acknowledge(self, numbers: Iterable[int]) -> None:
        """These are done with. Unknown ones are ignored."""
        with self.changed:
            done = [number for number in numbers if self._given.pop(number, None) is not None]
            self.acknowledged += len(done)
            self.acknowledgements += bool(done)
            self.changed.notify_all()
