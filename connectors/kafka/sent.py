"""What a Kafka sink has sent and not seen confirmed, and which messages of it failed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from confluent_kafka import KafkaError, Message

from connectors.records import Ints, Messages


class _Failure(NamedTuple):
    error: KafkaError
    at: int | None
    value: bytes | None
    key: bytes | None


class Sent:
    """The messages of one `send`, and those of them that failed.

    The client calls back for messages that fail, and only for those. Messages sent in bulk share one callback, as one
    each would cost as much as sending them: a failed one is found by its contents. Two with equal contents are each
    other's equals, so either's place will do.
    """

    def __init__(self, messages: Messages) -> None:
        self._messages = messages
        self._refused: set[int] = set()
        # Written by the client's callbacks, in whichever thread polls.
        self._failures: list[_Failure] = []

    def refuse(self, index: int) -> None:
        """This message was not taken."""
        self._refused.add(index)

    def failed(self, error: KafkaError | None, message: Message) -> None:
        """Callback for messages sent in bulk."""
        if error is not None:
            self._failures.append(_Failure(error, None, message.value(), message.key()))

    def failed_at(self, index: int, error: KafkaError | None, message: Message) -> None:
        """Callback for the message at `index`."""
        if error is not None:
            self._failures.append(_Failure(error, index, None, None))

    def losses(self) -> dict[int, KafkaError]:
        """The messages that failed, by index. To be asked when no callback is outstanding."""
        if not self._failures:
            return {}
        places = self._places() if any(failure.at is None for failure in self._failures) else {}
        found: dict[int, KafkaError] = {}
        for error, at, value, key in self._failures:
            found[places[value, key].pop() if at is None else at] = error
        return found

    def rows(self, without: Iterable[int] = ()) -> Ints:
        """Row numbers answered by the messages that were taken, without those at these indices."""
        left_out = self._refused.union(without)
        if not left_out and self._messages.splits is None:
            return self._messages.rows
        kept = [self.parents(index) for index in range(len(self._messages)) if index not in left_out]
        return np.concatenate(kept) if kept else np.zeros(0, np.int64)

    def topic(self, index: int) -> str | None:
        """The topic that the message at this index names itself."""
        return self._messages.topics[index] if self._messages.topics is not None else None

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

    def _places(self) -> dict[tuple[bytes | None, bytes | None], list[int]]:
        block = self._messages
        keys = block.keys if block.keys is not None else [None] * len(block)
        places: dict[tuple[bytes | None, bytes | None], list[int]] = defaultdict(list)
        # From the end, so that pop() gives the first: where equals fail, they fail in the order sent.
        for index in range(len(block) - 1, -1, -1):
            if index not in self._refused:
                places[block.values[index], keys[index]].append(index)
        return places
