"""Graphs of steps: how records take their branches, join again and fail."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from outcomes import result_of, results_of

from pipelines import (
    AnyOf,
    Batch,
    Column,
    Data,
    FunctionSwitch,
    Graph,
    GraphBuilder,
    IntSwitch,
    Merge,
    RecordContext,
    RowsFailed,
    StepError,
    StringSwitch,
    batched,
)
from pipelines.data.wirecolumn import WireColumn
from pipelines.errors import DataError


def switched(key: str = "kind", count: int = 2) -> tuple[GraphBuilder, list[Any]]:
    builder = GraphBuilder()
    return builder, list(builder.input.switch("sw", IntSwitch(field_name=key, num_outputs=count)))


def marked(name: str) -> Callable[[Data], Data]:
    def mark(data: Data) -> Data:
        return Data({**data, "by": name})

    return mark


def kinds(*values: Any) -> list[Data]:
    return [Data({"kind": value, "n": place}) for place, value in enumerate(values)]


def two_ways() -> Graph:
    builder, (left, right) = switched()
    return builder.build(builder.any(left.then("left", marked("left")), right.then("right", marked("right"))))


def test_each_record_takes_its_branch_and_results_keep_the_order() -> None:
    with two_ways().open() as executor:
        found = executor.run_many(kinds(1, 0, 0, 1, 0))
    assert [(data["n"], data["by"]) for data in results_of(found)] == [
        (0, "right"),
        (1, "left"),
        (2, "left"),
        (3, "right"),
        (4, "left"),
    ]


def test_only_the_chosen_branch_runs() -> None:
    sizes: dict[str, list[int]] = {"left": [], "right": []}

    def noting(name: str) -> Callable[[Batch], Batch]:
        def note(batch: Batch) -> Batch:
            sizes[name].append(batch.size)
            return batch

        return batched(note)

    builder, (left, right) = switched()
    both = builder.any(left.then("left", noting("left")), right.then("right", noting("right")))
    with builder.build(both).open() as executor:
        executor.run_many(kinds(1, 1))
        executor.run_many(kinds(0, 1, 0))
    assert sizes == {"left": [2], "right": [2, 1]}


def test_records_keep_their_numbers_metadata_and_context_through_a_graph() -> None:
    datas = [
        Data({"kind": n % 2}, metadata={"trace": n}, record=RecordContext("kafka", "t", offset=n)) for n in range(3)
    ]
    builder, (left, right) = switched()
    both = builder.any(left.then("left", lambda data: data), right)
    graph = builder.build(builder.merge(both.then("only", lambda data: Data({"a": 1})), builder.input))
    with graph.open() as executor:
        result = executor.run_batch(Batch.of(datas, first=40))
        found = results_of(executor.run_many(datas))
    assert result.rows.tolist() == [40, 41, 42]
    assert [data.metadata for data in found] == [Data({"trace": n}) for n in range(3)]
    assert [data.record for data in found] == [data.record for data in datas]


def test_steps_inside_a_graph_know_the_lane_of_every_row() -> None:
    datas = [Data({"kind": n % 2}, record=RecordContext("kafka", "t", lane=("lane", n))) for n in range(3)]
    seen: list[object] = []

    def look(batch: Batch) -> Batch:
        seen.extend(batch.lanes())
        return batch

    builder, (left, right) = switched()
    both = builder.any(left, right.then("look", batched(look)))
    twice = both.then("twice", lambda data: [data, data.copy()])
    with builder.build(twice.then("again", batched(look))).open() as executor:
        executor.run_many(datas)
    assert seen == [("lane", 1), *[("lane", n) for n in (0, 0, 1, 1, 2, 2)]]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("x", 'sw: WrongTypeError: Input data field "kind" has type "STRING", must be INT64 (long)'),
        (1.0, 'sw: WrongTypeError: Input data field "kind" has type "DOUBLE", must be INT64 (long)'),
        (True, 'sw: WrongTypeError: Input data field "kind" has type "BOOLEAN", must be INT64 (long)'),
        (2, "sw: DataError: there is no branch 2; they are numbered from 0 to 1"),
        (-1, "sw: DataError: there is no branch -1; they are numbered from 0 to 1"),
        (None, 'sw: DataError: Input data has no field "kind"; there are n'),
    ],
)
def test_a_record_without_a_branch_fails_alone_in_the_switchs_name(value: object, message: str) -> None:
    bad = Data({"n": 9}) if value is None else Data({"kind": value, "n": 9})
    with two_ways().open() as executor:
        found = executor.run_many([*kinds(0), bad, *kinds(1)])
        (alone,) = executor.run_many([bad])
    assert [isinstance(one, Data) for one in found] == [True, False, True]
    assert str(found[1]) == str(alone) == message
    assert isinstance(alone, StepError)
    assert alone.step == "sw"


def test_a_misspelt_field_of_a_switch_is_told_also_beside_records_that_have_it() -> None:
    bad = Data({"knd": 0, "n": 9})
    with two_ways().open() as executor:
        found = [executor.run_many(given)[0] for given in ([bad], [bad, *kinds(0, 1)])]
    assert {str(one) for one in found} == {
        'sw: DataError: Input data has no field "kind"; did you mean "knd"?; there are knd, n'
    }


def test_a_switch_may_look_a_text_up_or_ask_a_function() -> None:
    builder = GraphBuilder()
    cats, dogs = builder.input.switch("kind", StringSwitch(field_name="kind", num_outputs=2, map={"cat": 0, "dog": 1}))
    big, small = cats.switch("size", FunctionSwitch(lambda data: int(data["kg"] < 5), num_outputs=2))
    ends = [stage.then(f"{stage.name}_end", marked(stage.name)) for stage in (big, small, dogs)]
    given: list[dict[str, Any]] = [
        {"kind": "cat", "kg": 7.0},
        {"kind": "dog"},
        {"kind": "cat", "kg": 2.0},
        {"kind": "cow"},
        {"kind": "cat"},
    ]
    with builder.build(builder.any(*ends)).open() as executor:
        found = executor.run_many([Data(one) for one in given])
    assert [one["by"] for one in results_of(found[:3])] == ["size_0", "kind_1", "size_1"]
    assert str(found[3]) == 'kind: DataError: "cow", the value of "kind", is not in the map; known are cat, dog'
    assert str(found[4]).startswith('size: ValueNotFoundError: Value not found for key "kg"')


@pytest.mark.parametrize("returned", [1.0, "0", None, True])
def test_a_switch_function_that_returns_no_integer_fails_the_record(returned: object) -> None:
    builder = GraphBuilder()
    (only,) = builder.input.switch("sw", FunctionSwitch(lambda data: returned, num_outputs=1))
    with builder.build(only).open() as executor, pytest.raises(StepError, match=r"sw: WrongTypeError: .* returned"):
        executor.run(Data())


def test_any_takes_the_first_input_that_has_the_record() -> None:
    builder = GraphBuilder()
    some = builder.input.then("some", lambda data: Data({"n": -data["n"]}) if data["n"] % 2 else None)
    with builder.build(builder.any(some, builder.input)).open() as executor:
        result = executor.run_batch(Batch.of([Data({"n": n}) for n in range(4)]))
    assert result.batch["n"].values() == [0, -1, 2, -3]
    assert not result.dropped


def test_merge_puts_the_values_of_all_inputs_together_in_their_order() -> None:
    builder = GraphBuilder()
    a = builder.input.then("a", lambda data: Data({"a": data["n"]}))
    b = builder.input.then("b", lambda data: Data({"b": -data["n"]}))
    with builder.build(builder.merge(b, builder.input, a)).open() as executor:
        assert executor.run(Data({"n": 3})) == Data({"b": -3, "n": 3, "a": 3})
        assert list(result_of(executor.run(Data({"n": 3})))) == ["b", "n", "a"]


def test_a_record_that_brings_a_key_twice_fails_alone() -> None:
    builder = GraphBuilder()
    a = builder.input.then("a", lambda data: Data({("k" if data["n"] == 1 else "a"): 1, "same": 2}))
    b = builder.input.then("b", lambda data: Data({"k" if data["n"] < 2 else "b": 5}))
    with builder.build(builder.merge(a, b)).open() as executor:
        found = executor.run_many([Data({"n": n}) for n in range(3)])
    assert found[0] == Data({"a": 1, "same": 2, "k": 5})
    assert found[2] == Data({"a": 1, "same": 2, "b": 5})
    assert str(found[1]) == (
        'merge: DataError: Error during merging: Data instance already has key "k" and allowOverwrite is false'
    )


def test_merging_with_one_branch_of_a_switch_drops_the_records_of_the_other() -> None:
    builder, (left, right) = switched()
    merged = builder.merge(left.then("left", lambda data: Data({"by": "left"})), builder.input)
    graph = builder.build(
        builder.merge(merged, builder.any(right, builder.input).then("x", lambda data: Data({"x": 1})))
    )
    with graph.open() as executor:
        result = executor.run_batch(Batch.of(kinds(0, 1, 0)))
    assert result.rows.tolist() == [0, 2]
    assert dict(result.dropped) == {1: 'merge: no such record comes from "left"'}


def test_a_record_that_fails_in_one_branch_fails_and_its_neighbours_go_on_in_all() -> None:
    def refuse(data: Data) -> Data:
        if data["n"] == 1:
            raise ValueError("one")
        return Data({"a": data["n"]})

    builder = GraphBuilder()
    graph = builder.build(builder.merge(builder.input.then("a", refuse), builder.input))
    with graph.open() as executor:
        result = executor.run_batch(Batch.of([Data({"n": n}) for n in range(3)]))
    assert result.rows.tolist() == [0, 2]
    assert {row: str(error) for row, error in result.failed.items()} == {1: "a: ValueError: one"}
    assert not result.dropped


def test_any_does_not_hide_a_failure() -> None:
    def refuse(data: Data) -> Data:
        raise ValueError("no")

    builder = GraphBuilder()
    graph = builder.build(builder.any(builder.input.then("a", refuse), builder.input))
    with graph.open() as executor, pytest.raises(StepError, match="a: ValueError: no"):
        executor.run(Data({"n": 1}))


def test_branches_do_not_see_each_others_changes() -> None:
    def change(data: Data) -> Data:
        data["n"] = 100
        data["only_here"] = 1
        return Data({"changed": data["n"]})

    builder = GraphBuilder()
    first = builder.input.then("first", change)
    second = builder.input.then("second", lambda data: Data({"seen": data["n"], "keys": len(data)}))
    with builder.build(builder.merge(first, second, builder.input)).open() as executor:
        assert executor.run(Data({"n": 1})) == Data({"changed": 100, "seen": 1, "keys": 1, "n": 1})


def test_undecoded_values_pass_through_a_graph_untouched() -> None:
    decoded: list[int] = []

    def decode(entries: Sequence[bytes | None]) -> Column:
        decoded.append(len(entries))
        return Column.of([int(entry or b"0") for entry in entries])

    kind = Column.of([1, 0, 1])
    batch = Batch({"kind": kind, "wire": WireColumn([b"7", b"8", b"9"], decode)}, 3)
    builder, (left, right) = switched()
    both = builder.merge(builder.any(left, right).then("a", keep_nothing), builder.input)
    with builder.build(both).open() as executor:
        result = executor.run_batch(batch)
    assert decoded == []
    assert result.batch["wire"].values() == [7, 8, 9]


@batched
def keep_nothing(batch: Batch) -> Batch:
    return batch.select({"made": Column.of([1] * batch.size)})


def test_values_that_cannot_be_decoded_pass_on_where_branches_join_and_fail_the_step_that_asks_for_them() -> None:
    def decode(entries: Sequence[bytes | None]) -> Column:
        bad = {row: DataError("no number") for row, entry in enumerate(entries) if entry == b"x"}
        if bad:
            raise RowsFailed(bad)
        return Column.of([int(entry or b"0") for entry in entries])

    batch = Batch({"kind": Column.of([0, 0, 1, 1]), "v": WireColumn([b"7", b"x", b"8", b"9"], decode)}, 4)
    builder, (left, right) = switched()
    joined = builder.any(left, right.then("right", lambda data: Data({"v": -data["v"]})))
    with builder.build(joined.then("ask", lambda data: Data({"v": data.get_int64("v")}))).open() as executor:
        result = executor.run_batch(batch)
    assert result.batch["v"].values() == [7, -8, -9]
    assert {row: str(error) for row, error in result.failed.items()} == {1: 'ask: WireError: key "v": no number'}


def several(count: int) -> Callable[[Data], list[Data]]:
    return lambda data: [Data({**data, "copy": copy}) for copy in range(count)]


def test_records_that_were_multiplied_take_their_branches_one_by_one_and_all_arrive() -> None:
    builder = GraphBuilder()
    parts = builder.input.then("split", several(3))
    left, right = parts.switch("sw", FunctionSwitch(lambda data: data["copy"] % 2, num_outputs=2))
    both = builder.any(left.then("left", marked("left")), right.then("right", marked("right")))
    with builder.build(both).open() as executor:
        result = executor.run_batch(Batch.of([Data({"n": 1}), Data({"n": 2})], first=7))
    assert result.rows.tolist() == [7, 7, 7, 8, 8, 8]
    assert result.batch["copy"].values() == [0, 1, 2, 0, 1, 2]
    assert result.batch["by"].values() == ["left", "right", "left"] * 2


def test_rows_made_of_a_record_are_merged_with_that_record() -> None:
    builder = GraphBuilder()
    parts = builder.input.then("split", lambda data: [Data({"copy": copy}) for copy in range(data["n"])])
    with builder.build(builder.merge(parts, builder.input)).open() as executor:
        found = executor.run_many([Data({"n": n}) for n in (2, 0, 1)])
    assert found == [[Data({"copy": 0, "n": 2}), Data({"copy": 1, "n": 2})], None, Data({"copy": 0, "n": 1})]


def test_branches_that_part_after_a_record_was_multiplied_meet_again_part_by_part() -> None:
    builder = GraphBuilder()
    parts = builder.input.then("split", several(3))
    a = parts.then("a", lambda data: Data({"a": data["copy"]}) if data["copy"] != 1 else None)
    b = parts.then("b", lambda data: Data({"b": 10 * data["copy"]}))
    with builder.build(builder.merge(b, a, builder.input)).open() as executor:
        assert executor.run(Data({"n": 1})) == [Data({"b": 0, "a": 0, "n": 1}), Data({"b": 20, "a": 2, "n": 1})]


def test_a_record_that_two_branches_multiply_cannot_be_merged() -> None:
    builder = GraphBuilder()
    a = builder.input.then("a", lambda data: [Data({"a": copy}) for copy in range(data["n"])])
    b = builder.input.then("b", lambda data: [Data({"b": copy}) for copy in range(2)])
    with builder.build(builder.merge(a, b)).open() as executor:
        one, two = executor.run_many([Data({"n": 1}), Data({"n": 2})])
    assert one == [Data({"a": 0, "b": 0}), Data({"a": 0, "b": 1})]
    assert "merge: DataError: several records were made of this one in more than one branch" in str(two)


def test_any_answers_a_record_once_though_two_branches_multiply_it() -> None:
    builder = GraphBuilder()
    a = builder.input.then("a", lambda data: [Data({"a": copy}) for copy in range(data["n"])])
    b = builder.input.then("b", several(2))
    with builder.build(builder.any(a, b, builder.input)).open() as executor:
        none, two = executor.run_many([Data({"n": 0}), Data({"n": 2})])
    assert none == [Data({"n": 0, "copy": 0}), Data({"n": 0, "copy": 1})]
    assert two == [Data({"a": 0}), Data({"a": 1})]


def test_a_part_that_fails_fails_the_whole_record() -> None:
    def refuse(data: Data) -> Data:
        if data["copy"] == 2:
            raise ValueError("two")
        return data

    builder = GraphBuilder()
    parts = builder.input.then("split", several(3))
    left, right = parts.switch("sw", FunctionSwitch(lambda data: data["copy"] % 2, num_outputs=2))
    with builder.build(builder.any(left.then("left", refuse), right)).open() as executor:
        result = executor.run_batch(Batch.of([Data({"n": 1})]))
    assert result.batch.size == 0
    assert list(result.failed) == [0]


def test_a_graph_of_any_and_merge_alone_runs() -> None:
    graph = Graph({"a": (AnyOf(), ["input"]), "m": (Merge(), ["a"])})
    with graph.open() as executor:
        assert executor.run(Data({"n": 1})) == Data({"n": 1})


def test_a_switch_function_that_does_not_exist_is_named_when_the_graph_opens() -> None:
    builder = GraphBuilder()
    (only,) = builder.input.switch("sw", FunctionSwitch("json:nothing", num_outputs=1))
    with pytest.raises(StepError, match='sw: json:nothing: json has no "nothing"'):
        builder.build(only).open()
    with pytest.raises(StepError, match="sw: the step runs the Python function json:nothing, and code"):
        builder.build(only).open(allow_code=False)


def test_a_record_that_a_branch_drops_is_missing_from_the_merge() -> None:
    builder, (left, right) = switched()
    only_left = left.then("left", lambda data: Data({"by": "left"}) if data["n"] else None)
    merged = builder.merge(only_left, builder.input)
    graph = builder.build(builder.any(merged, right.then("right", marked("right"))))
    with graph.open() as executor:
        result = executor.run_batch(Batch.of(kinds(0, 1, 0)))
    assert result.batch["by"].values() == ["right", "left"]
    assert dict(result.dropped) == {0: "dropped by the step"}
