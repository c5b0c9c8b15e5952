"""WINDOW by count: nothing lost, nothing doubled, whatever the batches, restarts and bad records are."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from statefulrun import START, Outcomes, StatefulRun, record

from examples import examples
from pipelines import Batch, Data, Image, StreamerError, Window
from pipelines.runners.keyed.ringstore import PIECE
from pipelines.runners.keyed.window import window_runner
from pipelines.runners.runner import OpenContext
from pipelines.runners.state.item import Item


def window(**fields: Any) -> Window:
    return Window(**{"by": "device", "size": 4, "values": ["x", "y"], "output_name": "samples", **fields})


def sent(*numbers: float, device: Any = "a", begin: float = 0.0, every: float = 1.0, **fields: Any) -> list[Data]:
    """Records of one device, one number each, so many seconds apart."""
    return [
        record({"device": device, "x": number, "y": -number}, begin + at * every, offset=at, **fields)
        for at, number in enumerate(numbers)
    ]


def mixed(*streams: Sequence[Data]) -> list[Data]:
    """The records of several devices, of each in turn."""
    return [each for some in itertools.zip_longest(*streams) for each in some if each is not None]


def firsts(outcomes: Outcomes, output: str = "samples") -> list[list[float]]:
    """Of each window the first column of its samples."""
    return [[sample[0] for sample in values[output][2]] for values in outcomes.values]


def ran(step: Window, records: Sequence[Data], portion: int | None = None) -> Outcomes:
    return StatefulRun(step).run(records, portion)


def test_a_window_is_an_array_of_the_samples_in_their_order_with_key_start_end_and_count() -> None:
    outcomes = ran(window(size=3), [*sent(1, 2, 3, 4)])
    assert outcomes.emitted[0].row == 2
    assert outcomes.values == [
        {
            "device": "a",
            "samples": ("float32", (3, 2), [[1, -1], [2, -2], [3, -3]]),
            "start": START,
            "end": START + 2000,
            "count": 3,
        }
    ]


def test_devices_have_windows_of_their_own_and_so_have_lanes() -> None:
    records = mixed(sent(1, 2, 3, 4), sent(10, 20, 30, 40, device="b"), sent(5, 6, 7, 8, lane="other"))
    outcomes = ran(window(), records, 5)
    assert firsts(outcomes) == [[1, 2, 3, 4], [10, 20, 30, 40], [5, 6, 7, 8]]
    assert [values["device"] for values in outcomes.values] == ["a", "b", "a"]


def test_several_keys_together_say_whose_window_it_is() -> None:
    records = [
        record({"site": site, "n": n, "x": site + n, "y": 0}) for _ in range(2) for site in (1, 2) for n in (3, 4)
    ]
    outcomes = ran(window(by=["site", "n"], size=2), records)
    assert [(values["site"], values["n"]) for values in outcomes.values] == [(1, 3), (1, 4), (2, 3), (2, 4)]


def test_windows_overlap_with_every_and_begin_so_much_later() -> None:
    outcomes = ran(window(size=5, every=2), sent(*range(11)))
    assert firsts(outcomes) == [[0, 1, 2, 3, 4], [2, 3, 4, 5, 6], [4, 5, 6, 7, 8], [6, 7, 8, 9, 10]]
    assert [(values["start"] - START, values["end"] - START) for values in outcomes.values] == [
        (0, 4000),
        (2000, 6000),
        (4000, 8000),
        (6000, 10000),
    ]


def test_a_record_with_an_array_has_a_sample_a_row_and_may_close_several_windows() -> None:
    step = window(size=2, values="x")
    rows = np.arange(14, dtype=np.int16).reshape(7, 2)
    outcomes = ran(step, [record({"device": "a", "x": rows[:5]}), record({"device": "a", "x": rows[5:]}, 1)])
    assert [each.row for each in outcomes.emitted] == [0, 0, 1]
    assert [values["samples"] for values in outcomes.values] == [
        ("int16", (2, 2), rows[at : at + 2].tolist()) for at in (0, 2, 4)
    ]


def test_lists_of_numbers_are_samples_too_whether_they_are_whole_or_not() -> None:
    records = [record({"device": "a", "x": [1, 2, 3]}), record({"device": "a", "x": [4.5]})]
    assert ran(window(values="x"), records).values[0]["samples"] == ("float32", (4,), [1, 2, 3, 4.5])


def test_an_array_of_one_axis_has_samples_that_are_numbers() -> None:
    records = [record({"device": "a", "x": np.arange(4.0)})]
    assert ran(window(values="x"), records).values[0]["samples"] == ("float64", (4,), [0, 1, 2, 3])


VALUES = st.integers(-5, 5)


@st.composite
def streams(draw: st.DrawFn, arrays: bool) -> list[Data]:
    count = draw(st.integers(1, 60))
    seconds, records = 0.0, []
    for at in range(count):
        seconds += draw(st.sampled_from([0.1, 0.1, 0.1, 5.0, -1.0]))
        values: dict[str, Any] = {"device": draw(st.sampled_from(["a", "b", 3, True]))}
        number = draw(VALUES)
        if arrays:
            values["x"] = np.full((draw(st.integers(1, 9)), 2), number, np.int32)
        else:
            values |= {"x": number, "y": at}
        if draw(st.integers(0, 9)) == 0:
            del values[draw(st.sampled_from(sorted(values)))]
        records.append(record(values, seconds, lane=draw(st.sampled_from(["one", "two"])), offset=at))
    return records


def reference(records: Sequence[Data], size: int, every: int, gap: float, short: str) -> list[tuple[int, Any]]:
    """Windows as a list for each key, one sample after the other: the row that ends each, and its samples."""
    made: list[tuple[int, Any]] = []
    held: dict[Any, tuple[list[Any], int, bool]] = {}
    for row, each in enumerate(records):
        assert each.record is not None
        arrays = isinstance(each.get("x"), np.ndarray)
        if not {"device", "x", *(() if arrays else "y")} <= set(each):
            continue
        samples = each["x"].tolist() if arrays else [[each["x"], each["y"]]]
        device = each["device"]
        key = (each.record.lane, type(device), device)
        seconds = each.record.timestamp
        assert seconds is not None
        window, last, closed = held.get(key, ([], seconds, False))
        if window and seconds - last > gap * 1000:
            if len(window) > (size - every if closed else 0) and short == "emit":
                made.append((row, list(window)))
            window, closed = [], False
        for sample in samples:
            window.append(sample)
            if len(window) == size:
                made.append((row, list(window)))
                window, closed = window[every:], True
        held[key] = (window, seconds, closed)
    return made


@settings(max_examples=examples(150), deadline=None)
@given(st.data(), st.booleans(), st.integers(1, 7), st.sampled_from([1, 7, 512]), st.sampled_from(["drop", "emit"]))
def test_windows_are_the_same_for_all_portions_and_a_reload_at_any_row(
    data: st.DataObject, arrays: bool, size: int, portion: int, short: str
) -> None:
    every = data.draw(st.integers(1, size))
    step = window(size=size, every=every, gap="2s", short=short, **({"values": "x"} if arrays else {}))
    records = data.draw(streams(arrays))
    reloads = data.draw(st.sets(st.integers(0, len(records) - 1), max_size=3))
    outcomes = StatefulRun(step).run(records, portion, reloads)
    made = [(each.row, each.values["samples"][2]) for each in outcomes.emitted]
    assert made == reference(records, size, every, 2.0, short)
    at_once = ran(step, records)
    assert (outcomes.emitted, outcomes.failed) == (at_once.emitted, at_once.failed)


def test_a_reload_goes_on_with_windows_of_many_pieces() -> None:
    step = window(size=3000, every=1000, values="x")
    rows = np.arange(9000 * 3.0).reshape(9000, 3)
    records = [record({"device": "a", "x": rows[at : at + 700]}, at) for at in range(0, 9000, 700)]
    outcomes = StatefulRun(step).run(records, 1, range(len(records)))
    assert outcomes.values == ran(step, records).values
    assert [values["samples"][2][0][0] for values in outcomes.values] == [3000.0 * at for at in range(7)]


def test_a_save_writes_what_is_new_and_not_whole_windows() -> None:
    run = StatefulRun(window(size=4096, every=1024, values="x"))
    rows = np.ones((4500, 16), np.float32)
    run.run([record({"device": "a", "x": rows})])
    assert run.save() > 3000 * 64
    run.run([record({"device": "a", "x": rows[:10]})])
    assert run.save() < 2 * PIECE + 500
    assert run.save() == 0


BAD: dict[str, tuple[Any, str]] = {
    "missing": (None, 'there is no value "y"'),
    "nan": (math.nan, '"y" is nan; a sample has to be a finite number'),
    "too large": (1e60, '"y" is 1e'),
    "text": ("7", '"y" is .*; a sample is a number'),
    "list": ([1.0], '"y" is .*; a sample is a number'),
}


@pytest.mark.parametrize(("value", "error"), BAD.values(), ids=BAD)
@pytest.mark.parametrize("place", [0, 1, 500, 999])
def test_a_record_with_a_bad_sample_fails_alone_and_leaves_the_window(value: Any, error: str, place: int) -> None:
    records = sent(*range(1000))
    bad = record({"device": "a", "x": 1.0, **({} if value is None else {"y": value})})
    run = StatefulRun(window(size=500))
    outcomes = run.run([*records[:place], bad, *records[place:]])
    assert list(outcomes.failed) == [place]
    assert re.search(error, outcomes.failed[place])
    assert firsts(outcomes) == [list(range(500)), list(range(500, 1000))]


def test_a_record_without_a_key_fails_and_one_that_fails_makes_no_key_known() -> None:
    run = StatefulRun(window(size=2, most_keys=1))
    bad = record({"device": "b", "x": "no", "y": 1})
    outcomes = run.run([*sent(1), record({"x": 1, "y": 2}), bad, *sent(2)], 1)
    assert sorted(outcomes.failed) == [1, 2]
    assert firsts(outcomes) == [[1, 2]]


@pytest.mark.parametrize("portion", [1, 7, 512])
def test_samples_of_another_shape_or_type_fail_their_record(portion: int) -> None:
    good = np.ones((1, 3), np.float32)
    others = [good[:, :2], good.astype(np.float64), good[0], [[1.0, 2.0]], "text", good * math.nan, good[:0]]
    records = [record({"device": "a", "x": good}), *(record({"device": "a", "x": each}) for each in others)]
    records += [record({"device": "b", "x": good[:, :2]}), *[record({"device": "a", "x": good})] * 3]
    outcomes = ran(window(values="x"), records, portion)
    assert sorted(outcomes.failed) == list(range(1, 8))
    assert 'its samples are float32[2], and those of "a" were float32[3] so far' in outcomes.failed[1]
    assert [each.row for each in outcomes.emitted] == [11]


def test_images_are_no_samples() -> None:
    image = Image(np.zeros((2, 2, 3), np.uint8))
    assert "a sample is" in ran(window(values="x"), [record({"device": "a", "x": image})]).failed[0]


def test_samples_that_would_fill_the_memory_fail() -> None:
    rows = np.zeros((1, 1 << 20), np.float32)
    outcomes = ran(window(size=1024, values="x"), [record({"device": "a", "x": rows})])
    assert "more than 67108864" in outcomes.failed[0]


@pytest.mark.parametrize(
    ("short", "windows"), [("drop", []), ("emit", [[1, 2]]), ("pad", [[1, 2, 0, 0]])], ids=["drop", "emit", "pad"]
)
def test_a_gap_ends_a_window_and_short_says_what_becomes_of_it(short: str, windows: list[list[float]]) -> None:
    step = window(gap="2s", short=short)
    outcomes = ran(step, [*sent(1, 2), *sent(3, 4, 5, 6, begin=3.5)], 1)
    assert firsts(outcomes) == [*windows, [3, 4, 5, 6]]
    if windows:
        assert outcomes.emitted[0].row == 2
        assert outcomes.values[0]["count"] == 2
        assert outcomes.values[0]["end"] == START + 1000


def test_a_gap_of_just_so_long_ends_nothing() -> None:
    assert firsts(ran(window(size=2, gap="2s"), sent(1, 2, every=2.0))) == [[1, 2]]


def test_time_may_be_a_value_and_one_far_in_the_future_fails() -> None:
    step = window(size=2, gap="2s", time={"field": "t", "unit": "s"}, ahead="1h")
    records = [record({"device": "a", "x": n, "y": 0, "t": t}) for n, t in [(1, 10), (2, 20), (3, 4e9), (4, 21)]]
    outcomes = ran(step, records)
    assert list(outcomes.failed) == [2]
    assert [(values["start"], values["end"]) for values in outcomes.values] == [(20_000, 21_000)]


def silent(run: StatefulRun, seconds: int, begin: int = 0) -> Outcomes:
    for second in range(begin, begin + seconds + 1):
        outcomes = run.tick(float(second))
    return outcomes


@pytest.mark.parametrize("reload", [False, True])
def test_a_silent_key_ends_its_window_after_idle_and_the_result_has_its_record(reload: bool) -> None:
    run = StatefulRun(window(idle="5s", short="emit"))
    run.run(mixed(sent(1, 2, 3, key=b"k"), sent(7, 8, 9, 10, 11, device="b")))
    if reload:
        run.reload()
    assert firsts(silent(run, 4)) == [[7, 8, 9, 10]]
    run.run(sent(12, device="b"))
    assert firsts(silent(run, 3, 4)) == [[7, 8, 9, 10], [1, 2, 3]]
    assert run.outcomes.emitted[-1].row == -1
    assert firsts(silent(run, 5, 7)) == [[7, 8, 9, 10], [1, 2, 3], [11, 12]]
    assert len(run.runner._state.keys) == 0  # type: ignore[attr-defined]
    run.save()
    assert run.saved == {}


def test_the_result_of_time_belongs_to_the_key_and_time_of_the_last_record() -> None:
    run = StatefulRun(window(idle="1s", short="emit"))
    run.run(sent(1, 2, 3, key=b"k"))
    run.reload()
    results = [run.runner.tick(float(second)) for second in range(3)]
    (result,) = [each for each in results if each.batch.size]
    found = result.batch.row(0).record
    assert found is not None
    assert (found.key, found.timestamp, found.topic, found.lane) == (b"k", START + 2000, "topic", ("lane", 1))


def test_a_service_that_stood_still_does_not_take_its_keys_for_silent() -> None:
    run = StatefulRun(window(idle="5s", short="emit"))
    run.run(sent(1, 2))
    run.tick(0.0)
    assert run.tick(3600.0).emitted == []


def test_the_end_of_the_input_gives_the_short_windows_and_forgets_all() -> None:
    run = StatefulRun(window(short="pad"))
    run.run(mixed(sent(1, 2), sent(3, device="b")))
    run.save()
    assert firsts(run.flush()) == [[1, 2, 0, 0], [3, 0, 0, 0]]
    run.save()
    assert run.saved == {}


def test_beyond_keys_the_one_that_was_silent_longest_gives_its_short_window() -> None:
    run = StatefulRun(window(most_keys=2, short="emit"))
    outcomes = run.run([*sent(1, 2), *sent(3, device="b"), *sent(4, device="c"), *sent(5, device="b")], 1)
    assert firsts(outcomes) == [[1, 2]]
    assert (outcomes.values[0]["device"], outcomes.emitted[0].row) == ("a", 3)
    run.reload()
    assert {key for _, key, _ in run.saved} == {'"b"', '"c"'}


def test_what_ended_early_and_which_keys_went_is_counted() -> None:
    context = OpenContext()
    run = StatefulRun(window(most_keys=2, gap="2s"), lambda: _opened(window(most_keys=2, gap="2s"), context))
    run.run([*sent(1, 2), *sent(3, begin=9), *sent(3, device="b"), *sent(4, device="c")], 1)
    assert {name: meter.samples()[0][1] for name, meter in context.metrics.items()} == {
        "streamer_window_short": 2,
        "streamer_state_evicted": 1,
        "streamer_state_keys": 2,
    }


def _opened(step: Window, context: OpenContext) -> Any:
    return window_runner(step, context)


def test_overlapping_windows_that_have_all_their_samples_leave_no_short_one() -> None:
    run = StatefulRun(window(size=4, every=2, short="emit"))
    run.run(sent(1, 2, 3, 4))
    assert firsts(run.flush()) == [[1, 2, 3, 4]]
    run.run(sent(1, 2, 3, 4, 5))
    assert firsts(run.flush())[2:] == [[3, 4, 5]]


@pytest.mark.parametrize("portion", [1, 2, None])
@pytest.mark.parametrize("reload", [False, True])
def test_what_idle_ended_belongs_to_the_last_record_of_its_window(portion: int | None, reload: bool) -> None:
    run = StatefulRun(window(idle="5s", short="emit"))
    run.run(mixed(sent(*range(6), key=b"k", every=0.5), sent(7, device="b", key=b"other")), portion)
    if reload:
        run.reload()
    run.runner.tick(0)
    for now in range(1, 6):
        result = run.runner.tick(now)
    origin = result.batch.origin
    assert origin is not None
    assert result.batch["device"][0] == "a"
    last = origin.record(int(result.batch.rows[0]))
    assert last is not None
    assert (last.offset, last.key, last.timestamp) == (5, b"k", START + 2500)


def test_a_lane_that_is_forgotten_gives_nothing_and_writes_nothing() -> None:
    run = StatefulRun(window(short="emit", idle="1s"))
    run.run([*sent(1, 2, 3), *sent(4, 5, 6, lane="other")])
    run.runner.forget([("lane", 0), "unknown"])
    assert [change.lane for change in run.runner.changes() if change.part == 0] == [("other", 0)]
    assert firsts(silent(run, 3)) == [[4, 5, 6]]
    assert firsts(run.run(sent(1, 2, 3, 4)))[1:] == [[1, 2, 3, 4]]


def test_a_key_that_went_and_came_back_before_a_save_leaves_no_old_pieces() -> None:
    run = StatefulRun(window(size=2000, values="x", idle="1s"))
    run.run([record({"device": "a", "x": np.ones((1500, 3))})])
    run.save()
    assert len(run.saved) > 5
    silent(run, 3)
    run.run([record({"device": "a", "x": np.ones((2, 3))})])
    run.save()
    assert sorted(part for _, _, part in run.saved) == [0, 1]


def _damage(items: dict[int, bytes], how: str) -> dict[int, bytes]:
    if how == "version":
        return {part: b"\x07" + value[1:] for part, value in items.items()}
    if how == "empty":
        return dict.fromkeys(items, b"")
    if how == "cut":
        return {part: value[:-5] for part, value in items.items()}
    if how == "no header":
        return {part: value for part, value in items.items() if part}
    return {part: value for part, value in items.items() if not part}


@pytest.mark.parametrize("how", ["version", "empty", "cut", "no header", "no samples"])
def test_damaged_state_is_refused_and_the_key_is_named(how: str) -> None:
    run = StatefulRun(window())
    run.run(sent(1, 2, 3, device="pump-1"))
    run.save()
    items = _damage({part: value for (_, _, part), value in run.saved.items()}, how)
    with pytest.raises(StreamerError, match=r'the saved window of "pump-1" cannot be read: .*streamer state forget'):
        run.runner.load("new", [Item('"pump-1"', part, value) for part, value in items.items()])


def test_an_empty_batch_gives_nothing() -> None:
    run = StatefulRun(window())
    assert run.runner.run_batch(Batch.of([], 0)).batch.size == 0
