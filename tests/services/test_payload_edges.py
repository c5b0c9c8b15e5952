"""What a user sees of values that are missing, odd or huge, for each codec of plain payloads, end to end."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import fastavro
import msgpack
import pytest
from google.protobuf import descriptor_pb2, message_factory
from grpc_tools import protoc
from onnx import TensorProto, helper, save

import pipelines
import streamer
from pipelines import Batch, Data
from pipelines.hotpath import HotPath

Record: TypeAlias = Mapping[str, Any]
Write: TypeAlias = Callable[[Record], bytes]

PROTO = 'syntax = "proto3"; package p; message R { string id = 1; double temp = 2; optional double vib = 3; }'
VIB = ["null", "double", "long", "string", "boolean", {"type": "array", "items": "double"}]
AVRO = {
    "type": "record",
    "name": "R",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "temp", "type": "double"},
        {"name": "vib", "type": VIB, "default": None},
    ],
}

TAKES = 'input "x" takes float32 [N, 2]: '
RIGHT: dict[str, Any] = {"whole": 30, "truth": True}
"""Values of `vib` among fractions that are numbers all the same."""
MISSING = ("missing", None, TAKES + 'Value not found for key "vib"; there are id, temp')
HUGE = ("huge", 1e300, TAKES + '"vib" is 1e+300, which does not fit float32')
WRONG = [
    MISSING,
    HUGE,
    ("text", "hot", TAKES + '"vib" is a text, and a number is needed; oneHot: [...]'),
    ("long text", "x" * 100_000, '"vib" is a text, and a number is needed'),
    ("number as text", "30", TAKES + '"vib" is a text, and a number is needed; it looks like a number'),
    ("several", [1.0, 2.0], TAKES + "2 numbers are needed, not 3: temp 1, vib 2"),
]
NESTED = [
    ("object", {"a": 1}, TAKES + '"vib" is nested data (an object), and a number is needed'),
    ("mixed list", [1, "a"], 'key "vib" cannot be read: a list has elements of one type, not of INT64, STRING'),
]
LARGE = ("2 ** 70", 2**70, 'key "vib" cannot be read: the integer 1180591620717411303424 does not fit in 64 bits')
"""What is wrong with a value of `vib`: name, the value (`None`: it is not there), and what the dead letter says."""
FIELDS = [
    MISSING,
    HUGE,
    ("text", "hot", 'vib: "hot" is no number'),
    ("a fourth field", "1,2", "the row has 4 fields, but there are 3 columns"),
]


def as_json(folder: Path) -> tuple[Any, Write]:
    return "json", lambda record: json.dumps(record).encode()


def as_msgpack(folder: Path) -> tuple[Any, Write]:
    return "msgpack", msgpack.packb


def as_csv(folder: Path) -> tuple[Any, Write]:
    def write(record: Record) -> bytes:
        return ",".join(str(record.get(key, "")) for key in ("id", "temp", "vib")).encode()

    return {"type": "csv", "names": ["id", "temp", "vib"], "types": {"temp": "number", "vib": "number"}}, write


def as_avro(folder: Path) -> tuple[Any, Write]:
    def write(record: Record) -> bytes:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, AVRO, record)
        return out.getvalue()

    return {"type": "avro", "schema": AVRO}, write


def as_protobuf(folder: Path) -> tuple[Any, Write]:
    (folder / "r.proto").write_text(PROTO)
    assert protoc.main(["", f"-I{folder}", f"--descriptor_set_out={folder}/r.desc", "r.proto"]) == 0
    files = descriptor_pb2.FileDescriptorSet.FromString((folder / "r.desc").read_bytes())
    made = message_factory.GetMessages(list(files.file))["p.R"]
    return (
        {"type": "protobuf", "descriptors": str(folder / "r.desc"), "message": "p.R"},
        lambda record: made(**record).SerializeToString(),
    )


@pytest.fixture
def model(tmp_path: Path) -> Path:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 2])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 2])
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "same", [x], [y])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "same.onnx")
    return tmp_path / "same.onnx"


@pytest.mark.parametrize(
    ("codec", "wrong", "right"),
    [
        (as_json, [*WRONG, *NESTED, LARGE], RIGHT),
        (as_msgpack, [*WRONG, *NESTED], RIGHT),
        (as_csv, FIELDS, {"whole": 30}),
        (as_avro, WRONG, RIGHT),
        (as_protobuf, [MISSING, HUGE], RIGHT),
    ],
    ids=["json", "msgpack", "csv", "avro", "protobuf"],
)
def test_a_value_that_is_missing_odd_or_huge_is_told_in_its_record_alone(
    codec: Any, wrong: Any, right: dict[str, Any], hot_path: HotPath, model: Path, tmp_path: Path
) -> None:
    setting, write = codec(tmp_path)
    records: list[Record] = [{"id": f"good {i}", "temp": 20.5, "vib": 30.5} for i in range(1000)]
    for place, (name, value, _) in enumerate(wrong):
        # The first of the batch is one, and the rest stand far apart.
        rest = {} if value is None else {"vib": value}
        records[place * 90] = {"id": name, "temp": 20.5, **rest}
    for place, (name, value) in enumerate(right.items()):
        records[place * 90 + 45] = {"id": name, "temp": 20.5, "vib": value}
    service = streamer.Service(
        name="edges",
        source=streamer.KafkaSource(topics="in", codec=setting),
        pipeline={"steps": [{"@type": "ONNX", "modelUri": str(model), "inputs": {"x": ["temp", "vib"]}}]},
        keep=["id"],
        sink=streamer.KafkaSink(topic="out", codec="json"),
        dead_letter=streamer.KafkaSink(topic="dead"),
        hot_path=hot_path,
    )

    report = streamer.testing.run(service, [write(record) for record in records])

    assert len(report.dead) == len(wrong)
    told = [letter.error for letter in report.dead]
    payloads = [letter.message.value for letter in report.dead]
    for name, value, text in wrong:
        rest = {} if value is None else {"vib": value}
        assert text in told[payloads.index(write({"id": name, "temp": 20.5, **rest}))]
    results = {result["id"]: result["y"] for result in report.results if result is not None}
    assert len(results) == 1000 - len(wrong)
    assert list(results["good 999"]) == [20.5, 30.5]
    for name, value in right.items():
        assert list(results[name]) == [20.5, float(value)]


@pytest.mark.parametrize(
    ("payload", "told"),
    [
        (b'{"id": 1}', 'Value not found for key "x"; there are id; the model\'s input'),
        (b'{"x": "hot"}', 'but key "x" holds STRING; an array, numbers or lists of numbers are needed'),
        (b'{"x": [1]}', 'but key "x" holds int64 [1]; axis 1 must have the length 2'),
        (b'{"x": [[1, 2], [3]]}', 'The lists of key "x" have different lengths and make no array'),
        (b'{"x": ["1", "2"]}', 'Can\'t convert type STRING to an NDArray (key "x")'),
        (b'{"x": {"a": 1}}', 'but key "x" holds DATA; an array, numbers or lists of numbers are needed'),
        (b'{"x": [1e300, 1]}', 'but key "x" holds float64 values beyond its range'),
    ],
    ids=["missing", "text", "short", "ragged", "texts", "object", "huge"],
)
def test_a_dead_letter_names_the_models_input_type_and_the_value_that_does_not_fit(
    payload: bytes, told: str, model: Path
) -> None:
    service = streamer.Service(
        name="edges",
        source=streamer.KafkaSource(topics="in", codec="json"),
        pipeline={"steps": [{"@type": "ONNX", "modelUri": str(model)}]},
        sink=streamer.KafkaSink(topic="out", codec="json"),
        dead_letter=streamer.KafkaSink(topic="dead"),
    )
    report = streamer.testing.run(service, [payload, *[b'{"x": [1.5, 2]}'] * 9])
    assert len(report.results) == 9
    (letter,) = report.dead
    assert told in letter.error
    assert 'input "x" takes float32 [N, 2]' in letter.error


def test_a_nan_that_is_written_as_null_is_no_failure_of_the_report(model: Path) -> None:
    service = streamer.Service(
        name="edges",
        source=streamer.KafkaSource(topics="in", codec="msgpack"),
        pipeline={"steps": [{"@type": "ONNX", "modelUri": str(model)}]},
        keep=["id"],
        sink=streamer.KafkaSink(topic="out", codec="json"),
    )
    report = streamer.testing.run(service, [{"id": 1, "x": [1.5, float("nan")]}, {"id": 2, "x": [1.5, 2.0]}])
    assert report.sinks["kafka"][0].value == b'{"y":[1.5,null],"id":1}'
    first, second = report.results
    assert first is not None
    assert second is not None
    assert dict(first) == {"y": [1.5, None], "id": 1}
    assert list(second["y"]) == [1.5, 2.0]


def typed(data: Data) -> Data:
    """A step that asks for the type of each value."""
    assert [data.type(key) for key in data]
    return data


@pytest.mark.parametrize("hot_path", ["python", "auto"])
@pytest.mark.parametrize(("written", "sink"), [("json", "json"), ("msgpack", "json"), ("json", "msgpack")])
@pytest.mark.parametrize("step", [True, False], ids=["read by a function", "read by the sink"])
def test_a_value_that_cannot_be_read_is_named_wherever_it_is_first_asked_for(
    written: str, sink: str, hot_path: HotPath, step: bool
) -> None:
    record = {"id": "a", "outer": {"tags": [1, "a"]}, "tags": [1, "a"]}
    write: Write = msgpack.packb if written == "msgpack" else lambda one: json.dumps(one).encode()
    service = streamer.Service(
        name="edges",
        source=streamer.KafkaSource(topics="in", codec=written),
        pipeline=pipelines.Sequence([typed if step else pipelines.Logging()]),
        sink=streamer.KafkaSink(topic="out", codec=sink),
        dead_letter=streamer.KafkaSink(topic="dead"),
        hot_path=hot_path,
    )
    for key, named in (("outer", "outer.tags"), ("tags", "tags")):
        report = streamer.testing.run(service, [write({"id": "a", key: record[key]}), write({"id": "b"})])
        assert [result["id"] for result in report.results if result is not None][-1] == "b"
        for letter in report.dead:
            assert f'key "{named}" cannot be read' in letter.error
        # What is written as it came is not looked into.
        assert len(report.dead) == 1 or not step


@pytest.mark.parametrize("odd", [[1, "a"], [1, None], 2**70, {"in": [1, "a"]}], ids=str)
def test_a_batched_function_passes_on_odd_values_that_it_does_not_read(odd: Any) -> None:
    service = streamer.Service(
        name="edges",
        source=streamer.KafkaSource(topics="in", codec="json"),
        pipeline=pipelines.Sequence([with_y]),
        sink=streamer.KafkaSink(topic="out", codec="json"),
        dead_letter=streamer.KafkaSink(topic="dead"),
    )
    report = streamer.testing.run(service, [json.dumps({"a": 1, "odd": odd}).encode()])
    (message,) = report.sinks["kafka"]
    assert json.loads(message.value or b"") == {"a": 1, "odd": odd, "y": 1}


@pipelines.batched
def with_y(batch: Batch) -> Batch:
    """A step that asks for one key."""
    return batch.with_columns({"y": batch["a"]})
