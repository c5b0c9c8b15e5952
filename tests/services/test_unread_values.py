"""Values that no `Data` can hold, under keys that a step passes on without a look: they go out as they came."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest
from onnx import TensorProto, helper, save

import pipelines
from connectors.memory.config import MemorySinkConfig, MemorySourceConfig
from pipelines import Batch, Data, DenseColumn
from pipelines.data.describing import described_row
from pipelines.hotpath import HotPath
from streamer import testing
from streamer.definition.service import Service

ODD = ['[1, "a"]', "1180591620717411303424", "[1.50, null]", '{"a": [1, "a"], "b": 2.50}', "1e400", '[{"a": [1, "a"]}]']
"""JSON values that no `Data` can hold."""


def run(function: object, payloads: list[str], codec: Any = "json", out: Any = None) -> testing.Report:
    service = Service(
        name="odd",
        source=MemorySourceConfig(topic="in", codec=codec),
        pipeline=pipelines.Sequence([function]),  # type: ignore[list-item]
        sink=MemorySinkConfig(topic="out", codec=out or codec),
        dead_letter=MemorySinkConfig(topic="dead"),
    )
    return testing.run(service, [payload.encode() for payload in payloads])


def written(report: testing.Report) -> list[str]:
    """The payloads of the results, as they were written."""
    assert [letter.error for letter in report.dead] == []
    (messages,) = report.sinks.values()
    return [message.value.decode() for message in messages if message.value is not None]


def twice(data: Data) -> dict[str, Any]:
    return {"x": data["temp"] * 2}


def added(data: Data) -> Data:
    data["x"] = data["temp"] * 2
    return data


def copied(data: Data) -> Data:
    result = data.copy()
    result["x"] = data["temp"] * 2
    return result


async def awaited(data: Data) -> Data:
    return added(data)


def plain(data: dict[str, Any]) -> dict[str, Any]:
    return {**data, "x": data["temp"] * 2}


def plain_itself(data: dict[str, Any]) -> dict[str, Any]:
    data["x"] = data["temp"] * 2
    return data


async def plain_awaited(data: dict[str, Any]) -> dict[str, Any]:
    return plain(data)


class Opened:
    """A class with open and close, called for each record."""

    def open(self) -> None:
        self.factor = 2

    def __call__(self, data: Data) -> Data:
        data["x"] = data["temp"] * self.factor
        return data

    def close(self) -> None:
        del self.factor


@pipelines.batched
def batched(batch: Batch) -> Batch:
    return batch.with_columns({"x": DenseColumn(batch["temp"].array * 2, pipelines.ValueType.INT64)})


PASSING = [added, copied, awaited, plain, plain_itself, plain_awaited, Opened, batched]


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("function", [twice, *PASSING])
def test_a_function_works_on_records_with_an_odd_value_that_it_does_not_read(
    function: Callable[..., Any], odd: str, hot_path: HotPath
) -> None:
    payloads = [f'{{"tags":{odd if n % 3 == 0 else n},"temp":{n}}}' for n in range(30)]
    results = written(run(function, payloads))
    if function is twice:
        assert results == [f'{{"x":{2 * n}}}' for n in range(30)]
    else:
        assert results == [f'{payload[:-1]},"x":{2 * n}}}' for n, payload in enumerate(payloads)]


def test_a_function_that_asks_for_an_odd_value_gets_what_the_json_says(hot_path: HotPath) -> None:
    seen: list[Any] = []

    def look(data: Data) -> dict[str, Any]:
        seen.append([data["v"], data.get("v"), data["v"] is data["v"]])
        return {**data, "n": len(seen)}

    results = written(run(look, [f'{{"v":{odd}}}' for odd in ODD]))
    assert seen == [[json.loads(odd), json.loads(odd), True] for odd in ODD]
    assert results == [f'{{"v":{odd},"n":{n}}}' for n, odd in enumerate(ODD, 1)]


def test_a_getter_of_a_type_fails_the_record_whose_value_is_odd(hot_path: HotPath) -> None:
    def scaled(data: Data) -> dict[str, Any]:
        return {"x": float(data.get_ndarray("v").sum()) if "v" in data else data.get_int64("w")}

    payloads = ['{"v":[1,2]}', '{"v":[1,"a"]}', '{"v":[1,null]}', '{"w":1180591620717411303424}', '{"w":7}']
    report = run(scaled, payloads)
    (messages,) = report.sinks.values()
    assert [message.value for message in messages] == [b'{"x":3.0}', b'{"x":7}']
    assert [letter.error.partition("cannot be read: ")[2] for letter in report.dead] == [
        "a list has elements of one type, not of INT64, STRING",
        "null is no value; leave element 1 out of the list, or write a value there",
        "the integer 1180591620717411303424 does not fit in 64 bits; send it as a text or with a fraction",
    ]


def test_an_odd_value_that_a_function_changes_goes_out_changed_and_the_original_stays(hot_path: HotPath) -> None:
    def change(data: Data) -> list[Data]:
        before = data.copy()
        if isinstance(data["v"], list):
            data["v"].append(True)
        return [data, before]

    payloads = ['{"v":[1,"a"],"n":0}', '{"v":1180591620717411303424,"n":1}', '{"v":1.50,"n":2}']
    assert written(run(change, payloads)) == [
        '{"v":[1,"a",true],"n":0}',
        '{"v":[1,"a"],"n":0}',
        *[payloads[1]] * 2,
        *['{"v":1.5,"n":2}'] * 2,
    ]


def test_an_odd_value_becomes_a_usual_one_when_a_function_makes_it_one(hot_path: HotPath) -> None:
    def mend(data: dict[str, Any]) -> dict[str, Any]:
        data["v"].remove("a")
        return data

    def mean(data: Data) -> dict[str, Any]:
        return {"mean": float(data.get_ndarray("v").mean())}

    service = Service(
        name="odd",
        source=MemorySourceConfig(topic="in", codec="json"),
        pipeline=pipelines.Sequence([mend, mean]),
        sink=MemorySinkConfig(topic="out", codec="json"),
        dead_letter=MemorySinkConfig(topic="dead"),
    )
    assert written(testing.run(service, [b'{"v":[1,"a",2]}'] * 2)) == ['{"mean":1.5}'] * 2


def test_odd_values_pass_through_several_functions_and_other_steps(hot_path: HotPath) -> None:
    features = pipelines.Features(fields=["temp", "x"], output="y")
    steps: list[Any] = [added, plain, batched, features, twice_of_odd, added]
    service = Service(
        name="odd",
        source=MemorySourceConfig(topic="in", codec="json"),
        pipeline=pipelines.Sequence(steps),
        sink=MemorySinkConfig(topic="out", codec="json", drop=["y"]),
        dead_letter=MemorySinkConfig(topic="dead"),
    )
    payloads = [f'{{"temp":{n},"tags":{odd}}}' for n, odd in enumerate(ODD * 3)]
    results = written(testing.run(service, [payload.encode() for payload in payloads]))
    assert [result.replace(f',"x":{2 * n}', "") for n, result in enumerate(results)] == payloads


def twice_of_odd(data: Data) -> Data | None:
    """Changes nothing but looks at all of it."""
    return data if len(dict(data)) > 2 else None


def test_a_function_may_give_what_only_json_can_hold() -> None:
    def give(data: dict[str, Any]) -> dict[str, Any]:
        return {"tags": [1, "a", None, {"b": 2**70}], "temp": data["temp"]}

    assert written(run(give, ['{"temp":1.5}'])) == ['{"tags":[1,"a",null,{"b":1180591620717411303424}],"temp":1.5}']
    report = run(give, ['{"temp":1.5}'], out="protodata")
    assert [letter.error for letter in report.dead] == [
        'WireError: key "tags": Trying to put data of not supported type: there is no null; leave the key out'
    ]


def test_rare_odd_values_pass_through_a_function(hot_path: HotPath) -> None:
    payloads = [f'{{"temp":{n}' + (f',"odd":{ODD[n % 6]}}}' if n % 20 == 0 else "}") for n in range(100)]
    results = written(run(added, payloads))
    assert [json.loads(result) for result in results] == [
        {**json.loads(payload), "x": 2 * n} for n, payload in enumerate(payloads)
    ]
    assert all(ODD[n % 6] in results[n] for n in range(0, 100, 20))


@pytest.mark.parametrize("function", [added, plain, batched])
def test_odd_values_pass_from_one_format_to_another(function: Callable[..., Any]) -> None:
    service = Service(
        name="odd",
        source=MemorySourceConfig(topic="in", codec="msgpack"),
        pipeline=pipelines.Sequence([function]),
        sink=MemorySinkConfig(topic="out", codec="json"),
        dead_letter=MemorySinkConfig(topic="dead"),
    )
    records = [{"temp": n, "tags": [n, "a"] if n % 3 else n} for n in range(20)]
    report = testing.run(service, [msgpack.packb(record) for record in records])
    assert [json.loads(result) for result in written(report)] == [
        {**record, "x": 2 * n} for n, record in enumerate(records)
    ]


@pytest.mark.parametrize("function", [added, plain])
def test_a_plain_dict_with_odd_values_is_run_as_a_record_of_the_topic_would_be(function: Callable[..., Any]) -> None:
    given = {"temp": 3, "tags": [1, "a"], "big": 2**70, "at": {"spans": [1, None]}}
    with pipelines.Sequence([function]).open() as executor:
        found = executor.run(given)
    assert isinstance(found, Data)
    assert dict(found) == {**given, "x": 6}
    service = Service(
        name="odd",
        source=MemorySourceConfig(topic="in", codec="json"),
        pipeline=pipelines.Sequence([function]),
        sink=MemorySinkConfig(topic="out", codec="json"),
    )
    report = testing.run(service, [given])
    assert [dict(result) for result in report.results if result is not None] == [{**given, "x": 6}]


def test_a_value_that_nothing_can_write_is_refused_where_it_is_put() -> None:
    def give(data: Data) -> dict[str, Any]:
        return {"x": [1, object()]}

    report = run(give, ['{"temp":1.5}'])
    (letter,) = report.dead
    assert 'key "x": Trying to put data of not supported type: object' in letter.error


def low_or_high(data: Data) -> int:
    """The branch for low temperatures, or that for high ones."""
    return int(data["temp"] > 1)


def test_a_switch_function_and_a_when_expression_may_pass_over_odd_values(hot_path: HotPath) -> None:
    graph = pipelines.GraphBuilder()
    low, high = graph.input.switch("sw", pipelines.FunctionSwitch(low_or_high, num_outputs=2))
    service = Service(
        name="odd",
        source=MemorySourceConfig(topic="in", codec="json"),
        pipeline=graph.build(graph.any(low, high.then("add", pipelines.Function(added)))),
        sink=MemorySinkConfig(topic="out", codec="json", when="temp % 2 = 0"),
        dead_letter=MemorySinkConfig(topic="dead"),
    )
    payloads = [f'{{"temp":{n},"v":{ODD[n]}}}' for n in range(6)]
    results = written(testing.run(service, [payload.encode() for payload in payloads]))
    assert results == [payloads[0], *(f'{payloads[n][:-1]},"x":{2 * n}}}' for n in (2, 4))]


def test_an_odd_value_is_logged_as_it_is(hot_path: HotPath, caplog: pytest.LogCaptureFixture) -> None:
    service = Service(
        name="odd",
        source=MemorySourceConfig(topic="in", codec="json"),
        pipeline=pipelines.Sequence([pipelines.Logging(log="KEYS_AND_VALUES"), added]),
        sink=MemorySinkConfig(topic="out", codec="json"),
        dead_letter=MemorySinkConfig(topic="dead"),
    )
    caplog.set_level("INFO")
    results = written(testing.run(service, [b'{"tags":[1,"a"],"temp":1}']))
    assert results == ['{"tags":[1,"a"],"temp":1,"x":2}']
    assert any(message == "\"tags\": [1, 'a']" for message in caplog.messages)


def test_a_failed_record_with_an_odd_value_keeps_its_error_and_its_description_names_the_value(
    hot_path: HotPath,
) -> None:
    def fail(data: Data) -> Data:
        raise ValueError("no")

    report = run(fail, ['{"tags":[1,"a"],"temp":1}'])
    assert [letter.error for letter in report.dead] == ["ValueError: no"]
    batch = Batch.of([Data({"n": 1})])
    odd = pipelines.Sequence([added]).open().run_many([{"tags": [1, "a"], "temp": 1}])[0]
    assert isinstance(odd, Data)
    assert described_row(Batch.concat([Batch.of([odd]), batch]), 0) == "tags of no type, temp INT64 1, x INT64 2"


def test_a_model_takes_the_only_array_of_a_record_that_has_an_odd_value_too(tmp_path: Path, hot_path: HotPath) -> None:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 2])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 2])
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "same", [x], [y])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "same.onnx")

    def array(data: dict[str, Any]) -> dict[str, Any]:
        return {"values": np.array(data["values"], np.float32), "tags": data["tags"]}

    model = pipelines.Onnx(str(tmp_path / "same.onnx"))
    with pipelines.Sequence([array, model]).open() as executor:
        found = executor.run({"values": [1.5, 2.5], "tags": [1, "a"]})
    assert isinstance(found, Data)
    assert found["y"].tolist() == [1.5, 2.5]
