"""`FaustSource`: the records that a Faust app's consumer gives to an agent, as a source of a service."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from faust.types import TP, AppT, EventT
from faust.types import Message as FaustMessage

from connectors.records import Header, Ints, Lane, Records, Span, no_headers
from connectors.source import Event, LaneBegan, LaneEnded, Replays, Settle, Source
from pipelines.errors import ConnectorError

MOST_HELD = 16 << 20
"""Bytes of payloads and keys that are held unpolled; beyond that no event is taken from Faust's queue."""
_COMMIT_WAIT = 10.0
"""Seconds that a commit which is waited for may take."""


@dataclass(slots=True)
class _Partition:
    """The polling thread's state of one partition during one lane."""

    tp: TP
    lane: Lane
    next: int
    """The lowest position that has not been delivered in this lane."""
    unacknowledged: deque[EventT[Any]] = field(default_factory=deque)
    """Events that were polled, in their order."""


@dataclass(slots=True)
class _Revoke:
    """Marker among the events: Faust is about to lose these partitions, and their events before this one with them."""

    partitions: frozenset[TP]
    deadline: float
    done: Future[None] = field(default_factory=Future)


@dataclass(frozen=True, slots=True)
class _Assigned:
    """Marker among the events: Faust has these partitions from here on."""

    partitions: frozenset[TP]


class FaustSource(Source):
    """Records that are pushed into it by `feed`, in the thread of Faust's event loop, and polled by the service.

    Acknowledging a record acknowledges its event, in the loop's thread and in the order of each partition: Faust may
    commit past a record that was not acknowledged, unless all before it were. Faust commits every
    `broker_commit_interval`; an acknowledgement that is waited for is committed at once. An event of an assignment that
    is over is not acknowledged any more.

    Events are kept until they are acknowledged, and `rewind` delivers them again from there, as Faust itself delivers
    again only to the next process or assignment. While `most_held` bytes are unpolled, `feed` waits, so that Faust's
    own queue fills up and its consumer stops fetching.

    `commit` is awaited in the loop after the events of a waited acknowledgement. The lag is not reported: the end of a
    partition that Faust's monitor knows is as old as its last record, and counts markers of transactions.
    """

    replays = Replays.OFFSET

    def __init__(
        self,
        app: AppT,
        *,
        name: str = "kafka",
        headers: bool = True,
        most_held: int = MOST_HELD,
        commit: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        """Made in the loop's thread, while the loop runs."""
        self.name = name
        self._app = app
        self._loop = asyncio.get_running_loop()
        self._commit = commit
        self._headers = headers
        self._most_held = most_held
        self._settle: Settle | None = None
        self._changed = threading.Condition()
        self._wanted: float = math.inf
        self._wanted_bytes: float = math.inf
        """How many events, or bytes of them, end the wait of the polling thread; infinite while it does not wait."""
        self._woken = False
        self._closed = False
        self._arrived: deque[EventT[Any] | _Revoke | _Assigned] = deque()
        self._revokes = 0
        """Revokes among the events that arrived, counted up by the loop's thread; `_revokes_served` is the other's."""
        self._revokes_served = 0
        self._given_up: set[TP] = set()
        """Partitions that were revoked and not assigned again. Of the loop's thread."""
        self._room = asyncio.Event()
        self._room.set()
        # Bytes that came in, and bytes that were polled: each is written by one thread alone.
        self._fed = 0
        self._polled = 0
        self._again: deque[EventT[Any]] = deque()
        """Events to deliver before those that arrived: of rewound lanes. Of the polling thread."""
        self._partitions: dict[TP, _Partition] = {}
        self._lanes: dict[Lane, _Partition] = {}
        """The same, by their lanes."""
        self._epochs: dict[TP, int] = {}
        self._events: list[Event] = []

    async def feed(self, events: Sequence[EventT[Any]]) -> None:
        """Take these events; waits while too much is unpolled. Called in the loop's thread."""
        if self._closed:
            return
        # Events of an assignment that is over may still have been on their way.
        generation = self._app.consumer_generation_id
        current = [event for event in events if event.message.generation_id == generation]
        if self._given_up:
            current = [event for event in current if event.message.tp not in self._given_up]
        self._fed += sum([_size(event.message) for event in current])
        self._arrived.extend(current)
        held = self._fed - self._polled
        if len(self._arrived) >= self._wanted or held >= self._wanted_bytes:
            self._notify()
        if held >= self._most_held:
            self._room.clear()
            # The polling thread may have taken events before it could see that `feed` waits.
            if self.held >= self._most_held and not self._closed:
                await self._room.wait()

    async def revoke(self, partitions: Collection[TP], timeout: float) -> None:
        """End the lanes of these partitions, once their records in flight are confirmed, acknowledged and committed.

        Returns after `timeout` seconds at the latest: records that are not acknowledged by then come again, here or at
        another member. Called in the loop's thread, before Faust gives the partitions up.
        """
        if self._closed:
            return
        # Events that were taken from Faust's queue before, and are fed after: they come again, behind others.
        self._given_up |= set(partitions)
        request = _Revoke(frozenset(partitions), time.monotonic() + timeout)
        self._revokes += 1
        self._arrived.append(request)
        self._notify()
        await asyncio.wait([asyncio.wrap_future(request.done)], timeout=timeout)

    def assign(self, partitions: Collection[TP]) -> None:
        """Begin lanes for these partitions, which Faust has been given. Without that one begins with its first record.

        Called in the loop's thread.
        """
        self._given_up -= set(partitions)
        if not self._closed:
            self._arrived.append(_Assigned(frozenset(partitions)))
            self._notify()

    @property
    def held(self) -> int:
        """Bytes of payloads and keys that were fed and not polled."""
        return self._fed - self._polled

    def open(self, settle: Settle | None = None, *, commits: bool = True) -> None:
        """Ready to be polled. Raises `ConnectorError` without `commits`: the app's consumer always commits."""
        if not commits:
            raise ConnectorError(f"source {self.name}: a Faust app commits positions itself; use at_least_once")
        self._settle = settle

    def poll(self, max_records: int, max_bytes: int, timeout: float) -> Records:
        """See `Source.poll`. Rows are grouped by partition. `ConnectorError` once it is closed."""
        if self._closed:
            raise ConnectorError(f"source {self.name} is not open")
        deadline = time.monotonic() + timeout
        while True:
            self._serve_revokes()
            if self._waited(max_records, max_bytes, deadline):
                break
        events = self._next_events(max_records, max_bytes)
        if not events:
            return Records.empty(self.name)
        return self._block(events)

    def acknowledge(self, positions: Mapping[Lane, int], *, wait: bool = False) -> None:
        """See `Source.acknowledge`. With `wait` raises a retriable `ConnectorError` if Faust takes over 10 s."""
        done: list[EventT[Any]] = []
        for lane, position in positions.items():
            partition = self._lanes.get(lane)
            if partition is None:
                continue
            waiting = partition.unacknowledged
            while waiting and waiting[0].message.offset < position:
                done.append(waiting.popleft())
        try:
            if not wait:
                if done:
                    self._loop.call_soon_threadsafe(self._acknowledged, done)
                return
            asyncio.run_coroutine_threadsafe(self._committed(done), self._loop).result(_COMMIT_WAIT)
        except Exception as error:
            # The loop is closed, the consumer was stopped, or the brokers do not answer.
            raise ConnectorError(
                f"source {self.name}: Faust does not commit, so the last positions may not be committed; "
                f"records after the last commit will be delivered again: {type(error).__name__}: {error}",
                retriable=True,
            ) from error

    def rewind(self, lanes: Iterable[Lane]) -> None:
        for lane in set(lanes):
            partition = self._lanes.get(lane)
            if partition is None:
                continue
            tp = partition.tp
            again = partition.unacknowledged
            # Records that are to come again already were not polled in this lane: they stay at the end.
            others = deque(event for event in self._again if event.message.tp != tp)
            again.extend(event for event in self._again if event.message.tp == tp)
            self._again = deque((*others, *again))
            self._end(tp)
            self._begin(tp, again[0].message.offset if again else partition.next)

    def events(self) -> list[Event]:
        if not self._events:
            return []
        events, self._events = self._events, []
        return events

    def close(self) -> None:
        """Discard all events, so that Faust does not wait for them; `feed` returns at once from now on."""
        self._closed = True
        self._settle = None
        for request in [item for item in self._arrived if isinstance(item, _Revoke)]:
            _answer(request)
        self._arrived.clear()
        self._again.clear()
        self._partitions.clear()
        self._lanes.clear()
        self._make_room()

    def standing_still(self, still: bool) -> None:
        """Partitions are given up also while the source is not polled."""
        if still and not self._closed:
            self._serve_revokes()

    def wake(self) -> None:
        with self._changed:
            self._woken = True
            self._changed.notify()

    def _notify(self) -> None:
        with self._changed:
            self._wanted = math.inf
            self._changed.notify()

    def _waited(self, max_records: int, max_bytes: int, deadline: float) -> bool:
        """Wait until there are enough records, or another reason to return; whether the poll has to end."""
        with self._changed:
            left = deadline - time.monotonic()
            if self._woken or self._closed or left <= 0 or self._has(max_records, max_bytes):
                self._woken = False
                return True
            # Set before the events are counted once more: a thread that adds one after that sees it.
            self._wanted, self._wanted_bytes = max_records - len(self._again), min(max_bytes, self._most_held)
            if not self._has(max_records, max_bytes) and self._revokes == self._revokes_served:
                self._changed.wait(left)
            self._wanted = self._wanted_bytes = math.inf
            return False

    def _has(self, max_records: int, max_bytes: int) -> bool:
        waiting = len(self._arrived) + len(self._again)
        return waiting >= max_records or self.held >= min(max_bytes, self._most_held)

    def _next_events(self, max_records: int, max_bytes: int) -> list[EventT[Any]]:
        """The next events, without those that stand behind a revoke."""
        events: list[EventT[Any]] = []
        size = 0
        while len(events) < max_records and size < max_bytes:
            if self._again:
                event = self._again.popleft()
                size += _size(event.message)
            elif not self._arrived or isinstance(self._arrived[0], _Revoke):
                break
            elif events and isinstance(self._arrived[0], _Assigned):
                # Those before it belong to the lanes before it.
                break
            elif isinstance(arrived := self._arrived.popleft(), _Assigned):
                self._assigned(arrived)
                continue
            else:
                assert not isinstance(arrived, _Revoke)
                event = arrived
                size_of_event = _size(event.message)
                size += size_of_event
                self._polled += size_of_event
            events.append(event)
        self._make_room_if_wanted()
        return events

    def _make_room_if_wanted(self) -> None:
        if not self._room.is_set() and self.held <= self._most_held // 2:
            self._make_room()

    def _make_room(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._room.set)
        except RuntimeError:
            # The loop is closed: no `feed` waits.
            return

    def _block(self, events: Sequence[EventT[Any]]) -> Records:
        groups: dict[TP, list[EventT[Any]]] = {}
        for event in events:
            tp = event.message.tp
            if tp in groups:
                groups[tp].append(event)
            else:
                groups[tp] = [event]
        spans: list[Span] = []
        messages: list[FaustMessage] = []
        for tp, group in groups.items():
            partition = self._partitions.get(tp) or self._begin(tp, group[0].message.offset)
            new = _rising(group, partition.next)
            if not new:
                continue
            partition.unacknowledged.extend(new)
            partition.next = new[-1].message.offset + 1
            spans.append(Span(partition.lane, len(messages), len(messages) + len(new)))
            messages.extend(event.message for event in new)
        keys = [message.key for message in messages]
        values = [message.value for message in messages]
        # Not the messages themselves: when the service fails, Faust waits for those that are still referred to.
        headers, stamps = [message.headers for message in messages], [message.timestamp for message in messages]
        return Records(
            self.name,
            values,
            None if keys.count(None) == len(keys) else keys,
            np.array([message.offset for message in messages], np.int64),
            spans,
            [messages[span.start].topic for span in spans],
            [messages[span.start].partition for span in spans],
            sum(len(value) for value in values if value is not None)
            + sum(len(value) for value in keys if value is not None),
            headers=(lambda: _headers(headers)) if self._headers else no_headers,
            timestamps=lambda: _timestamps(stamps),
        )

    def _serve_revokes(self) -> None:
        while self._revokes_served < self._revokes:
            self._revokes_served += 1
            request = self._before_revoke()
            if request is None:
                return
            lanes = [partition.lane for tp in request.partitions if (partition := self._partitions.get(tp)) is not None]
            try:
                if lanes and self._settle is not None:
                    self.acknowledge(self._settle(lanes, request.deadline), wait=True)
            except ConnectorError:
                # The next owner gets these records again.
                pass
            finally:
                for tp in request.partitions & self._partitions.keys():
                    self._end(tp)
                self._again = deque(event for event in self._again if event.message.tp not in request.partitions)
                _answer(request)

    def _before_revoke(self) -> _Revoke | None:
        """The next revoke. Events that came before it stay, unless their partition is given up: they come again."""
        while self._arrived:
            arrived = self._arrived.popleft()
            if isinstance(arrived, _Revoke):
                self._again = deque(event for event in self._again if event.message.tp not in arrived.partitions)
                self._make_room_if_wanted()
                return arrived
            if isinstance(arrived, _Assigned):
                self._assigned(arrived)
                continue
            self._polled += _size(arrived.message)
            self._again.append(arrived)
        return None

    def _assigned(self, assigned: _Assigned) -> None:
        """Begin lanes where Faust begins to read, at the committed positions.

        A lane may have been begun by events of the assignment before, which were fed after its end: they come again.
        """
        self._again = deque(event for event in self._again if event.message.tp not in assigned.partitions)
        for tp in sorted(assigned.partitions):
            if tp in self._partitions:
                self._end(tp)
            self._begin(tp, -1)

    def _begin(self, tp: TP, position: int) -> _Partition:
        epoch = self._epochs[tp] = self._epochs.get(tp, -1) + 1
        lane = Lane(self.name, f"{tp.topic}-{tp.partition}", epoch)
        partition = self._partitions[tp] = self._lanes[lane] = _Partition(tp, lane, position)
        self._events.append(LaneBegan(lane, tp.topic, tp.partition, position))
        return partition

    def _end(self, tp: TP) -> None:
        lane = self._partitions.pop(tp).lane
        del self._lanes[lane]
        self._events.append(LaneEnded(lane))

    def _acknowledged(self, events: Sequence[EventT[Any]]) -> None:
        """Acknowledge events, in the loop's thread."""
        generation = self._app.consumer_generation_id
        for event in events:
            # After a rebalance Faust reads from the committed position: an event of before is ignored.
            if event.message.generation_id == generation:
                event.ack()

    async def _committed(self, events: Sequence[EventT[Any]]) -> None:
        self._acknowledged(events)
        if self._commit is not None:
            await self._commit()


def _size(message: FaustMessage) -> int:
    value, key = message.value, message.key
    return (0 if value is None else len(value)) + (0 if key is None else len(key))


def _rising(events: list[EventT[Any]], least: int) -> list[EventT[Any]]:
    """The events whose positions rise from `least` on: nearly always all. Faust gives a record again after a seek."""
    rising = []
    for event in events:
        offset = event.message.offset
        if offset >= least:
            rising.append(event)
            least = offset + 1
    return rising


def _headers(given: Sequence[Any]) -> list[Sequence[Header] | None] | None:
    """The headers of each record, which Faust has as pairs or as a mapping."""
    listed: list[Sequence[Header] | None] = [
        list(headers.items() if isinstance(headers, Mapping) else headers or ()) or None for headers in given
    ]
    return listed if any(listed) else None


def _timestamps(seconds: Sequence[float | None]) -> Ints:
    # A record without a timestamp has a negative one, or none.
    stamps = [-1.0 if value is None else value for value in seconds]
    return np.maximum(np.rint(np.array(stamps, np.float64) * 1000), -1).astype(np.int64)


def _answer(request: _Revoke) -> None:
    if not request.done.done():
        request.done.set_result(None)
