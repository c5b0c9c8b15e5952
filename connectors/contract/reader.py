"""`Reader`: polls a source and checks the invariants at every poll."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Self, TypeVar

from connectors.coded import Coded
from connectors.message import Message, messages_of_records
from connectors.records import Lane, Records
from connectors.source import Event, LaneBegan, LaneEnded, Settle, Source

Wanted = TypeVar("Wanted", LaneBegan, LaneEnded)

SLACK = 10.0
"""Seconds by which a poll may exceed its timeout on a busy machine."""


@dataclass(frozen=True, slots=True)
class Received:
    """A record as a poll delivered it, with its lane and its position in it."""

    lane: Lane
    position: int
    message: Message


class Reader:
    """Reads a source as the agent does, from one thread: `with Reader(source) as reader: reader.take(3)`.

    Every poll checks that the block is well formed and within the limits of the call, that lanes begin before their
    records and have none after they ended, and that positions rise within a lane.

    Raises:
        AssertionError: The source breaks one of these rules.
    """

    def __init__(
        self, source: Source, patience: float = 30.0, settle: Settle | None = None, *, commits: bool = True
    ) -> None:
        """`settle`, `commits`: as in `Source.open`."""
        self.source = source
        self.patience = patience
        self.lanes: set[Lane] = set()
        self.seen: list[Event] = []
        self._settle = settle
        self._commits = commits
        self._last: dict[Lane, int] = {}
        self._finishing: set[Lane] = set()
        self._epochs: dict[tuple[str, str], int] = {}

    def __enter__(self) -> Self:
        if self._commits:
            self.source.open(self._settle)
        else:
            self.source.open(self._settle, commits=False)
        return self

    def __exit__(self, *exception: object) -> None:
        self.source.close()

    def poll(self, max_records: int = 1000, max_bytes: int = 2**24, timeout: float = 0.1) -> list[Received]:
        """Poll once and check the block."""
        began = time.monotonic()
        records = self.source.poll(max_records, max_bytes, timeout)
        took = time.monotonic() - began
        assert took < timeout + SLACK, f"poll with a timeout of {timeout} s took {took:.1f} s"
        self.notice()
        self._check(records, max_records, max_bytes)
        return [
            Received(span.lane, int(records.positions[row]), message)
            for (span, row), message in zip(
                ((span, row) for span in records.spans for row in range(span.start, span.stop)),
                messages_of_records(records),
                strict=True,
            )
        ]

    def take(self, count: int, max_records: int = 1000, timeout: float = 0.1) -> list[Received]:
        """Poll until exactly `count` records have come."""
        received: list[Received] = []
        deadline = time.monotonic() + self.patience
        while len(received) < count and time.monotonic() < deadline:
            received += self.poll(min(max_records, count - len(received)), timeout=timeout)
        assert len(received) == count, f"only {len(received)} of {count} records came within {self.patience} s"
        return received

    def listen(self, seconds: float) -> list[Received]:
        """All records that come in this time."""
        received: list[Received] = []
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            received += self.poll(timeout=min(left, 0.1))
        return received

    def until(self, happened: Callable[[Reader], bool]) -> list[Received]:
        """Polls until `happened` is true; returns the records that came meanwhile."""
        received: list[Received] = []
        deadline = time.monotonic() + self.patience
        while not happened(self):
            assert time.monotonic() < deadline, f"it did not happen within {self.patience} s; events: {self.seen}"
            received += self.poll()
        return received

    def events(self, kind: type[Wanted]) -> list[Wanted]:
        """The events of this kind so far, in order."""
        return [event for event in self.seen if isinstance(event, kind)]

    def acknowledge(self, received: Iterable[Received], *, wait: bool = True) -> None:
        """Acknowledge these and all before them in their lanes."""
        positions: dict[Lane, int] = {}
        for record in received:
            positions[record.lane] = max(positions.get(record.lane, 0), record.position + 1)
        self.source.acknowledge(positions, wait=wait)

    def notice(self) -> None:
        """Take the source's events and check their order."""
        self._finishing = set()
        for event in self.source.events():
            self.seen.append(event)
            if isinstance(event, LaneBegan):
                self._begin(event.lane)
            elif isinstance(event, LaneEnded):
                assert event.lane in self.lanes, f"{event.lane} ended without having begun"
                self.lanes.remove(event.lane)
                if event.finish:
                    self._finishing.add(event.lane)

    def _begin(self, lane: Lane) -> None:
        place = (lane.source, lane.partition)
        assert lane.source == self.source.name, f"{lane} is not a lane of {self.source.name}"
        assert lane.epoch > self._epochs.get(place, -1), f"{lane} began after epoch {self._epochs[place]}"
        open_before = [other for other in self.lanes if (other.source, other.partition) == place]
        assert not open_before, f"{lane} began while {open_before} had not ended"
        self._epochs[place] = lane.epoch
        self.lanes.add(lane)

    def _check(self, records: Records, max_records: int, max_bytes: int) -> None:
        count = len(records)
        assert count <= max_records, f"asked for {max_records} records, got {count}"
        assert len(records.positions) == count
        assert records.keys is None or len(records.keys) == count
        assert len(records.partitions) == len(records.spans)
        assert len(records.topics) == (count if isinstance(records.topics, Coded) else len(records.spans))
        assert all(len(records.extra_column(name)) == count for name in records.extras)
        edges = [0, *(span.stop for span in records.spans)]
        assert [span.start for span in records.spans] == edges[:-1], f"spans do not cover the rows: {records.spans}"
        assert edges[-1] == count, f"spans do not cover the rows: {records.spans}"
        sizes = [len(value) for value in records.values if isinstance(value, bytes)]
        assert records.byte_count >= sum(sizes)
        assert sum(sizes) - max(sizes, default=0) <= max_bytes, (
            f"asked for {max_bytes} bytes, got more by more than one record"
        )
        for span in records.spans:
            assert span.lane in self.lanes | self._finishing, (
                f"records of {span.lane}, which has not begun or has ended"
            )
            for position in records.positions[span.start : span.stop].tolist():
                assert position > self._last.get(span.lane, -1), f"{span.lane}: position {position} does not rise"
                self._last[span.lane] = position
