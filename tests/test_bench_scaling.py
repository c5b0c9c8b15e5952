"""The simulated consumer group of `benchmarks.scaling` does what arithmetic says."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.scaling.simulated import STEP, Change, Load, members_for, simulated

LOAD = Load(rate=1000.0, partitions=12, a=0.02, b=0.0002, max_records=256)
EACH = 256 / (0.02 + 0.0002 * 256)
"""Records a second of a member whose batches are full."""


@pytest.mark.parametrize("members", [1, 2, 3, 4, 6, 12])
def test_members_work_off_a_backlog_as_fast_as_full_batches_allow(members: int) -> None:
    backlog = EACH * members * 10
    found = simulated(LOAD._replace(rate=0.0), [Change(0.0, members)], 30.0, backlog=backlog)
    assert found.ended == pytest.approx(10.0, abs=2 * STEP)
    assert found.done == pytest.approx(backlog, rel=0.01)


def test_the_member_with_the_most_partitions_is_the_last_to_end() -> None:
    even, uneven = (
        simulated(LOAD._replace(rate=0.0), [Change(0.0, members)], 60.0, backlog=100_000.0) for members in (4, 5)
    )
    # Three of twelve partitions either way.
    assert even.ended == pytest.approx(uneven.ended, abs=2 * STEP)


def test_records_wait_as_long_as_the_group_stands_still_and_all_of_them_are_run() -> None:
    found = simulated(LOAD, [Change(0.0, 2), Change(20.0, 3, pause=3.0)], 60.0)
    assert 3.0 < found.delay < 3.2
    assert found.backlog.max() == pytest.approx(3000, rel=0.05)
    assert found.done == pytest.approx(60_000, rel=0.01)
    assert len(found.backlog) == 60 / STEP


def test_a_group_that_cannot_keep_up_never_ends() -> None:
    found = simulated(LOAD._replace(rate=EACH * 1.1), [Change(0.0, 1)], 200.0)
    assert found.delay == found.ended == float("inf")
    assert np.diff(found.backlog).mean() > 0


def test_more_members_than_partitions_do_not_help() -> None:
    load = LOAD._replace(rate=EACH * 2.1, partitions=2)
    assert simulated(load, [Change(0.0, 2)], 200.0).ended == float("inf")
    assert simulated(load, [Change(0.0, 8)], 200.0).ended == float("inf")


def test_the_fewest_members_are_those_of_whom_one_may_leave() -> None:
    load = LOAD._replace(rate=EACH * 2.5)
    # Three keep up, if none of them ever leaves.
    assert members_for(load, pause=2.0, most=30.0, choices=range(1, 13)) == 4
    assert members_for(load, pause=2.0, most=30.0, choices=[1, 2, 3]) is None
    assert members_for(load._replace(partitions=2), pause=2.0, most=30.0, choices=[1, 2]) is None
