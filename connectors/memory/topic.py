"""`MemoryTopic`: partitions of messages in this process, bounded, with consumer groups."""

from __future__ import annotations

import threading
import time
import zlib
from collections.abc import Iterable
from typing import Literal

from connectors.memory.faults import Faults
from connectors.memory.group import Group
from connectors.message import Message
from pipelines.errors import ConnectorError

MAX_BYTES = 64 * 2**20


class MemoryTopic:
    """Messages by partition, and who has read how far. Safe to use from all threads.

    It keeps messages until there is no room for more (`max_bytes` of payloads and keys); then it forgets what
    all its groups have acknowledged, and if that gives no room, whoever appends has to wait.
    """

    def __init__(self, name: str = "memory", partitions: int = 1, *, max_bytes: int = MAX_BYTES) -> None:
        self.name = name
        self.partitions = partitions
        self.max_bytes = max_bytes
        self.faults = Faults()
        self.changed = threading.Condition()
        """Guards everything here, and is notified when anything changes."""
        self.ended = False
        self._logs: list[list[Message]] = [[] for _ in range(partitions)]
        self._first = [0] * partitions
        self._groups: dict[str, Group] = {}
        self._bytes = 0
        self._dealt = 0

    def append(self, message: Message, deadline: float | None = None) -> int:
        """Put it at the end of its partition (its own, or by key, or dealt in turn); its position there.

        Waits for room until `deadline` (seconds on `time.monotonic`), then raises a retriable `ConnectorError`;
        without one it is taken whether there is room or not. Gives it the present time if it has none.
        """
        if message.timestamp is None:
            message = message._replace(timestamp=time.time_ns() // 1_000_000)
        size = size_of(message)
        with self.changed:
            if deadline is not None and not self._wait_for_room(size, deadline):
                raise ConnectorError(
                    f'the memory topic "{self.name}" holds {self._bytes} bytes that nobody has acknowledged; '
                    f"read it, or give it more max_bytes than {self.max_bytes}",
                    retriable=True,
                )
            partition = self._partition_of(message)
            log = self._logs[partition]
            log.append(message._replace(partition=partition, topic=self.name))
            self._bytes += size
            self.changed.notify_all()
            return self._first[partition] + len(log) - 1

    def extend(self, messages: Iterable[Message]) -> None:
        """Append these, without a bound."""
        for message in messages:
            self.append(message)

    def end(self) -> None:
        """Nothing more will be appended: sources end after the last message."""
        with self.changed:
            self.ended = True
            self.changed.notify_all()

    def messages(self) -> list[Message]:
        """What it holds, one partition after the other."""
        with self.changed:
            return [message for log in self._logs for message in log]

    def read(self, partition: int, position: int, max_records: int, max_bytes: int) -> tuple[int, list[Message]]:
        """Messages from this position on: the first one's position, and as many as there are and are asked for.

        May give more bytes by one message.
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

    def _wait_for_room(self, size: int, deadline: float) -> bool:
        while self._bytes + size > self.max_bytes and self._bytes:
            self._forget_acknowledged()
            if self._bytes + size <= self.max_bytes or not self._bytes:
                return True
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            self.changed.wait(left)
        return True

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
    """Bytes of payload and key; an object that does not tell its size (`nbytes`) counts as none."""
    value = message.value
    size = len(value) if isinstance(value, (bytes, bytearray, memoryview, str)) else int(getattr(value, "nbytes", 0))
    return size + len(message.key or b"")


_named: dict[str, MemoryTopic] = {}
_naming = threading.Lock()


def memory_topic(name: str, partitions: int | None = None) -> MemoryTopic:
    """The topic of this name in this process, made with `partitions` (1) when it is first asked for.

    `ConnectorError` if it is there with another number of partitions.
    """
    with _naming:
        topic = _named.setdefault(name, MemoryTopic(name, partitions or 1))
    if partitions not in (None, topic.partitions):
        raise ConnectorError(f'the memory topic "{name}" has {topic.partitions} partitions already, not {partitions}')
    return topic


def forget_memory_topic(name: str) -> None:
    """The next one of this name is a new, empty topic."""
    with _naming:
        _named.pop(name, None)
