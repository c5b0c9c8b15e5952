"""What the fixtures of `tests/connectors/conftest.py` give, and the records that tests of Kafka write and read."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Protocol

from connectors.contract import Reader, Received
from connectors.kafka.source import KafkaSource
from streamer.devbroker import LocalKafka

Topics = Callable[..., str]
Name = Callable[..., str]
MakeSource = Callable[..., KafkaSource]
Write = Callable[..., None]
Committed = Callable[..., int]
Polled = Callable[[Reader], AbstractContextManager[list[Received]]]


class CuttableKafka(Protocol):
    """The fixture of `conftest`."""

    bootstrap: str
    broker: LocalKafka

    def cut(self) -> None: ...
    def mend(self) -> None: ...


def numbers(start: int, stop: int) -> list[bytes]:
    """Payloads of records that tell their order."""
    return [b"%d" % number for number in range(start, stop)]


def values(received: Iterable[Received]) -> list[bytes]:
    """The payloads of what was received."""
    return [one.message.value for one in received]
