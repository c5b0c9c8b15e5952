"""The source of live streams in memory keeps the contract of perishable sources."""

from __future__ import annotations

from typing import cast

import pytest

from connectors.contract import LiveBus, PerishableContract, Reader
from connectors.memory import MemoryLiveSource
from connectors.source import Source


class MemoryLiveBus(LiveBus):
    patience = 10.0
    quiet = 0.1
    streams = 3

    def source(self) -> Source:
        return MemoryLiveSource([str(number) for number in range(self.streams)], name="live")

    def show(self, source: Source, stream: int, number: int) -> None:
        cast(MemoryLiveSource, source).show(str(stream), b"%d" % number)

    def number(self, value: object) -> int:
        return int(cast(bytes, value))

    def drop(self, source: Source, stream: int) -> None:
        cast(MemoryLiveSource, source).disconnect(str(stream))

    def connect(self, source: Source, stream: int) -> None:
        cast(MemoryLiveSource, source).connect(str(stream))


class TestMemoryLiveSource(PerishableContract):
    @pytest.fixture
    def bus(self) -> LiveBus:
        return MemoryLiveBus()


def test_a_live_source_counts_records_that_were_not_polled() -> None:
    source = MemoryLiveSource(["gate", "dock"])
    with Reader(source) as reader:
        for number in range(5):
            source.show("gate", b"%d" % number)
        reader.take(1)
        source.show("dock", b"gone")
        source.disconnect("dock")
    assert source.dropped == 5
    assert [(one.name, one.value) for one in source.metrics()] == [("replaced", 5)]


def test_a_record_says_which_stream_it_is_of() -> None:
    source = MemoryLiveSource(["gate", "dock"])
    with Reader(source) as reader:
        source.show("dock", b"1", key=b"dock")
        (received,) = reader.take(1)
    assert (received.message.topic, received.message.key, received.lane.partition) == ("dock", b"dock", "1")
