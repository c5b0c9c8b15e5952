"""`MemorySource`: records from this process."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, Self

from connectors.memory.block import block
from connectors.memory.config import MemorySourceConfig
from connectors.memory.group import Group
from connectors.memory.topic import MemoryTopic, memory_topic, size_of
from connectors.message import Message
from connectors.records import Lane, Records
from connectors.source import Event, LaneBegan, LaneEnded, Replays, Settle, Source, SourceEnded, TransactionToken
from pipelines.data.data import Data
from pipelines.errors import ConnectorError

SETTLE_SECONDS = 30.0
"""Seconds that a source may take to finish and acknowledge the records of a lane that it is about to lose."""


class MemorySource(Source):
    """Delivers `records`, the records that are fed to it, or those of a `MemoryTopic`.

    `records` are `Message`s, payloads (bytes, `None` for a tombstone, or any object) or `Data`; they are taken from the
    iterable as they are polled, so that it may be endless, and the source ends with it. Without `records` and `topic`
    it delivers the records of `feed` until `end`. A message that names a topic comes from that topic, and its `extras`
    are in the columns of these names. Sources of one topic with the same `group` share its partitions and acknowledged
    positions.

    Unacknowledged records are delivered again, even to the next source of the group; the topic keeps the positions.
    """

    replays = Replays.OFFSET

    def __init__(
        self,
        records: Iterable[object] | None = None,
        *,
        topic: MemoryTopic | None = None,
        partitions: int = 1,
        group: str = "default",
        start: Literal["earliest", "latest"] = "earliest",
        name: str = "memory",
    ) -> None:
        self.name = name
        self.topic = MemoryTopic(name, partitions) if topic is None else topic
        self._records: Iterator[object] | None = None if records is None else iter(records)
        self._pulled: list[Message] = []
        self._group_name = group
        self._start = start
        self._settle: Settle | None = None
        self._commits = True
        self._open = False
        self._woken = False
        self._end_reported = False
        self._events: list[Event] = []
        self._epochs = itertools.count()
        self._lanes: dict[int, Lane] = {}
        self._next: dict[int, int] = {}

    @classmethod
    def of(cls, config: MemorySourceConfig) -> Self:
        """The source of this configuration. Raises `ConnectorError` if the topic has another number of partitions."""
        topic = memory_topic(config.topic, config.partitions)
        return cls(topic=topic, group=config.group, start=config.start, name=config.label)

    @property
    def group(self) -> Group:
        """The consumer group: members, owners, acknowledged positions."""
        return self.topic.group(self._group_name, self._start)

    @property
    def acknowledged(self) -> list[int]:
        """The acknowledged position of each partition."""
        with self.topic.changed:
            return list(self.group.acknowledged)

    def feed(self, *records: object) -> None:
        """Deliver these too. Waits for room in the topic at most a minute, then raises a retriable `ConnectorError`."""
        for record in records:
            self.topic.append(as_message(record), time.monotonic() + 60)

    def end(self) -> None:
        """No more records will be fed: the source ends after the last one."""
        self.topic.end()

    def open(self, settle: Settle | None = None, *, commits: bool = True) -> None:
        """Join the group."""
        self._settle = settle
        self._commits = commits
        self._open = True
        with self.topic.changed:
            self.group.join(self)
            self.topic.changed.notify_all()

    def poll(self, max_records: int, max_bytes: int, timeout: float) -> Records:
        """As `Source.poll`. `ConnectorError` when it is not open."""
        if not self._open:
            raise ConnectorError(f"{self.name} is not open")
        deadline = time.monotonic() + timeout
        gathered: dict[Lane, list[tuple[int, Message]]] = {}
        while True:
            self._rebalance()
            gathered = {lane: rows for lane, rows in gathered.items() if lane in self._lanes.values()}
            count = sum(map(len, gathered.values()))
            size = sum(size_of(message) for rows in gathered.values() for _, message in rows)
            self._pull(max_records - count)
            count, size = self._gather(gathered, count, size, max_records, max_bytes)
            if count >= max_records or size >= max_bytes or self._tell_end() or not self._wait(deadline):
                return block(self.name, self.topic.name, gathered, size)

    def acknowledge(self, positions: Mapping[Lane, int], *, wait: bool = False) -> None:
        """As `Source.acknowledge`; it never has to wait."""
        if self._commits:
            self.commit(positions)

    def commit(self, positions: Mapping[Lane, int]) -> None:
        """The records of these lanes below these positions are done. Lanes that have ended are ignored."""
        with self.topic.changed:
            for lane, position in positions.items():
                if self.owns(lane):
                    self.group.acknowledge(int(lane.partition), position)
            self.topic.changed.notify_all()

    def owns(self, lane: Lane) -> bool:
        """Whether this lane has begun here and not ended, and the group still counts this source as its owner."""
        partition = int(lane.partition)
        return self._lanes.get(partition) == lane and self.group.owners.get(partition) is self

    def rewind(self, lanes: Iterable[Lane]) -> None:
        """As `Source.rewind`."""
        for lane in lanes:
            partition = int(lane.partition)
            if self._lanes.get(partition) == lane:
                self._end_lane(partition)
                self._begin_lane(partition)

    def events(self) -> list[Event]:
        """As `Source.events`."""
        events, self._events = self._events, []
        return events

    def close(self) -> None:
        """Leave the group; others get the partitions."""
        self._open = False
        with self.topic.changed:
            self.group.leave(self)
            self.topic.changed.notify_all()
        self._lanes.clear()

    def standing_still(self, still: bool) -> None:
        """Hand over partitions while the source is not polled."""
        if still and self._open:
            self._rebalance()

    def wake(self) -> None:
        """As `Source.wake`."""
        with self.topic.changed:
            self._woken = True
            self.topic.changed.notify_all()

    def transaction_token(self) -> TransactionToken:
        """The source itself, by which a `MemoryTransactionalSink` commits positions, and its lanes."""
        return TransactionToken(frozenset(self._lanes.values()), self)

    def lag(self) -> Mapping[tuple[str, int], int]:
        """Undelivered messages of its partitions."""
        with self.topic.changed:
            return {
                (self.topic.name, partition): self.topic.end_of(partition) - self._next[partition]
                for partition in self._lanes
            }

    def _rebalance(self) -> None:
        with self.topic.changed:
            owned = self.group.owned(self)
            lost = sorted(self._lanes.keys() - owned)
            self.group.join(self)
            surplus = sorted(owned - self.group.share(self))
        for partition in lost:
            self._end_lane(partition)
        if surplus:
            self._hand_over(surplus)
        with self.topic.changed:
            gained = self.group.claim(self)
        for partition in gained:
            self._begin_lane(partition)

    def _hand_over(self, partitions: list[int]) -> None:
        if self._settle is not None:
            lanes = [self._lanes[partition] for partition in partitions]
            self.acknowledge(self._settle(lanes, time.monotonic() + SETTLE_SECONDS))
        with self.topic.changed:
            for partition in partitions:
                self.group.release(self, partition)
                self._end_lane(partition)
            self.topic.changed.notify_all()

    def _begin_lane(self, partition: int) -> None:
        lane = Lane(self.name, str(partition), next(self._epochs))
        self._lanes[partition] = lane
        self._next[partition] = self.acknowledged[partition]
        self._end_reported = False
        self._events.append(LaneBegan(lane, self.topic.name, partition, self._next[partition]))

    def _end_lane(self, partition: int) -> None:
        # Not in the midst of a transaction that has found the lane here, and commits its position.
        with self.topic.changed:
            self._events.append(LaneEnded(self._lanes.pop(partition)))

    def _pull(self, wanted: int) -> None:
        if self._records is None:
            return
        available = sum(self.topic.end_of(partition) - self._next[partition] for partition in self._lanes)
        missing = wanted - available - len(self._pulled)
        if missing > 0:
            self._pulled.extend(map(as_message, itertools.islice(self._records, missing)))
            exhausted = len(self._pulled) < wanted - available
        else:
            exhausted = False
        # Records without room in the topic wait for acknowledgements.
        del self._pulled[: self.topic.append_some(self._pulled)]
        if exhausted and not self._pulled:
            self._records = None
            self.end()

    def _gather(
        self, gathered: dict[Lane, list[tuple[int, Message]]], count: int, size: int, max_records: int, max_bytes: int
    ) -> tuple[int, int]:
        # In turn, so that a full partition does not starve the others.
        for partition, lane in sorted(self._lanes.items(), key=lambda item: self._next[item[0]]):
            if count >= max_records or size >= max_bytes:
                break
            first, messages = self.topic.read(partition, self._next[partition], max_records - count, max_bytes - size)
            if messages:
                gathered.setdefault(lane, []).extend(enumerate(messages, first))
                self._next[partition] = first + len(messages)
                count += len(messages)
                size += sum(map(size_of, messages))
        return count, size

    def _tell_end(self) -> bool:
        with self.topic.changed:
            if self._end_reported or not (self.topic.ended and self.group.is_complete()):
                return False
            if any(self._next[partition] < self.topic.end_of(partition) for partition in self._lanes):
                return False
        self._end_reported = True
        self._events.append(SourceEnded(self.name))
        return True

    def _wait(self, deadline: float) -> bool:
        """Wait until something changed; false if the deadline has passed or `wake` was called."""
        with self.topic.changed:
            left = deadline - time.monotonic()
            if left > 0 and not self._woken and not self._something_to_do():
                self.topic.changed.wait(left)
            woken, self._woken = self._woken, False
            return not woken and left > 0

    def _something_to_do(self) -> bool:
        owned, share = self.group.owned(self), self.group.share(self)
        if owned != self._lanes.keys() or owned - share or share - self.group.owners.keys():
            return True
        return any(self._next[partition] < self.topic.end_of(partition) for partition in self._lanes)


def as_message(record: Any) -> Message:
    """A record in any of the forms that a `MemorySource` takes, as a message."""
    if isinstance(record, Message):
        return record
    return Message(record.to_bytes() if isinstance(record, Data) else record)
