"""A model gives an array of one element for each record: a form with room for one value has that value."""

from __future__ import annotations

import importlib.resources
import io
import json
from pathlib import Path
from typing import Any

import fastavro
import numpy as np
import pytest
from google.protobuf import descriptor_pb2, json_format, message_factory
from grpc_tools import protoc

from connectors.codec import Codec
from connectors.codecs.csv import CsvConfig
from connectors.codecs.registry import codec_of
from pipelines import Batch, Column, Data, DenseColumn
from pipelines.data.data import as_data
from pipelines.hotpath import HotPath

PROTO = """
syntax = "proto3"; package p; import "google/protobuf/wrappers.proto";
message R { double score = 1; optional float low = 2; int64 n = 3; bool ok = 4; string label = 5;
  google.protobuf.DoubleValue maybe = 6; repeated double many = 7; K kind = 8; Inner inner = 9; }
message Inner { double x = 1; }
enum K { A = 0; B = 1; }
"""


WELL_KNOWN = str(importlib.resources.files("grpc_tools") / "_proto")


def avro(*fields: tuple[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": name, "type": kind} for name, kind in fields]}


def written(schema: dict[str, Any], batch: Batch) -> list[Any]:
    """The Avro record of each row; the text of the error for a row that cannot be written."""
    encoded = codec_of({"type": "avro", "schema": schema}).encode(batch)
    return [
        str(encoded.failed[row])
        if value is None
        else fastavro.schemaless_reader(io.BytesIO(bytes(value)), schema, None)
        for row, value in enumerate(encoded.values)
    ]


@pytest.mark.parametrize("shape", [(1,), (1, 1), ()], ids=str)
@pytest.mark.parametrize(
    ("type", "dtype"),
    [("double", "f4"), ("float", "f4"), ("double", "i8"), ("long", "i8"), ("int", "i4"), ("boolean", "?")],
)
@pytest.mark.parametrize("in_union", [False, True])
def test_an_array_of_one_element_is_written_where_avro_has_one_value(
    type: str, dtype: str, shape: tuple[int, ...], in_union: bool, hot_path: HotPath
) -> None:
    values = np.array([0, 1, 3, 1, 0, 1, 2, 5, 8], dtype)
    batch = Batch({"y": DenseColumn(values.reshape(9, *shape)), "id": Column.of(list(range(9)))}, 9)
    schema = avro(("y", ["null", type] if in_union else type), ("id", "long"))
    assert written(schema, batch) == [{"y": value, "id": row} for row, value in enumerate(values.tolist())]


MICROS = {"type": "long", "logicalType": "timestamp-micros"}


@pytest.mark.parametrize(
    "type", ["long", ["null", "long"], ["null", "long", "string"], MICROS, ["null", MICROS]], ids=str
)
@pytest.mark.parametrize("value", [1.7e12, np.array([1.7e12], "f8")], ids=["number", "array"])
def test_a_number_without_a_fraction_is_written_as_long_with_null_beside_it_too(
    type: Any, value: Any, hot_path: HotPath
) -> None:
    schema = avro(("y", type), ("id", "long"))
    (whole,) = written(schema, Batch.of([Data({"y": 1_700_000_000_000, "id": 1})]))
    assert written(schema, Batch.of([Data({"y": value, "id": 1})])) == [whole]
    assert written(schema, Batch.of([Data({"y": value, "id": 1})] * 9)) == [whole] * 9


def test_a_list_of_one_element_is_written_where_avro_has_one_value(hot_path: HotPath) -> None:
    inner = {"type": "record", "name": "I", "fields": [{"name": "x", "type": ["null", "double"]}]}
    kind = {"type": "enum", "name": "E", "symbols": ["a", "b"]}
    schema = avro(("t", "string"), ("m", {"type": "map", "values": "double"}), ("i", inner), ("e", kind))
    rows = [Data({"t": ["x"], "m": {"k": [1.5]}, "i": {"x": np.array([[2.5]])}, "e": ["b"]})] * 3
    assert written(schema, Batch.of(rows)) == [{"t": "x", "m": {"k": 1.5}, "i": {"x": 2.5}, "e": "b"}] * 3


def test_a_list_stays_one_where_avro_has_an_array() -> None:
    doubles = {"type": "array", "items": "double"}
    schema = avro(("a", doubles), ("b", ["double", doubles]), ("c", {"type": "array", "items": doubles}))
    rows = [Data({"a": np.array([1.5]), "b": [2.5], "c": np.array([[3.5]])})] * 9
    assert written(schema, Batch.of(rows)) == [{"a": [1.5], "b": [2.5], "c": [[3.5]]}] * 9


LISTS = {"type": "array", "items": "string"}


@pytest.mark.parametrize(
    ("type", "value", "told"),
    [
        ("double", np.array([1.5, 2.5]), '"y" is double, and the value is a list of 2 numbers; make it an array'),
        ("double", np.ones((1, 2)), '"y" is double, and the value is a list [1, 2] of numbers; make it an array'),
        ("double", np.ones(0), '"y" is double, and the value is a list of 0 values; make it an array'),
        ("double", ["a"], "\"y\" is double, and the value is the text 'a'; change the type in the schema"),
        (["null", "long"], 1.5, '"y" is null or long, and the value is the number 1.5; change the type in the schema'),
        ("int", 1 << 40, '"y" is int, and the value is the integer 1099511627776; change the type'),
        ("string", np.array([1]), '"y" is string, and the value is the integer 1; change the type'),
        ("boolean", "no", "\"y\" is boolean, and the value is the text 'no'; change the type"),
        ("boolean", np.array([0.0, 1.0]), '"y" is boolean, and the value is a list of 2 numbers; make it an array'),
        ("boolean", 0.5, '"y" is boolean, and the value is the number 0.5; change the type'),
        ("long", 1.5, '"y" is long, and the value is the number 1.5; change the type'),
        ("long", True, '"y" is long, and the value is the boolean True; change the type'),
        ("long", 1e300, '"y" is long, and the value is the number 1e+300; change the type'),
        ("double", "3.5", "\"y\" is double, and the value is the text '3.5'; change the type"),
        ({"type": "array", "items": "long"}, [1.0, 1.5], '"y[1]" is long, and the value is the number 1.5'),
        (LISTS, ["a", None], '"y[1]" is null, and its type string has no null'),
        ({"type": "array", "items": "double"}, b"a", '"y" is array, and the value is 1 bytes; change the type'),
        ("double", None, 'there is no "y", and its type double has no null: give the field a default'),
        ({"type": "array", "items": "double"}, [["x", "y"]], '"y[0]" is double, and the value is a list of 2 texts'),
        ({"type": "array", "items": "double"}, 1.5, '"y" is array, and the value is the number 1.5; change the type'),
        ({"type": "enum", "name": "E", "symbols": ["a"]}, "b", "\"y\" is one of a, and the value is the text 'b'"),
        ({"type": "record", "name": "I", "fields": [{"name": "x", "type": "long"}]}, {"x": "a"}, '"y.x" is long, and'),
    ],
    ids=str,
)
def test_a_value_that_does_not_fit_its_avro_type_is_told_in_plain_words(
    type: Any, value: Any, told: str, hot_path: HotPath
) -> None:
    good: dict[str, Any] = {"id": 1}
    row = as_data(good if value is None else {**good, "y": value})
    schema = avro(("y", type), ("id", "long"))
    (text,) = written(schema, Batch.of([row]))
    assert told in text


@pytest.fixture
def protobuf(tmp_path: Path) -> tuple[Codec, Any]:
    (tmp_path / "r.proto").write_text(PROTO)
    out = tmp_path / "r.desc"
    assert (
        protoc.main(
            ["", f"-I{tmp_path}", f"-I{WELL_KNOWN}", f"--descriptor_set_out={out}", "--include_imports", "r.proto"]
        )
        == 0
    )
    files = descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes())
    made = message_factory.GetMessages(list(files.file))["p.R"]
    return codec_of({"type": "protobuf", "descriptors": str(out), "message": "p.R"}), made


def test_an_array_of_one_element_is_written_where_protobuf_has_one_value(protobuf: tuple[Codec, Any]) -> None:
    codec, made = protobuf
    given = {"score": np.array([1.5], "f4"), "low": np.array([[0.5]]), "n": np.array([7]), "ok": np.array([True])}
    more = {"label": ["a"], "maybe": np.array([2.5]), "many": np.array([3.5]), "kind": ["B"]}
    encoded = codec.encode(Batch.of([Data({**given, **more, "inner": {"x": [4.5]}})]))
    assert not encoded.failed
    value = encoded.values[0]
    assert value is not None
    expected = {"score": 1.5, "low": 0.5, "n": "7", "ok": True, "label": "a", "maybe": 2.5, "many": [3.5], "kind": "B"}
    assert json_format.MessageToDict(made.FromString(bytes(value))) == {**expected, "inner": {"x": 4.5}}


@pytest.mark.parametrize(
    ("values", "told"),
    [
        (
            {"score": np.array([1.5, 2])},
            'the value of "score" cannot be written: its type is double, and the value is a',
        ),
        ({"score": np.array([1.5, 2])}, "a list of 2 numbers; make the field repeated, or take one element in a step"),
        (
            {"score": "1.5"},
            "its type is double, and the value is the text '1.5'; change the type in the schema, or the",
        ),
        ({"n": "x"}, "its type is int64, and the value is the text 'x'"),
        ({"label": [1]}, "its type is string, and the value is a list of 1 numbers"),
        ({"kind": [["A", "B"]]}, "its type is enum K, and the value is a list [1, 2] of texts"),
        (
            {"inner": {"x": "a"}},
            'the value of "inner.x" cannot be written: its type is double, and the value is the text',
        ),
        ({"n": 2**70}, "its type is int64, and the value is the integer 1180591620717411303424"),
        ({"label": "\ud800"}, "its type is string, and the value is the text"),
        ({"ok": 1}, "its type is bool, and the value is the integer 1"),
    ],
    ids=str,
)
def test_a_value_that_does_not_fit_its_protobuf_type_is_told_in_plain_words(
    protobuf: tuple[Codec, Any], values: dict[str, Any], told: str
) -> None:
    assert told in str(protobuf[0].encode(Batch.of([as_data(values)])).failed[0])


def test_csv_writes_an_array_of_one_element_as_that_element() -> None:
    codec = CsvConfig(names=("a", "b", "c", "d")).build()
    row = Data({"a": np.array([[0.1]], "f4"), "b": [2.5], "c": ["x"], "d": np.array([True])})
    assert codec.encode(Batch.of([row])).values == [b"0.1,2.5,x,true"]
    error = codec.encode(Batch.of([Data({"a": np.ones((1, 2), "f4")})])).failed[0]
    assert '"a" is float32[1, 2]' in str(error)


def test_json_schema_checks_results_and_says_that_a_list_has_one_element() -> None:
    schema = {"type": "object", "properties": {"y": {"type": "number"}}}
    codec = codec_of({"type": "json-schema", "schema": json.loads(json.dumps(schema)), "validate": True})
    encoded = codec.encode(Batch.of([Data({"y": np.array([1.5])}), Data({"y": 1.5}), Data({"y": "a"})]))
    assert encoded.values[1] == b'{"y":1.5}'
    assert "$.y: [1.5] is not of type 'number'; the value is a list of one element" in str(encoded.failed[0])
    assert str(encoded.failed[2]).endswith("'a' is not of type 'number'")
