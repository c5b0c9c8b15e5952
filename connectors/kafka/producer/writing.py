"""`Writing`: puts messages into a producer, by confluent-kafka's calls, or in blocks by the compiled bridge."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice, repeat
from types import MethodType
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from connectors.headers import Headers
from connectors.kafka.client.errors import error_of
from connectors.records import Ints, Messages
from pipelines.data.spans import Spans

if TYPE_CHECKING:
    from streamer_native._native import KafkaWriter

Refusals = dict[int, KafkaError]
"""Index of a message to why it was refused; `_QUEUE_FULL` where there was no room in time."""
DeliveryCallback = Callable[[KafkaError | None, Message], None]
WaitForRoom = Callable[[], bool]
"""Waits a moment. Returns whether to try again."""

_FULL = KafkaError(KafkaError._QUEUE_FULL)
_LONGEST_TOPIC = 249
_BY_KEY = -1
"""librdkafka's number of no partition: its partitioner chooses."""
_AT_ONCE = 512
"""Messages of one call of `produce_batch` at most."""


class Sent:
    """The messages of one `send` of a sink, until they are confirmed, and those of them that failed.

    The client reports the messages that fail, and only those: in plain Python by a callback of each message, by the
    compiled bridge with the message's place in its block.
    """

    def __init__(self, messages: Messages, topic: str) -> None:
        self.at = time.monotonic()
        """When it was sent."""
        self.parts = 0
        """How many parts of the block are outstanding; counted with the compiled bridge only."""
        self._messages = messages
        self._topic = topic
        self._refused: set[int] = set()
        # Written by the client's callbacks, in the thread that polls.
        self._lost: dict[int, KafkaError] = {}

    def refuse(self, index: int) -> None:
        """The client refused the message at this index."""
        self._refused.add(index)

    def lose(self, index: int, error: KafkaError) -> None:
        """Note that the message at this index is lost."""
        self._lost[index] = error

    def losses(self) -> dict[int, KafkaError]:
        """The messages that failed, by index. Complete once no callback is outstanding."""
        return self._lost

    def is_tombstone(self, index: int) -> bool:
        """Whether the message at this index has no value."""
        return self._messages.values[index] is None

    def topic(self, index: int) -> str:
        """The topic of the message at this index."""
        return (self._messages.topics[index] if self._messages.topics is not None else "") or self._topic

    def rows(self, without: Iterable[int] = ()) -> Ints:
        """Row numbers of the messages that the client accepted, except those at these indices."""
        left_out = self._refused.union(without)
        if not left_out and self._messages.splits is None:
            return self._messages.rows
        kept = [self.parents(index) for index in range(len(self._messages)) if index not in left_out]
        return np.concatenate(kept) if kept else np.zeros(0, np.int64)

    def parents(self, index: int) -> Ints:
        """Row numbers that the message at this index answers."""
        return self._messages.parents(index)

    def only(self, index: int) -> Messages:
        """The message at this index as a block of one."""
        block = self._messages
        rows = self.parents(index)
        return Messages(
            rows,
            block.values[index : index + 1],
            None if block.keys is None else block.keys[index : index + 1],
            None if block.headers is None else block.headers[index : index + 1],
            None if block.timestamps is None else block.timestamps[index : index + 1],
            None if block.topics is None else block.topics[index : index + 1],
            np.array([0, len(rows)], np.int64),
            partitions=None if block.partitions is None else block.partitions[index : index + 1],
        )


class Writing(ABC):
    """Puts blocks into one producer. Messages without a topic of their own go to `topic`."""

    confirms_blocks: ClassVar[bool]
    """Whether each block is reported as confirmed by itself, while others are outstanding."""

    def foresee(self, topic: str, partitions: int, partitioner: str) -> None:
        """The topic has this number of partitions, among which librdkafka's property `partitioner` chooses by key.

        Messages are sent in an order that is cheap for these partitions; a number that has changed does no harm.
        """

    @abstractmethod
    def send(self, sent: Sent, messages: Messages, topic: str, wait_for_room: WaitForRoom) -> Refusals:
        """Send these messages; returns those that are refused. If the queue is full it waits for room, or refuses the
        rest."""

    @abstractmethod
    def is_idle(self) -> bool:
        """Whether nothing is outstanding: all failures of messages sent before are known. From any thread."""

    def finished(self, outstanding: deque[Sent], reported: int) -> list[Sent]:
        """Remove and return the oldest blocks of which each message is known to be confirmed or lost.

        `reported` is how many of the oldest were sent before a moment without outstanding messages.
        """
        return [outstanding.popleft() for _ in range(reported)]


class PlainWriting(Writing):
    """Sends messages with only key and payload by `produce_batch`; others one by one, at about twice the cost."""

    confirms_blocks = False

    def __init__(self, producer: Producer) -> None:
        self._producer = producer

    def send(self, sent: Sent, messages: Messages, topic: str, wait_for_room: WaitForRoom) -> Refusals:
        common = _common_topic(messages, topic)
        plain = messages.headers is None and messages.timestamps is None and messages.partitions is None
        if plain and common is not None and _can_be_topic(common):
            return self._in_bulk(sent, messages, common, wait_for_room)
        return self._one_by_one(sent, messages, topic, wait_for_room)

    def is_idle(self) -> bool:
        # Counts messages until their callbacks have returned (seen in librdkafka 2.16, and tested).
        return len(self._producer) == 0

    def _in_bulk(self, sent: Sent, messages: Messages, topic: str, wait_for_room: WaitForRoom) -> Refusals:
        count = len(messages)
        keys: Iterable[bytes | None] = repeat(None, count) if messages.keys is None else messages.keys
        rows = zip(messages.values, keys, _callbacks(sent, count), strict=True)
        refused: Refusals = {}
        # Thousands of dictionaries do not fit into a processor's cache, and Python's collector looks through them.
        for first in range(0, count, _AT_ONCE):
            waiting: list[dict[str, Any]] = [
                {"value": value, "key": key, "callback": callback} for value, key, callback in islice(rows, _AT_ONCE)
            ]
            if self._producer.produce_batch(topic, waiting) == len(waiting):
                continue
            places = list(range(first, first + len(waiting)))
            refused |= self._again(topic, waiting, places, wait_for_room)
            if any(error is _FULL for error in refused.values()):
                # Later messages would overtake the refused ones.
                return refused | dict.fromkeys(range(places[-1] + 1, count), _FULL)
        return refused

    def _again(
        self, topic: str, waiting: list[dict[str, Any]], places: list[int], wait_for_room: WaitForRoom
    ) -> Refusals:
        """Send the messages of a batch for which the queue had no room, once it has; `places` are their indices in the
        block."""
        refused: Refusals = {}
        while True:
            errors = [message.pop("_error", None) for message in waiting]
            full = []
            for at, error in enumerate(errors):
                if error is None:
                    continue
                if error.code() == KafkaError._QUEUE_FULL:
                    full.append(at)
                else:
                    refused[places[at]] = error
            if not full:
                return refused
            if not wait_for_room():
                return refused | dict.fromkeys((places[at] for at in full), _FULL)
            # A full queue accepts the first messages and refuses all others, so the order stays.
            waiting, places = [waiting[at] for at in full], [places[at] for at in full]
            self._producer.produce_batch(topic, waiting)

    def _one_by_one(self, sent: Sent, messages: Messages, ours: str, wait_for_room: WaitForRoom) -> Refusals:
        refused: Refusals = {}
        count = len(messages)
        nothing: Sequence[None] = [None] * count
        stamps = [0] * count if messages.timestamps is None else np.maximum(messages.timestamps, 0).tolist()
        rows = zip(
            messages.values,
            messages.keys or nothing,
            messages.headers or nothing,
            stamps,
            messages.topics or nothing,
            [_BY_KEY] * count if messages.partitions is None else messages.partitions.tolist(),
            strict=True,
        )
        produce = self._producer.produce
        for index, ((value, key, headers, stamp, topic, partition), callback) in enumerate(
            zip(rows, _callbacks(sent, count), strict=True)
        ):
            while True:
                try:
                    produce(
                        topic or ours,
                        value,
                        key,
                        partition,
                        on_delivery=callback,
                        timestamp=stamp,
                        # The client takes no other kind of sequence.
                        headers=[*headers] if headers else None,
                    )
                except BufferError:
                    if wait_for_room():
                        continue
                    return refused | dict.fromkeys(range(index, count), _FULL)
                except KafkaException as exception:
                    refused[index] = error_of(exception)
                except ValueError:
                    # The name of a topic may come from a record, and hold a null character.
                    refused[index] = KafkaError(KafkaError._INVALID_ARG)
                break
        return refused


class CompiledWriting(Writing):
    """Sends by the compiled bridge. Messages with headers, timestamps, partitions of their own or several topics cost a
    little more than others."""

    confirms_blocks = True

    def __init__(self, producer: Producer, writer: KafkaWriter) -> None:
        self._producer = producer
        self._writer = writer
        self._by_mark: dict[int, Sent] = {}

    def foresee(self, topic: str, partitions: int, partitioner: str) -> None:
        self._writer.foresee(topic, partitions, partitioner)

    def send(self, sent: Sent, messages: Messages, topic: str, wait_for_room: WaitForRoom) -> Refusals:
        topics, codes = _coded(messages, topic)
        values = Spans.of(messages.values)
        keys = None if messages.keys is None else Spans.of(messages.keys)
        headers = None if messages.headers is None else Headers.of(messages.headers)
        if headers is not None and not headers.counts.any():
            headers = None
        refused: Refusals = {}
        rows = None
        while True:
            rows, codes_of_refused, marks = self._writer.write(
                topics, values, keys, headers, messages.timestamps, codes, messages.partitions, rows
            )
            for index, code in codes_of_refused:
                refused[index] = KafkaError(code)
            for mark in marks:
                self._by_mark[mark] = sent
            sent.parts += len(marks)
            if not rows:
                return refused
            if not wait_for_room():
                return refused | dict.fromkeys(rows, _FULL)

    def is_idle(self) -> bool:
        # The first is librdkafka's count, the second the bridge's own, in case a message went missing between them.
        return len(self._producer) == 0 and self._writer.outstanding == 0

    def finished(self, outstanding: deque[Sent], reported: int) -> list[Sent]:
        """See `Writing`. Each block is reported by itself."""
        marks, failures = self._writer.finished()
        for code, mark, index in failures:
            self._by_mark[mark].lose(index, KafkaError(code))
        for mark in marks:
            self._by_mark.pop(mark).parts -= 1
        finished = []
        while outstanding and not outstanding[0].parts:
            finished.append(outstanding.popleft())
        return finished


def _callbacks(sent: Sent, count: int) -> Iterator[DeliveryCallback]:
    """A delivery callback for each of `count` messages, which reports a loss with the index of its message.

    A method of an index (`MethodType(delivered, 3)(error, message)` is `delivered(3, error, message)`) is the cheapest
    callable that remembers an index: the client holds one for each message in flight.
    """

    def delivered(index: int, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            sent.lose(index, error)

    return map(MethodType, repeat(delivered), range(count))


def _coded(messages: Messages, topic: str) -> tuple[list[str], np.ndarray[tuple[int], np.dtype[np.int64]] | None]:
    if messages.topics is None:
        return [topic], None
    numbers: dict[str, int] = {}
    codes = [numbers.setdefault(name or topic, len(numbers)) for name in messages.topics]
    return list(numbers), None if len(numbers) == 1 else np.array(codes, np.int64)


def _common_topic(messages: Messages, topic: str) -> str | None:
    if messages.topics is None:
        return topic
    first = messages.topics[0]
    same = all(name == first for name in messages.topics)
    return (first or topic) if same else None


def _can_be_topic(name: str) -> bool:
    # For an invalid topic name the client refuses a whole block, without an error for each message.
    return name.isprintable() and len(name) <= _LONGEST_TOPIC
