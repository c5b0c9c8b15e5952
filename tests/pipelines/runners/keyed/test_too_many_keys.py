"""Beyond `keys` the key that was silent longest goes: which one it is, and when, is not up to batches."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from statefulrun import StatefulRun, record

from pipelines import Change, Data, Dedup, Step, Window

COUNTED = {"size": 3, "values": ["x"], "output_name": "samples", "short": "emit"}
STEPS: list[dict[str, Any]] = [
    COUNTED,
    {**COUNTED, "gap": "3s", "every": 2, "short": "pad"},
    {"size": "5s", "aggregate": {"total": {"sum": "x"}}, "on_late": "drop"},
    {"gap": "3s", "aggregate": {"total": {"sum": "x"}}},
    {"size": "5s", "aggregate": {"total": {"sum": "x"}}, "emit": "each"},
]
KEYS = "abcdef"
ROWS = st.lists(
    st.tuples(st.sampled_from([*KEYS, None]), st.integers(0, 12), st.sampled_from([1, 2, 3, None])), max_size=30
)


def records(rows: list[tuple[str | None, int, int | None]], lanes: int) -> list[Data]:
    return [
        record(
            {key: value for key, value in (("d", d), ("x", x)) if value is not None},
            seconds,
            lane=row % lanes,
            offset=row,
        )
        for row, (d, seconds, x) in enumerate(rows)
    ]


def steps(most: int) -> list[Step]:
    return [
        Dedup(by="d", span=4, most_keys=most),
        Change(by="d", value="x", on=2, after=2, most_keys=most),
        *(Window(by="d", most_keys=most, **fields) for fields in STEPS),
    ]


@pytest.mark.parametrize("number", range(len(STEPS) + 2))
@given(ROWS, st.integers(1, 4), st.sampled_from([2, 3, 7, 512]), st.integers(1, 2))
def test_results_are_those_of_records_that_come_one_by_one(
    number: int, rows: list[tuple[str | None, int, int | None]], most: int, portion: int, lanes: int
) -> None:
    step, given_ = steps(most)[number], records(rows, lanes)
    single, portions = StatefulRun(step), StatefulRun(step)
    single.run(given_, 1)
    portions.run(given_, portion)
    assert portions.outcomes == single.outcomes
    single.reload()
    portions.reload()
    assert portions.saved.keys() == single.saved.keys()
    assert len({(lane, key) for lane, key, _ in single.saved}) <= most * lanes
    single.flush()
    portions.flush()
    # The end comes for all keys at once.
    assert sorted(portions.outcomes.emitted, key=repr) == sorted(single.outcomes.emitted, key=repr)


@pytest.mark.parametrize("portion", [1, None])
def test_a_key_that_goes_and_comes_again_within_a_batch_begins_anew(portion: int | None) -> None:
    run = StatefulRun(Window(by="d", most_keys=2, **COUNTED))
    run.run(records([("a", 0, 1), ("b", 1, 1)], 1))
    run.run(records([("c", 2, 1), ("a", 3, 2), ("a", 4, 3), ("a", 5, 1)], 1), portion)
    assert [(each.row, each.values["d"], each.values["count"]) for each in run.outcomes.emitted] == [
        (2, "a", 1),
        (3, "b", 1),
        (5, "a", 3),
    ]
