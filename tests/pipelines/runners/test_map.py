"""The step MAP: values by SQL expressions, and which records go on."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pipelines
from pipelines import Data
from pipelines.data.batch import Batch
from pipelines.data.columns import Column
from pipelines.data.wirecolumn import WireColumn
from pipelines.errors import DefinitionError, StepError
from pipelines.executors.executor import Executor
from pipelines.runners.code.map import MapRunner
from pipelines.runners.runner import OpenContext
from pipelines.steps import Map


def run(step: Map, *rows: dict[str, Any]) -> list[Any]:
    """The result of each record: its values, `None` if it was dropped, the text of its error if it failed."""
    with pipelines.Sequence([step]).open() as executor:
        results = executor.run_many([Data(row) for row in rows])
    return [dict(each.items()) if isinstance(each, Data) else each and str(each) for each in results]


def test_new_values_are_made_of_those_that_came_in() -> None:
    step = Map(select={"f": "temp * 1.8 + 32", "temp": "temp + 1", "twice": "temp * 2"})
    assert run(step, {"temp": 20.0, "id": 7}) == [{"temp": 21.0, "id": 7, "f": 68.0, "twice": 40.0}]


def test_records_are_left_out_then_checked_then_changed() -> None:
    step = Map(where="temp is not null", ensure=["temp < 200"], select={"f": "temp * 2"})
    assert run(step, {"temp": 1}, {"x": 1}, {"temp": 512}, {"temp": 2}) == [
        {"temp": 1, "f": 2.0},
        None,
        '0:MAP: DataError: ensure: not "temp < 200" (temp = 512)',
        {"temp": 2, "f": 4.0},
    ]


def test_no_part_sees_a_record_that_an_earlier_one_took_out() -> None:
    step = Map(where={"kind": "sensor"}, ensure=["temp < 200"], select={"f": "temp * 2"})
    assert run(step, {"kind": "lamp", "temp": "warm"}, {"kind": "sensor", "temp": 3}) == [
        None,
        {"kind": "sensor", "temp": 3, "f": 6.0},
    ]


def test_a_record_of_which_nothing_is_known_passes_no_condition() -> None:
    assert run(Map(where="a > 1"), {"b": 1}) == [None]
    assert run(Map(ensure="a > 1"), {"b": 1}) == ['0:MAP: DataError: ensure: not "a > 1" ("a" is missing)']
    assert run(Map(ensure={"a": {"gt": 1}}), {"a": 1}) == ["0:MAP: DataError: ensure: not {'a': {'gt': 1}} (a = 1)"]


def test_a_text_that_fails_is_not_shown() -> None:
    (error,) = run(Map(ensure="room = 'hall'"), {"room": "secret"})
    assert '"room" is STRING' in error
    assert "secret" not in error


def test_a_missing_operand_gives_no_value() -> None:
    step = Map(select={"f": "temp * 2", "temp": "nullif(temp, -999)"})
    assert run(step, {"temp": -999, "a": 1}, {"a": 2}, {"temp": 4}) == [
        {"a": 1, "f": -1998.0},
        {"a": 2},
        {"temp": 4.0, "f": 8.0},
    ]


def test_a_name_alone_gives_a_value_another_key_whatever_it_is() -> None:
    step = Map(select={"temperature": "temp", "labels": "tags"}, keep=["id"])
    assert run(step, {"temp": 20, "tags": ["a", "b"], "id": 1, "x": 0}, {"id": 2}) == [
        {"id": 1, "temperature": 20, "labels": ["a", "b"]},
        {"id": 2},
    ]


def test_two_values_can_change_their_keys() -> None:
    step = Map(select={"a": "b", "b": "a"})
    assert run(step, {"a": 1, "b": 2}, {"a": 3}) == [{"a": 2, "b": 1}, {"b": 3}]
    assert run(step, {"a": 3}) == [{"b": 3}]


def test_a_value_that_only_gets_another_key_is_not_decoded() -> None:
    def never(entries: Any) -> Column:
        raise AssertionError("decoded")

    column = WireColumn([b"1.10"], never)
    with pipelines.Sequence([Map(select={"temperature": "temp"}, keep=[])]).open() as executor:
        result = executor.run_batch(Batch({"temp": column, "other": column}, 1)).batch
    assert result.keys() == ["temperature"]
    renamed = result.column("temperature")
    assert isinstance(renamed, WireColumn)
    assert not renamed.is_decoded
    assert renamed.entries[0] == b"1.10"


def test_only_values_in_expressions_are_asked_for() -> None:
    with pipelines.Sequence([Map(where="a > 1", ensure={"b": 1}, select={"c": "d + 1", "e": "f"})]).open() as executor:
        assert sorted(executor.reads or ()) == ["a", "b", "d"]


def test_only_some_values_are_kept() -> None:
    step = Map(select={"f": "temp * 2"}, keep=["id", "none"])
    assert run(step, {"id": 1, "temp": 2, "x": 3}) == [{"id": 1, "f": 4.0}]
    assert run(Map(keep=["id"]), {"id": 1, "temp": 2}) == [{"id": 1}]


def test_records_with_values_of_other_types_fail_alone() -> None:
    step = Map(select={"f": "temp * 1.8 + 32"})
    assert run(step, {"temp": 0}, {"temp": "warm"}, {"temp": [1]}, {"temp": 10.0}) == [
        {"temp": 0, "f": 32.0},
        '0:MAP: WrongTypeError: "temp" is a text; temp * 1.8 + 32 needs a number (types: {temp: number} of the codec)',
        '0:MAP: WrongTypeError: "temp" is of type LIST, and an expression reads numbers, texts and booleans; of an '
        "element the codec makes a value: fields: {temp_0: /temp/0}",
        {"temp": 10.0, "f": 50.0},
    ]


def test_results_of_different_types_stand_beside_each_other() -> None:
    step = Map(select={"v": "coalesce(a, b)"}, keep=[])
    assert run(step, {"a": 1.5}, {"a": "x", "b": "y"}, {"b": True}, {"a": 2}) == [
        {"v": 1.5},
        {"v": "x"},
        {"v": True},
        {"v": 2.0},
    ]


ROWS = st.lists(
    st.dictionaries(
        st.sampled_from(["a", "b", "kind"]),
        st.one_of(
            st.integers(-3, 3),
            st.floats(-3, 3),
            st.sampled_from(["x", "y", float("nan"), 2**53 + 1, True, [1, 2]]),
        ),
    ),
    min_size=1,
    max_size=8,
)


@pytest.fixture(scope="module")
def executor() -> Iterator[Executor]:
    """A step with all parts, opened once."""
    where = "a is not null"
    ensure: list[Any] = ["a < 2", {"kind": {"ne": "y"}}]
    step = Map(where=where, ensure=ensure, select={"c": "a * 2", "d": "b"}, keep=["a"])
    with pipelines.Sequence([step]).open() as opened:
        yield opened


@given(ROWS, st.sampled_from([1, 2, 64, 512]))
def test_records_fare_the_same_in_batches_of_any_size(
    executor: Executor, rows: list[dict[str, Any]], size: int
) -> None:
    def shown(parts: Sequence[dict[str, Any]]) -> list[str]:
        return list(map(repr, executor.run_many([Data(row) for row in parts])))

    alone = [shown([row])[0] for row in rows]
    assert shown(rows) == alone
    times = max(1, 2 * size // len(rows))
    many = rows * times
    batches = [many[start : start + size] for start in range(0, len(many), size)]
    assert [text for batch in batches for text in shown(batch)] == alone * times


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({}, "it does nothing: give where, ensure, select or keep"),
        ({"where": "sum(a) > 1"}, "where: sum(...): an expression sees one record at a time"),
        ({"where": {"a": {"gte": 1}}}, "where: a: gte: no such comparison"),
        ({"ensure": ["a > 1", "b ^ 2"]}, "ensure: ^ (character 3): write POWER(x, y)"),
        ({"select": {"f": "losser(a)"}}, 'select.f: losser(...): no such function; did you mean "LOWER"?'),
        ({"select": {"@type": "a"}}, "@type"),
        ({"selects": {"f": "a"}}, "selects"),
    ],
)
def test_a_step_that_cannot_work_is_refused_when_it_is_read(fields: dict[str, Any], text: str) -> None:
    with pytest.raises(DefinitionError, match=re.escape(text)):
        pipelines.loads(str({"steps": [{"@type": "MAP", **fields}]}).replace("'", '"'))


def test_what_polars_does_not_understand_is_refused_when_it_is_opened() -> None:
    with pytest.raises(StepError, match=re.escape("select.f: a +: ")):
        pipelines.Sequence([Map(select={"f": "a +"})]).open()
    with pytest.raises(
        StepError, match=re.escape("where: a + 1: with a number: it gives a number, and true or false is needed")
    ):
        pipelines.Sequence([Map(where="a + 1")]).open()


def test_of_a_payload_with_several_records_some_may_be_left_out() -> None:
    batch = Batch({"a": Column.of([1, 2, 3])}, 3, rows=np.array([7, 7, 8]))
    with pipelines.Sequence([Map(where="a = 2")]).open() as executor:
        result = executor.run_batch(batch)
    assert result.batch.rows.tolist() == [7]
    assert dict(result.dropped) == {8: "where"}


def test_a_where_that_lets_nothing_through_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    with pipelines.Sequence([Map(where="a > 1", name="hot")]).open() as executor:
        for _ in range(3):
            executor.run_many([Data({"a": 0})] * 60)
    (said,) = [record.getMessage() for record in caplog.records]
    assert said == "hot dropped each of the first 120 records: where holds for none: a > 1"


def test_a_step_without_where_may_fail_all_records_and_says_nothing_of_dropping(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with pipelines.Sequence([Map(ensure="a > 1")]).open() as executor:
        executor.run_many([Data({"a": 0})] * 120)
    assert not caplog.records


def test_check_is_told_what_is_read_and_as_what() -> None:
    step = Map(where="battery > 5 or battery is null", select={"f": "temp + 1", "d": "lower(device)", "e": "x"})
    with closing(MapRunner(step, OpenContext())) as runner:
        assert runner.in_words == "reads battery (number), temp (number), device (text)"
        assert runner.misfit({}, None) is None
        assert runner.misfit({}, {"battery", "temp", "device", "x"}) is None
        assert runner.misfit({}, {"battery", "temp", "devices", "x"}) == (
            'no record has the value "device"; did you mean "devices"?'
        )
