"""CHANGE: one record for each change of a key's state, however records are batched and whatever is restarted."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from statefulrun import START, StatefulRun, record

import pipelines
from pipelines import Change, Data
from pipelines.errors import DefinitionError, StreamerError
from pipelines.runners.keyed.change import LONGEST_TEXT, NO_CHANGE
from pipelines.runners.state.item import Item

SCORES = Change(by="device", value="score", on=0.9, off=0.7)


def scores(*values: Any, device: str = "a") -> list[Data]:
    """Records of a device, a second apart; `None` is one without a score."""
    return [
        record({"device": device} | ({} if value is None else {"score": value}), seconds)
        for seconds, value in enumerate(values)
    ]


def news(step: Change, records: list[Data], portion: int | None = None) -> list[tuple[Any, ...]]:
    """Of each result the row of its record, `state`, `before`, seconds since the start, and `count`."""
    return [
        (row, values["state"], values.get("before"), (values["since"] - START) / 1000, values["count"])
        for row, values in StatefulRun(step).run(records, portion).emitted
    ]


def test_a_number_turns_on_at_a_threshold_and_off_below_another() -> None:
    assert news(SCORES, scores(0.1, 0.9, 0.95, 0.8, 0.7, 0.69, 0.8, 0.2)) == [
        (1, "on", "off", 1, 1),
        (5, "off", "on", 5, 1),
    ]


def test_without_off_a_number_below_on_is_off() -> None:
    assert news(Change(by="device", value="score", on=0.9), scores(0.9, 0.89)) == [
        (0, "on", "off", 0, 1),
        (1, "off", "on", 1, 1),
    ]


def test_a_number_begins_off_without_news() -> None:
    assert news(SCORES, scores(0.1, 0.8)) == []


def test_a_result_has_the_values_of_its_record_and_the_others_are_dropped_with_a_reason() -> None:
    records = [record({"device": "a", "score": score, "site": "north"}) for score in (0.1, 0.9)]
    outcomes = StatefulRun(SCORES).run(records)
    added = {"state": "on", "before": "off", "since": START, "count": 1}
    assert outcomes.values == [{"device": "a", "score": 0.9, "site": "north", **added}]
    assert outcomes.dropped == {0: NO_CHANGE}


def test_a_new_state_has_to_last_for_some_records_in_a_row() -> None:
    step = Change(by="device", value="score", on=0.9, off=0.7, after=3)
    # Neither what is below nor what is between the thresholds goes on with a change.
    assert news(step, scores(0.9, 0.9, 0.1, 0.9, 0.9, 0.8, 0.9, 0.9, 0.9, 0.1)) == [(8, "on", "off", 6, 3)]


def test_a_new_state_has_to_last_for_a_time() -> None:
    step = Change(by="device", value="score", on=0.9, after="3s")
    assert news(step, scores(0.9, 0.9, 0.1, 0.9, 0.9, 0.9, 0.9, 0.9)) == [(6, "on", "off", 3, 4)]


def test_times_may_go_backward_while_a_state_has_to_last() -> None:
    step = Change(by="device", value="score", on=0.9, after="3s")
    records = [record({"device": "a", "score": 0.9}, seconds) for seconds in (100, 2, 3, 5)]
    assert news(step, records) == [(3, "on", "off", 2, 4)]


def test_one_is_reminded_of_a_fault_that_lasts_and_not_of_its_end() -> None:
    step = Change(by="device", value="score", on=0.9, off=0.7, remind=3)
    assert news(step, scores(0.1, 0.9, 0.9, 0.8, 0.9, 0.1, 0.1, 0.1, 0.1, 0.1)) == [
        (1, "on", "off", 1, 1),
        (4, "on", "on", 1, 4),
        (5, "off", "on", 5, 1),
    ]


def test_a_reminder_is_a_record_of_the_state_and_counts_all_since_it_began() -> None:
    step = Change(by="device", value="score", on=0.9, after=2, remind=3)
    assert news(step, scores(0.9, 0.9, 0.9, 0.1, 0.9, 0.1, 0.9)) == [(1, "on", "off", 0, 2), (4, "on", "on", 0, 5)]


@pytest.mark.parametrize("portion", [1, None])
def test_a_clock_that_was_ahead_does_not_silence_reminders(portion: int | None) -> None:
    year = 365 * 86400.0
    records = [record({"device": "a", "score": 0.9}, seconds) for seconds in (year, 1, 2, 4)]
    step = Change(by="device", value="score", on=0.5, remind=3)
    assert [each[0] for each in news(step, records, portion)] == [0, 1, 3]


@pytest.mark.parametrize("values", [("idle", "idle", "running", "idle"), (3, 3, 4, 3)])
def test_the_first_text_or_integer_is_news_and_so_is_each_other(values: tuple[Any, ...]) -> None:
    first, _, second, _ = values
    step = Change(by="device", value="state")
    records = [record({"device": "a", "state": value}, seconds) for seconds, value in enumerate(values)]
    assert news(step, records) == [
        (0, first, None, 0, 1),
        (2, second, first, 2, 1),
        (3, first, second, 3, 1),
    ]
    assert "before" not in StatefulRun(step).run(records).values[0]


def test_a_boolean_begins_false_without_news() -> None:
    step = Change(by="device", value="score", remind=2)
    assert news(step, scores(False, False, True, True, True, False, False, False)) == [
        (2, True, False, 2, 1),
        (4, True, True, 2, 3),
        (5, False, True, 5, 1),
    ]
    assert news(step, scores(True)) == [(0, True, False, 0, 1)]


def test_one_and_true_and_the_text_are_other_states() -> None:
    step = Change(by="device", value="score")
    assert [each[1:3] for each in news(step, scores(1, True, "1", 1, True))] == [
        (1, None),
        (True, 1),
        ("1", True),
        (1, "1"),
        (True, 1),
    ]


def test_an_array_of_one_is_its_number() -> None:
    values = [np.array([0.1], np.float32), np.array([[0.95]], np.float32), np.array(0.95), np.array([[0.1]])]
    assert [each[:2] for each in news(SCORES, scores(*values))] == [(1, "on"), (3, "off")]
    dense = [np.array([value], np.float32) for value in (0.1, 0.95)]
    assert [each[:2] for each in news(SCORES, scores(*dense))] == [(1, "on")]
    integers = scores(np.array([4]), 4, np.array([[5]]))
    assert [each[1] for each in news(Change(by="device", value="score"), integers)] == [4, 5]


def test_devices_and_partitions_are_apart() -> None:
    records = [
        record({"device": device, "score": 0.9}, lane=lane)
        for device, lane in (("a", "p0"), ("b", "p0"), ("a", "p1"), ("a", "p0"))
    ]
    assert [each[0] for each in news(SCORES, records)] == [0, 1, 2]


def test_without_by_all_records_of_a_partition_have_one_state() -> None:
    step = Change(value="score", on=0.9)
    records = [record({"score": score}, lane=lane) for score, lane in ((0.9, 0), (1.0, 0), (0.9, 1), (0.1, 0))]
    run = StatefulRun(step)
    outcomes = run.run(records, 1, {1, 2})
    assert [each.row for each in outcomes.emitted] == [0, 2, 3]
    run.save()
    assert {key for _, key, _ in run.saved} == {"[]"}


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (math.nan, "is nan"),
        (math.inf, "is inf"),
        ("0.9", "is a str"),
        (True, "is a bool"),
        (None, 'no value "score"'),
        (np.array([0.9, 0.9]), "is a ndarray"),
        ([0.9], "is a list"),
    ],
)
def test_what_is_no_number_fails_alone_and_changes_nothing(value: Any, reason: str) -> None:
    step = Change(by="device", value="score", on=0.9, after=2)
    outcomes = StatefulRun(step).run(scores(0.9, value, 0.9))
    assert [each.row for each in outcomes.emitted] == [2]
    assert set(outcomes.failed) == {1}
    assert reason in outcomes.failed[1]


@pytest.mark.parametrize(
    ("value", "reason"),
    [(0.5, 'need "on"'), ("x" * (LONGEST_TEXT + 1), "1025 characters"), (b"on", "is a bytes"), (None, "no value")],
)
def test_what_is_no_state_fails_alone_and_changes_nothing(value: Any, reason: str) -> None:
    outcomes = StatefulRun(Change(by="device", value="score")).run(scores("x" * LONGEST_TEXT, value, "y"))
    assert [each.row for each in outcomes.emitted] == [0, 2]
    assert reason in outcomes.failed[1]


def test_a_record_without_its_key_or_its_time_fails_alone() -> None:
    step = Change(by="device", value="score", on=0.9, time={"field": "at", "unit": "s"})
    rows: list[dict[str, Any]] = [
        {"device": "a", "score": 0.9},
        {"score": 0.9, "at": 1},
        {"device": "a", "score": 0.9, "at": 5},
    ]
    outcomes = StatefulRun(step).run([record(row) for row in rows])
    assert [(each.row, each.values["since"]) for each in outcomes.emitted] == [(2, 5000)]
    assert "at" in outcomes.failed[0]
    assert 'no value "device"' in outcomes.failed[1]


def test_a_device_that_is_calm_costs_no_room_in_the_store() -> None:
    run = StatefulRun(Change(by="device", value="score", on=0.9, remind=2))
    run.run(scores(0.1, 0.2))
    assert run.save() == 0
    run.run(scores(0.9, 0.9))
    assert run.save() > 0
    run.run([record({"device": "b", "score": 0.1})])
    assert run.save() == 0


def test_a_calm_device_in_the_place_of_one_that_went_costs_no_room() -> None:
    run = StatefulRun(Change(by="device", value="score", on=0.9, after=3, remind=2, most_keys=1))
    run.run(scores(0.9, 0.9, 0.9, 0.9))
    for device in "bc":
        run.run(scores(0.1, 0.1, device=device))
    run.save()
    assert run.saved == {}


def test_records_that_change_nothing_count_after_a_restart_too() -> None:
    run = StatefulRun(Change(by="device", value="score", on=0.9, remind=3))
    outcomes = run.run(scores(0.9, 0.9, 0.9, 0.9), 1, {0, 1, 2})
    assert [each.values["count"] for each in outcomes.emitted] == [1, 4]


def test_records_that_change_nothing_and_come_again_count_once() -> None:
    run = StatefulRun(Change(by="device", value="score", on=0.9, remind=3))
    records = scores(0.9, 0.9, 0.9, 0.9)
    run.run(records[:1])
    run.save()
    run.run(records[1:3])
    run.rewind()
    outcomes = run.run(records[1:], 1)
    assert [each.values["count"] for each in outcomes.emitted] == [1, 4]


def test_records_of_one_batch_that_change_nothing_all_count() -> None:
    run = StatefulRun(Change(by="device", value="score", on=0.9, remind=3))
    records = scores(0.9, 0.9, 0.9, 0.9)
    for batch in (records[:1], records[1:3], records[3:]):
        outcomes = run.run(batch)
    assert [each.values["count"] for each in outcomes.emitted] == [1, 4]


def expected(step: Change, records: list[Data]) -> list[tuple[Any, ...]]:
    """The news as a person would find it: by a look at the whole history of each key after each record."""
    news: list[tuple[Any, ...]] = []
    known: dict[str, dict[str, Any]] = {}
    for row, each in enumerate(records):
        assert each.record is not None
        assert each.record.timestamp is not None
        time, value = each.record.timestamp, each["value"]
        key = known.setdefault(each["device"], {"state": "off" if step.on else None, "run": [], "since": 0, "all": 0})
        if step.on is not None:
            value = "on" if value >= step.on else "off" if value < (step.off or 0) else key["state"]
        elif isinstance(value, bool) and key["state"] is None:
            key["state"], key["all"] = False, 0
        key["all"] += 1
        if value == key["state"] and type(value) is type(key["state"]):
            key["run"] = []
            lasting = value not in ("off", False) or type(value) is int
            if step.remind and lasting and abs(time - key["news"]) >= step.remind * 1000:
                key["news"] = time
                news.append((row, value, value, key["since"], key["all"]))
            continue
        if key["run"] and (value != key["run"][0][0] or type(value) is not type(key["run"][0][0])):
            key["run"] = []
        key["run"].append((value, time))
        since = min(at for _, at in key["run"])
        if isinstance(step.after, int):
            lasted = len(key["run"]) >= step.after
        else:
            lasted = time - since >= float(step.after.rstrip("s")) * 1000
        if lasted:
            news.append((row, value, key["state"], since, len(key["run"])))
            key.update(state=value, since=since, all=len(key["run"]), news=time, run=[])
    return news


STEPS = [
    Change(by="device", value="value", on=2, off=1),
    Change(by="device", value="value", on=2, off=1, after=3),
    Change(by="device", value="value", on=2, off=1, after="3s", remind=5),
    Change(by="device", value="value", after=2, remind=4),
    Change(by="device", value="value", remind=3),
]


@pytest.mark.parametrize("step", STEPS, ids=["on", "after records", "after seconds", "texts", "reminders"])
@given(
    rows=st.lists(
        st.tuples(st.sampled_from("ab"), st.integers(0, 2), st.sampled_from([-2, 0, 1, 1, 1, 4])), max_size=60
    ),
    states=st.sampled_from([(0, 1, 2), (False, True, "x"), (1, True, "on")]),
    portion=st.sampled_from([1, 7, 512]),
    reloads=st.sets(st.integers(0, 59), max_size=4),
)
def test_batches_and_restarts_make_no_difference(
    step: Change, rows: list[tuple[str, int, int]], states: tuple[Any, ...], portion: int, reloads: set[int]
) -> None:
    records, now = [], 100
    for device, state, pause in rows:
        now += pause
        records.append(record({"device": device, "value": state if step.on else states[state]}, now))
    run = StatefulRun(step)
    made = [
        (row, values["state"], values.get("before"), values["since"], values["count"])
        for row, values in run.run(records, portion, reloads).emitted
    ]
    wanted = expected(step, records)
    assert made == wanted
    assert [type(each[1]) for each in made] == [type(each[1]) for each in wanted]
    assert not run.outcomes.failed


def test_beyond_keys_the_one_that_was_silent_longest_begins_anew() -> None:
    run = StatefulRun(Change(by="device", value="score", on=0.9, most_keys=2))
    for device in ("a", "b", "a", "c"):
        run.run(scores(0.9, device=device))
        run.save()
    assert sorted(key for _, key, _ in run.saved) == ['"a"', '"c"']
    assert [each.row for each in run.run(scores(0.9, device="b")).emitted] == [0, 1, 3, 4]


def test_many_devices_have_room() -> None:
    run = StatefulRun(Change(by="device", value="score", on=0.9, remind=2))
    records = [record({"device": number % 300, "score": 0.9}, number // 300) for number in range(900)]
    assert [each.row for each in run.run(records, 100, {450}).emitted] == [*range(300), *range(600, 900)]


def test_a_partition_that_ended_is_forgotten_and_stays_in_the_store() -> None:
    run = StatefulRun(SCORES)
    run.run(scores(0.9))
    run.save()
    run.runner.forget([("lane", 0)])
    assert list(run.runner.changes()) == []
    assert [each.row for each in run.run(scores(0.9)).emitted] == [0, 1]


@pytest.mark.parametrize(
    "state", [b"", b"{}", b"[true]", b'[true,"on",0,0,0,null,0]', b"[true,[],0,0,0,null,0,0]", b"\xff", b"[true,1,2"]
)
def test_damaged_state_names_its_key(state: bytes) -> None:
    with pytest.raises(StreamerError, match=r"\"a\".*damaged"):
        StatefulRun(SCORES).runner.load("lane", [Item('"a"', 0, b"\x01" + state)])


def test_state_of_texts_is_not_read_as_that_of_numbers() -> None:
    run = StatefulRun(Change(by="device", value="score"))
    run.run(scores("on"))
    run.save()
    with pytest.raises(StreamerError, match=r'"a".*saved with "on"'):
        StatefulRun(SCORES).runner.load("lane", [Item('"a"', 0, value) for value in run.saved.values()])


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"off": 0.5}, '"off" needs "on"'),
        ({"on": 0.5, "off": 0.7}, '"off" is 0.7, above "on", 0.5'),
        ({"on": True}, "true is not a number like 0.9"),
        ({"on": "high"}, "not a number like 0.9"),
        ({"after": 0}, '"after" is 0'),
        ({"after": "0s"}, '"after" is 0s'),
        ({"after": "soon"}, "neither a whole number"),
        ({"after": 2.5}, "2.5 is neither a whole number"),
        ({"remind": 0}, "remind"),
        ({"by": []}, "by"),
        ({"by": "state"}, '"by" is "state"'),
        ({"value": "count"}, '"value" is "count"'),
        ({"value": "state", "on": 1}, '"value" is "state"'),
        ({"keys": 0}, "keys"),
    ],
)
def test_a_step_that_makes_no_sense_is_refused(fields: dict[str, Any], reason: str) -> None:
    document = {"@type": "CHANGE", "by": "device", "value": "score", **fields}
    with pytest.raises(DefinitionError) as error:
        pipelines.loads(f"steps: [{document!r}]".replace("True", "true"))
    assert reason in str(error.value)


def test_on_and_off_are_keys_in_yaml_too() -> None:
    text = 'steps: [{"@type": CHANGE, by: device, value: score, on: 0.9, off: 0.7, after: 10s, remind: 1h}]'
    (step,) = pipelines.loads(text).steps
    assert step == Change(by=("device",), value="score", on=0.9, off=0.7, after="10s", remind=3600)
