"""When batches are closed, with a source whose polls the test writes down."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pytest

from connectors.records import Lane, Records, Span
from connectors.source import Event, Replays, Settle, Source
from streamer.batching.batcher import Batcher, Closed, HardBatcher, SoftBatcher
from streamer.batching.rounds import RoundBatcher
from streamer.batching.sizer import LONGEST_TOGETHER, TOGETHER_BYTES, BatchSizer

A, B = Lane("s", "0", 1), Lane("s", "1", 1)


def records(*rows: int, lane: Lane = A, size: int = 10) -> Records:
    return Records(
        "s",
        [b"%d" % row for row in rows],
        [b"k%d" % row for row in rows],
        np.array(rows, np.int64),
        [Span(lane, 0, len(rows))],
        ["topic"],
        [int(lane.partition)],
        size * len(rows),
        headers=lambda: [[("h", b"%d" % row)] for row in rows],
        timestamps=lambda: np.array(rows, np.int64) * 1000,
    )


class Scripted(Source):
    """Gives blocks from a list, one a poll, cut to what is asked for; then nothing, after the time asked for."""

    name, replays = "s", Replays.NONE

    def __init__(self, *blocks: list[int], size: int = 10) -> None:
        self.blocks = [list(block) for block in blocks]
        self.size = size
        self.asked: list[tuple[int, int, float]] = []

    def poll(self, max_records: int, max_bytes: int, timeout: float) -> Records:
        self.asked.append((max_records, max_bytes, timeout))
        if not self.blocks:
            time.sleep(timeout)
            return Records.empty("s")
        count = min(max_records, max(1, max_bytes // self.size))
        given, rest = self.blocks[0][:count], self.blocks[0][count:]
        self.blocks[:1] = [rest] if rest else []
        return records(*given, size=self.size)

    def open(self, settle: Settle | None = None, *, commits: bool = True) -> None: ...
    def acknowledge(self, positions: Mapping[Lane, int], *, wait: bool = False) -> None: ...
    def rewind(self, lanes: Iterable[Lane]) -> None: ...
    def close(self) -> None: ...

    def events(self) -> list[Event]:
        return []


def closed(batcher: Batcher, source: Source, calls: int = 50) -> Closed:
    for _ in range(calls):
        batcher.gather(source)
        found = batcher.ready()
        if found is not None:
            return found
    raise AssertionError("no batch was closed")


def rows(found: Closed | None) -> list[int]:
    assert found is not None
    positions: list[int] = found.records.positions.tolist()
    return positions


def test_a_soft_batch_is_closed_when_it_has_enough_records() -> None:
    batcher, source = SoftBatcher(4, 1000, 60.0), Scripted([1, 2, 3], [4, 5, 6])
    found = closed(batcher, source)
    assert (rows(found), found.reason) == ([1, 2, 3, 4], "records")
    assert source.blocks == [[5, 6]], "nothing is asked for beyond what a batch holds"


def test_several_soft_batches_are_taken_at_once_where_they_wait_already_and_may_travel_together() -> None:
    batcher, source = SoftBatcher(2, 1000, 60.0), Scripted([1, 2, 3, 4, 5, 6, 7])
    batcher.sizer = BatchSizer(2)
    batcher.sizer.ran(2, LONGEST_TOGETHER / 3.5, last=True)
    found = closed(batcher, source)
    assert (rows(found), found.reason) == ([1, 2, 3, 4, 5, 6], "records")
    assert source.blocks == [[7]]


def test_large_records_do_not_travel_in_more_batches_than_stay_in_the_cache() -> None:
    batcher, source = SoftBatcher(2, 2**30, 60.0), Scripted([1, 2], [3, 4, 5, 6, 7, 8], size=TOGETHER_BYTES // 4)
    batcher.sizer = BatchSizer(2)
    assert rows(closed(batcher, source)) == [1, 2]
    batcher.sizer.ran(2, LONGEST_TOGETHER / 3.5, last=True)
    assert rows(closed(batcher, source)) == [3, 4, 5, 6], "as many as four records of the last size"


def test_a_soft_batch_is_closed_when_it_has_enough_bytes() -> None:
    found = closed(SoftBatcher(100, 30, 60.0), Scripted([1, 2, 3, 4, 5]))
    assert (rows(found), found.reason) == ([1, 2, 3], "bytes")


def test_a_soft_batch_waits_for_company_from_the_arrival_of_its_first_record() -> None:
    batcher, source = SoftBatcher(100, 1000, 0.05), Scripted([1], [2])
    began = time.monotonic()
    found = closed(batcher, source)
    assert (rows(found), found.reason) == ([1, 2], "wait")
    assert time.monotonic() - began >= 0.05
    assert found.seconds >= 0.05


@pytest.mark.parametrize("batcher", [SoftBatcher(4, 1000, 60.0), HardBatcher(4, 1000, 60.0)])
def test_a_batcher_knows_when_it_has_last_seen_that_no_more_records_were_there(batcher: Batcher) -> None:
    source = Scripted([1, 2, 3, 4], [5, 6, 7], [8, 9, 10, 11])
    before = time.monotonic()
    batcher.gather(source)
    assert batcher.emptied_at == -math.inf, "there may be more of which it did not ask for"
    batcher.flush()
    batcher.gather(source)
    assert before < batcher.emptied_at < time.monotonic()


def test_of_records_that_are_too_large_for_a_batch_or_wait_for_others_more_may_be_there() -> None:
    batcher = SoftBatcher(4, 20, 60.0)
    batcher.gather(Scripted([1, 2, 3]))
    assert batcher.emptied_at == -math.inf
    batcher.flush()
    source = Scripted([1])
    source.starved = lambda: True  # type: ignore[method-assign]
    batcher.gather(source)
    assert batcher.emptied_at == -math.inf


def test_perishable_records_do_not_pile_up() -> None:
    batcher, source = RoundBatcher(4, 1000, 60.0), Scripted([1, 2, 3, 4])
    source.perishable = True
    batcher.gather(source)
    assert batcher.emptied_at > -math.inf


def test_a_soft_batch_that_must_not_wait_takes_what_is_there() -> None:
    batcher, source = SoftBatcher(100, 1000, 0.0), Scripted([1, 2, 3])
    assert rows(closed(batcher, source, 1)) == [1, 2, 3]


@pytest.mark.slow
@pytest.mark.parametrize("batcher", [SoftBatcher(3, 1000, 60.0), HardBatcher(3, 1000), HardBatcher(3, 1000, 60.0)])
def test_nobody_waits_long_in_one_call(batcher: Batcher) -> None:
    source = Scripted([1])
    for _ in range(3):
        batcher.gather(source)
        assert batcher.ready() is None
    assert all(wait <= 0.1 for _, _, wait in source.asked)
    assert rows(batcher.flush()) == [1]


def test_a_hard_batch_is_closed_only_when_it_is_full() -> None:
    batcher, source = HardBatcher(4, 20), Scripted([1], [2], [3, 4, 5])
    found = closed(batcher, source)
    assert (rows(found), found.reason) == ([1, 2, 3, 4], "records")
    batcher.gather(source)
    assert batcher.ready() is None
    last = batcher.flush()
    assert last is not None
    assert (rows(last), last.reason) == ([5], "drain")
    assert batcher.flush() is None


def test_a_hard_batch_waits_no_longer_than_it_is_told() -> None:
    found = closed(HardBatcher(4, 1000, 0.05), Scripted([1]))
    assert (rows(found), found.reason) == ([1], "wait")


class OfTwoLanes(Scripted):
    """Its one poll gives rows 1, 2 and 3 of one lane, and 7 and 8 of another."""

    def poll(self, *arguments: Any) -> Records:
        super().poll(*arguments)
        if len(self.asked) > 1:
            return Records.empty("s")
        return Records.concat([records(1, 2), records(7, 8, lane=B), records(3)])


def test_records_of_a_lane_that_ends_leave_a_batch_that_is_gathered() -> None:
    batcher = HardBatcher(6, 1000)
    batcher.gather(OfTwoLanes())
    batcher.forget([B._replace(epoch=7)])
    batcher.forget([B])
    source = Scripted([4, 5, 6, 9])
    assert rows(closed(batcher, source)) == [1, 2, 3, 4, 5, 6]
    assert source.asked[0][0] == 3, "there is room for as many as left"


def test_no_batch_is_left_when_all_its_lanes_end() -> None:
    batcher = HardBatcher(6, 1000)
    batcher.gather(OfTwoLanes())
    batcher.forget([A, B])
    assert batcher.ready() is None
    assert batcher.flush() is None


def test_records_of_a_lane_that_ends_when_the_batch_is_full_leave_it_too() -> None:
    batcher = HardBatcher(5, 1000)
    batcher.gather(OfTwoLanes())
    batcher.forget([B])
    assert batcher.ready() is None
    assert rows(batcher.flush()) == [1, 2, 3]


def test_rows_of_a_block_that_remain_after_a_lane_ended_keep_their_columns() -> None:
    batcher = HardBatcher(100, 1000)
    batcher.gather(OfTwoLanes())
    batcher.forget([B])
    found = batcher.flush()
    assert found is not None
    left = found.records
    assert left.positions.tolist() == [1, 2, 3]
    assert left.values == [b"1", b"2", b"3"]
    assert left.keys == [b"k1", b"k2", b"k3"]
    assert left.header_column() == [[("h", b"1")], [("h", b"2")], [("h", b"3")]]
    assert left.timestamp_column().tolist() == [1000, 2000, 3000]
    assert left.spans == [Span(A, 0, 2), Span(A, 2, 3)]
    assert (left.topics, left.partitions, left.byte_count) == (["topic", "topic"], [0, 0], 30)


def of_requests(busy: bool) -> SoftBatcher:
    batcher = SoftBatcher(512, 1 << 20, 0.2)
    batcher.of_requests, batcher.is_busy = True, lambda: busy
    return batcher


def test_a_request_that_comes_alone_does_not_wait() -> None:
    source = Scripted([1])
    assert rows(closed(of_requests(busy=False), source)) == [1]
    assert [seconds for _, _, seconds in source.asked] == [0.0]


def batches_that_waited(together: int, batches: int) -> list[bool]:
    """Which batches waited for others, where so many requests come at once and no more before they are answered."""
    batcher, source = of_requests(busy=False), Scripted()
    waited: list[bool] = []
    for number in range(batches):
        source.blocks = [[number * together + row for row in range(together)]]
        assert len(rows(closed(batcher, source))) == together
        waited.append(any(seconds > 0 for _, _, seconds in source.asked))
        source.asked.clear()
    return waited


def test_requests_of_one_client_wait_for_others_in_very_few_batches() -> None:
    assert 1 <= sum(batches_that_waited(1, 400)) <= 4


def test_requests_that_do_not_come_are_waited_for_ever_more_seldom() -> None:
    waited = batches_that_waited(2, 40)
    assert waited[1], "there are two now, and may be three"
    assert sum(waited) <= 6


def test_batches_of_requests_that_come_one_after_the_other_become_larger_though_nothing_is_run() -> None:
    batcher, source = of_requests(busy=False), Scripted([1, 2], *([row] for row in range(3, 30)))
    assert [len(rows(closed(batcher, source))) for _ in range(4)] == [2, 4, 7, 11]


def test_while_others_are_run_requests_wait_for_as_many_as_last_time_and_half_as_many_more() -> None:
    batcher, source = of_requests(busy=True), Scripted(*([row] for row in range(20)))
    assert [len(rows(closed(batcher, source))) for _ in range(4)] == [2, 4, 7, 7]
    assert not source.blocks


def test_requests_wait_for_others_no_longer_than_max_wait_from_their_arrival() -> None:
    batcher, source = of_requests(busy=True), Scripted([1, 2, 3])
    batcher.max_wait = 0.05
    found = closed(batcher, source)
    assert (rows(found), found.reason) == ([1, 2, 3], "wait")
    source.blocks = [[4]]
    found = closed(batcher, source)
    assert (rows(found), found.reason) == ([4], "wait")
    assert 0.04 < found.seconds < 1.0, "three came before"
    batcher.is_busy = lambda: False
    source.blocks = [[5]]
    assert rows(closed(batcher, source)) == [5]


def test_more_requests_than_a_batch_may_have_are_not_waited_for() -> None:
    batcher, source = of_requests(busy=True), Scripted([1, 2, 3], [4, 5, 6], [7])
    batcher.max_records = 3
    assert rows(closed(batcher, source)) == [1, 2, 3]
    assert rows(closed(batcher, source)) == [4, 5, 6]
