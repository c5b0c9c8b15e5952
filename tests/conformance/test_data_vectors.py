"""Every row of Konduit Serving's recorded JSON and protobuf forms of a Data. Its JSON arrays are little-endian."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipelines.data.batch import Batch
from pipelines.data.data import Data
from pipelines.errors import WireError
from pipelines.hotpath import HotPath
from pipelines.values import BoundingBox, Image, Point, type_of
from pipelines.values.ndarray import array_type
from pipelines.wire.columns import decode_columns, encode_columns
from pipelines.wire.protobuf import decode
from protos import data_pb2 as pb


def rows(name: str) -> list[Any]:
    lines = (Path(__file__).parent / "vectors" / name).read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def named(name: str) -> list[Any]:
    return [pytest.param(row, id=row["name"]) for row in rows(name)]


def check_data(data: Data, meaning: dict[str, Any]) -> None:
    assert list(data) == list(meaning["keys"]) or sorted(data) == sorted(meaning["keys"])
    for key, expected in meaning["keys"].items():
        check(data[key], expected)
    if "metadata" in meaning:
        assert data.metadata is not None
        check_data(data.metadata, meaning["metadata"])
    else:
        assert data.metadata is None


def check(value: Any, expected: dict[str, Any]) -> None:
    assert type_of(value).name == expected["type"]
    match expected["type"]:
        case "DATA":
            check_data(value, expected)
        case "LIST":
            check_list(value, expected)
        case "NDARRAY":
            assert array_type(value.dtype).name == expected["dtype"]
            assert list(value.shape) == expected["shape"]
            assert value.tolist() == expected["values"]
        case "BYTES" | "BYTEBUFFER":
            assert list(value) == expected["bytes"]
        case "IMAGE":
            check_image(value, expected)
        case "BOUNDING_BOX":
            check_box(value, expected)
        case "POINT":
            assert list(value.coords) == expected["coords"]
            assert (value.label, value.probability) == (expected["label"], expected["probability"])
        case _:
            assert value == expected["value"]
            # Tells 1 from 1.0 and 0.0 from -0.0.
            assert repr(value) == repr(expected["value"])


def check_list(values: list[Any], expected: dict[str, Any]) -> None:
    assert len(values) == len(expected["items"])
    for value, item in zip(values, expected["items"], strict=True):
        if isinstance(item, dict):
            check(value, item)
        elif expected["list_type"] in ("BYTES", "BYTEBUFFER"):
            check(value, {"type": expected["list_type"], "bytes": item})
        else:
            check(value, {"type": expected["list_type"], "value": item})


def check_image(image: Image, expected: dict[str, Any]) -> None:
    assert (image.format, image.width, image.height) == (expected["format"], expected["width"], expected["height"])
    assert image.channels == expected["channels"]
    assert image.get_as("numpy")[:, :, ::-1].tolist() == expected["rgb_pixels"]


def check_box(box: BoundingBox, expected: dict[str, Any]) -> None:
    assert box.form == expected["form"]
    names = ("cx", "cy", "h", "w") if box.form == "CHW" else ("x1", "x2", "y1", "y2")
    assert list(box.numbers) == pytest.approx([expected[name] for name in names], rel=1e-12)
    assert (box.label, box.probability) == (expected["label"], expected["probability"])


# The developer documentation's sample is from the time when Konduit wrote big-endian; ours is that by default.
BIG_ENDIAN = {"nd_float_big_endian_documentation_example"}


@pytest.mark.parametrize("row", named("data-json.jsonl"))
def test_json_has_its_meaning(row: dict[str, Any]) -> None:
    text = json.dumps(row["json"])
    data = Data.from_json(text) if row["name"] in BIG_ENDIAN else Data.from_json(text, "little")
    if row["name"] in MIXED_LISTS:
        assert data["k"] == MIXED_LISTS[row["name"]]
        return
    check_data(data, row["meaning"])
    again = Data.from_json(data.to_json("little"), "little")
    assert again == data
    check_data(again, row["meaning"])


# Konduit forces the elements to the type of the first; integers with floats are floats here (data.md, section 4).
MIXED_LISTS = {"list_mixed_first_int": [1.0, 2.5]}


@pytest.mark.parametrize("row", named("data-wire.jsonl"))
def test_konduits_json_text_is_read_and_written_alike(row: dict[str, Any]) -> None:
    if "json_text" not in row:
        # Konduit cannot write lists of lists; we can.
        assert row["name"] == "list_of_list"
        data = Data({"k": [[1, 2], [3]]})
        assert Data.from_json(data.to_json()) == data
        assert data.to_json() == '{"k":[[1,2],[3]]}'
        return
    data = Data.from_json(row["json_text"], "little")
    check_data(data, row["meaning"])
    written = json.loads(data.to_json("little"), parse_float=float)
    expected = json.loads(row["json_text"], parse_float=float)
    if row["name"] in OVERLONG:
        for array in (written["k"], expected["k"]):
            array["@NDArrayDataBase64"] = base64.b64decode(array["@NDArrayDataBase64"])[: OVERLONG[row["name"]]]
    # repr tells 1 from 1.0 and keeps the order of the keys.
    assert repr(written) == repr(expected)


# Integer arrays that Konduit writes with zeros appended: bytes that count.
OVERLONG = {"nd_short_1": 6, "nd_int_1": 12, "nd_long_1": 24}


@pytest.mark.parametrize("row", named("data-wire.jsonl"))
def test_konduits_protobuf_message_is_read(row: dict[str, Any]) -> None:
    if "protobuf_base64" not in row:
        check_that_ours_carries_it(row)
        return
    payload = base64.b64decode(row["protobuf_base64"])
    if row["name"] == "list_ndarray_double":
        # Labelled FLOAT by Konduit whatever it is: refused unless asked for.
        with pytest.raises(WireError, match="float_lists"):
            decode(payload)
        check_data(decode(payload, float_lists="double"), row["meaning"])
        return
    check_data(Data.from_bytes(payload), meaning_in_protobuf(row))


@pytest.mark.slow
@pytest.mark.parametrize("wanted", [True, False], ids=["wanted", "unread"])
@pytest.mark.parametrize("row", [row for row in named("data-wire.jsonl") if "protobuf_base64" in row.values[0]])
def test_konduits_protobuf_message_is_read_in_columns(hot_path: HotPath, row: dict[str, Any], wanted: bool) -> None:
    payload = base64.b64decode(row["protobuf_base64"])
    keys = frozenset(pb.DataMap.FromString(payload).mapItems) if wanted else None
    doubles = row["name"] == "list_ndarray_double"
    found = decode_columns([payload] * 3, keys, float_lists="double" if doubles else "exact")
    assert not found.failed
    batch = Batch(found.columns, 3, metadata=found.metadata)
    for data in batch.to_list():
        check_data(data, meaning_in_protobuf(row))
    if not doubles:
        again = decode_columns(encode_columns(batch).messages, keys)
        check_data(Batch(again.columns, 3, metadata=again.metadata).row(2), meaning_in_protobuf(row))


def meaning_in_protobuf(row: dict[str, Any]) -> dict[str, Any]:
    """What is left of the meaning once Konduit has written it in protobuf (data.md, section 7.6)."""
    meaning: dict[str, Any] = row["meaning"]
    if row["name"] in ("double_nan", "double_inf", "double_neginf"):
        value = {"double_nan": "nan", "double_inf": "inf", "double_neginf": "-inf"}[row["name"]]
        return {"keys": {"k": {"type": "DOUBLE", "value": _Float(value)}}}
    if row["name"] == "nested_with_metadata":
        meaning["keys"]["outer"].pop("metadata", None)
    for value in meaning["keys"].values():
        if value["type"] == "BOUNDING_BOX" and value["label"] == "":
            value["label"] = None
    return meaning


class _Float:
    """Equals every float with this text: NaN equals nothing, itself included."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __eq__(self, other: object) -> bool:
        return repr(other) == self._text

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return self._text


def check_that_ours_carries_it(row: dict[str, Any]) -> None:
    if row["name"] == "list_of_list":
        data = Data({"k": [[1, 2], [3]]})
        assert Data.from_bytes(data.to_bytes()) == data
        return
    data = Data.from_json(row["json_text"], "little")
    check_data(Data.from_bytes(data.to_bytes()), row["meaning"])


@pytest.mark.parametrize("row", [row for row in named("data-wire.jsonl") if "protobuf_base64" in row.values[0]])
def test_our_protobuf_message_is_konduits(row: dict[str, Any]) -> None:
    theirs = pb.DataMap.FromString(base64.b64decode(row["protobuf_base64"]))
    data = data_of(row)
    ours = pb.DataMap.FromString(data.to_bytes())
    if row["name"] == "list_ndarray_double":
        (array,) = ours.mapItems["k"].listValue.ndList.list
        assert array.type == pb.NDArray.DOUBLE
        array.type = pb.NDArray.FLOAT
    if row["name"] == "nested_with_metadata":
        assert list(ours.mapItems["outer"].metaData.metaData) == ["mk"]
        ours.mapItems["outer"].metaData.metaData.clear()
    if row["name"] in OVERLONG:
        array = theirs.mapItems["k"].ndValue
        array.array[0] = array.array[0][: OVERLONG[row["name"]]]
    for message in (ours, theirs):
        round_sizes(message)
    assert ours.SerializeToString(deterministic=True) == theirs.SerializeToString(deterministic=True)


def data_of(row: dict[str, Any]) -> Data:
    if row["name"].startswith("double_") and row["meaning"]["keys"]["k"]["type"] == "STRING":
        return Data({"k": float(row["meaning"]["keys"]["k"]["value"])})
    if row["name"] == "list_empty_string":
        return Data.from_bytes(base64.b64decode(row["protobuf_base64"]))
    return Data.from_json(row["json_text"], "little")


def round_sizes(message: pb.DataMap) -> None:
    """Konduit computes height and width of a centre box anew, which turns 0.9 into 0.9000000000000001."""
    for items in (message.mapItems, message.metaData):
        for scheme in items.values():
            boxes = [scheme.boxValue] if scheme.WhichOneof("value") == "boxValue" else []
            if scheme.listType == pb.DataScheme.BOUNDING_BOX:
                boxes.extend(scheme.listValue.bboxList.list)
            for box in boxes:
                box.h, box.w = round(box.h, 12), round(box.w, 12)


READ: dict[str, Data | str] = {
    '{"k":[]}': Data({"k": []}),
    '{"k":null}': "leave the key out",
    '{"k":[null]}': "null is no value",
    '{"k":12345678901234567890}': "does not fit in 64 bits",
    '{"k":1e400}': "a number is beyond the largest",
    '{"k":[1,"x"]}': "elements of one type, not of INT64, STRING",
    '{"@type":"x"}': "reserved",
    '{"k":{"@x1":0,"@x2":1,"@y1":0,"@y2":1,"label":null,"probability":null}}': Data(
        {"k": BoundingBox.corners(0, 1, 0, 1)}
    ),
    '{"k":{"@BytesArray":[200]}}': "-128 to 127",
    '{"k":{"@ByteBufferBase64":"AAEC"}}': Data({"k": bytearray(b"\x00\x01\x02")}),
    '{"k":{"@ImageFormat":"JPEG","@ImageData":"AAEC"}}': Data({"k": Image(b"\x00\x01\x02")}),
    '{"k":{"@ImageData":"AAEC"}}': Data({"k": Image(b"\x00\x01\x02")}),
    '{"k":{"@NDArrayType":"float","@NDArrayShape":[3],"@NDArrayDataBase64":"AAAAAAAAgD8AAABA"}}': "is no element type",
    '{"k":{"a":{"@Metadata":{"z":1}},"@Metadata":{"y":2}}}': Data(
        {"k": Data({"a": Data(metadata={"z": 1})}, metadata={"y": 2})}
    ),
    '{"k":1.0,"k":2.0}': Data({"k": 2.0}),
    '{"k":NaN}': "NaN is no JSON",
    '{"k":"NaN"}': Data({"k": "NaN"}),
    "[1]": "not an array",
    '"x"': "not a string",
    '{"k":1,}': "Error deserializing Data from JSON",
}
"""What we make of each odd text: the row's `recommended` column, as a value or a piece of the error."""


@pytest.mark.parametrize("row", rows("data-json-read.jsonl"), ids=lambda row: row["text"][:40])
def test_an_odd_json_text_is_read_as_recommended(row: dict[str, Any]) -> None:
    expected = READ[row["text"]]
    assert isinstance(expected, str) is row["recommended"].startswith("reject")
    if isinstance(expected, str):
        with pytest.raises(WireError, match=expected):
            Data.from_json(row["text"])
        return
    data = Data.from_json(row["text"])
    assert data == expected
    assert data.to_json() == expected.to_json()


def test_the_published_sample_is_read_by_default() -> None:
    text = '{"myKey":{"@NDArrayType":"FLOAT","@NDArrayShape":[3],"@NDArrayDataBase64":"AAAAAD+AAABAAAAA"}}'
    data = Data.from_json(text)
    np.testing.assert_array_equal(data.get_ndarray("myKey"), np.array([0, 1, 2], np.float32))
    assert data.to_json() == text


def test_the_worked_examples_are_written_byte_for_byte() -> None:
    examples = {
        "0a150a056d794b6579120c12086d79537472696e676801": Data({"myKey": "myString"}),
        "0a0d0a056d794b6579120420016805": Data({"myKey": 1}),
        "0a0d0a056d794b6579120428006806": Data({"myKey": False}),
        "0a1e0a056d794b6579121542130a010310011a0c000000000000803f00000040": Data(
            {"myKey": np.array([0, 1, 2], np.float32)}
        ),
        "": Data(),
    }
    for encoded, data in examples.items():
        assert data.to_bytes().hex() == encoded
        assert Data.from_bytes(bytes.fromhex(encoded)) == data


def test_a_point_is_read_in_both_spellings() -> None:
    for text in ('{"k":{"@Coords":[0.5,1],"label":"a"}}', '{"k":{"coords":[0.5,1],"label":"a"}}'):
        assert Data.from_json(text) == Data({"k": Point([0.5, 1], "a")})
