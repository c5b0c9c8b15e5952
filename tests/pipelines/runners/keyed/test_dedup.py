"""DEDUP: records that repeat another are dropped, however they are batched and whatever is restarted."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from statefulrun import StatefulRun, record

import pipelines
from pipelines import Data, Dedup
from pipelines.errors import DefinitionError, StreamerError
from pipelines.runners.keyed.dedup import LONGER, LOOKED_AT
from pipelines.runners.state.item import Item

STEP = Dedup(by=("device", "seq"), span=10)


def readings(*rows: tuple[Any, Any, float]) -> list[Data]:
    return [record({"device": device, "seq": seq}, seconds) for device, seq, seconds in rows]


def through(step: Dedup, records: list[Data], portion: int | None = None) -> list[int]:
    return [each.row for each in StatefulRun(step).run(records, portion).emitted]


def expected(times: list[tuple[str, float]], span: float) -> list[int]:
    """The rows that are let through, as a person would say it."""
    latest: dict[str, float] = {}
    rows = []
    for row, (key, time) in enumerate(times):
        if abs(time - latest.get(key, -math.inf)) >= span:
            latest[key] = time
            rows.append(row)
    return rows


def test_a_record_that_was_sent_twice_comes_out_once() -> None:
    outcomes = StatefulRun(STEP).run(readings(("a", 1, 0), ("a", 2, 1), ("a", 1, 2), ("b", 1, 3)))
    assert [each.row for each in outcomes.emitted] == [0, 1, 3]
    assert outcomes.dropped == {2: "repeated"}


def test_with_the_device_alone_it_is_a_throttle() -> None:
    records = [record({"device": "a"}, seconds) for seconds in (0, 1, 9.999, 10, 15, 20, 31)]
    assert through(Dedup(by="device", span=10), records) == [0, 3, 5, 6]


def test_values_of_other_types_are_other_keys() -> None:
    assert through(STEP, readings(("a", 1, 0), ("a", "1", 0), ("a", True, 0), ("a", 1, 0))) == [0, 1, 2]


def test_a_device_whose_clock_was_wrong_is_not_silenced() -> None:
    year = 365 * 86400.0
    records = [record({"device": "a"}, seconds) for seconds in (0, year, 11, 12, 21)]
    assert through(Dedup(by="device", span=10), records) == [0, 1, 2, 4]


def test_a_record_that_is_a_little_late_repeats_too() -> None:
    assert through(STEP, readings(("a", 1, 5), ("a", 1, 0))) == [0]


def test_a_backlog_of_one_device_is_compared_with_its_own_times() -> None:
    hour = 3600.0
    records = readings(("a", 1, hour), ("b", 1, 0), ("b", 1, 1), ("a", 1, hour + 1))
    assert through(STEP, records) == [0, 1]


def test_a_record_without_its_key_fails_alone_and_changes_nothing() -> None:
    run = StatefulRun(STEP)
    records = readings(("a", 1, 0), ("a", 1, 0), ("a", 2.5, 0), ("a", 2, 0))
    del records[1]["seq"]
    outcomes = run.run(records)
    assert [each.row for each in outcomes.emitted] == [0, 3]
    assert 'no value "seq"' in outcomes.failed[1]
    assert '"seq" is a float' in outcomes.failed[2]


def test_the_time_can_be_a_value_and_one_that_cannot_be_read_fails_its_record_alone() -> None:
    step = Dedup(by="device", span=10, time={"field": "at", "unit": "s"})
    run = StatefulRun(step)
    rows: list[dict[str, Any]] = [{"at": 100}, {"at": 105}, {"at": "soon"}, {}, {"at": 110}]
    outcomes = run.run([record({"device": "a", **row}) for row in rows])
    assert [each.row for each in outcomes.emitted] == [0, 4]
    assert outcomes.dropped == {1: "repeated"}
    assert set(outcomes.failed) == {2, 3}
    # A key of which no record could be used is not remembered.
    failed = StatefulRun(step)
    failed.run([record({"device": "a", "at": "soon"})])
    assert list(failed.runner.changes()) == []


def test_partitions_are_apart() -> None:
    records = [record({"device": "a", "seq": 1}, lane=lane) for lane in ("p0", "p1", "p0")]
    assert through(STEP, records) == [0, 1]


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 40)), max_size=40),
    st.sampled_from([1, 7, 512]),
    st.sets(st.integers(0, 39)),
)
def test_batches_and_restarts_make_no_difference(times: list[tuple[str, int]], portion: int, reloads: set[int]) -> None:
    records = [record({"device": key}, seconds) for key, seconds in times]
    run = StatefulRun(Dedup(by="device", span=10))
    rows = [each.row for each in run.run(records, portion, reloads).emitted]
    assert rows == expected([(key, float(seconds)) for key, seconds in times], 10)


def test_a_key_is_forgotten_when_it_was_silent_for_long_and_leaves_the_store() -> None:
    run = StatefulRun(STEP)
    run.run(readings(("a", 1, 0), ("a", 2, 0)))
    run.tick(1000)
    run.save()
    assert len(run.saved) == 2
    run.run(readings(("a", 2, 10)))
    tick(run, 1001, 1010 + LONGER)
    run.save()
    assert len(run.saved) == 2
    run.tick(1011 + LONGER)
    run.save()
    assert [key for _, key, _ in run.saved] == ['["a",2]']
    run.reload()
    tick(run, 5, 15 + LONGER)
    run.save()
    assert len(run.saved) == 1
    run.tick(16 + LONGER)
    run.save()
    assert run.saved == {}
    assert [each.row for each in run.run(readings(("a", 1, 1))).emitted][-1] == 3


def tick(run: StatefulRun, start: float, stop: float) -> None:
    """Let the clock go from `start` to `stop`, in whole seconds."""
    for now in range(int(start), int(stop) + 1):
        run.tick(now)


def test_a_key_is_remembered_over_a_time_in_which_the_service_stood_still() -> None:
    run = StatefulRun(STEP)
    run.run(readings(("a", 1, 0)))
    for now in (0, 1, 1000):
        run.tick(now)
    assert [each.row for each in run.run(readings(("a", 1, 5))).emitted] == [0]


def test_a_key_is_remembered_while_records_wait() -> None:
    run = StatefulRun(STEP)
    run.run(readings(("a", 1, 0)))
    for now in range(1000):
        run.tick(now, 1)
    assert [each.row for each in run.run(readings(("a", 1, 5))).emitted] == [0]


def test_forgetting_goes_on_from_call_to_call() -> None:
    run = StatefulRun(Dedup(by="seq", span=10, most_keys=1_000_000))
    run.run(readings(*(("a", number, 0) for number in range(2 * LOOKED_AT))))
    tick(run, 0, 2 * (11 + LONGER))
    run.save()
    assert run.saved == {}


def test_beyond_keys_the_one_that_was_silent_longest_is_forgotten(caplog: pytest.LogCaptureFixture) -> None:
    run = StatefulRun(Dedup(by="seq", span=10, most_keys=2))
    for row in (("x", 1, 0), ("x", 2, 1), ("x", 1, 2), ("x", 3, 3)):
        run.run(readings(row))
        run.save()
    assert sorted(key for _, key, _ in run.saved) == ["1", "3"]
    assert "more than 2 keys" in caplog.text
    assert [each.row for each in run.run(readings(("x", 3, 4))).emitted] == [0, 1, 3]


def test_a_lane_that_ended_is_forgotten_and_stays_in_the_store() -> None:
    run = StatefulRun(STEP)
    run.run(readings(("a", 1, 0)))
    run.save()
    run.runner.forget([("lane", 0)])
    assert list(run.runner.changes()) == []
    tick(run, 0, 20 + LONGER)
    assert list(run.runner.changes()) == []


def test_state_of_another_version_or_damaged_names_its_key() -> None:
    run = StatefulRun(STEP)
    with pytest.raises(StreamerError, match=r"\"a\",1.*another version"):
        run.runner.load("lane", [Item('["a",1]', 0, b"\x07" + bytes(8))])
    with pytest.raises(StreamerError, match=r"\"a\",1.*damaged"):
        run.runner.load("lane", [Item('["a",1]', 0, b"\x01" + bytes(3))])


@pytest.mark.parametrize("fields", [{}, {"for": 0}, {"for": "soon"}, {"for": "10s", "keys": 0}])
def test_a_step_that_makes_no_sense_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(DefinitionError, match=r"for|keys"):
        pipelines.loads(f"steps: [{ {'@type': 'DEDUP', 'by': 'device', **fields} }]".replace("'", '"'))
