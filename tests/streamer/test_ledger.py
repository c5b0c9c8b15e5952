"""The ledger against a model that keeps one entry per row."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from connectors.records import Lane, Records, Span
from pipelines.errors import StreamerError
from streamer.ledger import Ledger

A, B = Lane("s", "t-0", 1), Lane("s", "t-1", 1)


def block(*runs: tuple[Lane, list[int]], size: int = 10) -> Records:
    spans, positions = [], []
    for lane, offsets in runs:
        spans.append(Span(lane, len(positions), len(positions) + len(offsets)))
        positions += offsets
    count = len(positions)
    return Records(
        "s", [b"v"] * count, None, np.array(positions, np.int64), spans, ["t"] * len(spans), [0] * len(spans), size
    )


def rows(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


def test_a_lane_is_acknowledged_up_to_the_first_row_that_is_not_confirmed() -> None:
    ledger = Ledger()
    ledger.take(block((A, [5, 6, 7, 8])), 0)
    ledger.confirm(rows(0, 1, 3))
    assert ledger.marks() == {A: 7}
    ledger.confirm(rows(2))
    assert ledger.marks() == {A: 9}


def test_marks_are_told_once() -> None:
    ledger = Ledger()
    ledger.take(block((A, [0])), 0)
    ledger.confirm(rows(0))
    assert ledger.marks() == {A: 1}
    assert ledger.marks() == {}
    assert ledger.all_marks([A, B]) == {A: 1}


def test_lanes_move_on_independently() -> None:
    ledger = Ledger()
    ledger.take(block((A, [0, 1]), (B, [10, 11])), 0)
    ledger.confirm(rows(2, 3))
    assert ledger.marks() == {B: 12}


def test_gaps_in_positions_are_jumped_over() -> None:
    ledger = Ledger()
    ledger.take(block((A, [3, 10, 90])), 0)
    ledger.confirm(rows(0, 1))
    assert ledger.marks() == {A: 11}


def test_a_row_with_several_outputs_waits_for_all_of_them() -> None:
    ledger = Ledger()
    taken = ledger.take(block((A, [0, 1])), 0)
    ledger.expect(taken, np.array([3, 1], np.int32))
    ledger.confirm(rows(0, 0, 1))
    assert ledger.marks() == {}
    ledger.confirm(rows(0))
    assert ledger.marks() == {A: 2}


def test_a_dropped_row_waits_for_nothing() -> None:
    ledger = Ledger()
    taken = ledger.take(block((A, [0, 1])), 0)
    ledger.expect(taken, np.array([0, 0], np.int32))
    assert ledger.marks() == {A: 2}
    assert ledger.open_rows == 0


def test_a_lane_that_has_ended_acknowledges_nothing_and_frees_its_bytes() -> None:
    ledger = Ledger()
    ledger.take(block((A, [0, 1]), size=100), 0)
    ledger.end(A)
    ledger.confirm(rows(0, 1))
    assert ledger.marks() == {}
    assert ledger.all_marks([A]) == {}
    assert ledger.released == 100


def test_rows_taken_after_their_lane_ended_are_complete_and_acknowledge_nothing() -> None:
    ledger = Ledger()
    ledger.end(A)
    taken = ledger.take(block((A, [0]), (B, [0])), 0)
    assert taken.pending.tolist() == [0, 1]
    ledger.confirm(rows(1))
    assert ledger.marks() == {B: 1}


def test_the_same_partition_assigned_again_is_another_lane() -> None:
    ledger = Ledger()
    ledger.take(block((A, [7])), 0)
    ledger.end(A)
    again = A._replace(epoch=2)
    ledger.take(block((again, [7])), 1)
    ledger.confirm(rows(0))
    assert ledger.marks() == {}
    ledger.confirm(rows(1))
    assert ledger.marks() == {again: 8}


def test_confirmations_of_rows_long_gone_are_ignored() -> None:
    ledger = Ledger()
    ledger.take(block((A, [0])), 0)
    ledger.end(A)
    ledger.take(block((B, [0, 1])), 1)
    assert [found.rows.tolist() for found in ledger.confirm(rows(0, 1, 2, 99))] == [[0, 1]]
    assert ledger.marks() == {B: 2}


def test_taking_a_row_twice_is_an_error() -> None:
    ledger = Ledger()
    ledger.take(block((A, [0, 1])), 0)
    with pytest.raises(StreamerError, match="taken before"):
        ledger.take(block((A, [1])), 1)


def test_lost_rows_name_their_lanes() -> None:
    ledger = Ledger()
    ledger.take(block((A, [0, 1]), (B, [0, 1])), 0)
    assert ledger.lanes_of([3]) == {B}
    assert ledger.lanes_of([0, 2]) == {A, B}
    assert ledger.lanes_of([4, -1]) == set()


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_marks_are_always_the_longest_complete_prefix(data: st.DataObject) -> None:
    ledger, first = Ledger(), 0
    positions: dict[Lane, int] = {A: 0, B: 0}
    waiting: dict[int, int] = {}
    lane_rows: dict[Lane, list[tuple[int, int]]] = {A: [], B: []}
    ended: set[Lane] = set()
    marked: dict[Lane, int] = {}
    for _ in range(data.draw(st.integers(1, 12))):
        action = data.draw(st.sampled_from(["take", "take", "confirm", "confirm", "end"]))
        if action == "take":
            runs, numbers = [], []
            for lane in data.draw(st.lists(st.sampled_from([A, B]), min_size=1, max_size=3)):
                gaps = data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=5))
                offsets = [positions[lane] + sum(gaps[: i + 1]) for i in range(len(gaps))]
                positions[lane] = offsets[-1]
                runs.append((lane, offsets))
                for offset in offsets:
                    number = first + len(numbers)
                    numbers.append(number)
                    if lane not in ended:
                        lane_rows[lane].append((number, offset))
            outputs = [data.draw(st.integers(0, 2)) for _ in numbers]
            taken = ledger.take(block(*runs), first)
            ledger.expect(taken, np.array(outputs, np.int32))
            waiting.update(zip(numbers, outputs, strict=True))
            first += len(numbers)
        elif action == "confirm":
            open_rows = sorted(number for number, left in waiting.items() if left > 0)
            some = data.draw(st.lists(st.sampled_from(open_rows), unique=True) if open_rows else st.just([]))
            for number in some:
                waiting[number] -= 1
            ledger.confirm(rows(*some))
        else:
            lane = data.draw(st.sampled_from([A, B]))
            ended.add(lane)
            ledger.end(lane)
        marked.update(ledger.marks())
        for lane in (A, B):
            expected = -1
            for number, offset in lane_rows[lane]:
                if waiting[number] > 0:
                    break
                expected = offset + 1
            if lane in ended:
                assert lane not in ledger.all_marks([lane])
            else:
                assert ledger.all_marks([lane]).get(lane, -1) == expected
                assert marked.get(lane, -1) == expected
