"""A result that its schema's type cannot hold fails alone, and is never written as another number."""

from __future__ import annotations

import io
import math
from pathlib import Path
from typing import Any

import fastavro
import numpy as np
import pytest
from grpc_tools import protoc

from connectors.codec import Codec
from connectors.codecs.registry import codec_of
from pipelines import Batch, Column, Data, DenseColumn
from pipelines.data.data import as_data
from pipelines.hotpath import HotPath

LARGEST = float(np.finfo("f4").max)
BEYOND = 3.4028235677973366e38
FLOATS = {"type": "array", "items": "float"}
INNER = {"type": "record", "name": "I", "fields": [{"name": "x", "type": "float"}]}

PROTO = """
syntax = "proto3"; package p;
import "google/protobuf/wrappers.proto";
message R { float x = 1; repeated float many = 2; map<string, float> by_name = 3; google.protobuf.FloatValue maybe = 4;
  Inner inner = 5; repeated int32 whole = 6; map<string, int32> counts = 7; repeated Kind kinds = 8; Kind kind = 9;
  map<int32, string> names = 10; map<bool, string> flags = 11; int32 one = 12; }
message Inner { float x = 1; }
enum Kind { A = 0; B = 1; }
"""


def avro(type: Any) -> dict[str, Any]:
    fields = [{"name": "x", "type": type}, {"name": "id", "type": "long"}]
    return {"type": "record", "name": "R", "fields": fields}


def written(type: Any, batch: Batch) -> list[Any]:
    """The value of each row that Avro has; the text of its error for a row that cannot be written."""
    schema = avro(type)
    encoded = codec_of({"type": "avro", "schema": schema}).encode(batch)
    return [
        str(encoded.failed[row])
        if value is None
        else fastavro.schemaless_reader(io.BytesIO(bytes(value)), schema, None)["x"]  # type: ignore[call-overload,index]
        for row, value in enumerate(encoded.values)
    ]


@pytest.mark.parametrize(
    ("type", "good", "bad", "key"),
    [
        ("float", 1.5, 1e300, "x"),
        (["null", "float"], 1.5, -1e300, "x"),
        (["string", "float"], 1.5, BEYOND, "x"),
        (FLOATS, [0.5, 1.5], [0.5, 1e300], "x[1]"),
        (["null", FLOATS], [0.5], [1e300], "x[0]"),
        ({"type": "array", "items": FLOATS}, [[0.5]], [[1e300]], "x[0][0]"),
        ({"type": "map", "values": "float"}, {"a": 0.5}, {"a": 1e300}, "x.a"),
        (INNER, {"x": 0.5}, {"x": 1e300}, "x.x"),
        ({"type": "array", "items": INNER}, [{"x": 0.5}], [{"x": 1e300}], "x[0].x"),
    ],
    ids=str,
)
def test_a_number_too_large_for_a_float_of_avro_fails_alone(
    type: Any, good: Any, bad: Any, key: str, hot_path: HotPath
) -> None:
    found = written(type, Batch.of([as_data({"x": value, "id": row}) for row, value in enumerate([good, good, bad])]))
    assert found[:-1] == [good, good]
    value = BEYOND if bad == BEYOND else -1e300 if bad == -1e300 else 1e300
    assert f'"{key}" is ' in found[-1]
    assert f"the value is the number {value!r}" in found[-1]
    assert "float holds -3.4028235e+38 to 3.4028235e+38" in found[-1]


@pytest.mark.parametrize("shape", [(), (1,), (4,)], ids=str)
def test_an_array_with_a_number_too_large_for_avros_float_fails_alone(
    shape: tuple[int, ...], hot_path: HotPath
) -> None:
    array = np.full((1000, *shape), 0.5)
    array[400] = 1e300
    batch = Batch({"x": DenseColumn(array), "id": Column.of(list(range(1000)))}, 1000)
    found = written(FLOATS if shape == (4,) else "float", batch)
    assert [row for row, value in enumerate(found) if isinstance(value, str)] == [400]
    assert "the value is the number 1e+300" in found[400]


def test_infinity_nan_and_the_largest_floats_are_written_by_avro(hot_path: HotPath) -> None:
    given = [math.inf, -math.inf, LARGEST, math.nextafter(BEYOND, 0), float(1 << 62)]
    found = written("float", Batch.of([Data({"x": one, "id": 1}) for one in given]))
    assert found == [math.inf, -math.inf, LARGEST, LARGEST, float(1 << 62)]
    (nan,) = written("float", Batch.of([Data({"x": math.nan, "id": 1})]))
    assert math.isnan(nan)
    assert written(["float", "double"], Batch.of([Data({"x": 1e300, "id": 1})])) == [1e300]


@pytest.mark.parametrize(
    ("type", "good", "bad"),
    [
        ({"type": "int", "logicalType": "date"}, 86_400_000, 1 << 62),
        ({"type": "long", "logicalType": "timestamp-micros"}, 7, 1 << 62),
        ({"type": "long", "logicalType": "timestamp-nanos"}, 7, -(1 << 62)),
    ],
    ids=str,
)
def test_a_time_that_avros_type_cannot_hold_fails_alone(type: Any, good: int, bad: int, hot_path: HotPath) -> None:
    *others, wrong = written(type, Batch.of([Data({"x": value, "id": 1}) for value in (good, good, bad)]))
    assert not any(isinstance(one, str) for one in others)
    assert f"the value is the integer {bad}" in wrong
    assert f"{type['type']} ({type['logicalType']}) holds -" in wrong


def test_a_text_that_is_no_utf_8_is_named_by_avro(hot_path: HotPath) -> None:
    (wrong,) = written("string", Batch.of([Data({"x": "\ud800", "id": 1})]))
    assert '"x" is a text that cannot be written as UTF-8' in wrong


@pytest.fixture(scope="module")
def protobuf(tmp_path_factory: pytest.TempPathFactory) -> Codec:
    folder: Path = tmp_path_factory.mktemp("protobuf")
    (folder / "r.proto").write_text(PROTO)
    well_known = str(Path(protoc.__file__).parent / "_proto")
    out = folder / "r.desc"
    arguments = ["", f"-I{folder}", f"-I{well_known}", f"--descriptor_set_out={out}", "--include_imports", "r.proto"]
    assert protoc.main(arguments) == 0
    return codec_of({"type": "protobuf", "descriptors": str(out), "message": "p.R"})


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"x": 1e300}, 'the value of "x" cannot be written: its type is float, and the value is the number 1e+300'),
        ({"x": [1e300]}, "the value is the number 1e+300"),
        ({"x": -1e300}, "float holds -3.4028235e+38 to 3.4028235e+38"),
        ({"many": np.array([0.5, 1e300])}, "its type is float, and the value is the number 1e+300"),
        ({"by_name": {"a": 1e300}}, "its type is float, and the value is the number 1e+300"),
        ({"maybe": 1e300}, "its type is float, and the value is the number 1e+300"),
        ({"inner": {"x": 1e300}}, "its type is float, and the value is the number 1e+300"),
        ({"one": 1 << 31}, "int32 holds -2147483648 to 2147483647"),
        ({"one": [1 << 31]}, "its type is int32, and the value is the integer 2147483648"),
        ({"whole": [1, 1 << 31]}, "its type is int32, and the value is the integer 2147483648"),
        ({"whole": [1.5]}, "its type is int32, and the value is the number 1.5"),
        ({"counts": {"a": 1 << 31}}, "its type is int32, and the value is the integer 2147483648"),
        ({"kind": 1 << 31}, "its type is enum Kind, and the value is the integer 2147483648"),
        ({"kinds": [1 << 31]}, "its type is enum Kind, and the value is the integer 2147483648"),
        ({"names": {"5000000000": "a"}}, 'keys of the map are int32, and "5000000000" is none'),
        ({"names": {"a": "a"}}, 'keys of the map are int32, and "a" is none'),
        ({"flags": {"yes": "a"}}, 'keys of the map are bool, and "yes" is none'),
    ],
    ids=str,
)
def test_a_value_that_protobufs_type_cannot_hold_fails_alone(
    protobuf: Codec, values: dict[str, Any], told: str
) -> None:
    encoded = protobuf.encode(Batch.of([as_data({"x": 1.5}), as_data(values)] * 500))
    assert sorted(encoded.failed) == list(range(1, 1000, 2))
    assert told in str(encoded.failed[1])


def test_infinity_and_nan_are_written_by_protobuf(protobuf: Codec) -> None:
    encoded = protobuf.encode(Batch.of([Data({"x": math.inf, "many": [math.nan, -math.inf, LARGEST]})]))
    assert not encoded.failed
