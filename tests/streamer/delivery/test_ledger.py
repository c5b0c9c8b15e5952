"""The ledger against a model that keeps one entry per row."""

from __future__ import annotations

import weakref

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from connectors.records import Ints, Lane, Records, Span
from examples import examples
from pipelines.errors import StreamerError
from streamer.delivery.ledger import Ledger

A, B = Lane("s", "t-0", 1), Lane("s", "t-1", 1)


def block(*runs: tuple[Lane, list[int]], size: int = 10) -> Records:
    spans: list[Span] = []
    positions: list[int] = []
    for lane, offsets in runs:
        spans.append(Span(lane, len(positions), len(positions) + len(offsets)))
        positions += offsets
    count = len(positions)
    return Records(
        "s", [b"v"] * count, None, np.array(positions, np.int64), spans, ["t"] * len(spans), [0] * len(spans), size
    )


def rows(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


def ready(ledger: Ledger, records: Records, first: int, *outputs: int) -> None:
    """Enter a block whose rows wait for so many outputs each, by default one."""
    ledger.enter(records, first)
    count = len(records)
    ledger.expect(rows(*(first + i for i in range(count) for _ in range(outputs[i] if outputs else 1))))
    ledger.decide(rows(*range(first, first + count)))


def test_a_lane_is_acknowledged_up_to_the_first_row_that_is_not_confirmed() -> None:
    ledger = Ledger()
    ready(ledger, block((A, [5, 6, 7, 8])), 0)
    ledger.confirm(rows(0, 1, 3))
    assert ledger.marks() == {A: 7}
    ledger.confirm(rows(2))
    assert ledger.marks() == {A: 9}


def test_rows_that_wait_for_outputs_are_told_from_rows_that_were_not_run() -> None:
    ledger = Ledger()
    ledger.enter(block((A, [5, 6])), 0)
    assert not ledger.awaits_outputs
    ledger.expect(range(2))
    ledger.decide(range(2))
    assert ledger.awaits_outputs
    ledger.confirm(rows(0))
    assert ledger.awaits_outputs
    ledger.enter(block((A, [7, 8])), 2)
    ledger.confirm(rows(1))
    assert not ledger.awaits_outputs
    ledger.decide(rows(2))
    assert not ledger.awaits_outputs


def test_each_position_to_acknowledge_is_given_once() -> None:
    ledger = Ledger()
    ready(ledger, block((A, [0])), 0)
    ledger.confirm(rows(0))
    assert ledger.marks() == {A: 1}
    assert ledger.marks() == {}
    assert ledger.all_marks([A, B]) == {A: 1}


def test_lanes_move_on_independently() -> None:
    ledger = Ledger()
    ready(ledger, block((A, [0, 1]), (B, [10, 11])), 0)
    ledger.confirm(rows(2, 3))
    assert ledger.marks() == {B: 12}


def test_gaps_in_positions_are_jumped_over() -> None:
    ledger = Ledger()
    ready(ledger, block((A, [3, 10, 90])), 0)
    ledger.confirm(rows(0, 1))
    assert ledger.marks() == {A: 11}


def test_a_row_with_several_outputs_waits_for_all_of_them() -> None:
    ledger = Ledger()
    ready(ledger, block((A, [0, 1])), 0, 3, 1)
    ledger.confirm(rows(0, 0, 1))
    assert ledger.marks() == {}
    assert ledger.has_open_rows
    ledger.confirm(rows(0))
    assert ledger.marks() == {A: 2}
    assert not ledger.has_open_rows


def test_a_row_that_nobody_decided_is_not_complete_whatever_is_confirmed_of_it() -> None:
    ledger = Ledger()
    ledger.enter(block((A, [0, 1])), 0)
    ledger.expect(rows(0, 1))
    ledger.decide(rows(1))
    ledger.confirm(rows(0, 1))
    assert ledger.marks() == {}
    ledger.expect(rows(0))
    ledger.decide(rows(0))
    assert ledger.marks() == {}
    ledger.confirm(rows(0))
    assert ledger.marks() == {A: 2}


def test_a_dropped_row_waits_for_nothing() -> None:
    ledger = Ledger()
    ready(ledger, block((A, [0, 1])), 0, 0, 0)
    assert ledger.marks() == {A: 2}
    assert ledger.open_rows == 0


def test_a_row_can_be_made_to_wait_for_something_else() -> None:
    ledger = Ledger()
    ready(ledger, block((A, [0, 1])), 0, 3, 0)
    ledger.wait_for(0, 1)
    ledger.wait_for(1, 1)
    ledger.confirm(rows(0))
    assert ledger.marks() == {A: 2}, "the second row was complete before"


def test_a_lane_that_has_ended_acknowledges_nothing_and_frees_its_bytes() -> None:
    freed: list[int] = []
    ledger = Ledger(freed.append)
    ready(ledger, block((A, [0, 1]), size=100), 0)
    ledger.end(A)
    ledger.confirm(rows(0, 1))
    assert ledger.marks() == {}
    assert ledger.all_marks([A]) == {}
    assert freed == [100]


def test_bytes_are_freed_when_the_last_row_of_a_block_is_complete() -> None:
    freed: list[int] = []
    ledger = Ledger(freed.append)
    ready(ledger, block((A, [0, 1]), size=7), 0)
    ready(ledger, block((A, [2]), size=5), 2)
    ledger.confirm(rows(0, 2))
    assert freed == [5]
    ledger.confirm(rows(1))
    assert freed == [5, 7]
    assert ledger.oldest() is None


def test_records_are_let_go_of_when_they_are_complete_and_not_only_when_marks_are_asked_for() -> None:
    ledger = Ledger()
    records = block((A, [0, 1]), (B, [7]))
    positions = weakref.ref(records.positions)
    ready(ledger, records, 0)
    del records
    ledger.confirm(rows(0, 2))
    assert positions() is not None
    ledger.confirm(rows(1))
    assert positions() is None
    assert ledger.marks() == {A: 2, B: 8}


def test_rows_entered_after_their_lane_ended_are_complete_and_acknowledge_nothing() -> None:
    ledger = Ledger()
    ledger.end(A)
    entry = ledger.enter(block((A, [0]), (B, [0])), 0)
    assert entry.undecided.tolist() == [False, True]
    ledger.expect(rows(0, 1))
    ledger.decide(rows(0, 1))
    assert ledger.open_entry(0) is None
    ledger.confirm(rows(1))
    assert ledger.marks() == {B: 1}


def test_of_several_rows_those_that_are_not_complete_are_found_in_their_blocks() -> None:
    ledger = Ledger()
    ready(ledger, block((A, [0, 1]), (B, [0])), 0)
    ready(ledger, block((A, [2])), 3)
    ready(ledger, block((B, [1])), 4)
    ledger.end(B)
    ledger.confirm(rows(1))
    found = [(one.first, left.tolist()) for one, left in ledger.open_among(rows(0, 1, 2, 3, 4))]
    assert found == [(0, [0]), (3, [3])]


def test_the_same_partition_assigned_again_is_another_lane() -> None:
    ledger = Ledger()
    ready(ledger, block((A, [7])), 0)
    ledger.end(A)
    again = A._replace(epoch=2)
    ready(ledger, block((again, [7])), 1)
    ledger.confirm(rows(0))
    assert ledger.marks() == {}
    ledger.end(A)
    ledger.confirm(rows(1))
    assert ledger.marks() == {again: 8}


def test_lanes_of_earlier_epochs_have_ended_with_a_later_one_and_take_no_memory() -> None:
    ledger = Ledger()
    for epoch in range(1000):
        ledger.end(A._replace(epoch=epoch))
    assert ledger.has_ended(A._replace(epoch=3))
    assert not ledger.has_ended(A._replace(epoch=1000))
    assert not ledger.has_ended(B._replace(epoch=0))
    assert len(ledger._ended) == 1


def test_confirmations_of_rows_long_gone_are_ignored() -> None:
    ledger = Ledger()
    ready(ledger, block((A, [0])), 0)
    ledger.end(A)
    ready(ledger, block((B, [0, 1])), 1)
    (found,) = ledger.confirm(rows(0, 1, 2, 99))
    assert isinstance(found.rows, np.ndarray)
    assert found.rows.tolist() == [0, 1]
    assert ledger.marks() == {B: 2}


def test_rows_of_several_blocks_are_found_in_any_order() -> None:
    ledger = Ledger()
    for first in (0, 2, 4):
        ready(ledger, block((A, [first, first + 1])), first)
    assert len(ledger.confirm(rows(5, 0, 3, 2, 1))) == 3
    assert ledger.marks() == {A: 4}
    ledger.confirm(rows(4))
    assert ledger.marks() == {A: 6}


def test_taking_a_row_twice_is_an_error() -> None:
    ledger = Ledger()
    ledger.enter(block((A, [0, 1])), 0)
    with pytest.raises(StreamerError, match="entered before"):
        ledger.enter(block((A, [1])), 1)


def test_the_lanes_of_lost_rows_are_known() -> None:
    ledger = Ledger()
    ledger.enter(block((A, [0, 1]), (B, [0, 1])), 0)
    assert ledger.lanes_of([3]) == {B}
    assert ledger.lanes_of([0, 2]) == {A, B}
    assert ledger.lanes_of([4, -1]) == set()


def test_rows_without_a_position_are_of_their_lane_and_complete_when_it_ends() -> None:
    freed: list[int] = []
    ledger = Ledger(freed.append)
    records = block((A, [7]), (B, [9]))
    positions = weakref.ref(records.positions)
    ledger.enter(records, 0, counted=False)
    del records
    ledger.expect(rows(0, 1))
    ledger.decide(rows(0, 1))
    assert (ledger.lanes_of([0]), ledger.lanes_of([1])) == ({A}, {B})
    ledger.end(A)
    assert (ledger.open_rows, freed) == (1, [])
    ledger.confirm(rows(1))
    assert (ledger.open_rows, freed) == (0, [10])
    assert positions() is None
    assert ledger.all_marks([A, B]) == {}


class Model:
    """What the ledger should say, with an entry for each row."""

    def __init__(self) -> None:
        self.positions = {A: 0, B: 0}
        self.missing: dict[int, int] = {}
        self.undecided: set[int] = set()
        self.of_lane: dict[Lane, list[tuple[int, int]]] = {A: [], B: []}
        self.ended: set[Lane] = set()
        self.blocks: list[Ints] = []
        self.next = 0

    def is_open(self, row: int) -> bool:
        return row in self.undecided or self.missing[row] > 0

    def open_rows(self) -> list[int]:
        return [row for row in self.missing if self.is_open(row)]

    def mark(self, lane: Lane) -> int:
        mark = -1
        for row, position in self.of_lane[lane]:
            if self.is_open(row):
                break
            mark = position + 1
        return mark


@pytest.mark.slow
@settings(max_examples=examples(200))
@given(st.data())
def test_marks_are_always_the_longest_complete_prefix(data: st.DataObject) -> None:
    ledger, model = Ledger(), Model()
    told: dict[Lane, int] = {}
    for _ in range(data.draw(st.integers(1, 15))):
        some = st.lists(st.sampled_from(model.open_rows()), max_size=6) if model.open_rows() else st.just([])
        # Some rows, or all of a block, named by the array that the ledger got for it.
        named = some.map(lambda chosen: rows(*chosen))
        if model.blocks:
            named |= st.sampled_from(model.blocks)
        match data.draw(st.sampled_from(["enter", "enter", "expect", "decide", "confirm", "confirm", "end"])):
            case "enter":
                enter(data, ledger, model)
            case "expect":
                for row in (chosen := data.draw(named)).tolist():
                    model.missing[row] += model.is_open(row)
                ledger.expect(chosen)
            case "decide":
                model.undecided -= set((chosen := data.draw(named)).tolist())
                ledger.decide(chosen)
            case "confirm":
                for row in (chosen := data.draw(named)).tolist():
                    model.missing[row] = max(model.missing[row] - 1, 0)
                ledger.confirm(chosen)
            case "end":
                lane = data.draw(st.sampled_from([A, B]))
                model.ended.add(lane)
                gone = {row for row, _ in model.of_lane[lane]}
                model.undecided -= gone
                model.missing.update(dict.fromkeys(gone, 0))
                ledger.end(lane)
        told.update(ledger.marks())
        assert ledger.open_rows == len(model.open_rows())
        for lane in (A, B):
            expected = {} if lane in model.ended or model.mark(lane) < 0 else {lane: model.mark(lane)}
            assert ledger.all_marks([lane]) == expected
            if lane not in model.ended:
                assert told.get(lane, -1) == model.mark(lane)


def enter(data: st.DataObject, ledger: Ledger, model: Model) -> None:
    first, runs = model.next, []
    for lane in data.draw(st.lists(st.sampled_from([A, B]), min_size=1, max_size=3)):
        offsets = []
        for gap in data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=4)):
            model.positions[lane] += gap
            offsets.append(model.positions[lane])
            model.missing[model.next] = 0
            if lane not in model.ended:
                model.undecided.add(model.next)
                model.of_lane[lane].append((model.next, offsets[-1]))
            model.next += 1
        runs.append((lane, offsets))
    numbers = np.arange(first, model.next, dtype=np.int64)
    model.blocks.append(numbers)
    ledger.enter(block(*runs), first)


def test_what_an_entry_gets_in_addition_is_given_back_with_it() -> None:
    reserved: list[int] = []
    ledger = Ledger(lambda size: reserved.append(-size), reserved.append)
    ledger.enter(block((A, [1, 2]), size=10), 100)
    ledger.grow(101, 500)
    assert reserved == [500]
    ledger.decide(rows(100, 101))
    assert reserved == [500, -510]
    # It is complete: nothing of it is in memory any more.
    ledger.grow(101, 500)
    assert reserved == [500, -510]
