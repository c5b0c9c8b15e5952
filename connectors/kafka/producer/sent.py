"""What a Kafka sink has sent and not seen confirmed, and which messages of it failed."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Hashable, Iterable

import numpy as np
from confluent_kafka import KafkaError, Message

from connectors.records import Ints, Messages

_Content = tuple[str | None, bytes | None, bytes | None]
"""Topic, value and key: what the client gives of a message that failed. It leaves out headers and timestamps."""


class Sent:
    """The messages of one `send`, and those of them that failed.

    The client tells of messages that fail, and only of those. The compiled bridge says which (`lose`). By
    confluent-kafka's calls no message carries a mark of its own, as that would cost more than sending it: there a
    failed message is found by its contents. Two with equal contents are each other's equals: either's place will do.
    If they differ in what the client does not give, their headers and timestamps, all of them are taken for lost:
    better all of them again than one never.
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
        self._failures: list[tuple[_Content, KafkaError]] = []
        self._lost: dict[int, KafkaError] = {}

    def refuse(self, index: int) -> None:
        """This message was not taken."""
        self._refused.add(index)

    def failed(self, error: KafkaError | None, message: Message) -> None:
        """The client's callback: this message is lost."""
        if error is not None:
            self._failures.append(((message.topic(), message.value(), message.key()), error))

    def lose(self, index: int, error: KafkaError) -> None:
        """The message at this index is lost."""
        self._lost[index] = error

    def losses(self) -> dict[int, KafkaError]:
        """The messages that failed, by index. To be asked when no callback is outstanding."""
        if self._failures:
            failures: dict[_Content, list[KafkaError]] = defaultdict(list)
            for content, error in self._failures:
                failures[content].append(error)
            places = self._by_content(failures)
            for content, errors in failures.items():
                match list(places[content].values()):
                    case [equals]:
                        self._lost |= dict(zip(equals, errors, strict=False))
                    case []:
                        self._lost |= dict.fromkeys(self._taken(), errors[0])
                    case several:
                        self._lost |= dict.fromkeys((index for equals in several for index in equals), errors[0])
            self._failures = []
        return self._lost

    def is_tombstone(self, index: int) -> bool:
        """Whether the message at this index has no value."""
        return self._messages.values[index] is None

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

    def _by_content(self, wanted: Iterable[_Content]) -> dict[_Content, dict[Hashable, list[int]]]:
        """The messages with these contents, apart by their headers and timestamps."""
        block = self._messages
        places: dict[_Content, dict[Hashable, list[int]]] = {content: {} for content in wanted}
        for index in self._taken():
            key = None if block.keys is None else block.keys[index]
            found = places.get((self.topic(index), block.values[index], key))
            if found is not None:
                headers = () if block.headers is None else tuple(block.headers[index] or ())
                stamp = 0 if block.timestamps is None else int(block.timestamps[index])
                found.setdefault((headers, stamp), []).append(index)
        return places
