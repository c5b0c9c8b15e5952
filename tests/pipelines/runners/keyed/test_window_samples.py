"""WINDOW with samples by time and session, and with numbers about windows by count."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from statefulrun import START, Outcomes, StatefulRun, record

from examples import examples
from pipelines import Data, Window
from pipelines.errors import StreamerError
from pipelines.runners.keyed import samplelogs
from pipelines.runners.keyed.ringstore import PIECE
from pipelines.runners.state.item import Item

SUM = {"total": {"sum": "x"}}


def window(**fields: Any) -> Window:
    return Window(**{"by": "d", **fields})


def samples(**fields: Any) -> Window:
    return window(**{"size": "10s", "values": "x", "output_name": "s", **fields})


def at(seconds: float, x: Any = 1, d: Any = "a", **more: Any) -> Data:
    return record({"d": d, "x": x}, seconds, **more)


def ran(step: Window, *records: Data, portion: int | None = None) -> Outcomes:
    return StatefulRun(step).run(records, portion)


def flat(outcomes: Outcomes) -> list[tuple[int, list[Any], int]]:
    """Row, samples and count of each window."""
    return [(row, np.ravel(values["s"][2]).tolist(), values["count"]) for row, values in outcomes.emitted]


def totals(outcomes: Outcomes) -> list[tuple[int, Any, int]]:
    return [(row, values["total"], values["count"]) for row, values in outcomes.emitted]


def test_a_window_by_time_gives_its_samples_in_the_order_of_time_and_equal_times_as_they_came() -> None:
    outcomes = ran(samples(lateness=2), at(3, 1), at(1, 2), at(3, 3), at(0, 4), at(11, 5), at(9, 6), at(12, 7))
    assert flat(outcomes) == [(6, [4, 2, 1, 3, 6], 5)]
    assert outcomes.values[0]["s"][:2] == ("float32", (5, 1))
    assert (outcomes.values[0]["start"], outcomes.values[0]["end"]) == (START, START + 10_000)


def test_several_values_are_columns_and_numbers_about_them_come_with_them() -> None:
    step = window(size="10s", values=["x", "y"], output_name="s", aggregate={"top": {"max": "z"}})
    records = [record({"d": "a", "x": n, "y": -n, "z": n * n}, n) for n in (1, 2, 11)]
    (values,) = ran(step, *records).values
    assert values["s"] == ("float32", (2, 2), [[1, -1], [2, -2]])
    assert values["top"] == 4


def test_arrays_have_a_sample_a_row_and_keep_their_type() -> None:
    blocks = [np.array([[1, 2], [3, 4]], np.int16), np.array([[5, 6]], np.int16)]
    outcomes = ran(samples(), at(1, blocks[0]), at(2, blocks[1]), at(12, blocks[0]))
    assert outcomes.values[0]["s"] == ("int16", (3, 2), [[1, 2], [3, 4], [5, 6]])
    assert outcomes.values[0]["count"] == 3


def test_overlapping_windows_share_samples_and_a_late_one_is_only_in_those_that_are_open() -> None:
    outcomes = ran(samples(every="5s"), at(6, 1), at(11, 2), at(7, 3), at(30, 4))
    assert flat(outcomes) == [(1, [1], 1), (3, [1, 3, 2], 3), (3, [2], 1)]


def test_a_session_gives_its_samples() -> None:
    step = window(gap=5, values="x", output_name="s")
    assert flat(ran(step, at(2, 1), at(4, 2), at(1, 3), at(10, 4), at(20, 5))) == [(3, [3, 1, 2], 3), (4, [4], 1)]


def test_a_record_without_samples_or_of_another_shape_fails_and_leaves_the_window() -> None:
    records = [at(1, 1), record({"d": "a"}, 2), at(3, float("nan")), at(40, np.ones((1, 2))), at(4, 2), at(11, 3)]
    outcomes = ran(samples(), *records)
    assert sorted(outcomes.failed) == [1, 2, 3]
    assert 'those of "a" were float32[1] so far' in outcomes.failed[3]
    assert flat(outcomes) == [(5, [1, 2], 2)]


def test_idle_gives_the_samples_and_the_window_begins_anew_without_them() -> None:
    run = StatefulRun(samples(idle=3))
    run.run([at(1, 1)])
    for second in range(5):
        run.tick(100.0 + second)
    run.run([at(2, 2)])
    run.flush()
    assert flat(run.outcomes) == [(-1, [1], 1), (-1, [2], 1)]


@pytest.mark.parametrize("portion", [1, 3, None])
def test_a_record_beyond_what_a_window_may_have_fails_alone(
    portion: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(samplelogs, "LONGEST", 3)
    records = [at(1, 1), at(2, 2), at(3, 3), at(9, 4), at(4, 9, "b"), at(3, 5), at(11, 6), at(12, 7), at(20, 8)]
    outcomes = ran(samples(), *records, portion=portion)
    assert sorted(outcomes.failed) == [3, 5]
    assert outcomes.failed[3] == (
        "its window would have 4 samples of float32[1]; it has at most 3: choose a shorter one"
    )
    assert flat(outcomes) == [(6, [1, 2, 3], 3), (8, [6, 7], 2)]


def test_a_record_that_fails_for_lack_of_room_does_not_move_the_time_of_its_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(samplelogs, "LONGEST", 2)
    # At 12 s the window that ends at 10 s would have closed, and the last record be late.
    outcomes = ran(samples(every="5s", lateness=0), at(6, 1), at(8, 2), at(12, 3), at(4, 4))
    assert sorted(outcomes.failed) == [2, 3]
    assert all("it has at most 2" in error for error in outcomes.failed.values())
    assert not outcomes.emitted


@pytest.mark.parametrize("portion", [1, 4, None])
def test_a_key_with_little_room_changes_nothing_for_others_of_its_batch(
    portion: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(samplelogs, "LONGEST", 4)
    long = [at(second / 2, second, "long") for second in range(1, 30)]
    others = [at(second / 2 + 0.1, second, f"other {second % 7}") for second in range(1, 30)]
    records = [record for pair in zip(long, others, strict=True) for record in pair]
    outcomes = ran(samples(), *records, portion=portion)
    assert sorted(outcomes.failed) == [*range(8, 38, 2), *range(46, 58, 2)]
    assert [row for row, *_ in flat(outcomes)] == sorted(row for row, *_ in flat(outcomes))
    assert flat(outcomes)[0] == (38, [1, 2, 3, 4], 4)
    assert sorted(length for _, _, length in flat(outcomes)[1:]) == [2, 2, 3, 3, 3, 3, 3]


def test_a_record_that_fails_for_lack_of_room_makes_no_other_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samplelogs, "LONGEST", 3)
    step = samples(every="5s", lateness=5)
    outcomes = ran(step, at(6, 1), at(11, 2), at(12, 3), at(16, np.ones((2, 1), np.float32)), at(3, 4), at(40, 5))
    assert list(outcomes.failed) == [3]
    assert flat(outcomes) == [(5, [4, 1], 2), (5, [1, 2, 3], 3), (5, [2, 3], 2)]


def test_a_record_that_no_window_has_room_for_makes_no_other_key_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samplelogs, "LONGEST", 2)
    outcomes = ran(samples(most_keys=1), at(1, 1), at(2, np.ones((3, 1), np.float32), "b"), at(3, 2), at(20, 3))
    assert list(outcomes.failed) == [1]
    assert flat(outcomes) == [(3, [1, 2], 2)]


def test_windows_by_count_give_numbers_with_the_record_that_fills_them() -> None:
    outcomes = ran(window(size=2, aggregate=SUM), at(1, 1), at(5, 10, "b"), at(3, 2), at(2, 4), at(9, 8))
    assert totals(outcomes) == [(2, 3, 2), (4, 12, 2)]
    assert [(values["start"] - START, values["end"] - START) for values in outcomes.values] == [
        (1000, 3000),
        (2000, 9000),
    ]


def test_windows_by_count_overlap() -> None:
    outcomes = ran(window(size=3, every=1, aggregate=SUM), *(at(n, 10**n) for n in range(5)))
    assert totals(outcomes) == [(2, 111, 3), (3, 1110, 3), (4, 11100, 3)]


def test_running_values_of_windows_by_count_begin_anew_with_each() -> None:
    outcomes = ran(window(size=2, aggregate=SUM, emit="each"), *(at(n, 1) for n in range(5)))
    assert [total for _, total, _ in totals(outcomes)] == [1, 2, 1, 2, 1]


def test_samples_by_count_may_have_numbers_about_them_and_are_padded() -> None:
    step = samples(size=3, aggregate=SUM, gap=2, short="pad")
    outcomes = ran(step, at(1, 1), at(2, 2), at(9, 3), at(9, 4), at(9, 5))
    assert flat(outcomes) == [(2, [1, 2, 0], 2), (4, [3, 4, 5], 3)]
    assert [values["total"] for values in outcomes.values] == [3, 12]


def test_a_record_with_several_samples_fails_where_numbers_are_by_count() -> None:
    step = samples(size=2, aggregate={"n": {"count": "d"}})
    outcomes = ran(step, at(1, np.ones((2, 1))), at(2, np.ones((1, 1))))
    assert list(outcomes.failed) == [0]
    assert "each record has to have one" in outcomes.failed[0]


def test_a_window_by_count_that_is_too_large_is_refused_for_its_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samplelogs, "MOST_BYTES", 1000)
    outcomes = ran(samples(size=20, aggregate={"n": {"count": "d"}}), at(1, np.ones((1, 8))), at(2, np.ones((1, 1))))
    assert list(outcomes.failed) == [0]
    assert "it has at most 11" in outcomes.failed[0]


def test_a_save_writes_new_pieces_only_and_removes_those_of_windows_that_closed() -> None:
    run = StatefulRun(samples())
    block = np.ones((1000, 1), np.float32)
    run.run([at(1, block)])
    first = run.save()
    pieces = len(run.saved) - 1
    assert first > 28_000
    assert pieces == -(-28_000 // PIECE)
    run.run([at(2, block[:10])])
    assert run.save() < 2 * PIECE
    assert run.save() == 0
    run.run([at(11, block[:1])])
    run.save()
    assert len(run.saved) == 2


def test_overlapping_windows_keep_what_is_open_only_however_long_the_stream_and_the_restarts() -> None:
    step = samples(size="10s", every="3s")
    records = [at(n / 20, n % 1000) for n in range(6000)]
    whole, parts = StatefulRun(step), StatefulRun(step)
    whole.run(records)
    parts.run(records, 512, range(0, 6000, 331))
    assert whole.outcomes.emitted == parts.outcomes.emitted
    assert len(whole.outcomes.emitted) > 90
    parts.save()
    # 260 samples of 28 bytes are open, which begin in the middle of a piece.
    assert len(parts.saved) <= 1 + 3


def test_samples_of_a_key_that_goes_for_others_go_from_the_store() -> None:
    run = StatefulRun(samples(most_keys=1))
    run.run([at(1, np.ones((1000, 1)))])
    run.save()
    assert flat(run.run([at(1, 2, "b")]))[0][2] == 1000
    run.save()
    assert {key for _, key, _ in run.saved} == {'"b"'}
    assert len(run.saved) == 2


@pytest.mark.parametrize("change", ["missing", "short", "other"])
def test_damaged_samples_are_refused_and_name_the_key(change: str) -> None:
    run = StatefulRun(samples())
    run.run([at(1, np.ones((1000, 1)), "pump")])
    run.save()
    items = {part: value for (_, _, part), value in run.saved.items()}
    if change == "missing":
        del items[2]
    else:
        items[2] = items[2][:-1] if change == "short" else b"\x09" + items[2][1:]
    with pytest.raises(StreamerError, match="pump"):
        StatefulRun(samples()).runner.load("lane", [Item('"pump"', part, value) for part, value in items.items()])


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"size": "10s", "values": "x"}, '"values" and "outputName"'),
        ({"size": "10s"}, 'give "values" with "outputName"'),
        ({"size": "10s", "values": "x", "output_name": "s", "emit": "each"}, '"emit: each" is for "aggregate" alone'),
        (
            {"size": "10s", "values": "x", "output_name": "s", "short": "pad"},
            '"short" does nothing for windows by time',
        ),
        ({"size": "10s", "values": "x", "output_name": "s", "aggregate": {"s": {"sum": "x"}}}, 'two values "s"'),
    ],
)
def test_windows_that_cannot_be_are_refused_with_the_field(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        window(**fields)


STEPS = st.sampled_from(
    [
        {"size": "10s"},
        {"size": "10s", "lateness": 4},
        {"size": "10s", "every": "4s", "lateness": 1},
        {"gap": 3},
        {"size": 3},
        {"size": 5, "every": 2, "short": "emit"},
        {"size": 5, "every": 2, "gap": 4, "short": "emit"},
        {"size": 4, "gap": 2, "short": "pad"},
    ]
)
RECORDS = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(0, 40), st.one_of(st.integers(-5, 5), st.just(0.1), st.none())),
    max_size=40,
)


@settings(max_examples=examples(200), deadline=None)
@given(
    STEPS, st.booleans(), st.booleans(), RECORDS, st.sampled_from([1, 7, 512]), st.sets(st.integers(0, 39), max_size=3)
)
def test_results_are_the_same_whatever_the_batches_and_restarts(
    fields: dict[str, Any],
    large: bool,
    rising: bool,
    sent: list[tuple[str, int, Any]],
    portion: int,
    reloads: set[int],
) -> None:
    """Large samples are in several pieces."""
    step = samples(**{"size": None, **fields}, aggregate={"total": {"sum": "n"}, "last": {"last": "n"}})
    if rising:
        sent = sorted(sent, key=lambda each: each[1])
    records = []
    for number, (d, seconds, x) in enumerate(sent):
        value = x if x is None or not large else np.full((1, 700), x, np.float32)
        values = {"d": d, "n": number} if x is None else {"d": d, "n": number, "x": value}
        records.append(record(values, seconds, lane=d in "ab"))
    whole, parts = StatefulRun(step), StatefulRun(step)
    whole.run(records)
    parts.run(records, portion, {at for at in reloads if at < len(records)})
    whole.flush()
    parts.flush()
    assert sorted(whole.outcomes.emitted, key=repr) == sorted(parts.outcomes.emitted, key=repr)
    assert whole.outcomes.failed == parts.outcomes.failed
    for run in (whole, parts):
        run.save()
        # Nothing of windows that have closed stays.
        assert all(part == 0 for _, _, part in run.saved)


@settings(max_examples=examples(150), deadline=None)
@given(
    st.integers(1, 5),
    st.integers(1, 5),
    st.sampled_from([None, 2]),
    st.sampled_from(["drop", "emit", "pad"]),
    RECORDS,
    st.sampled_from([1, 7, 512]),
)
def test_windows_by_count_with_numbers_are_those_without_them(
    size: int, every: int, gap: float | None, short: str, sent: Sequence[tuple[str, int, Any]], portion: int
) -> None:
    fields = {"size": size, "every": min(every, size), "gap": gap, "short": short}
    records = [record({"d": d, "x": 0 if x is None else x}, seconds) for d, seconds, x in sent]
    alone, beside = StatefulRun(samples(**fields)), StatefulRun(samples(**fields, aggregate=SUM))
    for run in (alone, beside):
        run.run(records, portion)
        run.flush()
    for values in beside.outcomes.values:
        assert values.pop("total") == pytest.approx(sum(np.ravel(values["s"][2])), abs=1e-5)
    assert sorted(alone.outcomes.emitted, key=repr) == sorted(beside.outcomes.emitted, key=repr)
