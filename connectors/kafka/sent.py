"""What a Kafka sink has sent and not seen confirmed, and which messages of it failed."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple, cast

import numpy as np
from confluent_kafka import KafkaError, Message

from connectors.records import Header, Ints, Messages

_Content = tuple[str | None, bytes | None, bytes | None, tuple[Header, ...]]


class _Failure(NamedTuple):
    """A message that failed: why, its topic, value, key and headers, and its time in milliseconds."""

    error: KafkaError
    content: _Content
    timestamp: int


class Sent:
    """The messages of one `send`, and those of them that failed.

    The client tells of messages that fail, and only of those. The compiled bridge says which (`lose`). By
    confluent-kafka's calls no message carries a mark of its own, as that would cost more than sending it: there a
    failed message is found by its contents. Two with equal contents are each other's equals: either's place will do.
    """

    def __init__(self, messages: Messages, topic: str) -> None:
        self.at = time.monotonic()
        """When it was sent."""
        self.parts = 0
        """How many pieces of it are outstanding, where that is known."""
        self._messages = messages
        self._topic = topic
        self._refused: set[int] = set()
        # Written by the client's callbacks, in whichever thread polls.
        self._failures: list[_Failure] = []
        self._lost: dict[int, KafkaError] = {}

    def refuse(self, index: int) -> None:
        """This message was not taken."""
        self._refused.add(index)

    def failed(self, error: KafkaError | None, message: Message) -> None:
        """The client's callback: this message is lost."""
        if error is not None:
            headers = cast(list[Header] | None, message.headers())
            content = (message.topic(), message.value(), message.key(), tuple(headers or ()))
            self._failures.append(_Failure(error, content, message.timestamp()[1]))

    def lose(self, index: int, error: KafkaError) -> None:
        """The message at this index is lost."""
        self._lost[index] = error

    def losses(self) -> dict[int, KafkaError]:
        """The messages that failed, by index. To be asked when no callback is outstanding."""
        if self._failures:
            places = self._by_content()
            for failure in self._failures:
                if equals := places.get(failure.content):
                    self._lost[self._pick(equals, failure.timestamp)] = failure.error
                else:
                    # Not to be told from the others. Better all of them again than one never.
                    self._lost |= dict.fromkeys(self._taken(), failure.error)
            self._failures = []
        return self._lost

    def topic(self, index: int) -> str:
        """The topic of the message at this index."""
        return (self._messages.topics[index] if self._messages.topics is not None else "") or self._topic

    def rows(self, without: Iterable[int] = ()) -> Ints:
        """Row numbers answered by the messages that were taken, without those at these indices."""
        left_out = self._refused.union(without)
        if not left_out and self._messages.splits is None:
            return self._messages.rows
        kept = [self.parents(index) for index in range(len(self._messages)) if index not in left_out]
        return np.concatenate(kept) if kept else np.zeros(0, np.int64)

    def parents(self, index: int) -> Ints:
        """Row numbers that the message at this index answers."""
        return self._messages.parents(index)

    def only(self, index: int) -> Messages:
        """The message at this index as a block of its own."""
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
        )

    def _taken(self) -> Iterable[int]:
        return (index for index in range(len(self._messages)) if index not in self._refused)

    def _by_content(self) -> dict[_Content, list[int]]:
        block = self._messages
        places: dict[_Content, list[int]] = defaultdict(list)
        for index in self._taken():
            key = None if block.keys is None else block.keys[index]
            headers = None if block.headers is None else block.headers[index]
            places[self.topic(index), block.values[index], key, tuple(headers or ())].append(index)
        return dict(places)

    def _pick(self, equals: list[int], timestamp: int) -> int:
        stamps = self._messages.timestamps
        at = 0
        if stamps is not None:
            at = next((at for at, index in enumerate(equals) if stamps[index] == timestamp), 0)
        return equals.pop(at)
