"""Nobody sees what others write into lists and nested values: not another branch, another record, nor the caller."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from outcomes import result_of

import pipelines
from pipelines import (
    Async,
    Batch,
    BoundingBox,
    Column,
    Data,
    FunctionSwitch,
    Graph,
    GraphBuilder,
    ObjectColumn,
    Point,
    RaggedColumn,
    Result,
    RowRunner,
    SimpleLoopTrigger,
    StatefulRunner,
    ValueType,
)
from pipelines.data.columns import LentColumn
from pipelines.data.data import owned
from pipelines.data.wirecolumn import LentWireColumn
from pipelines.definitions.pipeline import Pipeline
from pipelines.runners.runner import OpenContext
from pipelines.values import TypedList, element_type
from pipelines.wire.columns import decode_columns, encode_columns

pytestmark = pytest.mark.usefixtures("hot_path")


def fresh() -> Data:
    return Data(
        {
            "list": [1, 2],
            "data": {"a": 1, "inner": {"l": [1]}},
            "deep": [[1.0], [2.0]],
            "datas": [Data({"n": 1}), Data({"n": 2})],
            "box": BoundingBox.corners(0, 1, 0, 1, "cat"),
            "boxes": [BoundingBox.corners(0, 1, 0, 1, "cat")],
            "point": Point([1, 2], "nose"),
            "n": 7,
        },
        metadata={"m": {"l": [1]}},
    )


def write(data: Data) -> Data:
    """Write into everything that can be written to."""
    data["list"].append(3)
    data["data"]["a"] = 2
    data["data"]["inner"]["l"].append(2)
    data["deep"][0].append(9.0)
    data["datas"][1]["n"] = 9
    data["box"].label = "dog"
    data["boxes"][0].label = "dog"
    data["point"].label = "ear"
    assert data.metadata is not None
    data.metadata["m"]["l"].append(2)
    return data


def written() -> Data:
    return write(fresh())


@pipelines.batched
def write_batch(batch: Batch) -> Batch:
    """The same at once."""
    batch["list"].values()[0].append(3)
    batch["list"][1].append(3)
    for position in range(batch.size):
        batch["data"][position]["a"] = 2
    for value in batch["data"]:
        value["inner"]["l"].append(2)
    for value in batch["deep"].values():
        value[0].append(9.0)
    for value in batch["datas"].values():
        value[1]["n"] = 9
    for key, label in (("box", "dog"), ("point", "ear")):
        for value in batch[key].values():
            value.label = label
    for value in batch["boxes"].values():
        value[0].label = "dog"
    return batch


def count(data: Data) -> Data:
    """What a branch sees."""
    return Data({"seen": data.to_json()})


def run(pipeline: Pipeline, datas: Iterable[Data], **context: Any) -> list[Any]:
    with pipeline.open(**context) as executor:
        return executor.run_many(datas)


@pytest.mark.parametrize("function", [write, write_batch], ids=["plain", "batched"])
def test_the_caller_does_not_see_what_a_step_writes(function: Callable[..., Any]) -> None:
    given = [fresh(), fresh()]
    run(pipelines.Sequence([function]), given)
    assert given == [fresh(), fresh()]
    assert [data.metadata for data in given] == [fresh().metadata] * 2


def test_a_step_that_writes_passes_on_what_it_wrote() -> None:
    found = run(pipelines.Sequence([write, count]), [fresh(), fresh()])
    assert [Data.from_json(one["seen"]) for one in found] == [written()] * 2
    found = run(pipelines.Sequence([write]), [fresh()])
    assert found == [written()]
    assert found[0].metadata == written().metadata


def branches(first: Any, second: Any) -> Graph:
    graph = GraphBuilder()
    a = graph.input.then("a", first)
    b = graph.input.then("b", second)
    return graph.build(graph.merge(a.then("a_seen", count), b.then("b_seen", renamed)))


def renamed(data: Data) -> Data:
    return Data({"other": data.to_json()})


def same(data: Data) -> Data:
    return data


@pipelines.batched
def same_batch(batch: Batch) -> Batch:
    return batch


@pytest.mark.parametrize("threads", [0, 2])
@pytest.mark.parametrize("writer", [write, write_batch], ids=["plain", "batched"])
@pytest.mark.parametrize("reader", [same, same_batch, pipelines.Logging(log_level="TRACE")], ids=["f", "batch", "log"])
@pytest.mark.parametrize("first", [True, False])
def test_a_branch_does_not_see_what_another_writes(writer: Any, reader: Any, threads: int, first: bool) -> None:
    graph = branches(writer, reader) if first else branches(reader, writer)
    given = [fresh(), fresh()]
    with ThreadPoolExecutor(max(threads, 1)) as pool:
        found = run(graph, given, pool=pool if threads else None)
    ours, theirs = ("seen", "other") if first else ("other", "seen")
    for one in found:
        assert Data.from_json(one[ours]) == written()
        assert Data.from_json(one[theirs]) == fresh()
    assert given == [fresh(), fresh()]


def test_a_branch_does_not_see_what_another_writes_into_values_that_came_undecoded() -> None:
    for writer in (write, write_batch):
        message = fresh().to_bytes()
        decoded = decode_columns([message, message], frozenset())
        batch = Batch(decoded.columns, 2, metadata=decoded.metadata)
        with branches(writer, same).open() as executor:
            result = executor.run_batch(batch)
        for one in result.batch.to_list():
            assert Data.from_json(one["seen"]) == written()
            assert Data.from_json(one["other"]) == fresh()
        assert batch.to_list() == [fresh(), fresh()]
        # What nobody has made anew goes out as it came.
        assert list(encode_columns(batch).messages) == [message, message]


def test_an_undecoded_value_that_a_step_changed_goes_out_changed() -> None:
    decoded = decode_columns([fresh().to_bytes()] * 2, frozenset())
    with pipelines.Sequence([write]).open() as executor:
        result = executor.run_batch(Batch(decoded.columns, 2, metadata=decoded.metadata))
    messages = encode_columns(result.batch).messages
    assert [Data.from_bytes(message or b"") for message in messages] == [written()] * 2


def test_a_switch_branch_and_a_merge_do_not_see_what_another_branch_writes() -> None:
    def even(data: Data) -> int:
        return int(data["n"] % 2)

    graph = GraphBuilder()
    zero, one = graph.input.switch("which", FunctionSwitch(function=even, num_outputs=2))
    any_of = graph.any(zero.then("write", lambda data: Data({"seen": write(data).to_json()})), one.then("count", count))
    found = run(
        graph.build(graph.merge(any_of, graph.input)),
        [Data({**fresh(), "n": n}, metadata=fresh().metadata) for n in range(4)],
    )
    for n, data in enumerate(found):
        wanted = Data({**(written() if n % 2 == 0 else fresh()), "n": n})
        assert Data.from_json(data["seen"]) == wanted
        assert Data({key: data[key] for key in fresh()}) == Data({**fresh(), "n": n})


def test_functions_that_switch_combine_or_choose_do_not_write_for_others() -> None:
    def switching(data: Data) -> int:
        write(data)
        return 0

    def combining(datas: list[Data]) -> Data:
        return Data({"seen": write(datas[0]).to_json(), "other": datas[1].to_json()})

    graph = GraphBuilder()
    (only,) = graph.input.switch("which", FunctionSwitch(function=switching, num_outputs=1))
    combined = graph.combine(pipelines.FunctionCombine(combining), only, graph.input)
    (found,) = run(graph.build(combined), [fresh()])
    assert Data.from_json(found["seen"]) == written()
    assert Data.from_json(found["other"]) == fresh()


def test_rows_that_were_made_of_one_record_do_not_share_what_they_write() -> None:
    def twice(data: Data) -> list[Data]:
        return [data, Data({**data, "n": 8}, metadata=data.metadata)]

    def write_the_first(data: Data) -> Data:
        return write(data) if data["n"] == 7 else data

    (found,) = run(pipelines.Sequence([twice, write_the_first]), [fresh()])
    assert found == [written(), Data({**fresh(), "n": 8})]


def test_results_do_not_share_what_is_written_into_them() -> None:
    (found,) = run(pipelines.Sequence([lambda data: [data, data]]), [fresh()])
    write(found[0])
    assert found == [written(), fresh()]


def test_later_changes_of_the_callers_input_are_in_no_result() -> None:
    given = fresh()
    (found,) = run(pipelines.Sequence([same]), [given])
    write(given)
    assert found == fresh()
    assert found.metadata == fresh().metadata


class Hold(StatefulRunner):
    """Gives every record when the next comes."""

    def __init__(self, step: Any, context: OpenContext) -> None:
        self.held: Batch | None = None

    def run_batch(self, batch: Batch) -> Result:
        before, self.held = self.held, batch
        return Result(before if before is not None else Batch({}, 0, rows=batch.rows[:0]), held=batch.rows)

    def tick(self, now: float) -> Result:
        return self.flush()

    def flush(self) -> Result:
        before, self.held = self.held, None
        return Result(before if before is not None else Batch({}, 0, rows=np.zeros(0, np.int64)))

    def forget(self, lanes: Any) -> None:
        return


class HoldStep(pipelines.Step):
    """Holds."""

    type_name = "HOLD"


def test_later_changes_of_the_callers_input_are_in_no_record_that_a_step_holds() -> None:
    registry = pipelines.Registry()
    registry.add_step(HoldStep)
    registry.add_runner(pipelines.RunnerFactory("HOLD", "hold", f"{__name__}:Hold"))
    with pipelines.Sequence([HoldStep()]).open(registry=registry) as executor:
        given = fresh()
        assert executor.run_many([given]) == [None]
        write(given)
        assert executor.flush().batch.to_list() == [fresh()]


def test_clients_of_a_trigger_do_not_share_the_result() -> None:
    def made(data: Data) -> Data:
        return fresh()

    with Async(pipelines.Sequence([made]), SimpleLoopTrigger(frequency_ms=60_000)).open() as executor:
        first = result_of(executor.run(Data()))
        write(first)
        first["n"] = 8
        assert executor.run(Data()) == fresh()


def test_arrays_of_unequal_shape_and_nested_arrays_are_read_only_in_a_step() -> None:
    def writing(data: Data) -> Data:
        data["x"][0] = 9
        return data

    given = [Data({"x": np.zeros(2)}), Data({"x": np.zeros((2, 2), "f4")}), Data({"n": 1})]
    found = run(pipelines.Sequence([writing]), given)
    assert ["read-only" in str(one) for one in found] == [True, True, False]
    assert [data["x"].any() for data in given[:2]] == [False, False]
    assert [data["x"].flags.writeable for data in given[:2]] == [True, True]

    nested = [Data({"d": {"x": np.zeros(2)}, "l": [np.zeros(2)]})]
    for key in ("d", "l"):

        def writing_inside(data: Data, key: str = key) -> Data:
            value = data[key]
            (value["x"] if key == "d" else value[0])[0] = 9
            return data

        assert "read-only" in str(run(pipelines.Sequence([writing_inside]), nested)[0])


class Counted(list[Any]):
    """Counts how often it is copied, as a list of its elements would be."""

    copies = 0

    def __iter__(self) -> Any:
        type(self).copies += 1
        return super().__iter__()


def copies_of(function: Callable[..., Any], data: Data) -> int:
    Counted.copies = 0
    with pipelines.Sequence([function] * 3).open() as executor:
        batch = Batch({"l": ObjectColumn([data["l"]] * 4, ValueType.LIST), "n": Column.of([1, 2, 3, 4])}, 4)
        executor.run_batch(batch)
    return Counted.copies


def test_lists_that_no_function_reads_are_not_copied() -> None:
    data = Data({"l": [1]})
    data["l"] = Counted([1, 2])

    def other(data: Data) -> Data:
        data["n"] += 1
        return data

    @pipelines.batched
    def other_batch(batch: Batch) -> Batch:
        kept = batch.take(batch.column("n").array > 1)
        return kept.with_columns({"m": kept.column("n")})

    assert copies_of(other, data) == 0
    assert copies_of(other_batch, data) == 0
    assert copies_of(same_batch, data) == 0


def test_without_lists_and_nested_values_nothing_is_lent() -> None:
    batch = Batch.of([Data({"n": 1, "s": "a", "x": np.zeros(2)}), Data({"n": 2, "s": "b", "x": np.zeros(2)})])
    assert batch.lent() is batch
    assert not any(isinstance(column, LentColumn) for column in batch.lent().columns.values())
    decoded = decode_columns([Data({"n": 1, "l": [1]}).to_bytes()] * 2, frozenset(["n"]))
    lent = Batch(decoded.columns, 2).lent()
    assert isinstance(lent.columns["l"], LentWireColumn)
    assert not lent.columns["l"].is_decoded
    assert lent.returned().columns["l"] is decoded.columns["l"]
    _ = lent["l"].values()
    assert lent.returned().columns["l"] is not decoded.columns["l"]


def test_a_runner_that_says_it_only_reads_is_given_the_values_themselves() -> None:
    given = fresh()
    batch = Batch.of([given])
    seen: list[Any] = []

    class Reads(RowRunner):
        writes = False

        def run(self, data: Data) -> Data:
            seen.append(data["list"])
            return data

    Reads().run_batch(batch)
    assert seen[0] is given["list"]


def test_a_lent_record_gives_one_copy_however_often_it_is_asked() -> None:
    given = fresh()
    lent = given.lent()
    assert lent["list"] is lent["list"] is lent.get("list") is lent.get_list("list")
    assert lent["list"] is not given["list"]
    assert lent.held["data"] is given["data"]
    again = given.lent().copy()
    write(lent)
    assert again == given == fresh()
    other = Data()
    other.merge(given.lent())
    write_all = Data({**other}, metadata=fresh().metadata)
    assert write(write_all) == written()
    assert given == fresh()
    lent["list"] = given["list"]
    assert lent["list"] is given["list"]
    del lent["list"]
    assert "list" not in lent


def test_an_empty_list_keeps_its_element_type_when_it_is_copied() -> None:
    copied = owned(TypedList(ValueType.STRING))
    assert element_type(copied) is ValueType.STRING
    assert copied is not TypedList(ValueType.STRING)
    assert owned(RaggedColumn) is RaggedColumn
