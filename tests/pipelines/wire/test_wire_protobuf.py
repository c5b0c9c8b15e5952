# Types are their numbers on the wire here, also numbers that no type has.
# mypy: disable-error-code="arg-type"
"""The protobuf form, beyond what Konduit's recorded messages show."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from pipelines.data.data import Data
from pipelines.errors import WireError
from pipelines.hotpath import choosing
from pipelines.values import BoundingBox, ByteBuffer, Image, Point, TypedList, ValueType
from pipelines.wire.columns import decode_columns
from pipelines.wire.limits import Limits
from pipelines.wire.protobuf import UNKNOWN, decode, encode, encode_entry, fill, value_of
from protos import data_pb2 as pb

VALUES: list[Any] = [
    "text",
    -5,
    1.5,
    True,
    b"\x00\xff",
    ByteBuffer(b"ab"),
    np.arange(6, dtype=np.int16).reshape(2, 3),
    Image(np.zeros((2, 3, 3), np.uint8)),
    BoundingBox.center(0.5, 0.5, 0.9, 1.0, "cat", 0.5),
    BoundingBox.corners(0, 1, 0, 1),
    Point([0.5, 0.25], "nose", 0.5),
    Data({"a": Data({"b": 1})}, metadata={"m": 1}),
    ["a", ""],
    [1, 2],
    [1.5, math.inf],
    [False, True],
    [b"a", b""],
    [ByteBuffer(b"a")],
    [np.zeros(2), np.zeros(3, np.uint8)],
    [BoundingBox.corners(0, 1, 0, 1)],
    [Point([1.0], "")],
    [Data({"a": 1}, metadata={"m": 2}), Data()],
    [[1, 2], ["a"], []],
]


def entry(**fields: Any) -> bytes:
    """A message of one entry `k` whose DataScheme has these fields."""
    return pb.DataMap(mapItems={"k": pb.DataScheme(**fields)}).SerializeToString()


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_every_value_survives_alone_and_in_a_message(value: Any) -> None:
    data = Data({"k": value}, metadata={"m": value})
    again = decode(encode(data))
    assert again == data
    assert again.metadata == data.metadata
    scheme = pb.DataScheme()
    fill(scheme, value)
    assert Data({"k": value_of(scheme)}) == Data({"k": value})


def test_metadata_of_nested_data_survives() -> None:
    again = decode(encode(Data({"k": Data({"a": 1}, metadata={"m": 1}), "l": [Data({}, metadata={"n": 2})]})))
    assert again["k"].metadata == Data({"m": 1})
    assert again["l"][0].metadata == Data({"n": 2})


def test_a_message_is_the_concatenation_of_its_entries() -> None:
    data = Data({str(number): value for number, value in enumerate(VALUES)})
    joined = b"".join(encode_entry(key, value) for key, value in data.items())
    assert decode(joined) == data
    assert encode_entry("k", 1) == encode(Data({"k": 1}))


def test_equal_data_give_equal_bytes_and_keys_come_back_sorted() -> None:
    a, b = Data({"z": 1, "a": 2, "m": 3}), Data({"m": 3, "z": 1, "a": 2})
    assert encode(a) == encode(b)
    assert list(decode(encode(a))) == ["a", "m", "z"]


def test_the_record_is_not_written() -> None:
    from pipelines.data.data import RecordContext

    data = Data({"k": 1}, record=RecordContext("s", "t"))
    assert encode(data) == encode(Data({"k": 1}))


@pytest.mark.parametrize(
    "element_type", [member for member in ValueType if member is not ValueType.NONE], ids=lambda member: member.name
)
def test_an_empty_list_keeps_its_element_type(element_type: ValueType) -> None:
    data = decode(encode(Data({"k": TypedList(element_type)})))
    assert data["k"] == []
    assert data.list_type("k") is element_type


def test_an_empty_list_that_never_had_a_type_is_written() -> None:
    assert decode(encode(Data({"k": []}))) == Data({"k": []})


def test_empty_labels_and_missing_probabilities_come_back_as_konduit_reads_them() -> None:
    data = decode(encode(Data({"box": BoundingBox.corners(0, 1, 0, 1, ""), "point": Point([0.5])})))
    assert data["box"].label is None
    assert data["point"].label == ""
    assert data["box"].probability is None
    assert data["point"].probability is None


def test_centre_boxes_keep_their_size_to_the_last_bit() -> None:
    box = BoundingBox.center(1e6, 1e6, 1e-9, 0.9)
    assert decode(encode(Data({"k": box})))["k"].numbers == box.numbers


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({}, "its type is NDARRAY, but it has no value instead of ndValue"),
        ({"sValue": "x"}, "its type is NDARRAY, but it has sValue instead of ndValue"),
        ({"type": 1}, "its type is STRING, but it has no value instead of sValue"),
        ({"type": 1, "iValue": 1}, "its type is STRING, but it has iValue instead of sValue"),
        ({"type": 11}, "its type is BYTEBUFFER, but it has no value"),
        ({"type": 9}, "its type is LIST, but it has no value"),
        ({"type": 9, "listType": 1, "listValue": pb.List()}, "it is a list of STRING, but it has no value"),
        (
            {"type": 9, "listType": 1, "listValue": pb.List(iList=pb.Int64List(list=[1]))},
            "it is a list of STRING, but it has iList instead of sList",
        ),
        ({"ndValue": pb.NDArray(shape=[1], type=1)}, "its array is missing"),
        ({"ndValue": pb.NDArray(shape=[2], type=1, array=[bytes(7)])}, "needs 8 bytes, but its buffer has 7"),
        ({"ndValue": pb.NDArray(shape=[-1], type=1, array=[bytes(8)])}, "cannot be negative"),
        ({"ndValue": pb.NDArray(shape=[2**62, 2**62], type=1, array=[bytes(8)])}, "needs"),
        ({"ndValue": pb.NDArray(shape=[1], type=13, array=[b"x"])}, "send a list of strings"),
        ({"ndValue": pb.NDArray(shape=[1], type=14, array=[b"x"])}, "unknown element type 14"),
        ({"type": 3, "imValue": pb.Image(type="PNG")}, "its data is missing"),
        ({"type": 7, "boxValue": pb.BoundingBox(type=2)}, "unknown form 2"),
        ({"type": 10, "pointValue": pb.Point()}, "at least one coordinate"),
        (
            {
                "type": 9,
                "listType": 9,
                "listValue": pb.List(listList=pb.ListList(list=[pb.DataScheme(type=1, sValue="x")])),
            },
            "a list of lists has an element of type 1",
        ),
    ],
    ids=lambda given: given if isinstance(given, str) else "",
)
def test_a_value_that_its_type_does_not_describe_is_an_error_that_names_the_key(
    fields: dict[str, Any], text: str
) -> None:
    with pytest.raises(WireError) as caught:
        decode(entry(**fields))
    assert str(caught.value).startswith('key "k" cannot be read: ')
    assert text in str(caught.value)


@pytest.mark.parametrize(
    "fields",
    [
        {"type": 12, "sValue": "x"},
        {"type": 99, "iValue": 1},
        {"type": 9, "listType": 99, "listValue": pb.List()},
        {
            "type": 9,
            "listType": 9,
            "listValue": pb.List(listList=pb.ListList(list=[pb.DataScheme(type=9, listType=50, listValue=pb.List())])),
        },
    ],
)
def test_a_key_whose_type_is_of_a_later_version_is_left_out(fields: dict[str, Any]) -> None:
    message = pb.DataMap.FromString(entry(**fields))
    message.mapItems["there"].CopyFrom(pb.DataScheme(type=5, iValue=1))
    assert decode(message.SerializeToString()) == Data({"there": 1})
    assert value_of(message.mapItems["k"]) is UNKNOWN


def test_unknown_fields_are_ignored() -> None:
    assert decode(encode(Data({"k": 1})) + b"\xa2\x06\x03abc") == Data({"k": 1})


def test_a_jpeg_labelled_png_is_read_as_what_it_is() -> None:
    jpeg = Image(np.zeros((2, 3, 3), np.uint8)).get_as("jpeg")
    data = decode(entry(type=3, imValue=pb.Image(type="PNG", data=[jpeg])))
    assert data.get_image("k").format == "JPEG"
    assert data.get_image("k").encoded == jpeg


@pytest.mark.parametrize("key", ["@type", "@METADATA", "@x1"])
def test_a_reserved_key_is_an_error(key: str) -> None:
    payload = pb.DataMap(mapItems={key: pb.DataScheme(type=5, iValue=1)}).SerializeToString()
    with pytest.raises(WireError, match="reserved for internal use"):
        decode(payload)


@pytest.mark.parametrize("payload", [b"\xff", b"\x0a", b"\x0a\x05abc", b"hello", b"\x0a\x04\x0a\x02\xff\xfe"])
def test_bytes_that_are_no_message_are_an_error(payload: bytes) -> None:
    with pytest.raises(WireError, match="Error converting bytes array to data"):
        decode(payload)


@pytest.mark.parametrize(
    ("payload", "told"),
    [
        (b'{"a": 1}', "the 8 bytes are no ProtoData message (Konduit's protobuf form of a record, which the codec"),
        (b' {"a": 1}', "they begin like JSON, which the codecs json and konduit-json read"),
        (b'[{"a": 1}]', "they begin like JSON, which the codecs json and konduit-json read"),
        (
            b"\0\0\0\0\x07\x0a\1a",
            "like those of a schema registry (schema id 7), which the codecs avro, json-schema and",
        ),
        (b"\x1f\x8b\x08\0\0", "they begin like gzip, which the codec compressed reads"),
        (b"\x89PNG\r\n\x1a\n\0", "they begin like a picture (PNG), which the codec image reads"),
        (b"\x81\xa1a\1", "they begin like a map of MessagePack, which the codec msgpack reads"),
        (b"m1,30.5", "they are the text 'm1,30.5', which the codecs csv and text read"),
        (b"\x0a\x05abc", "they begin with 0a 05 61 62 63: they are broken, cut short, or of another form"),
    ],
    ids=str,
)
def test_bytes_of_another_form_are_told_by_what_they_look_like(payload: bytes, told: str) -> None:
    with pytest.raises(WireError) as caught:
        decode(payload)
    assert told in str(caught.value)
    assert "streamer.protos" not in str(caught.value)
    for hot_path in ("python", "auto"):
        assert str(choosing(hot_path)(decode_columns)([payload]).failed[0]) == str(caught.value)


@pytest.mark.parametrize("value", ["\ud800", ["\ud800"], Data({"\ud800": 1}), Point([1.0], "\ud800")])
def test_text_that_has_no_utf8_is_an_error_when_written(value: Any) -> None:
    with pytest.raises(WireError, match="cannot be written"):
        encode(Data({"k": value}))


def test_a_list_that_was_changed_to_a_mixture_is_an_error_when_written() -> None:
    for values, wrong in (([1], "x"), (["x"], 1), ([Point([1.0])], 1)):
        data = Data({"k": values})
        data["k"].append(wrong)
        with pytest.raises(WireError, match='key "k" cannot be written'):
            encode(data)


@pytest.mark.parametrize("form", ["png", "jpeg", "bmp"])
def test_an_image_file_goes_out_as_the_bytes_that_came_in_under_its_own_name(form: str) -> None:
    file = Image(np.zeros((2, 3, 3), np.uint8)).get_as(form)
    written = encode(Data({"k": Image(file)}))
    assert pb.DataMap.FromString(written).mapItems["k"].imValue == pb.Image(type=form.upper(), data=[file])
    assert decode(written).get_image("k").encoded == file


def test_an_image_that_was_drawn_goes_out_as_png() -> None:
    drawn = Image(np.zeros((2, 3, 3), np.uint8))
    assert decode(encode(Data({"k": drawn}))).get_image("k").format == "PNG"


def test_a_damaged_image_that_nobody_asks_for_goes_out_as_it_came() -> None:
    assert decode(encode(Data({"k": Image(b"\xff\xd8\xff")}))).get_image("k").encoded == b"\xff\xd8\xff"


def test_metadata_of_metadata_has_no_place() -> None:
    with pytest.raises(WireError, match="no place for the metadata of metadata"):
        encode(Data(metadata=Data({"a": 1}, metadata={"b": 2})))


def nested(levels: int, leaf: Any) -> Data:
    data = Data({"leaf": leaf})
    for _ in range(levels):
        data = Data({"d": data})
    return data


def nested_list(levels: int) -> Any:
    value: Any = [1]
    for _ in range(levels - 1):
        value = [value]
    return value


def test_data_of_the_greatest_depth_is_written_and_read() -> None:
    for data in (
        nested(32, np.zeros(2)),
        nested(31, [np.zeros(2)]),
        Data({"k": nested_list(32)}),
        nested(32, BoundingBox.corners(0, 1, 0, 1)),
    ):
        assert decode(encode(data)) == data


@pytest.mark.parametrize(
    "data",
    [nested(33, 1), nested(32, [1]), Data({"k": nested_list(33)}), nested(31, [Data()])],
    ids=["data", "list in data", "lists", "data in list"],
)
def test_deeper_nesting_is_refused_when_written(data: Data) -> None:
    with pytest.raises(WireError, match="nested more than 32 levels deep"):
        encode(data)


def test_deeper_nesting_is_refused_when_read() -> None:
    payload = b""
    for _ in range(40):
        scheme = b"\x5a" + varint(len(payload)) + payload + b"\x68\x08"
        item = b"\x0a\x01k\x12" + varint(len(scheme)) + scheme
        payload = b"\x0a" + varint(len(item)) + item
    with pytest.raises(WireError):
        decode(payload)
    with pytest.raises(WireError, match="nested more than 3 levels deep"):
        decode(encode(nested(4, 1)), Limits(max_depth=3))
    assert decode(encode(nested(3, 1)), Limits(max_depth=3)) == nested(3, 1)


def varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*encoded, number])


def test_long_messages_and_many_elements_are_refused() -> None:
    payload = encode(Data({"k": [1] * 10, "p": Point([0.5] * 5)}))
    assert decode(payload, Limits(max_bytes=len(payload), max_elements=17))
    with pytest.raises(WireError, match="max_bytes"):
        decode(payload, Limits(max_bytes=len(payload) - 1))
    with pytest.raises(WireError, match="max_elements"):
        decode(payload, Limits(max_elements=16))


@pytest.mark.parametrize("length", [7, 9, 12, 15, 17])
def test_a_float_array_in_a_list_must_have_its_length_or_that_of_doubles(length: int) -> None:
    arrays = pb.NDArrayList(list=[pb.NDArray(shape=[2], type=1, array=[bytes(length)])])
    payload = entry(type=9, listType=0, listValue=pb.List(ndList=arrays))
    for float_lists in ("exact", "double"):
        with pytest.raises(WireError):
            decode(payload, float_lists=float_lists)
