"""FUNCTION with `remember`: a function finds its state again, however records are batched and whatever is restarted."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from statefulrun import StatefulRun, record

import pipelines
from pipelines import Data, Function
from pipelines.errors import DefinitionError, StreamerError
from pipelines.plugins.registry import default_registry
from pipelines.runners.code.remembering import LARGEST, RememberingRunner
from pipelines.runners.runner import OpenContext
from pipelines.runners.state.item import Item


def running(data: dict[str, Any], state: dict[str, Any]) -> dict[str, Any] | None:
    """The sum of a device, without results for numbers below 0."""
    state["sum"] = state.get("sum", 0) + data["x"]
    state.setdefault("seen", []).append(data["x"])
    if data["x"] > 90:
        raise ValueError("too large")
    return {"device": data["device"], "sum": state["sum"]} if data["x"] >= 0 else None


def step_of(function: Any = running, **fields: Any) -> Function:
    return Function(function, **{"remember": "device", **fields})


def readings(*rows: tuple[Any, Any]) -> list[Data]:
    return [record({"device": device, "x": x}) for device, x in rows]


def test_a_function_finds_what_it_remembered_of_a_device() -> None:
    outcomes = StatefulRun(step_of()).run(readings(("a", 1), ("b", 10), ("a", 2), ("a", -1), ("a", 4)))
    assert [(each.row, each.values["sum"]) for each in outcomes.emitted] == [(0, 1), (1, 10), (2, 3), (4, 6)]
    assert set(outcomes.dropped) == {3}


def test_a_record_for_which_the_function_raises_leaves_the_state_as_it_was() -> None:
    run = StatefulRun(step_of())
    outcomes = run.run(readings(("a", 1), ("a", 99), ("b", 99), ("a", 2)))
    assert [each.values["sum"] for each in outcomes.emitted] == [1, 3]
    assert set(outcomes.failed) == {1, 2}
    run.save()
    assert {key: json.loads(value[1:]) for (_, key, _), value in run.saved.items()} == {
        '"a"': {"sum": 3, "seen": [1, 2]}
    }


@pytest.mark.parametrize("returned", [7, [{"n": 1}, 7], {"x": object()}])
def test_a_record_whose_result_is_of_no_use_leaves_the_state_as_it_was(returned: Any) -> None:
    def odd(data: Data, state: dict[str, Any]) -> Any:
        state["count"] = state.get("count", 0) + 1
        return returned if data["x"] else {"count": state["count"]}

    outcomes = StatefulRun(step_of(odd)).run(readings(("a", 0), ("a", 1), ("a", 0)))
    assert [each.values["count"] for each in outcomes.emitted] == [1, 2]
    assert set(outcomes.failed) == {1}


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(-20, 100)), max_size=40),
    st.sampled_from([1, 7, 512]),
    st.sets(st.integers(0, 39)),
)
def test_batches_and_restarts_make_no_difference(rows: list[tuple[str, int]], portion: int, reloads: set[int]) -> None:
    outcomes = StatefulRun(step_of()).run(readings(*rows), portion, reloads)
    sums: dict[str, int] = {}
    expected: list[int] = []
    for device, x in rows:
        if x > 90:
            continue
        sums[device] = sums.get(device, 0) + x
        if x >= 0:
            expected.append(sums[device])
    assert [each.values["sum"] for each in outcomes.emitted] == expected
    assert set(outcomes.failed) == {row for row, (_, x) in enumerate(rows) if x > 90}
    assert set(outcomes.dropped) == {row for row, (_, x) in enumerate(rows) if x < 0}


def test_what_a_function_sees_is_the_same_after_a_restart_and_without() -> None:
    def typed(data: Data, state: dict[str, Any]) -> dict[str, Any]:
        kinds = [type(value).__name__ for value in state.values()]
        state.update(pair=(1, 2), n=np.int64(3), f=np.float32(0.5), yes=np.bool_(True))
        return {"kinds": kinds}

    records = readings(("a", 1), ("a", 2), ("a", 3))
    expected = ["list", "int", "float", "bool"]
    for reloads in ((), (0, 1)):
        outcomes = StatefulRun(step_of(typed)).run(records, reloads=reloads)
        assert [each.values["kinds"] for each in outcomes.emitted] == [[], expected, expected]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (float("nan"), "not JSON compliant"),
        (np.zeros(3), r"array; write its tolist\(\)"),
        (b"bytes", "value of the type bytes"),
        ({1, 2}, "value of the type set"),
        ("x" * LARGEST, f"{LARGEST} are the most"),
    ],
)
def test_a_state_that_cannot_be_saved_fails_its_record_alone(value: Any, said: str) -> None:
    def keep(data: Data, state: dict[str, Any]) -> Data:
        state["kept"] = value if data["x"] else 0
        data["before"] = state.get("count", 0)
        state["count"] = data["before"] + 1
        return data

    outcomes = StatefulRun(step_of(keep)).run(readings(("a", 0), ("a", 1), ("a", 0)))
    assert [each.values["before"] for each in outcomes.emitted] == [0, 1]
    assert set(outcomes.failed) == {1}
    assert outcomes.failed[1].startswith("the state cannot be remembered:")
    assert re.search(said, outcomes.failed[1])


def test_a_state_that_refers_to_itself_fails_its_record_alone() -> None:
    def loop(data: Data, state: dict[str, Any]) -> Data:
        if data["x"]:
            state["self"] = state
        return data

    assert set(StatefulRun(step_of(loop)).run(readings(("a", 0), ("a", 1), ("a", 0))).failed) == {1}


def test_a_state_of_64_kib_is_saved() -> None:
    def keep(data: Data, state: dict[str, Any]) -> Data:
        state["k"] = "x" * (LARGEST - len('{"k":""}'))
        return data

    run = StatefulRun(step_of(keep))
    assert run.run(readings(("a", 0))).failed == {}
    assert run.save() == LARGEST + 1


def test_only_states_that_have_changed_are_saved() -> None:
    def first(data: Data, state: dict[str, Any]) -> Data:
        state.setdefault("first", data["x"])
        return data

    run = StatefulRun(step_of(first))
    run.run(readings(("a", 1), ("b", 1)))
    assert run.save()
    run.run(readings(("a", 2), ("b", 2)))
    assert not run.save()


@example([("a", 1), ("c", 1), ("a", 0), ("b", 1), ("c", 1)], 2, 2)
@given(
    st.lists(st.tuples(st.sampled_from("abcde"), st.integers(0, 3)), max_size=40),
    st.sampled_from([2, 7, 512]),
    st.integers(1, 4),
)
def test_which_key_begins_anew_does_not_depend_on_batches(rows: list[tuple[str, int]], portion: int, most: int) -> None:
    def count(data: Data, state: dict[str, Any]) -> dict[str, Any]:
        if data["x"] == 3:
            raise ValueError("refused")
        state["n"] = state.get("n", 0) + 1
        counted = {"n": state["n"]}
        if data["x"] == 0:
            state.clear()
        return counted

    alone, together = StatefulRun(step_of(count, most_keys=most)), StatefulRun(step_of(count, most_keys=most))
    assert together.run(readings(*rows), portion).emitted == alone.run(readings(*rows), 1).emitted
    alone.save()
    together.save()
    assert together.saved == alone.saved


def test_a_state_that_is_emptied_leaves_the_store() -> None:
    def until(data: Data, state: dict[str, Any]) -> dict[str, Any]:
        state["n"] = state.get("n", 0) + 1
        count = state["n"]
        if data["x"]:
            state.clear()
        return {"n": count}

    run = StatefulRun(step_of(until))
    run.run(readings(("a", 0), ("b", 0), ("c", 1)))
    run.save()
    assert sorted(key for _, key, _ in run.saved) == ['"a"', '"b"']
    # Emptied and begun anew in one batch.
    run.run(readings(("a", 1), ("b", 1), ("b", 0)))
    run.save()
    assert sorted(key for _, key, _ in run.saved) == ['"b"']
    assert [each.values["n"] for each in run.run(readings(("a", 0), ("b", 0))).emitted[-2:]] == [1, 2]


def test_what_is_gone_from_the_store_goes_once() -> None:
    def clear(data: Data, state: dict[str, Any]) -> Data:
        state["n"] = 1
        if data["x"]:
            state.clear()
        return data

    run = StatefulRun(step_of(clear, most_keys=1))
    for row in (("a", 0), ("a", 1), ("b", 1)):
        run.run(readings(row))
        run.save()
    assert run.saved == {}


def test_a_device_that_is_missing_fails_its_record_alone() -> None:
    records = readings(("a", 1), ("a", 2), (1.5, 3), ("a", 4))
    del records[1]["device"]
    outcomes = StatefulRun(step_of()).run(records)
    assert [each.values["sum"] for each in outcomes.emitted] == [1, 5]
    assert 'no value "device"' in outcomes.failed[1]
    assert '"device" is a float' in outcomes.failed[2]


def test_partitions_and_keys_of_several_values_are_apart() -> None:
    step = step_of(remember=["device", "site"])
    rows = [("a", 1, "p0"), ("a", 2, "p0"), ("a", 1, "p1"), ("a", 1, "p0")]
    records = [record({"device": device, "site": site, "x": 1}, lane=lane) for device, site, lane in rows]
    assert [each.values["sum"] for each in StatefulRun(step).run(records).emitted] == [1, 1, 1, 2]


def test_beyond_keys_the_one_that_was_silent_longest_begins_anew(caplog: pytest.LogCaptureFixture) -> None:
    run = StatefulRun(step_of(most_keys=2))
    for row in (("a", 1), ("b", 1), ("a", 1), ("c", 1)):
        run.run(readings(row))
    assert [each.values["sum"] for each in run.run(readings(("a", 1), ("b", 1))).emitted[-2:]] == [3, 1]
    assert "more than 2 keys" in caplog.text


class Trend:
    """A class that remembers, with an argument."""

    def __init__(self, least: int) -> None:
        self.least = least

    def __call__(self, data: Data, state: dict[str, Any]) -> list[Data]:
        state["n"] = state.get("n", 0) + 1
        return [data] * (state["n"] - self.least)


def test_an_object_of_a_class_may_remember_and_give_several_results() -> None:
    outcomes = StatefulRun(step_of(Trend, args={"least": 1})).run(readings(("a", 1), ("a", 2), ("a", 3)))
    assert [each.row for each in outcomes.emitted] == [1, 2, 2]
    assert set(outcomes.dropped) == {0}


class OfRecordsAlone:
    """A class that takes no state."""

    def __call__(self, data: Data) -> Data:
        return data


@pipelines.batched
def of_batches(batch: pipelines.Batch, state: dict[str, Any]) -> pipelines.Batch:
    return batch


async def waiting(data: Data, state: dict[str, Any]) -> Data:
    return data


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda data: data, r"cannot be called with \(data, state\): too many positional arguments"),
        (OfRecordsAlone, r"cannot be called with \(data, state\): too many positional arguments"),
        (of_batches, "remember is for .*of_batches takes whole batches"),
        (waiting, "remember is for .*waiting is async"),
    ],
)
def test_a_function_that_cannot_remember_is_refused_when_it_opens(function: Any, said: str) -> None:
    with pytest.raises(DefinitionError, match=said):
        default_registry().create(step_of(function), OpenContext())


def test_code_that_is_not_allowed_does_not_open() -> None:
    with pytest.raises(StreamerError, match="not allowed here"):
        RememberingRunner(step_of("operator:add"), OpenContext(allow_code=False))


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"concurrency": 2}, '"concurrency" is for async functions'),
        ({"keys": 0}, "keys"),
        ({"remember": []}, "remember"),
        ({"remember": 5}, "remember"),
        ({"remember": None, "keys": 7}, '"keys" does nothing without "remember"'),
    ],
)
def test_settings_that_make_no_sense_are_refused(fields: dict[str, Any], said: str) -> None:
    step = {"@type": "FUNCTION", "function": "rules:trend", "remember": "device", **fields}
    with pytest.raises(DefinitionError, match=said):
        pipelines.loads(json.dumps({"steps": [step]}))


def test_what_is_remembered_is_written_and_read_and_not_written_where_nothing_is() -> None:
    step = Function("rules:trend", remember=["site", "device"], most_keys=5)
    written = step.to_dict()
    assert written == {"@type": "FUNCTION", "function": "rules:trend", "remember": ["site", "device"], "keys": 5}
    assert pipelines.loads(json.dumps({"steps": [written]})).steps[0] == step
    assert Function("rules:trend").to_dict() == {"@type": "FUNCTION", "function": "rules:trend"}


def test_saved_state_that_is_damaged_names_its_key() -> None:
    runner = StatefulRun(step_of()).runner
    for value in (b"\x01{", b"\x01[]", b"\x01\xff"):
        with pytest.raises(StreamerError, match=r'"a" is damaged'):
            runner.load("lane", [Item('"a"', 0, value)])


def test_a_function_that_drops_everything_is_told_of_remember(caplog: pytest.LogCaptureFixture) -> None:
    with pipelines.Sequence([lambda data: None]).open() as executor:
        executor.run(Data({"x": 1}))
    assert "remember" in caplog.text


CLOSED: list[str] = []


class Closing:
    """Notes when it was closed."""

    def __call__(self, data: Data, state: dict[str, Any]) -> Data:
        return data

    def close(self) -> None:
        CLOSED.append(type(self).__name__)


class ClosingLate(Closing):
    """The same, and its calls are waited for."""

    async def __call__(self, data: Data, state: dict[str, Any]) -> Data:  # type: ignore[override]
        return data


def test_the_object_of_a_function_is_closed_with_its_step_and_when_the_step_is_refused() -> None:
    CLOSED.clear()
    RememberingRunner(step_of(Closing), OpenContext()).close()
    with pytest.raises(DefinitionError, match="is async"):
        RememberingRunner(step_of(ClosingLate), OpenContext())
    assert CLOSED == ["Closing", "ClosingLate"]
