"""What a target of latency does at any load, on a simulated clock: the real batcher, sizer and wait rule."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.flow.waiting import Floats, arrivals, capacity, compared, simulated

TARGET = 0.02


def later(times: Floats, target: float) -> float:
    """By how much records are later with the target than without it, at the quantile of all where that is most."""
    aimed, plain = simulated(times, target), simulated(times, None)
    return float((np.sort(aimed.residence) - np.sort(plain.residence)).max())


@pytest.mark.parametrize("load", [0.02, 0.1, 0.3, 0.6, 0.8, 0.9, 0.95])
def test_results_are_never_later_than_without_a_target_by_more_than_that(load: float) -> None:
    assert later(arrivals([(load * capacity(), 5.0)]), TARGET) <= TARGET


def test_nor_are_they_in_a_burst_above_the_capacity() -> None:
    burst = arrivals([(0.5 * capacity(), 2.0), (1.3 * capacity(), 2.0), (0.3 * capacity(), 4.0)])
    assert later(burst, TARGET) <= TARGET


@pytest.mark.parametrize("target", [0.001, TARGET, 0.5])
def test_the_capacity_is_the_same_with_a_target(target: float) -> None:
    flood = arrivals([(1.3 * capacity(), 5.0)])
    aimed, plain = simulated(flood, target), simulated(flood, None)
    assert aimed.busy <= 1.01 * plain.busy
    # The last records wait for others that do not come.
    assert aimed.ended <= 1.01 * plain.ended + target


def test_ninety_nine_of_a_hundred_results_keep_to_the_target_while_there_is_capacity() -> None:
    for load in (0.02, 0.3, 0.8):
        assert simulated(arrivals([(load * capacity(), 5.0)], seed=1), TARGET).late(TARGET) <= 0.01


def test_at_a_third_of_the_capacity_a_target_of_20_ms_saves_a_fifth_of_the_work() -> None:
    late, busy = compared(0.3, TARGET, seconds=10.0)
    assert late <= 0.001
    assert busy <= 0.8
