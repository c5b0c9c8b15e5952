"""What Konduit Serving's documents promise of data, checked as an outsider would: rows K-01 to K-19 of capabilities.

Rows that other tests check already are not here; those about pipelines are in test_capabilities_pipelines.py.
"""

from __future__ import annotations

import base64
import hashlib
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from itertools import product
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

import pipelines
import streamer
from connectors.contract import Reader
from connectors.file import FileSource
from pipelines import BoundingBox, Data, Image, Point, Sequence, image_to_ndarray
from pipelines.errors import ConnectorError, ReservedKeyError, ValueNotFoundError, WrongTypeError
from pipelines.values import TypedList, ValueType
from streamer.devbroker import MockKafka, create_topics

ROOT = Path(__file__).parents[2]
VECTORS = Path(__file__).parent / "vectors"
DOCUMENTED = json.loads((VECTORS / "konduit-document-data.json").read_text())
"""The JSON that Konduit's developer document shows, by the type of the value."""

EVERY_TYPE: dict[str, Any] = {
    "string": "text",
    "int": 7,
    "double": 1.5,
    "bool": True,
    "bytes": b"\x00\x01\x02",
    "array": np.arange(6, dtype=np.float32).reshape(2, 3),
    "image": Image(np.full((2, 3, 3), 9, np.uint8)),
    "list": [1, 2, 3],
    "data": Data({"inner": "value"}),
    "box": BoundingBox.corners(0.1, 0.2, 0.3, 0.4, "cat", 0.5),
    "point": Point([0.5, 0.25], "eye", 0.75),
}


def run_python(code: str, *arguments: str, folder: Path, given: bytes = b"") -> bytes:
    """What a fresh interpreter prints, in `folder`, without our packages."""
    done = subprocess.run([sys.executable, "-c", code, *arguments], cwd=folder, input=given, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


@contextmanager
def calls_into(package: str) -> Iterator[Counter[str]]:
    """Counts the calls of functions in files under `package`, by `file:function`, in this thread."""
    found: Counter[str] = Counter()

    def heard(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and package in (path := Path(frame.f_code.co_filename)).as_posix():
            found[f"{path.stem}:{frame.f_code.co_name}"] += 1

    sys.setprofile(heard)
    try:
        yield found
    finally:
        sys.setprofile(None)


def test_a_data_knows_the_types_of_its_values() -> None:
    """K-01"""
    data = Data({**EVERY_TYPE, "int32": np.int32(200), "float32": np.float32(200)})

    assert [data.type(key) for key in EVERY_TYPE] == [
        ValueType.STRING,
        ValueType.INT64,
        ValueType.DOUBLE,
        ValueType.BOOLEAN,
        ValueType.BYTES,
        ValueType.NDARRAY,
        ValueType.IMAGE,
        ValueType.LIST,
        ValueType.DATA,
        ValueType.BOUNDING_BOX,
        ValueType.POINT,
    ]
    assert Data({"a": np.int32(200)}) == Data({"a": 200})
    assert data.type("int32") is ValueType.INT64
    assert Data({"a": np.float32(200)}) == Data({"a": 200.0})
    assert data.type("float32") is ValueType.DOUBLE
    with pytest.raises(WrongTypeError):
        Data({"price": Decimal("1.5")})
    with pytest.raises(ValueNotFoundError):
        data.get_string("absent")
    with pytest.raises(WrongTypeError):
        data.get_int64("bool")


@pytest.mark.parametrize(
    "again", [lambda data: Data.from_json(data.to_json()), lambda data: Data.from_bytes(data.to_bytes())]
)
def test_nested_values_of_every_depth_survive_both_forms(again: Callable[[Data], Data]) -> None:
    """K-02"""
    data = Data(
        {
            "deep": {"b": {"c": {"d": 1}}},
            "datas": [Data({"n": 1}), Data({"n": 2, "more": [Data({"m": 3})]})],
            "lists": [[1, 2], [3]],
            "texts": [["a"], ["b", "c"]],
            "empty": TypedList(ValueType.STRING),
        }
    )

    found = again(data)

    assert found == data
    assert found["deep"]["b"]["c"]["d"] == 1
    assert found["empty"] == []


def test_an_empty_list_keeps_its_element_type_in_the_binary_form_and_may_become_any_in_json() -> None:
    """K-02: JSON has no place for the element type of an empty list, in Konduit neither; there it fits every type."""
    data = Data({"empty": TypedList(ValueType.STRING)})

    assert Data.from_bytes(data.to_bytes()).list_type("empty") is ValueType.STRING
    assert Data.from_json(data.to_json()).get_list("empty", ValueType.STRING) == []


def test_metadata_is_beside_the_values_and_survives_both_forms() -> None:
    """K-03. Equality ignores metadata, as Konduit's own does whatever its documents say."""
    data = Data({"x": 1}, metadata={"offset": 41, "topic": "t"})

    for found in (Data.from_json(data.to_json()), Data.from_bytes(data.to_bytes())):
        assert list(found) == ["x"]
        assert found.metadata == Data({"offset": 41, "topic": "t"})


@pytest.mark.slow
def test_every_result_of_a_kafka_service_names_the_offset_of_its_record(tmp_path: Path) -> None:
    """K-03"""
    from confluent_kafka import Producer

    with MockKafka() as kafka:
        create_topics(kafka.bootstrap, {"in": 2})
        producer = Producer({"bootstrap.servers": kafka.bootstrap})
        for number in range(20):
            producer.produce("in", Data({"y": np.array([float(number)])}).to_bytes(), partition=number % 2)
        producer.flush()
        service = streamer.loads(
            f"""
            name: offsets
            source:
              type: kafka
              bootstrap: {kafka.bootstrap}
              topics: in
              group: g
              start: earliest
              into: {{offset: offset, partition: partition}}
            pipeline: [{{"@type": REGRESSION_OUTPUT, inputName: y, names: {{number: 0}}}}]
            sink: {{type: file, path: out.jsonl, format: jsonl}}
            """,
            base=tmp_path,
        )
        out = tmp_path / "out.jsonl"
        with service:
            while not out.exists() or out.read_text().count("\n") < 20:
                time.sleep(0.05)

    found = [Data.from_json(line) for line in out.read_text().splitlines()]
    assert sorted((int(one["number"]), one["partition"], one["offset"]) for one in found) == [
        (number, number % 2, number // 2) for number in range(20)
    ]


def test_steps_of_one_process_serialise_nothing_and_a_border_costs_one_message() -> None:
    """K-04"""
    five = Sequence([lambda data: data] * 3 + [pipelines.Logging(), pipelines.RegressionOutput(names={"a": 0})])
    data = Data({"y": np.array([1.5]), "image": EVERY_TYPE["image"]})

    with five.open() as first, five.open() as second:
        with calls_into("pipelines/wire") as inside:
            between = first.run(data)
        assert isinstance(between, Data)
        with calls_into("pipelines/wire") as border:
            result = second.run(Data.from_bytes(between.to_bytes()))

    assert not inside
    assert result == between
    assert (border["protobuf:encode"], border["protobuf:decode"]) == (1, 1)


@pytest.mark.slow
def test_a_program_that_has_only_the_schema_reads_and_writes_our_messages(tmp_path: Path) -> None:
    """K-04"""
    (tmp_path / "theirs.proto").write_text((ROOT / "protos" / "data.proto").read_text())
    # A package of its own: two files that define the same names cannot be loaded together, and need not be.
    protoc = [sys.executable, "-m", "grpc_tools.protoc", "-I.", "--python_out=.", "theirs.proto"]
    subprocess.run(protoc, cwd=tmp_path, check=True)
    code = """
import sys, theirs_pb2
message = theirs_pb2.DataMap.FromString(sys.stdin.buffer.read())
assert message.mapItems["name"].sValue == "cat"
assert list(message.mapItems["x"].ndValue.shape) == [3]
message.mapItems["name"].sValue = "dog"
assert not {"protos", "pipelines"} & set(sys.modules)
sys.stdout.buffer.write(message.SerializeToString())
"""

    found = run_python(code, folder=tmp_path, given=Data({"name": "cat", "x": np.arange(3, dtype="f4")}).to_bytes())

    assert Data.from_bytes(found) == Data({"name": "dog", "x": np.arange(3, dtype="f4")})


@pytest.mark.parametrize("key", EVERY_TYPE)
def test_json_does_not_depend_on_where_the_values_came_from(key: str) -> None:
    """K-05"""
    made = Data({"k": EVERY_TYPE[key], "a": 1}, metadata={"m": EVERY_TYPE[key]})

    texts = [json.dumps(json.loads(one.to_json()), sort_keys=True) for one in (made, Data.from_bytes(made.to_bytes()))]

    assert texts[0] == texts[1]


@pytest.mark.slow
def test_the_binary_form_is_as_large_as_its_array_and_json_a_third_larger() -> None:
    """K-06; times are in benchmarks/README.md."""
    array = np.random.default_rng(7).random((224, 224, 3), np.float32)
    data = Data({"image": array})

    assert array.nbytes == 602_112
    assert len(data.to_bytes()) <= 1.01 * array.nbytes
    assert 1.3 <= len(data.to_json()) / array.nbytes <= 1.35
    assert len(json.dumps({"image": array.tolist()})) > 4 * array.nbytes


def test_an_array_of_a_message_is_read_only_and_copied_by_nobody_but_protobuf() -> None:
    """K-07. Protobuf's parser gives the buffer as bytes of their own; the array lies on these."""
    found = Data.from_bytes(Data({"x": np.arange(1000, dtype=np.float32)}).to_bytes()).get_ndarray("x")

    assert not found.flags.writeable
    owner: Any = found
    while isinstance(owner, np.ndarray):
        owner = owner.base
    assert isinstance(owner, bytes)
    assert len(owner) == found.nbytes


@pytest.mark.slow
def test_a_thousand_records_are_saved_and_read_back_and_a_torn_file_gives_what_is_whole(tmp_path: Path) -> None:
    """K-08"""
    datas = [Data({"id": n, "x": np.full(3, n, "f4")}) for n in range(1000)]
    (tmp_path / "in.jsonl").write_text("".join(f"{data.to_json()}\n" for data in datas))
    (tmp_path / "save.yaml").write_text(
        """
        name: save
        source: {type: file, path: in.jsonl, format: jsonl, codec: konduit-json}
        pipeline: []
        sink: {type: file, path: records.bin}
        """
    )
    saved = streamer.load(tmp_path / "save.yaml").run()
    assert saved.error is None
    file = tmp_path / "records.bin"
    whole = file.read_bytes()

    with Reader(FileSource(file)) as reader:
        assert [Data.from_bytes(one.message.value) for one in reader.take(1000)] == datas

    file.write_bytes(whole[:-5])
    with Reader(FileSource(file, unfinished="fail"), 10) as reader:
        assert [Data.from_bytes(one.message.value) for one in reader.take(999)] == datas[:-1]
        with pytest.raises(ConnectorError, match="it ends inside this record"):
            reader.poll()


@pytest.mark.parametrize("name", DOCUMENTED)
def test_the_documents_json_has_its_meaning_and_is_written_alike(name: str) -> None:
    """K-09"""
    data = Data.from_json(DOCUMENTED[name])

    expected: dict[str, Any] = {
        "NDARRAY": np.array([0, 1, 2], np.float32),
        "STRING": "myString",
        "BYTES": b"\x00\x01\x02",
        "DOUBLE": 1.0,
        "INT64": 1,
        "BOOLEAN": True,
        "DATA": Data({"myInnerKey": "myInnerValue"}),
        "LIST": ["some", "list", "values"],
        "BOUNDING_BOX": BoundingBox.center(0.5, 0.4, 0.9, 1.0),
    }
    assert data.type("myKey").name == name
    if name in expected:
        assert data == Data({"myKey": expected[name]} | ({"myKey2": data["myKey2"]} if "myKey2" in data else {}))
    if name == "BOUNDING_BOX":
        assert data["myKey2"] == BoundingBox.corners(0.1, 1.0, 0.2, 0.9, "label", 0.7)
    assert json.loads(data.to_json()) == json.loads(DOCUMENTED[name])


def test_the_documents_picture_has_its_pixels() -> None:
    """K-09"""
    image = Data.from_json(DOCUMENTED["IMAGE"]).get_image("myKey")
    pixels = image.get_as(pipelines.ImageFormat(channels="RGBA"))

    assert image.encoded is not None
    assert len(image.encoded) == 1095
    assert image.encoded == base64.b64decode(json.loads(DOCUMENTED["IMAGE"])["myKey"]["@ImageData"])
    assert pixels.shape == (32, 32, 4)
    assert int(pixels.sum(dtype=np.int64)) == 377_802
    assert hashlib.sha256(pixels.tobytes()).hexdigest() == (
        "3f28107b6c75923b3bb19c79609aee2d56e391f52b45d42c6366f4931695c6a0"
    )


PROTECTED = [
    "@type",
    *("@BytesBase64", "@BytesArray", "@ImageFormat", "@ImageData"),
    *("@NDArrayShape", "@NDArrayType", "@NDArrayDataBase64", "@Metadata"),
    *("@x1", "@x2", "@y1", "@y2", "@cx", "@cy", "@h", "@w"),
]


@pytest.mark.parametrize("key", PROTECTED)
def test_a_protected_key_is_refused_when_it_is_put(key: str) -> None:
    """K-10"""
    data = Data()
    with pytest.raises(ReservedKeyError, match=f'"{key}"'):
        data[key] = 1
    assert not data


def test_bytes_are_read_as_a_list_of_numbers_too() -> None:
    """K-11"""
    assert Data.from_json('{"k": {"@BytesArray": [1, 2, 3]}}') == Data({"k": b"\x01\x02\x03"})


COLORS = np.zeros((4, 8, 3), np.uint8)  # blue, green, red, as OpenCV has them
COLORS[:, :4] = (0, 0, 200)
COLORS[:, 4:] = (0, 100, 0)
PLANES = {"R": [200, 0], "G": [0, 100], "B": [0, 0], "A": [255, 255]}


@pytest.mark.parametrize(
    ("layout", "form", "aspect", "dtype"),
    list(
        product(
            ["RGB", "BGR", "RGBA", "BGRA"],
            ["CHANNELS_FIRST", "CHANNELS_LAST"],
            ["CENTER_CROP", "PAD", "STRETCH"],
            ["UINT8", "FLOAT", "INT64"],
        )
    ),
)
def test_each_plane_of_colour_is_where_the_configuration_says(layout: str, form: str, aspect: str, dtype: str) -> None:
    """K-19"""
    array = image_to_ndarray(
        Image(COLORS),
        height=4,
        width=4,
        channel_layout=layout,
        format=form,
        aspect_ratio_handling=aspect,
        data_type=dtype,
        normalization=None,
    )

    first = array if form == "CHANNELS_FIRST" else np.moveaxis(array, -1, 1)
    assert first.shape == (1, len(layout), 4, 4)
    middle = first[0, :, 2]  # the line in the middle is picture, whatever was cut off or added
    assert array.dtype == {"UINT8": np.uint8, "FLOAT": np.float32, "INT64": np.int64}[dtype]
    for plane, name in zip(middle, layout, strict=True):
        assert plane[[0, 3]].tolist() == PLANES[name]
    if aspect == "PAD":
        assert not first[0, [layout.index(name) for name in "RGB"]][:, [0, 3]].any()
