"""A sink behind an outbox keeps the contract of sinks, except for late refusals of the real sink."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from memorybuses import MemorySinkBus

from connectors.contract import Reader, SinkBus, SinkContract
from connectors.file import FileSink, FileSource
from connectors.memory import MemorySink
from connectors.message import Message
from connectors.outbox import OutboxConfig
from connectors.outbox.sink import OutboxSink
from connectors.sink import Sink

LATE = {
    "lose": "the outbox sends messages again that the real sink lost",
    "waits": "a message is confirmed when it is in the outbox",
    "vanish": "confirmed messages are in the outbox, and arrive when a sink opens again",
}


class OutboxBus(MemorySinkBus):
    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder

    def real(self) -> Sink:
        return MemorySink(self.topic)

    def sink(self) -> Sink:
        return OutboxSink(self.real(), OutboxConfig(path=self.folder / "out.outbox", max=f"{self.in_flight_at_most}B"))

    def read_back(self, count: int, topic: str | None = None) -> list[Message]:
        deadline = time.monotonic() + self.patience
        while len(messages := super().read_back(count, topic)) < count and time.monotonic() < deadline:
            time.sleep(0.01)
        return messages

    def too_large(self) -> Message:
        return Message(bytes(self.in_flight_at_most + 1))


class RoomyBus(OutboxBus):
    in_flight_at_most = 20_000_000


class BufferedBus(RoomyBus):
    def real(self) -> Sink:
        return MemorySink(self.topic, buffered=True)


class FileBus(RoomyBus):
    def real(self) -> Sink:
        return FileSink(self.folder / "out")

    def read_back(self, count: int, topic: str | None = None) -> list[Message]:
        with Reader(FileSource(self.folder / "out", follow=True)) as reader:
            return [one.message for one in reader.take(count) + reader.listen(self.quiet)]


class TestOutboxOfAMemorySink(SinkContract):
    cannot = LATE | {"override": "a topic keeps every message", "huge": "the outbox of these tests is small"}

    @pytest.fixture
    def bus(self, tmp_path: Path) -> SinkBus:
        return OutboxBus(tmp_path)


class TestOutboxOfASinkThatConfirmsAtBarriers(SinkContract):
    cannot = LATE | {"override": "a topic keeps every message", "cut": "the real sink is never full"}

    @pytest.fixture
    def bus(self, tmp_path: Path) -> SinkBus:
        return BufferedBus(tmp_path)


class TestOutboxOfAFileSink(SinkContract):
    cannot = LATE | {
        "keys": "a file of records has no keys",
        "headers": "a file of records has no headers",
        "timestamps": "a file of records has no timestamps",
        "tombstones": "a file of records holds payloads alone",
        "topics": "a file is one topic",
        "override": "a file keeps every message",
        "cut": "a disk is not cut off",
    }

    @pytest.fixture
    def bus(self, tmp_path: Path) -> SinkBus:
        return FileBus(tmp_path)
