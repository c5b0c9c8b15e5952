"""`MemoryLiveSource`: the newest records of live streams in this process."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from connectors.measures import Measure
from connectors.memory.block import block
from connectors.memory.topic import size_of
from connectors.message import Message
from connectors.records import Lane, Records
from connectors.source import Event, LaneBegan, LaneEnded, Replays, Settle, Source, SourceEnded
from pipelines.errors import ConnectorError


@dataclass(slots=True)
class _Stream:
    name: str
    partition: int
    epoch: int = -1
    live: bool = False
    next: int = 0
    dropped: int = 0
    waiting: tuple[int, Message] | None = None
    received: float = 0.0


class MemoryLiveSource(Source):
    """Delivers the newest record of each of its streams, as cameras do: an unpolled one is replaced.

    Each stream is a lane while it is connected. No record is delivered again. `show`, `connect`, `disconnect` and `end`
    may be called from any thread.
    """

    replays = Replays.NONE
    perishable = True

    def __init__(self, streams: Sequence[str] = ("stream",), *, name: str = "memory") -> None:
        self.name = name
        self._streams = {stream: _Stream(stream, number) for number, stream in enumerate(streams)}
        self._turns = deque(streams)
        self._changed = threading.Condition()
        self._events: list[Event] = []
        self._open = self._ended = self._end_reported = self._woken = False
        for stream in streams:
            self.connect(stream)

    def show(self, stream: str, record: Any, key: bytes | None = None) -> None:
        """The stream's newest record: a `Message`, or its payload, which may be any object."""
        message = record if isinstance(record, Message) else Message(record, key)
        with self._changed:
            state = self._streams[stream]
            state.dropped += state.waiting is not None
            state.waiting = state.next, message._replace(topic=stream)
            state.received = time.monotonic()
            state.next += 1
            self._changed.notify_all()

    def connect(self, stream: str) -> None:
        """Connect or reconnect the stream: a new lane begins."""
        with self._changed:
            state = self._streams[stream]
            state.live, state.epoch = True, state.epoch + 1
            self._events.append(LaneBegan(self._lane(state), stream, state.partition, state.next))

    def disconnect(self, stream: str) -> None:
        """Disconnect the stream: its lane ends, and an unpolled record is dropped."""
        with self._changed:
            state = self._streams[stream]
            state.dropped += state.waiting is not None
            state.live, state.waiting = False, None
            self._events.append(LaneEnded(self._lane(state), finish=True))

    def end(self) -> None:
        """No more records will be shown: the source ends."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    @property
    def dropped(self) -> int:
        """Records that were replaced before they were polled."""
        with self._changed:
            return sum(stream.dropped for stream in self._streams.values())

    def open(self, settle: Settle | None = None, *, commits: bool = True) -> None:
        """Get ready for `poll`."""
        self._open = True

    def poll(self, max_records: int, max_bytes: int, timeout: float) -> Records:
        """As `Source.poll`. `ConnectorError` when it is not open."""
        return self.poll_without((), max_records, max_bytes, timeout)

    def poll_without(self, lanes: Collection[Lane], max_records: int, max_bytes: int, timeout: float) -> Records:
        """As `Source.poll_without`. `ConnectorError` when it is not open."""
        if not self._open:
            raise ConnectorError(f"{self.name} is not open")
        deadline = time.monotonic() + timeout
        records: dict[Lane, list[tuple[int, Message]]] = {}
        size, received = 0, math.inf
        with self._changed:
            while True:
                for stream in list(self._turns):
                    state = self._streams[stream]
                    if len(records) >= max_records or size >= max_bytes:
                        break
                    lane = self._lane(state)
                    if state.waiting is None or lane in records or lane in lanes:
                        continue
                    records[lane] = [state.waiting]
                    size += size_of(state.waiting[1])
                    received = min(received, state.received)
                    state.waiting = None
                    self._turns.remove(stream)
                    self._turns.append(stream)
                live = sum(stream.live and self._lane(stream) not in lanes for stream in self._streams.values())
                full = len(records) >= min(max_records, max(live, 1)) or size >= max_bytes
                left = deadline - time.monotonic()
                if full or left <= 0 or self._woken or self._tell_end():
                    break
                self._changed.wait(left)
            self._woken = False
        if not records:
            return Records.empty(self.name)
        return replace(block(self.name, self.name, records, size), received=received)

    def acknowledge(self, positions: Mapping[Lane, int], *, wait: bool = False) -> None:
        """Does nothing: no record is delivered again."""

    def rewind(self, lanes: Iterable[Lane]) -> None:
        """As `Source.rewind`, with nothing to deliver again."""
        with self._changed:
            for stream in self._streams.values():
                if stream.live and self._lane(stream) in lanes:
                    self._events.append(LaneEnded(self._lane(stream)))
                    stream.epoch += 1
                    self._events.append(LaneBegan(self._lane(stream), stream.name, stream.partition, stream.next))

    def events(self) -> list[Event]:
        """As `Source.events`."""
        with self._changed:
            events, self._events = self._events, []
        return events

    def close(self) -> None:
        """Stop delivering records."""
        self._open = False

    def wake(self) -> None:
        """As `Source.wake`."""
        with self._changed:
            self._woken = True
            self._changed.notify_all()

    def metrics(self) -> list[Measure]:
        """Records that were replaced before they were polled."""
        return [Measure("replaced", "Records that were replaced before they were polled.", self.dropped)]

    def _lane(self, stream: _Stream) -> Lane:
        return Lane(self.name, str(stream.partition), stream.epoch)

    def _tell_end(self) -> bool:
        if self._end_reported or not self._ended or any(stream.waiting for stream in self._streams.values()):
            return False
        self._end_reported = True
        self._events.append(SourceEnded(self.name))
        return True
