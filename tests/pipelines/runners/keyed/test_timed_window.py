"""WINDOW by time and sessions: each key has its own time, and results do not depend on batches or restarts."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from statefulrun import START, Outcomes, StatefulRun, record

from examples import examples
from pipelines import Data, Window
from pipelines.errors import StreamerError
from pipelines.runners.keyed.countedplacing import CountedWindows
from pipelines.runners.keyed.placing import AlignedWindows, Placing
from pipelines.runners.keyed.timedwindow import LATE
from pipelines.runners.state.item import Item

TUMBLING = {"size": "10s", "aggregate": {"total": {"sum": "x"}}}


def window(**fields: Any) -> Window:
    return Window(**{"by": "d", **fields})


def at(seconds: float, x: Any = 1, d: Any = "a", **more: Any) -> Data:
    return record({"d": d, "x": x}, seconds, **more)


def ran(step: Window, *records: Data, portion: int | None = None) -> Outcomes:
    return StatefulRun(step).run(records, portion)


def totals(outcomes: Outcomes) -> list[tuple[Any, ...]]:
    """Row, key, total, start and end in seconds, count."""
    return [
        (
            row,
            values["d"],
            values["total"],
            (values["start"] - START) / 1000,
            (values["end"] - START) / 1000,
            values["count"],
        )
        for row, values in outcomes.emitted
    ]


def test_a_window_closes_with_the_first_record_of_its_key_behind_it() -> None:
    outcomes = ran(window(**TUMBLING), at(1, 1), at(9.999, 2), at(10, 4), at(25, 8))
    assert totals(outcomes) == [(2, "a", 3, 0, 10, 2), (3, "a", 4, 10, 20, 1)]


def test_a_device_that_sends_its_backlog_is_not_late_because_others_are_ahead() -> None:
    outcomes = ran(window(**TUMBLING), at(3605, 1, "b"), at(1, 1), at(3605, 1, "b"), at(11, 2), at(3615, 1, "b"))
    assert not outcomes.failed
    assert totals(outcomes) == [(3, "a", 1, 0, 10, 1), (4, "b", 2, 3600, 3610, 2)]


def test_late_records_fail_or_are_dropped_and_leave_the_window_as_it_was() -> None:
    records = [at(5, 1), at(12, 2), at(9, 100), at(11, 4), at(20, 8)]
    outcomes = ran(window(**TUMBLING), *records)
    assert list(outcomes.failed) == [2]
    assert "late: the windows of its time, 2023-11-14T22:13:29.000Z, have closed" in outcomes.failed[2]
    assert totals(outcomes) == [(1, "a", 1, 0, 10, 1), (4, "a", 6, 10, 20, 2)]
    assert ran(window(**TUMBLING, on_late="drop"), *records).dropped == {2: LATE}


def test_lateness_waits_for_records_that_come_out_of_order() -> None:
    outcomes = ran(window(**TUMBLING, lateness=3), at(5, 1), at(12, 2), at(9, 100), at(13, 4), at(9, 8))
    assert totals(outcomes) == [(3, "a", 101, 0, 10, 2)]
    assert list(outcomes.failed) == [4]


def test_hopping_windows_overlap_and_a_late_record_goes_into_those_that_are_open() -> None:
    step = window(size="10s", every="5s", aggregate={"total": {"sum": "x"}})
    outcomes = ran(step, at(6, 1), at(11, 2), at(7, 4), at(30, 8))
    assert totals(outcomes) == [
        (1, "a", 1, 0, 10, 1),
        (3, "a", 7, 5, 15, 3),
        (3, "a", 2, 10, 20, 1),
    ]


def test_a_session_ends_with_a_gap_and_takes_records_that_are_a_little_early() -> None:
    step = window(gap=5, aggregate={"total": {"sum": "x"}})
    outcomes = ran(step, at(0, 1), at(4, 2), at(9, 4), at(6, 8), at(4, 100), at(30, 16))
    assert totals(outcomes) == [(2, "a", 3, 0, 4, 2), (5, "a", 12, 6, 9, 2)]
    assert list(outcomes.failed) == [4]


def test_running_values_come_with_each_record() -> None:
    outcomes = ran(window(**TUMBLING, emit="each"), at(1, 1), at(2, 2), at(3, 5, "b"), at(11, 4))
    assert [each[:3] for each in totals(outcomes)] == [(0, "a", 1), (1, "a", 3), (2, "b", 5), (3, "a", 4)]


def test_records_without_usable_values_key_or_time_fail_alone() -> None:
    records = [
        at(1, 1),
        record({"d": "a"}, 2),
        at(3, float("nan")),
        at(4, "3"),
        record({"x": 100}, 5),
        at(6, 100, 1.5),
        at(3e9, 100),
        at(7, True),
        at(11, 2),
    ]
    outcomes = ran(window(**TUMBLING), *records)
    assert sorted(outcomes.failed) == [1, 2, 3, 4, 5, 6, 7]
    assert outcomes.failed[2] == '"x" is nan; it has to be a finite number'
    assert "in the future" in outcomes.failed[6]
    assert totals(outcomes) == [(8, "a", 1, 0, 10, 1)]


def test_a_value_may_be_the_time() -> None:
    step = window(**TUMBLING, time={"field": "t", "unit": "s"})
    outcomes = ran(step, *(record({"d": "a", "x": 1, "t": t}, 0) for t in (1, 12)), record({"d": "a", "x": 1}))
    assert [(each["start"], each["end"]) for each in outcomes.values] == [(0, 10_000)]
    assert list(outcomes.failed) == [2]


def test_idle_ends_windows_that_get_no_records_under_the_last_record_of_their_key() -> None:
    run = StatefulRun(window(**TUMBLING, idle=3))
    run.run([at(1, 1), at(2, 2, key=b"k", offset=7), at(1, 4, "b")])
    for second in range(3):
        assert not run.tick(100.0 + second).emitted
    run.run([at(3, 4, "b")])
    result = run.runner.tick(103.0)
    assert result.batch["total"].values() == [3]
    kept = result.batch.row(0).record
    assert kept is not None
    assert (kept.key, kept.offset, kept.topic) == (b"k", 7, "topic")
    # Its next record is not late.
    assert not run.run([at(4, 1)]).failed


def test_a_pause_of_the_program_does_not_count_as_idle() -> None:
    run = StatefulRun(window(**TUMBLING, idle=3))
    run.run([at(1, 1)])
    run.tick(100.0)
    assert not run.tick(4000.0).emitted


def test_the_end_of_the_input_ends_all_windows() -> None:
    run = StatefulRun(window(**TUMBLING))
    run.run([at(12, 1), at(1, 2, "b"), at(3, 3, "b")])
    assert [each[:3] for each in totals(run.flush())] == [(-1, "b", 5), (-1, "a", 1)]
    run.reload()
    assert len(run.flush().emitted) == 2


def test_the_window_of_a_key_that_goes_for_others_is_short_and_its_state_is_gone() -> None:
    run = StatefulRun(window(**TUMBLING, most_keys=2))
    run.run([at(1, 1, "a"), at(1, 2, "b")], 1)
    run.save()
    assert totals(run.run([at(1, 4, "c")])) == [(2, "a", 1, 0, 10, 1)]
    run.save()
    assert sorted(key for _, key, _ in run.saved) == ['"b"', '"c"']


def test_a_lane_that_has_ended_leaves_nothing() -> None:
    run = StatefulRun(window(**TUMBLING))
    run.run([at(1, 1), at(1, 2, lane="other")])
    run.runner.forget([("lane", 0)])
    assert [values["total"] for values in run.flush().values] == [2]


@pytest.mark.parametrize("placing", [AlignedWindows(1000, 1, 0), CountedWindows(1000, 1, None)])
def test_the_windows_of_records_that_are_placed_together_are_bounded(placing: Placing) -> None:
    assert 1 <= placing.most_at_once <= 1000


@pytest.mark.parametrize("value", [b"", b"\x02[]", b"\x01", b"\x01[[1],[],[]]", b'\x01[["x"],["s","t",0,0,null,1],[]]'])
def test_damaged_state_is_refused_and_names_the_key(value: bytes) -> None:
    with pytest.raises(StreamerError, match="pump"):
        StatefulRun(window(**TUMBLING)).runner.load("lane", [Item('"pump"', 0, value)])


STEPS = st.sampled_from(
    [
        {"size": "10s"},
        {"size": "10s", "lateness": 4},
        {"size": "10s", "every": "4s", "lateness": 1},
        {"gap": 3},
        {"size": "7s", "emit": "each"},
        {"gap": 3, "emit": "each"},
        {"size": "20s", "every": "1s"},
        {"size": "10s", "on_late": "drop"},
    ]
)
MADE = {f: {f: "x"} for f in ("count", "sum", "mean", "min", "max", "std", "first", "last")}
RECORDS = st.lists(
    st.tuples(
        st.sampled_from("abc"),
        st.integers(0, 40),
        st.one_of(st.integers(-5, 5), st.sampled_from([0.1, 1e16, -1e16, 0.3]), st.none()),
    ),
    max_size=40,
)


@settings(max_examples=examples(150), deadline=None)
@given(STEPS, RECORDS, st.sampled_from([1, 7, 512]), st.sets(st.integers(0, 39), max_size=3))
def test_results_are_the_same_whatever_the_batches_and_restarts(
    fields: dict[str, Any], given_: list[tuple[str, int, Any]], portion: int, reloads: set[int]
) -> None:
    step = window(
        **fields, aggregate={key: value for key, value in MADE.items() if key != "count"} | {"n": {"count": "x"}}
    )
    records = [record({"d": d} if x is None else {"d": d, "x": x}, seconds, lane=d in "ab") for d, seconds, x in given_]
    whole, parts = StatefulRun(step), StatefulRun(step)
    whole.run(records)
    parts.run(records, portion, {at for at in reloads if at < len(records)})
    whole.flush()
    parts.flush()
    key = repr
    assert sorted(whole.outcomes.emitted, key=key) == sorted(parts.outcomes.emitted, key=key)
    assert whole.outcomes.failed == parts.outcomes.failed
    assert whole.outcomes.dropped == parts.outcomes.dropped


def test_records_of_several_thousand_at_once_are_placed_in_parts() -> None:
    outcomes = ran(window(**TUMBLING), *(at(n / 1000) for n in range(33_000)))
    assert [values["total"] for values in outcomes.values] == [10_000] * 3


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"size": "1h", "every": "1s"}, "more than 1000 times"),
        ({"size": "0.5ms"}, "less than 1ms"),
        ({"gap": 5, "lateness": 1}, '"lateness" does nothing for sessions'),
        ({"size": 1001, "every": 1}, "more than 1000 times"),
        ({"size": 10, "lateness": 1}, '"lateness" does nothing for windows by count'),
        ({"size": 10, "short": "pad"}, '"short: pad" puts zeros behind the samples'),
        ({"size": 10, "short": "emit", "emit": "each"}, '"short" does nothing for "emit: each"'),
    ],
)
def test_windows_that_cannot_be_are_refused_with_the_field(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        window(**fields, aggregate={"total": {"sum": "x"}})
