"""A delivery callback for each message of a block, made once and used for one block after the other."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from confluent_kafka import KafkaError, Message

from connectors.kafka.producer.sent import Sent

DeliveryCallback = Callable[[KafkaError | None, Message], None]


class Callbacks:
    """Callbacks that tell a block which of its messages the client lost.

    To make a callback for each message costs as much as sending it. So these are kept, and lent to another block when
    the client has reported on all messages of the one before.
    """

    def __init__(self) -> None:
        self._sent: Sent | None = None
        self._all: list[DeliveryCallback] = []

    def lend(self, sent: Sent, count: int) -> list[DeliveryCallback]:
        """The callbacks of `count` messages of this block, in their order, and maybe some more."""
        self._sent = sent
        self._all += [partial(self._delivered, index) for index in range(len(self._all), count)]
        return self._all

    def _delivered(self, index: int, error: KafkaError | None, message: Message) -> None:
        if error is not None and self._sent is not None:
            self._sent.lose(index, error)
