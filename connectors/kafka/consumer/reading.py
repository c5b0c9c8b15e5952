"""`Reading`: receiving records from a consumer, as confluent-kafka's objects or in blocks by the compiled bridge."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from confluent_kafka import Consumer, KafkaError, Message

from connectors.headers import Headers
from connectors.kafka.consumer.block import block, by_place, fitting, offset_of, rising
from connectors.kafka.consumer.lanes import Place
from connectors.records import Ints, Lane, Records, Span
from pipelines.data.spans import Bytes, Spans
from pipelines.errors import ConnectorError

if TYPE_CHECKING:
    from streamer_native._native import KafkaReader

LaneOf = Callable[[Place, int], Lane | None]
"""The lane of the records of this place whose first has this position; `None`: the partition is not assigned."""

_SERVE = 0.01
_COLUMNS = 6
_NO_LANE = Lane("", "", 0)
_NOTHING = np.zeros(0, np.uint8)


class PartitionError(NamedTuple):
    """An error that the client delivered in place of a record."""

    error: KafkaError
    topic: str | None
    partition: int
    offset: int
    """The offset of the error; negative if it has none."""


class Reading(ABC):
    """Receives records of one consumer, and holds them until `take`. One thread uses it.

    Without `headers` the headers of records are not read, and blocks have none.
    """

    @property
    @abstractmethod
    def held(self) -> int:
        """The number of held records."""

    @property
    @abstractmethod
    def held_bytes(self) -> int:
        """Payload and key bytes of the held records."""

    @abstractmethod
    def receive(self, count: int, timeout: float) -> list[PartitionError]:
        """Wait until `count` more records have come, or `timeout` seconds; serves the client's callbacks.

        Raises `KafkaException`.
        """

    @abstractmethod
    def take(self, source: str, max_records: int, max_bytes: int, lane_of: LaneOf) -> Records:
        """A block of held records: at most `max_records`, and about `max_bytes` bytes, grouped by place."""

    @abstractmethod
    def forget(self, places: Iterable[Place]) -> None:
        """Drop the held records of these partitions."""

    def begin(self, places: Iterable[Place]) -> None:
        """Prepare for partitions that are about to be assigned."""

    def end(self, places: Iterable[Place]) -> None:
        """These places are no longer assigned; their held records are dropped."""
        self.forget(places)

    def close(self) -> None:
        """The consumer is about to be closed."""


class PlainReading(Reading):
    """Reads confluent-kafka's message objects."""

    def __init__(self, consumer: Consumer, only_topic: str | None, *, headers: bool = True) -> None:
        self._consumer = consumer
        self._only_topic = only_topic
        self._headers = headers
        self._kept: list[Message] = []

    @property
    def held(self) -> int:
        return len(self._kept)

    @property
    def held_bytes(self) -> int:
        return sum(len(message) for message in self._kept)

    def receive(self, count: int, timeout: float) -> list[PartitionError]:
        messages = self._consumer.consume(count, timeout)
        errors: list[PartitionError] = []
        if any(map(Message.error, messages)):
            errors = [error for message in messages if (error := _error_of(message)) is not None]
            messages = [message for message in messages if message.error() is None]
        # Mostly no messages are kept: this avoids a copy.
        self._kept = messages if not self._kept else self._kept + messages
        return errors

    def take(self, source: str, max_records: int, max_bytes: int, lane_of: LaneOf) -> Records:
        count = min(max_records, len(self._kept))
        messages, self._kept = self._kept[:count], self._kept[count:]
        records, rest = self._block(source, messages, lane_of)
        if records.byte_count > max_bytes and (fits := fitting(messages, max_bytes)) < count:
            records, rest = self._block(source, messages[:fits], lane_of)
            rest += messages[fits:]
        self._kept = rest + self._kept if rest else self._kept
        return records

    def forget(self, places: Iterable[Place]) -> None:
        gone = set(places)
        if gone and self._kept:
            self._kept = [message for message in self._kept if (message.topic(), message.partition()) not in gone]

    def close(self) -> None:
        self._kept = []

    def _block(self, source: str, messages: list[Message], lane_of: LaneOf) -> tuple[Records, list[Message]]:
        """A block of the messages whose lane has not ended, and the messages that have to wait for a new lane."""
        if not messages:
            return Records.empty(source), []
        groups = by_place(messages, self._only_topic)
        lanes: dict[Place, Lane] = {}
        rest: list[Message] = []
        for place, group in list(groups.items()):
            lane = lane_of(place, offset_of(group[0]))
            if lane is None:
                del groups[place]
                continue
            lanes[place] = lane
            if (count := rising(group)) < len(group):
                groups[place] = group[:count]
                rest += group[count:]
        return (block(source, groups, lanes, headers=self._headers) if groups else Records.empty(source)), rest


class CompiledReading(Reading):
    """Reads by the compiled bridge: partitions are forwarded to a queue of its own, from which records come in blocks.

    The consumer is still polled for everything else: rebalances, errors, statistics, logs, commits.
    """

    def __init__(self, consumer: Consumer, reader: KafkaReader, *, headers: bool = True) -> None:
        self._consumer = consumer
        self._reader = reader
        self._wants_headers = headers
        self._held = 0
        self._serve_at = 0.0

    @property
    def held(self) -> int:
        return self._held

    @property
    def held_bytes(self) -> int:
        return self._reader.held_bytes

    def receive(self, count: int, timeout: float) -> list[PartitionError]:
        served = self._served()
        self._held, errors = self._reader.receive(count, math.ceil(timeout * 1000))
        for code, topic, partition, offset, text in errors:
            served.append(PartitionError(KafkaError(code, text or None), topic or None, partition, offset))
        return served

    def take(self, source: str, max_records: int, max_bytes: int, lane_of: LaneOf) -> Records:
        whole, count, sizes, keyed, headers, groups = self._reader.take(max_records, max_bytes, self._wants_headers)
        self._held -= count
        if not count:
            return Records.empty(source)
        memory, words = memoryview(whole), _COLUMNS * count
        positions, stamps, value_starts, value_lengths, key_starts, key_lengths = np.frombuffer(
            memory, np.int64, words
        ).reshape(_COLUMNS, count)
        at = 8 * words
        table = None
        if headers:
            table = np.frombuffer(memory, np.int64, 2 * count + 4 * headers, at)
            at += table.nbytes
        values, keys, texts = _cut(memory, at, sizes)
        all_headers = None if table is None else _headers(table, count, headers, texts)
        lanes = [lane_of((group[0], group[1]), group[4]) for group in groups]
        records = Records(
            source,
            Spans(values, value_starts, value_lengths),
            Spans(keys, key_starts, key_lengths) if keyed else None,
            positions,
            [Span(lane or _NO_LANE, group[2], group[3]) for lane, group in zip(lanes, groups, strict=True)],
            [group[0] for group in groups],
            [group[1] for group in groups],
            sizes[0] + sizes[1],
            headers=lambda: all_headers,
            timestamps=lambda: stamps,
        )
        if None not in lanes:
            return records
        return records.of_spans([number for number, lane in enumerate(lanes) if lane is not None])

    def forget(self, places: Iterable[Place]) -> None:
        for place in places:
            self._reader.forget(*place)
        self._held = self._reader.held

    def begin(self, places: Iterable[Place]) -> None:
        for place in places:
            self._reader.begin(*place)

    def end(self, places: Iterable[Place]) -> None:
        for place in places:
            self._reader.end(*place)
        self._held = self._reader.held

    def close(self) -> None:
        self._reader.close()
        self._held = 0

    def _served(self) -> list[PartitionError]:
        now = time.monotonic()
        if now < self._serve_at:
            return []
        self._serve_at = now + _SERVE
        errors: list[PartitionError] = []
        while (message := self._consumer.poll(0)) is not None:
            error = _error_of(message)
            if error is None:
                raise ConnectorError(
                    f"{message.topic()}, partition {message.partition()}: a record came by the client's own queue, "
                    "which the compiled hot path does not read; set hot_path: python in the service file, report this"
                )
            errors.append(error)
        return errors


def _cut(memory: memoryview, at: int, sizes: Iterable[int]) -> list[Bytes]:
    parts = []
    for size in sizes:
        # numpy refuses an empty view at the end of a buffer.
        parts.append(np.frombuffer(memory, np.uint8, size, at) if size else _NOTHING)
        at += size
    return parts


def _headers(table: Ints, rows: int, count: int, texts: Bytes) -> Headers:
    places = table[2 * rows :].reshape(4, count)
    return Headers(
        Spans(texts, places[0], places[1]), Spans(texts, places[2], places[3]), table[:rows], table[rows : 2 * rows]
    )


def _error_of(message: Message) -> PartitionError | None:
    error = message.error()
    if error is None:
        return None
    offset = message.offset()
    return PartitionError(error, message.topic(), int(message.partition() or 0), -1 if offset is None else offset)
