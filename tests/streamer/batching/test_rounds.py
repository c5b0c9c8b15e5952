"""Rounds: at most one record of each lane, and how large they learn to be."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

import numpy as np
import pytest

from connectors.memory import MemoryLiveSource
from connectors.records import Lane, Records, Span
from connectors.source import Event, LaneBegan, LaneEnded, Replays, Settle, Source
from streamer.batching.rounds import RoundBatcher
from streamer.batching.roundsizer import AGAIN, RoundSizer

A, B, C = (Lane("s", str(number), 0) for number in range(3))


def records(*rows: tuple[Lane, int], size: int = 10) -> Records:
    return Records(
        "s",
        [b"%d" % position for _, position in rows],
        None,
        np.array([position for _, position in rows], np.int64),
        [Span(lane, at, at + 1) for at, (lane, _) in enumerate(rows)],
        ["topic"] * len(rows),
        [int(lane.partition) for lane, _ in rows],
        size * len(rows),
    )


class Scripted(Source):
    """Gives one block a poll, and no more than it is asked for; it cannot leave lanes out."""

    name, replays = "s", Replays.OFFSET

    def __init__(self, *blocks: list[tuple[Lane, int]]) -> None:
        self.blocks = [list(block) for block in blocks]

    def poll(self, max_records: int, max_bytes: int, timeout: float) -> Records:
        if not self.blocks:
            time.sleep(timeout)
            return Records.empty("s")
        given, rest = self.blocks[0][:max_records], self.blocks[0][max_records:]
        self.blocks[:1] = [rest] if rest else []
        return records(*given)

    def open(self, settle: Settle | None = None, *, commits: bool = True) -> None: ...
    def acknowledge(self, positions: Mapping[Lane, int], *, wait: bool = False) -> None: ...
    def rewind(self, lanes: Iterable[Lane]) -> None: ...
    def close(self) -> None: ...

    def events(self) -> list[Event]:
        return []


def batches(batcher: RoundBatcher, source: Source, count: int) -> list[tuple[list[tuple[str, int]], str]]:
    found: list[tuple[list[tuple[str, int]], str]] = []
    for _ in range(100):
        batcher.gather(source)
        closed = batcher.ready()
        if closed is not None:
            one = closed.records
            rows = [(one.lane_of(row).partition, int(one.positions[row])) for row in range(len(one))]
            found.append((rows, closed.reason))
        if len(found) == count:
            return found
    raise AssertionError(f"only {len(found)} batches: {found}")


@pytest.mark.parametrize(("most", "waits", "polls"), [(1, 0.0, 1), (8, 0.0, 1), (8, 60.0, 2)])
def test_a_source_is_polled_no_more_than_could_bring_something(most: int, waits: float, polls: int) -> None:
    batcher = RoundBatcher(most, 1000, waits)
    batcher.lanes = {A, B}
    source = Scripted([(A, 1)], [(B, 7)])
    batcher.gather(source)
    assert 2 - len(source.blocks) == polls


def test_a_round_has_one_record_of_each_lane_and_the_others_wait_for_the_next() -> None:
    batcher = RoundBatcher(10, 1000, 60.0)
    batcher.lanes = {A, B}
    source = Scripted([(A, 1), (A, 2), (B, 7), (A, 3)], [(B, 8)])
    assert batches(batcher, source, 3) == [
        ([("0", 1), ("1", 7)], "round"),
        ([("0", 2)], "round"),
        ([("0", 3), ("1", 8)], "round"),
    ]
    assert not batcher.holds_any


def test_a_round_has_no_more_than_max_records() -> None:
    batcher = RoundBatcher(2, 1000, 60.0)
    batcher.lanes = {A, B, C}
    source = Scripted([(A, 1), (B, 1), (C, 1)], [(A, 2)])
    found = batches(batcher, source, 2)
    assert found == [([("0", 1), ("1", 1)], "records"), ([("2", 1), ("0", 2)], "records")]


def test_a_round_that_waits_for_nobody_is_closed_with_what_there_is() -> None:
    batcher = RoundBatcher(10, 1000, 0.0)
    batcher.lanes = {A, B, C}
    assert batches(batcher, Scripted([(B, 5)]), 1) == [([("1", 5)], "wait")]


def test_a_round_does_not_wait_for_a_lane_that_has_ended() -> None:
    batcher = RoundBatcher(10, 1000, 60.0)
    lanes = {A, B}
    batcher.lanes = lanes
    source = Scripted([(A, 1)])
    batcher.gather(source)
    assert batcher.ready() is None
    lanes.discard(B)
    assert batches(batcher, source, 1) == [([("0", 1)], "round")]


def test_the_wait_counts_from_when_the_oldest_record_was_received() -> None:
    live = MemoryLiveSource(["gate", "dock"])
    batcher = RoundBatcher(10, 1000, 0.05)
    batcher.lanes = {event.lane for event in live.events() if isinstance(event, LaneBegan)}
    live.open()
    live.show("gate", b"old")
    time.sleep(0.06)
    began = time.monotonic()
    batcher.gather(live)
    closed = batcher.ready()
    assert closed is not None
    assert closed.reason == "wait"
    assert time.monotonic() - began < 10
    assert closed.seconds >= 0.06


def test_while_a_round_waits_newer_records_go_on_replacing_older_ones() -> None:
    live = MemoryLiveSource(["gate", "dock"])
    batcher = RoundBatcher(10, 1000, 60.0)
    batcher.lanes = {event.lane for event in live.events() if isinstance(event, LaneBegan)}
    live.open()
    live.show("gate", b"1")
    batcher.gather(live)
    for value in (b"2", b"3"):
        live.show("gate", value)
    assert batcher.ready() is None
    live.show("dock", b"4")
    batcher.gather(live)
    closed = batcher.ready()
    assert closed is not None
    assert sorted(closed.records.values) == [b"1", b"4"]
    assert live.dropped == 1
    batcher.gather(live)
    closed = batcher.ready()
    assert closed is None
    assert [bytes(value) for block in batcher._blocks for value in block.values] == [b"3"]


def test_records_kept_for_later_are_forgotten_when_their_lane_ends() -> None:
    batcher = RoundBatcher(10, 1000, 60.0)
    batcher.lanes = {A, B}
    assert batches(batcher, Scripted([(A, 1), (A, 2), (B, 7), (B, 8)]), 1)
    batcher.forget([A])
    batcher.lanes = {B}
    assert batches(batcher, Scripted(), 1) == [([("1", 8)], "round")]


def test_at_the_end_all_that_is_kept_is_given_in_rounds() -> None:
    batcher = RoundBatcher(10, 1000, 60.0)
    batcher.lanes = {A, B}
    batcher.gather(Scripted([(A, 1), (A, 2), (A, 3)]))
    given = []
    while (closed := batcher.flush()) is not None:
        given.append(closed.records.positions.tolist())
    assert given == [[1], [2], [3]]


def learned(lanes: int, seconds: Mapping[int, float], rounds: int = 60) -> int:
    sizer = RoundSizer()
    for _ in range(rounds):
        size = sizer.size(lanes)
        sizer.ran(size, seconds.get(size, size))
    return sizer.size(lanes)


@pytest.mark.parametrize(
    ("seconds", "size"),
    [
        ({size: 0.014 * size for size in range(1, 9)}, 1),
        ({size: 0.004 + 0.0005 * size for size in range(1, 9)}, 8),
        ({1: 0.010, 2: 0.0112, 4: 0.0205, 8: 0.0400}, 4),
        ({1: 0.010, 2: 0.0195, 4: 0.012, 8: 0.0240}, 4),
    ],
)
def test_the_smallest_size_is_learned_whose_time_per_record_is_close_to_the_best(
    seconds: Mapping[int, float], size: int
) -> None:
    assert learned(8, seconds) == size


def test_a_slow_measurement_among_fast_ones_does_not_count() -> None:
    sizer = RoundSizer()
    for seconds in (5.0, 0.010, 0.010):
        sizer.ran(1, seconds)
    for seconds in (9.0, 0.020, 0.020):
        sizer.ran(2, seconds)
    for _ in range(3):
        sizer.ran(3, 0.030)
    assert sizer.size(3) == 1


def test_sizes_are_tried_again_after_a_while() -> None:
    fast, slow = dict.fromkeys(range(1, 9), 0.01), {size: 0.010 * size for size in range(1, 9)}
    sizer = RoundSizer()
    for rounds, seconds in ((200, slow), (AGAIN, fast)):
        for _ in range(rounds):
            size = sizer.size(4)
            sizer.ran(size, seconds[size])
    assert sizer.size(4) == 4


def test_rounds_of_one_camera_have_one_record() -> None:
    assert learned(1, {1: 0.01}) == 1
    assert RoundSizer().size(0) == 1


def test_a_lane_that_ended_for_good_still_has_its_record_in_the_round() -> None:
    live = MemoryLiveSource(["gate"])
    batcher = RoundBatcher(10, 1000, 60.0)
    lanes = {event.lane for event in live.events() if isinstance(event, LaneBegan)}
    batcher.lanes = lanes
    live.open()
    live.show("gate", b"1")
    batcher.gather(live)
    live.disconnect("gate")
    lanes.difference_update(event.lane for event in live.events() if isinstance(event, LaneEnded))
    closed = batcher.ready()
    assert closed is not None
    assert list(closed.records.values) == [b"1"]


def test_a_record_that_waits_for_a_later_round_has_arrived_when_it_was_polled() -> None:
    now = [5.0]
    batcher = RoundBatcher(8, 1000, 60.0)
    batcher.clock, batcher.lanes = lambda: now[0], [A]
    batcher.gather(Scripted([(A, 1), (A, 2)]))
    now[0] = 7.0
    first, second = batcher.flush(), batcher.flush()
    assert first is not None
    assert second is not None
    assert [*first.arrivals, *second.arrivals] == [(5.0, 1), (5.0, 1)]
