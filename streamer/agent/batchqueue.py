"""What bounds the batches between the intake threads and the run thread: their number by `BatchQueue`, and the payload
bytes between arrival and confirmation, over all sources of a service, by `ByteBudget`.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue

from streamer.agent.decodedbatch import DecodedBatch
from streamer.agent.messages import ToRunThread


class BatchQueue:
    """A bounded queue of batches, from which one thread takes.

    Made of `SimpleQueue`s, for free places and for signals: `queue.Queue`, which is written in Python, costs several
    times as much for each batch.
    """

    def __init__(self, places: int, *, tells_when_wanted: bool = False) -> None:
        """`tells_when_wanted`: whether intake threads may wait until a batch is `wanted`."""
        self._places = places
        self._wanted = threading.Event() if tells_when_wanted else None
        self._batches: deque[DecodedBatch] = deque()
        # One for each batch, put after it, and one for each `wake`. There may be fewer than batches, as waits use them
        # up, but whoever waits for one looks into `_batches` first.
        self._signals: SimpleQueue[None] = SimpleQueue()
        self._free: SimpleQueue[None] = SimpleQueue()
        for _ in range(places):
            self._free.put(None)

    def put(self, decoded: DecodedBatch, timeout: float) -> bool:
        """Hand a batch over, waiting at most `timeout` seconds for a place; whether there was one. From any thread."""
        try:
            self._free.get(timeout=timeout)
        except Empty:
            return False
        if self._wanted is not None:
            self._wanted.clear()
        self._batches.append(decoded)
        self._signals.put(None)
        return True

    def wanted(self, timeout: float) -> bool:
        """Whether the run thread waits for a batch; returns after `timeout` seconds at most. From any thread."""
        return self._wanted is not None and self._wanted.wait(timeout)

    def get(self, timeout: float) -> DecodedBatch | None:
        """The next batch; `None` if there is none after `timeout` seconds, or `wake` was called."""
        wants = self._wanted is not None and not self._batches
        if wants and self._wanted is not None:
            self._wanted.set()
        try:
            self._signals.get(timeout=0.0 if self._batches else timeout)
        except Empty:
            pass
        if wants and self._wanted is not None:
            self._wanted.clear()
        if not self._batches:
            return None
        decoded = self._batches.popleft()
        self._free.put(None)
        return decoded

    def rest(self, timeout: float) -> None:
        """Wait up to `timeout` seconds for another batch or for `wake`; those that came before may end it too."""
        try:
            self._signals.get(timeout=timeout)
        except Empty:
            pass

    def wake(self) -> None:
        """Make a waiting `get` or `rest` return. From any thread."""
        self._signals.put(None)

    def empty(self) -> bool:
        """Whether there is no batch to `get`."""
        return not self._batches

    @property
    def first(self) -> DecodedBatch | None:
        """The batch that `get` returns next; `None` if there is none."""
        return self._batches[0] if self._batches else None

    @property
    def waiting(self) -> int:
        """The number of batches in the queue."""
        return self._places - self._free.qsize()


class ByteBudget:
    """A limit on payload bytes in memory.

    Intake threads `reserve` the bytes of a batch before they hand it over; the run thread gives them back by `release`
    when its results are confirmed. A batch that is larger than the limit gets its bytes when no others are reserved.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._reserved = 0
        self._waiting = 0
        self._changed = threading.Condition()

    @property
    def reserved(self) -> int:
        """Bytes that are reserved at present."""
        return self._reserved

    @property
    def is_full(self) -> bool:
        """Whether a thread waits for bytes."""
        return self._waiting > 0

    @property
    def is_short(self) -> bool:
        """Whether a thread waits for bytes, or soon will: more than half of them are reserved."""
        return self._waiting > 0 or self._reserved * 2 > self.limit

    def reserve(self, size: int, timeout: float) -> bool:
        """Reserve `size` bytes, waiting for them at most `timeout` seconds; whether that succeeded."""
        with self._changed:
            if not self._fits(size):
                self._waiting += 1
                self._changed.wait_for(lambda: self._fits(size), timeout)
                self._waiting -= 1
            if not self._fits(size):
                return False
            self._reserved += size
            return True

    def add(self, size: int) -> None:
        """Reserve `size` bytes at once, as they are in memory already."""
        with self._changed:
            self._reserved += size

    def release(self, size: int) -> None:
        """Give `size` reserved bytes back."""
        with self._changed:
            self._reserved -= size
            if self._waiting:
                self._changed.notify_all()

    def _fits(self, size: int) -> bool:
        return self._reserved == 0 or self._reserved + size <= self.limit


@dataclass(frozen=True, slots=True)
class RunInbox:
    """What comes to the run thread from the intake threads: batches, within a budget of bytes, and messages."""

    batches: BatchQueue
    budget: ByteBudget
    control: deque[ToRunThread] = field(default_factory=deque)

    def tell(self, message: ToRunThread) -> None:
        """Send the run thread a message. From any thread."""
        self.control.append(message)
        self.batches.wake()
