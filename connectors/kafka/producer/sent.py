"""`Sent`: the messages of one `send` of a Kafka sink, until they are confirmed, and those that failed."""

from __future__ import annotations

import time
from collections.abc import Iterable

import numpy as np
from confluent_kafka import KafkaError

from connectors.records import Ints, Messages


class Sent:
    """The messages of one `send`, and those of them that failed.

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
        """The message at this index is lost."""
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
