"""`LoopSink`: base of sinks whose messages are sent by a task in the event loop of a Faust app."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from abc import abstractmethod
from bisect import bisect_right
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

import numpy as np

from connectors.records import Ints, Messages
from connectors.sink import Lost, Refused, Sink
from pipelines.errors import ConnectorError

MOST_IN_FLIGHT = 64 << 20
"""Bytes of payloads and keys that wait for their confirmation; beyond that `send` waits."""
DOWN_AFTER = 5.0
"""Seconds without a confirmation, while some are awaited, after which the peer counts as away."""


@dataclass(slots=True, eq=False)
class Sent:
    """A block of messages on its way."""

    messages: Messages
    size: int
    """Bytes of its payloads and keys."""
    at: float = field(default_factory=time.monotonic)


class LoopSink(Sink):
    """Hands blocks of messages to `_deliver`, a task in the loop; the order of the blocks is kept.

    Made in the loop's thread, while the loop runs. It accepts at most `most_in_flight` bytes of unconfirmed payloads
    and keys, or one message.
    """

    def __init__(self, name: str, *, most_in_flight: int = MOST_IN_FLIGHT) -> None:
        self.name = name
        self._loop = asyncio.get_running_loop()
        self._most_in_flight = most_in_flight
        self._changed = threading.Condition()
        # Written by the run thread, read by the loop's, and the other way round; all under the condition.
        self._outstanding: deque[Sent] = deque()
        self._in_flight = 0
        self._confirmed: list[Ints] = []
        self._lost: dict[int, ConnectorError] = {}
        self._fatal: ConnectorError | None = None
        self._blocks: asyncio.Queue[Sent] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None
        self._open = False

    @abstractmethod
    async def _deliver(self, blocks: asyncio.Queue[Sent]) -> None:
        """Send the blocks that come, for ever, and call `finish` for each in any order."""

    def open(self) -> None:
        """Ready to send."""
        self._open = True
        self._call(self._start)

    def send(self, messages: Messages, deadline: float) -> Refused:
        """See `Sink.send`. Raises `ConnectorError` once sending has failed for good."""
        if not len(messages):
            return {}
        sizes = _sizes(messages)
        refused = self._refused(messages, sizes)
        left = [at for at in range(len(messages)) if at not in refused] if refused else list(range(len(messages)))
        while left:
            fitting, size = self._wait_for_room(sizes, left, deadline)
            if not fitting:
                full = ConnectorError(
                    f"sink {self.name}: too much is unconfirmed: Faust's producer is slower than the service, or the "
                    "brokers are away",
                    retriable=True,
                )
                return {**refused, **dict.fromkeys(left, full)}
            whole = fitting == len(messages)
            sent = Sent(messages if whole else messages.take(np.array(left[:fitting], np.int64)), size)
            left = left[fitting:]
            with self._changed:
                self._outstanding.append(sent)
                self._in_flight += size
            self._call(self._blocks.put_nowait, sent)
        return refused

    def barrier(self, deadline: float) -> Lost:
        """See `Sink.barrier`. Raises `ConnectorError` also if sending failed for good with messages unconfirmed."""
        with self._changed:
            while self._outstanding:
                self._raise_fatal()
                left = deadline - time.monotonic()
                if left <= 0:
                    count = sum(len(sent.messages) for sent in self._outstanding)
                    raise ConnectorError(
                        f"sink {self.name}: {count} messages are not confirmed yet; the brokers are slow or away",
                        retriable=True,
                    )
                self._changed.wait(left)
            lost, self._lost = self._lost, {}
            return lost

    def confirmed(self) -> list[Ints]:
        with self._changed:
            confirmed, self._confirmed = self._confirmed, []
        return confirmed

    def behind(self) -> float:
        with self._changed:
            if self._lost:
                # The losses are reported by a barrier.
                return math.inf
            return time.monotonic() - self._outstanding[0].at if self._outstanding else 0.0

    def down(self) -> str | None:
        """See `Sink.down`. Faust's producer does not say whether it is connected: late confirmations show it."""
        behind = self.behind()
        return f"no message was confirmed for {behind:.0f} s" if DOWN_AFTER < behind < math.inf else None

    def close(self) -> None:
        """See `Sink.close`. Unconfirmed messages are dropped."""
        if not self._open:
            return
        self._open = False
        self._call(self._stop)

    def finish(self, sent: Sent, lost: Mapping[int, ConnectorError] | None = None) -> None:
        """All messages of the block are confirmed, but those at these places in it. In the loop's thread."""
        messages = sent.messages
        with self._changed:
            for index, error in (lost or {}).items():
                self._lost |= dict.fromkeys(messages.parents(index).tolist(), error)
            if lost:
                kept = messages.take(np.array([at for at in range(len(messages)) if at not in lost], np.int64))
                self._confirmed.append(kept.rows)
            else:
                self._confirmed.append(messages.rows)
            self._outstanding.remove(sent)
            self._in_flight -= sent.size
            self._changed.notify_all()

    def fail(self, error: ConnectorError) -> None:
        """Sending has failed for good: every later call raises this error."""
        with self._changed:
            self._fatal = self._fatal or error
            self._changed.notify_all()

    def _wait_for_room(self, sizes: Sequence[int], left: Sequence[int], deadline: float) -> tuple[int, int]:
        """How many of the messages at these places may be sent now, and their bytes; 0 if none may in time."""
        totals = list(accumulate(sizes[at] for at in left))
        with self._changed:
            while True:
                self._raise_fatal()
                fitting = bisect_right(totals, self._most_in_flight - self._in_flight)
                if fitting or not self._in_flight:
                    # One that is larger than all the room goes alone.
                    return max(fitting, 1), totals[max(fitting, 1) - 1]
                wait = deadline - time.monotonic()
                if wait <= 0 or not self._open:
                    return 0, 0
                self._changed.wait(wait)

    def _refused(self, messages: Messages, sizes: Sequence[int]) -> dict[int, ConnectorError]:
        """The messages that can never be sent, by index; `sizes` are those of their payloads and keys."""
        return {}

    def _start(self) -> None:
        self._task = asyncio.ensure_future(self._deliver(self._blocks))
        self._task.add_done_callback(self._ended)

    def _stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.fail(ConnectorError(f"sink {self.name}: sending failed: {type(error).__name__}: {error}"))

    def _call(self, function: object, *arguments: object) -> None:
        try:
            self._loop.call_soon_threadsafe(function, *arguments)  # type: ignore[arg-type]
        except RuntimeError:
            self.fail(ConnectorError(f"sink {self.name}: the event loop of the Faust app is closed"))

    def _raise_fatal(self) -> None:
        if self._fatal is not None:
            raise self._fatal


def _sizes(messages: Messages) -> list[int]:
    """Bytes of each message's payload and key."""
    values = [len(value) if isinstance(value, bytes) else 0 for value in messages.values]
    if messages.keys is None:
        return values
    return [size + (0 if key is None else len(key)) for size, key in zip(values, messages.keys, strict=True)]
