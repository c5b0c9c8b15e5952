"""Results as Avro's types hold them: of a union the first type that holds the value exactly, and nothing that no reader
can read."""

from __future__ import annotations

import io
import json
import math
from typing import Any

import fastavro
import numpy as np
import pytest
from codecsupport import block
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from connectors.codec import Codec
from connectors.codecs.schemas.avro import AvroConfig
from examples import examples
from pipelines import Batch, Data
from pipelines.data.data import as_data
from pipelines.errors import DefinitionError
from pipelines.hotpath import HotPath

LONG = 5_000_000_000
DAY = 86_400_000
DATE = {"type": "int", "logicalType": "date"}
MOMENT = {"type": "long", "logicalType": "timestamp-millis"}
MICROS = {"type": "long", "logicalType": "timestamp-micros"}
TIME = {"type": "int", "logicalType": "time-millis"}
TIME_MICROS = {"type": "long", "logicalType": "time-micros"}
UUID = {"type": "string", "logicalType": "uuid"}
MONEY = {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}


def record(name: str, *fields: tuple[Any, ...]) -> dict[str, Any]:
    """A record type with fields (name, type) or (name, type, default)."""
    made = [{"name": one[0], "type": one[1], **({"default": one[2]} if len(one) > 2 else {})} for one in fields]
    return {"type": "record", "name": name, "fields": made}


A = record("A", ("a", ["null", "long"], None))
B = record("B", ("b", ["null", "long"], None))


def avro(schema: Any) -> Codec:
    return AvroConfig.model_validate({"type": "avro", "schema": schema}).build()


def encoded(type: Any, value: Any) -> bytes | str:
    """The payload of a row, or its error."""
    codec = avro(record("R", ("x", type), ("id", "long")))
    found = codec.encode(Batch.of([as_data({"id": 1} if value is None else {"x": value, "id": 1})]))
    (payload,) = found.values
    return str(found.failed[0]) if payload is None else bytes(payload)


def written(type: Any, value: Any) -> Any:
    """The number of the type in the union, and the value, as fastavro reads them without logical types."""
    payload = encoded(type, value)
    if isinstance(payload, str):
        return payload
    bare = json.loads(json.dumps(record("R", ("x", type), ("id", "long"))).replace("logicalType", "unknown"))
    found = fastavro.schemaless_reader(io.BytesIO(payload), bare, None)
    assert found["id"] == 1  # type: ignore[call-overload,index]
    return payload[0] >> 1, found["x"]  # type: ignore[call-overload,index]


@pytest.mark.parametrize(
    ("type", "value", "number", "stored"),
    [
        (["int", "long"], LONG, 1, LONG),
        (["int", "long"], 7, 0, 7),
        (["null", "int", "long"], -LONG, 2, -LONG),
        (["null", "int", "double"], LONG, 2, float(LONG)),
        (["null", "int", "double"], 2.5, 2, 2.5),
        (["null", "int", "double"], None, 0, None),
        (["int", "float"], LONG, 1, float(LONG)),
        (["float", "double"], 0.1, 1, 0.1),
        (["float", "double"], 0.5, 0, 0.5),
        (["float", "long"], (1 << 24) + 1, 1, (1 << 24) + 1),
        (["double", "long"], (1 << 53) + 1, 1, (1 << 53) + 1),
        (["null", "float"], 0.1, 1, float(np.float32(0.1))),
        (["null", "int", MOMENT], 1_760_000_000_123, 2, 1_760_000_000_123),
        ([DATE, "long"], 1_760_000_000_123, 1, 1_760_000_000_123),
        ([DATE, MOMENT], 3 * DAY, 0, 3),
        ([DATE, "null"], 3 * DAY + 5, 0, 3),
        ([TIME, "long"], DAY, 1, DAY),
        ([UUID, {"type": "enum", "name": "E", "symbols": ["a"]}], "a", 1, "a"),
        ([MONEY, "double"], 1.25, 0, b"\x7d"),
        ([MONEY, "double"], 0.125, 1, 0.125),
        ([MONEY, "string"], "1.50", 0, b"\x00\x96"),
        ([MONEY, "string"], "much", 1, "much"),
        (["null", {"type": "fixed", "name": "F", "size": 2}, "bytes"], b"abc", 2, b"abc"),
        ([{"type": "enum", "name": "E", "symbols": ["A"]}, "string"], "B", 1, "B"),
        ([A, B], {"b": 1}, 1, {"b": 1}),
        ([A, {"type": "map", "values": "long"}], {"zz": 1}, 1, {"zz": 1}),
        ([{"type": "array", "items": "int"}, {"type": "map", "values": "int"}], {"zz": 1}, 1, {"zz": 1}),
        (["long", {"type": "array", "items": "long"}], [5], 1, [5]),
        (["null", "long"], [5], 1, 5),
        (["null", "long"], 2.0, 1, 2),
        (["long", "double"], 2.0, 1, 2.0),
    ],
    ids=str,
)
def test_a_union_takes_the_first_type_that_holds_the_value_exactly(
    type: Any, value: Any, number: int, stored: Any, hot_path: HotPath
) -> None:
    assert written(type, value) == (number, stored)


@pytest.mark.parametrize(
    ("type", "value"),
    [
        ({"type": "array", "items": ["int", "long"]}, [1, LONG]),
        ({"type": "map", "values": ["int", "long"]}, {"a": LONG}),
        ({"type": "array", "items": {"type": "map", "values": ["null", "int", "double"]}}, [{"a": LONG, "b": 0.5}]),
        (record("I", ("y", ["int", "long"])), {"y": LONG}),
        ({"type": "array", "items": [A, B]}, [{"b": 1}, {"a": 2}]),
    ],
    ids=str,
)
def test_unions_inside_arrays_maps_and_records_do_so_too(type: Any, value: Any, hot_path: HotPath) -> None:
    assert written(type, value)[1] == value


@pytest.mark.parametrize(
    ("type", "value", "told"),
    [
        (["int", "boolean"], LONG, '"x" is int or boolean, and the value is the integer 5000000000'),
        (["null", "int", "string"], 1.5, '"x" is null or int or string, and the value is the number 1.5'),
        ({"type": "array", "items": ["int", "string"]}, ["a", LONG], '"x[1]" is int or string'),
        ({"type": "map", "values": ["int", "string"]}, {"a": LONG}, '"x.a" is int or string'),
        ([A, B], {"a": 1, "b": 2}, '"x" is record A or record B, and the value is an object'),
        ([A, B], {"a": 1, "b": 2}, 'record A: the schema of the results has no field "x.b"'),
        (["null", A], {"a": "7"}, "\"x.a\" is null or long, and the value is the text '7'"),
    ],
    ids=str,
)
def test_a_value_that_no_type_of_a_union_holds_fails_with_its_place_and_the_types(
    type: Any, value: Any, told: str, hot_path: HotPath
) -> None:
    assert told in written(type, value)


@pytest.mark.parametrize(
    ("type", "value", "place"),
    [
        (A, {"a": 1, "zz": 2}, "x.zz"),
        (["null", A], {"a": 1, "zz": 2}, "x.zz"),
        ({"type": "array", "items": A}, [{"a": 1}, {"zz": 2}], "x[1].zz"),
        ({"type": "array", "items": ["null", A]}, [{"zz": 2}], "x[0].zz"),
        ({"type": "map", "values": A}, {"k": {"zz": 2}}, "x.k.zz"),
        (record("O", ("i", A)), {"i": {"zz": 2}}, "x.i.zz"),
    ],
    ids=str,
)
def test_a_nested_value_without_a_field_fails_as_one_at_the_top(
    type: Any, value: Any, place: str, hot_path: HotPath
) -> None:
    assert f'the schema of the results has no field "{place}"' in written(type, value)


def test_the_nearest_name_of_a_nested_field_is_told(hot_path: HotPath) -> None:
    inner = record("I", ("temperature", "long", 0))
    assert 'no field "x.temprature"; did you mean "temperature"?' in written(inner, {"temprature": 2})


@pytest.mark.parametrize(
    ("type", "value", "told"),
    [
        (TIME, DAY, "int (time-millis) holds 0 to 86399999 milliseconds"),
        (TIME, -1, "int (time-millis) holds 0 to 86399999 milliseconds"),
        (["null", TIME], 2_000_000_000, "int (time-millis) holds 0 to 86399999 milliseconds"),
        ({"type": "array", "items": TIME}, [0, DAY], '"x[1]" is int (time-millis)'),
        (TIME_MICROS, DAY, "long (time-micros) holds 0 to 86399999 milliseconds"),
        (TIME_MICROS, 1_760_000_000_123, "long (time-micros) holds 0 to 86399999 milliseconds"),
        (TIME_MICROS, -1, "long (time-micros) holds 0 to 86399999 milliseconds"),
        (DATE, 1 << 62, "int (date) holds -185542587187200000 to"),
        (MICROS, 1 << 62, "long (timestamp-micros) holds -9223372036854775 to 9223372036854775 milliseconds"),
        ({"type": "long", "logicalType": "local-timestamp-micros"}, 1 << 62, "long (local-timestamp-micros) holds -"),
        ({"type": "long", "logicalType": "timestamp-nanos"}, 1 << 62, "long (timestamp-nanos) holds -"),
        ({"type": "long", "logicalType": "local-timestamp-nanos"}, 1 << 62, "(local-timestamp-nanos) holds -"),
        (UUID, "nouuid", "a UUID is 32 hexadecimal digits, 8-4-4-4-12"),
        (UUID, "x" * 36, "a UUID is 32 hexadecimal digits, 8-4-4-4-12"),
        (UUID, "123e4567e89b12d3a456426614174000", "a UUID is 32 hexadecimal digits, 8-4-4-4-12"),
        (["null", UUID], "", "a UUID is 32 hexadecimal digits, 8-4-4-4-12"),
        ({"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"}, "nouuid", "a UUID is 32 hexadecimal"),
        (MONEY, 123456.78, '"x" is bytes (decimal), and the value is the number 123456.78'),
        (MONEY, 9999.999, "the decimal holds 6 digits, 2 of them behind the point"),
        (MONEY, "abc", "\"x\" is bytes (decimal), and the value is the text 'abc'"),
        (MONEY, math.inf, '"x" is bytes (decimal), and the value is the number inf'),
        (MONEY, b"\x7f\xff\xff\xff", '"x" is bytes (decimal), and the value is 4 bytes'),
        ({**MONEY, "type": "fixed", "name": "F", "size": 1}, 500.0, "the decimal holds 6 digits, 2 of them behind the"),
        ({"type": "fixed", "name": "D", "size": 12, "logicalType": "duration"}, b"abc", '"x" is 12 bytes, and the'),
    ],
    ids=str,
)
def test_a_value_outside_the_range_of_its_logical_type_fails_with_its_name_and_the_range(
    type: Any, value: Any, told: str, hot_path: HotPath
) -> None:
    assert told in written(type, value)
    assert '"x' in written(type, value)


@pytest.mark.parametrize(
    ("type", "value", "stored"),
    [
        (TIME, DAY - 1, DAY - 1),
        (TIME_MICROS, DAY - 1, (DAY - 1) * 1000),
        (DATE, -DAY, -1),
        (MICROS, 9_223_372_036_854_775, 9_223_372_036_854_775_000),
        (UUID, "123E4567-e89b-12d3-a456-426614174000", "123E4567-e89b-12d3-a456-426614174000"),
        (MONEY, "1234.565", (123456).to_bytes(3, "big")),
    ],
    ids=str,
)
def test_values_at_the_edges_of_logical_types_are_written(
    type: Any, value: Any, stored: Any, hot_path: HotPath
) -> None:
    assert written(type, value)[1] == stored


@pytest.mark.parametrize(
    ("type", "default", "value"),
    [
        (DATE, 20_000, 20_000 * DAY),
        (MICROS, 5_000, 5),
        ("bytes", "\u00ff", b"\xff"),
        ({"type": "fixed", "name": "F", "size": 2}, "\u00ff\u0000", b"\xff\0"),
        (MONEY, "\u007d", 1.25),
        ("double", "NaN", math.nan),
        ("double", 3, 3.0),
        (["long", "null"], 7, 7),
        (record("I", ("d", DATE, 1), ("b", "bytes")), {"b": "\u00ff"}, {"d": DAY, "b": b"\xff"}),
        ({"type": "array", "items": "bytes"}, ["\u00ff"], [b"\xff"]),
    ],
    ids=str,
)
def test_a_default_has_the_same_value_where_it_is_written_and_where_it_is_read(
    type: Any, default: Any, value: Any, hot_path: HotPath
) -> None:
    schema = record("R", ("x", type, default), ("id", "long"))
    payloads = avro(schema).encode(Batch.of([Data({"id": 1})] * 3)).values
    found = avro(schema).decode(block(list(payloads)), frozenset("x")).batch
    assert repr(found.to_list()) == repr([as_data({"x": value, "id": 1})] * 3)
    shorter = AvroConfig.model_validate(
        {"type": "avro", "schema": record("R", ("id", "long")), "reader_schema": schema}
    ).build()
    found = shorter.decode(block([b"\2"] * 3), frozenset("x")).batch
    assert found.to_list()[0].keys() == {"x", "id"}
    assert repr(found.column("x").values()[0]) == repr(as_data({"x": value})["x"])


def test_of_several_values_that_are_not_there_the_first_field_is_named(hot_path: HotPath) -> None:
    names = [f"f{number}" for number in range(20)]
    encoded = avro(record("R", *((name, "long") for name in names))).encode(Batch.of([Data({"f0": 1})]))
    assert 'there is no "f1"' in str(encoded.failed[0])


@pytest.mark.parametrize("default", [None, "x", {}, [1]], ids=str)
def test_a_default_that_is_none_of_its_type_is_refused_in_schemas_of_results_and_readers(default: Any) -> None:
    schema = record("R", ("x", "long", default))
    with pytest.raises(DefinitionError, match=r"the Avro schema is wrong: .*[Dd]efault"):
        AvroConfig.model_validate(
            {"type": "avro", "schema": record("R", ("x", "long")), "reader_schema": schema}
        ).build()
    with pytest.raises(DefinitionError, match=r"the Avro schema is wrong: .*[Dd]efault"):
        AvroConfig.model_validate({"type": "avro", "schema": schema}).with_sink_topic("out").build()


_RAW: list[tuple[Any, st.SearchStrategy[Any]]] = [
    ("boolean", st.booleans()),
    ("int", st.integers(-(2**31), 2**31 - 1)),
    ("long", st.integers(-(2**63), 2**63 - 1) | st.integers(-9, 9)),
    ("float", st.floats(width=32, allow_nan=False)),
    ("double", st.floats(allow_nan=False)),
    ("string", st.text(max_size=4) | st.uuids().map(str)),
    ("bytes", st.binary(max_size=4)),
    (DATE, st.integers(-9, 9).map(lambda days: days * DAY)),
    (TIME_MICROS, st.integers(0, DAY - 1)),
    (MICROS, st.integers(-(10**14), 10**14)),
    (UUID, st.uuids().map(str)),
    (MONEY, st.decimals(-99, 99, places=2).map(float)),
    ({"type": "enum", "name": "E", "symbols": ["a", "b"]}, st.sampled_from("abc")),
    ({"type": "fixed", "name": "F", "size": 3}, st.binary(min_size=2, max_size=3)),
    ({"type": "array", "items": "int"}, st.lists(st.integers(-(2**33), 2**33), min_size=2, max_size=3)),
    ({"type": "map", "values": "int"}, st.dictionaries(st.sampled_from("abz"), st.integers(-(2**33), 2**33))),
    (A, st.dictionaries(st.sampled_from("az"), st.integers(-9, 9))),
    (B, st.dictionaries(st.sampled_from("bz"), st.integers(-9, 9))),
]


def _kind(type: Any) -> str:
    return str(type.get("name", type["type"]) if isinstance(type, dict) else type)


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(st.sampled_from(_RAW), min_size=2, max_size=4, unique_by=lambda one: _kind(one[0])), st.data())
def test_a_union_writes_what_its_first_exact_type_writes_alone(
    types: list[tuple[Any, st.SearchStrategy[Any]]], data: st.DataObject
) -> None:
    value = data.draw(st.one_of([values for _, values in types]))
    union = [kind for kind, _ in types]
    # 2.0 is 2 only where no other number has a place.
    reals = {"float", "double"} & set(map(_kind, union))
    assume(not (isinstance(value, float) and value.is_integer() and not reals))
    exact: list[int] = []
    rounded: list[int] = []
    for number, kind in enumerate(union):
        if isinstance(value, float) and reals and kind in ("int", "long", DATE, TIME_MICROS, MICROS):
            continue
        alone = written(kind, value)
        if not isinstance(alone, str):
            payload = encoded(kind, value)
            (read,) = avro(record("R", ("x", kind), ("id", "long"))).decode(block([payload]), None).batch.to_list()
            same = {**read} == {**as_data({"x": value, "id": 1})}
            (exact if same else rounded).append(number)
    found = written(union, value)
    chosen = [*exact, *rounded]
    if not chosen:
        assert isinstance(found, str)
    else:
        assert found == (chosen[0], written(union[chosen[0]], value)[1])
