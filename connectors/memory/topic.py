"""`MemoryTopic`: partitions of messages in this process, bounded, with consumer groups."""

from __future__ import annotations

import threading
import time
import zlib
from collections.abc import Iterable, Sequence
from typing import Literal

from connectors.memory.faults import Faults
from connectors.memory.group import Group
from connectors.message import Message
from pipelines.errors import ConnectorError

MAX_BYTES = 64 * 2**20


class MemoryTopic:
    """Messages by partition, and the position of each group. Safe to use from all threads.

    It keeps messages until there is no room for more (`max_bytes` of payloads and keys); then it drops messages that
    all its groups have acknowledged, and if that makes no room, `append` waits.
    """

    def __init__(self, name: str = "memory", partitions: int = 1, *, max_bytes: int = MAX_BYTES) -> None:
        self.name = name
        self.partitions = partitions
        self.max_bytes = max_bytes
        self.faults = Faults()
        self.changed = threading.Condition()
        """Guards the topic, and is notified of every change."""
        self.ended = False
        self._logs: list[list[Message]] = [[] for _ in range(partitions)]
        self._first = [0] * partitions
        self._groups: dict[str, Group] = {}
        self._bytes = 0
        self._dealt = 0

    def append(self, message: Message, deadline: float | None = None) -> None:
        """Append the message to a partition: the one that it names, or by key, or in turn. Without a timestamp it gets
        the present time.

        Waits for room until `deadline` (seconds on `time.monotonic`), then raises a retriable `ConnectorError`; without
        a deadline it is appended even without room. `ConnectorError` for a partition that does not exist.
        """
        with self.changed:
            if deadline is None:
                self._put(message, size_of(message), _now())
                self.changed.notify_all()
                return
            while not self.append_some([message]):
                left = deadline - time.monotonic()
                if left <= 0:
                    raise ConnectorError(
                        f'the memory topic "{self.name}" holds {self._bytes} unacknowledged bytes; '
                        f"read it, or give it more max_bytes than {self.max_bytes}",
                        retriable=True,
                    )
                self.changed.wait(left)

    def append_some(self, messages: Sequence[Message]) -> int:
        """Append as many of these as there is room for, without waiting. Returns their number."""
        now = _now()
        with self.changed:
            accepted = 0
            for message in messages:
                size = size_of(message)
                if self._bytes + size > self.max_bytes and not self._make_room(size):
                    break
                self._put(message, size, now)
                accepted += 1
            if accepted:
                self.changed.notify_all()
            return accepted

    def extend(self, messages: Iterable[Message]) -> None:
        """Append these messages, regardless of the topic's size limit."""
        with self.changed:
            now = _now()
            for message in messages:
                self._put(message, size_of(message), now)
            self.changed.notify_all()

    def end(self) -> None:
        """No more messages will be appended: sources end after the last one."""
        with self.changed:
            self.ended = True
            self.changed.notify_all()

    def messages(self) -> list[Message]:
        """All messages, one partition after the other."""
        with self.changed:
            return [message for log in self._logs for message in log]

    def read(self, partition: int, position: int, max_records: int, max_bytes: int) -> tuple[int, list[Message]]:
        """Messages from this position on: the position of the first, and the messages, within the limits.

        May exceed `max_bytes` by one message.
        """
        with self.changed:
            log = self._logs[partition]
            position = max(position, self._first[partition])
            start = position - self._first[partition]
            stop = start
            size = 0
            while stop < len(log) and stop - start < max_records and size < max_bytes:
                size += size_of(log[stop])
                stop += 1
            return position, log[start:stop]

    def end_of(self, partition: int) -> int:
        """The position that the next message of this partition will have."""
        with self.changed:
            return self._first[partition] + len(self._logs[partition])

    def group(self, name: str, start: Literal["earliest", "latest"] = "earliest") -> Group:
        """The consumer group of this name; a new one begins at `start`."""
        with self.changed:
            if name not in self._groups:
                starts = self._first if start == "earliest" else [self.end_of(n) for n in range(self.partitions)]
                self._groups[name] = Group(starts)
            return self._groups[name]

    def __len__(self) -> int:
        return sum(map(len, self._logs))

    def __repr__(self) -> str:
        return f"MemoryTopic({self.name}: {len(self)} messages in {self.partitions} partitions)"

    def _put(self, message: Message, size: int, now: int) -> None:
        value, key, headers, timestamp, _, topic, extras = message
        partition = self._partition_of(message)
        stamp = now if timestamp is None else timestamp
        self._logs[partition].append(Message(value, key, headers, stamp, partition, topic or self.name, extras))
        self._bytes += size

    def _make_room(self, size: int) -> bool:
        """Drop acknowledged messages if necessary; returns whether `size` bytes fit. An empty topic takes a message of
        any size."""
        self._forget_acknowledged()
        return self._bytes == 0 or self._bytes + size <= self.max_bytes

    def _forget_acknowledged(self) -> None:
        if not self._groups:
            return
        for partition, log in enumerate(self._logs):
            floor = min(group.acknowledged[partition] for group in self._groups.values())
            done = max(0, min(floor - self._first[partition], len(log)))
            self._bytes -= sum(map(size_of, log[:done]))
            del log[:done]
            self._first[partition] += done

    def _partition_of(self, message: Message) -> int:
        if message.partition is not None:
            if not 0 <= message.partition < self.partitions:
                raise ConnectorError(f'the memory topic "{self.name}" has no partition {message.partition}')
            return message.partition
        if message.key is not None:
            return zlib.crc32(message.key) % self.partitions
        self._dealt += 1
        return (self._dealt - 1) % self.partitions


def size_of(message: Message) -> int:
    """Bytes of payload and key; an object without a size (`nbytes`) counts as 0."""
    value, key = message.value, message.key
    if type(value) is bytes:
        return len(value) if key is None else len(value) + len(key)
    size = len(value) if isinstance(value, (bytes, bytearray, memoryview, str)) else int(getattr(value, "nbytes", 0))
    return size + len(key or b"")


def _now() -> int:
    return time.time_ns() // 1_000_000


_named: dict[str, MemoryTopic] = {}
_naming = threading.Lock()


def memory_topic(name: str, partitions: int | None = None) -> MemoryTopic:
    """The topic of this name in this process, created on first use, with `partitions` (by default 1).

    `ConnectorError` if it exists with another number of partitions.
    """
    with _naming:
        topic = _named.setdefault(name, MemoryTopic(name, partitions or 1))
    if partitions not in (None, topic.partitions):
        raise ConnectorError(f'the memory topic "{name}" has {topic.partitions} partitions already, not {partitions}')
    return topic


def forget_memory_topic(name: str) -> None:
    """Remove the topic of this name: the next one is new and empty."""
    with _naming:
        _named.pop(name, None)
