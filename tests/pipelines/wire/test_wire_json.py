"""The JSON form, beyond what Konduit's recorded texts show."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import numpy as np
import PIL.Image
import pytest
import yaml

from pipelines.data.data import Data
from pipelines.errors import WireError
from pipelines.values import BoundingBox, ByteBuffer, Image, Point
from pipelines.wire.json import dumps, loads, to_plain, value_from_plain, value_to_plain
from pipelines.wire.limits import Limits

VALUES: list[Any] = [
    "text \u2028 é 😀",
    -(2**63),
    5e-324,
    1e22,
    True,
    b"\x00\xff",
    ByteBuffer(b"ab"),
    np.arange(6, dtype=np.int16).reshape(2, 3),
    np.array(2.5),
    Image(np.zeros((2, 3, 3), np.uint8)),
    BoundingBox.center(0.5, 0.5, 0.9, 1.0, "", 0.0),
    BoundingBox.corners(0, 1, 0, 1),
    Point([0.5, 0.25], None, 0.5),
    Data({"a": Data({"b": 1})}, metadata={"m": 1}),
    ["a", "NaN"],
    [1.0, 2.0],
    [b"a", b""],
    [ByteBuffer(b"a")],
    [np.zeros(2), np.zeros(3, np.uint8)],
    [Image(np.zeros((2, 3, 3), np.uint8))],
    [BoundingBox.corners(0, 1, 0, 1), BoundingBox.center(0, 1, 0, 1)],
    [Point([1.0])],
    [Data({"a": 1}, metadata={"m": 2}), Data()],
    [[1, 2], ["a"], []],
    [],
]


@pytest.mark.parametrize("byte_order", ["big", "little"])
@pytest.mark.parametrize("pretty", [True, False])
def test_every_value_survives(pretty: bool, byte_order: Any) -> None:
    data = Data({str(number): value for number, value in enumerate(VALUES)}, metadata={"m": [1]})
    again = loads(dumps(data, byte_order, pretty=pretty), byte_order)
    assert again == data
    assert list(again) == list(data)
    assert again.metadata == data.metadata


def test_the_bus_gets_one_line_and_people_an_indented_text() -> None:
    data = Data({"a": [1, 2], "b": {"c": 1.0}})
    assert data.to_json() == '{"a":[1,2],"b":{"c":1.0}}'
    assert data.to_json(pretty=True).splitlines()[:3] == ["{", '  "a": [', "    1,"]


def test_the_wrong_byte_order_is_not_guessed() -> None:
    text = dumps(Data({"k": np.array([1.0], np.float32)}), "little")
    assert loads(text, "big")["k"].tolist() != [1.0]


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_numbers_that_json_lacks_are_strings_that_come_back_where_a_number_must_be(value: float) -> None:
    data = Data(
        {
            "double": value,
            "list": [value, 1.0],
            "box": BoundingBox.corners(value, 1, 0, 1, probability=value),
            "point": Point([value], probability=value),
        }
    )
    again = loads(dumps(data))
    assert again["double"] == {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN")
    assert repr(again["list"]) == repr([value, 1.0])
    assert repr(again["box"]) == repr(data["box"])
    assert repr(again["point"]) == repr(data["point"])


def test_a_list_of_strings_with_a_number_is_still_refused() -> None:
    with pytest.raises(WireError, match="elements of one type"):
        loads('{"k":["NaN","x",1.0]}')


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "Error deserializing Data from JSON"),
        ("{", "Error deserializing Data from JSON"),
        ("null", "not null"),
        ('{"k":Infinity}', "Infinity is no JSON"),
        ('{"k":-Infinity}', "-Infinity is no JSON"),
        ('{"k":"\\ud800"}', "surrogate"),
        ('{"\\ud800":1}', "surrogate"),
        ('{"k":' + "9" * 5000 + "}", "Error deserializing Data from JSON"),
        ('{"k":[true,1]}', "elements of one type"),
        ('{"k":[{"a":1},{"@BytesBase64":""}]}', "elements of one type"),
        ('{"@Metadata":1}', "metadata is a JSON object, not a number"),
        ('{"k":{"@h":1}}', "reserved"),
        ('{"k":{"@BytesBase64":1}}', "must be a string of base64"),
        ('{"k":{"@BytesBase64":"A"}}', "is no base64"),
        ('{"k":{"@BytesBase64":"AA EC"}}', "is no base64"),
        ('{"k":{"@BytesBase64":"é"}}', "is no base64"),
        ('{"k":{"@BytesArray":[true]}}', "-128 to 127"),
        ('{"k":{"@ByteBuffer":"AAEC"}}', "reserved"),
        ('{"k":{"@NDArrayType":"FLOAT"}}', "@NDArrayShape must be a list of integers"),
        ('{"k":{"@NDArrayType":"FLOAT","@NDArrayShape":[1]}}', "@NDArrayDataBase64 must be"),
        ('{"k":{"@NDArrayType":"FLOAT","@NDArrayShape":[1.0],"@NDArrayDataBase64":""}}', "list of integers"),
        ('{"k":{"@NDArrayType":"FLOAT","@NDArrayShape":[1],"@NDArrayDataBase64":"AAA="}}', "needs 4 bytes"),
        ('{"k":{"@NDArrayType":"FLOAT","@NDArrayShape":[-1],"@NDArrayDataBase64":"AAAA"}}', "negative"),
        ('{"k":{"@NDArrayType":"UTF8","@NDArrayShape":[1],"@NDArrayDataBase64":"AAAA"}}', "list of strings"),
        ('{"k":{"@NDArrayType":3,"@NDArrayShape":[1],"@NDArrayDataBase64":"AAAA"}}', "3 is no element type"),
        ('{"k":{"@ImageData":3}}', "@ImageData must be a string"),
        ('{"k":{"@ImageFormat":"HEIC","@ImageData":""}}', "'HEIC'"),
        ('{"k":{"@cx":1,"@cy":1,"@h":1}}', "without @w"),
        ('{"k":{"@cy":1,"@h":1,"@w":1}}', "without @cx"),
        ('{"k":{"@x1":1,"@x2":1,"@y1":"1","@y2":1}}', "@y1 must be a number, not a string"),
        ('{"k":{"@x1":1,"@x2":1,"@y1":true,"@y2":1}}', "@y1 must be a number, not a boolean"),
        ('{"k":{"@Coords":[]}}', "at least one coordinate"),
        ('{"k":{"@Coords":{}}}', "list of numbers"),
        ('{"k":{"@Coords":[null]}}', "must be a number, not null"),
        ('{"k":{"@Coords":[1],"label":3}}', "a label must be a string"),
        ('{"k":{"@Coords":[1],"probability":"x"}}', "a probability must be a number"),
        ('{"k":{"@Coords":[1' + "0" * 400 + "]}}", "too large"),
    ],
    ids=lambda given: given[:40],
)
def test_a_broken_text_is_an_error_that_says_what_is_wrong(text: str, message: str) -> None:
    with pytest.raises(WireError, match=message):
        loads(text)
    with pytest.raises(WireError):
        loads(text.encode("utf-8", "surrogatepass"))


def test_bytes_that_are_no_utf8_are_an_error() -> None:
    with pytest.raises(WireError, match="Error deserializing Data from JSON"):
        loads(b'{"k":"\xff"}')


def test_the_key_is_named_on_every_level(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(WireError, match=r'^key "a\.b" cannot be read: null'):
        loads('{"a":{"b":null}}')
    monkeypatch.setattr(Image, "max_pixels", 1)
    with pytest.raises(WireError, match=r'^key "a\.b" cannot be written: the image has 2 x 2'):
        dumps(Data({"a": {"b": Image(PIL.Image.new("RGB", (2, 2)))}}))


def test_a_deeply_nested_value_is_named_by_the_first_and_last_keys() -> None:
    text = "".join(f'{{"k{level}":' for level in range(30)) + "null" + "}" * 30
    with pytest.raises(WireError, match=r'^key "k0.k1.k2.k3 \.\.\. k26.k27.k28.k29" cannot be read: null'):
        loads(text)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"k":{"@BytesBase64":"AAEC","x":1}}', '"x" beside "@BytesBase64" would be lost'),
        ('{"k":{"@BytesArray":[1],"@Coords":[1]}}', '"@Coords" beside "@BytesArray"'),
        ('{"k":{"@ByteBufferBase64":"AAEC","x":1}}', '"x" beside "@ByteBufferBase64"'),
        ('{"k":{"@NDArrayType":"BOOL","@NDArrayShape":[0],"@NDArrayDataBase64":"","a":1,"b":2}}', '"a", "b" beside'),
        ('{"k":{"@ImageData":"","name":"x.png"}}', '"name" beside "@ImageData"'),
        ('{"k":{"@cx":1,"@cy":1,"@h":1,"@w":1,"zz":0}}', '"zz" beside "@cx"'),
        ('{"k":[{"@x1":1,"@x2":1,"@y1":1,"@y2":1,"@cy":1}]}', '"@cy" beside "@x1"'),
        ('{"k":{"@Coords":[1],"coords":[1]}}', '"coords" beside "@Coords"'),
    ],
)
def test_keys_that_would_be_lost_beside_those_of_a_value_are_an_error(text: str, told: str) -> None:
    with pytest.raises(WireError, match=re.escape(told)):
        loads(text)


def test_keys_that_are_null_can_be_dropped_on_request() -> None:
    assert loads('{"a":null,"b":{"c":null,"d":1}}', nulls="drop") == Data({"b": {"d": 1}})
    with pytest.raises(WireError):
        loads('{"a":[null]}', nulls="drop")


def test_labels_are_read_in_both_spellings() -> None:
    assert loads('{"k":{"@Coords":[1],"@label":"a","@probability":0.5}}')["k"] == Point([1], "a", 0.5)


def test_a_bytes_array_is_read_as_bytes() -> None:
    assert loads('{"k":{"@BytesArray":[0,-1,127,-128],"@BytesBase64":"AA=="}}')["k"] == b"\x00"
    assert loads('{"k":{"@BytesArray":[0,-1,127,-128]}}')["k"] == b"\x00\xff\x7f\x80"


def test_a_jpeg_labelled_png_is_read_as_what_it_is_and_written_as_it_came() -> None:
    jpeg = Image(np.zeros((2, 3, 3), np.uint8)).get_as("jpeg")
    plain = value_to_plain(b"")
    plain = {"@ImageFormat": "PNG", "@ImageData": value_to_plain(jpeg)["@BytesBase64"]}
    image = value_from_plain(plain)
    assert image.format == "JPEG"
    assert value_to_plain(image) == {**plain, "@ImageFormat": "JPEG"}
    assert value_from_plain(value_to_plain(image)).encoded == jpeg


def test_a_data_that_looks_like_a_configured_point_stays_a_data() -> None:
    data = Data({"k": Data({"coords": [1.0, 2.0], "label": "a"}), "l": [Data({"coords": [1]})]})
    again = loads(dumps(data))
    assert again == data
    assert loads('{"k":{"coords":[1.0],"more":1}}')["k"] == Data({"coords": [1.0], "more": 1})
    assert loads('{"k":{"coords":["a"]}}')["k"] == Data({"coords": ["a"]})


def test_nesting_is_limited_in_both_directions() -> None:
    deep = '{"k":' * 33 + "1" + "}" * 33
    assert loads(deep)
    with pytest.raises(WireError, match="nested more than 32 levels deep"):
        loads('{"k":' * 34 + "1" + "}" * 34)
    with pytest.raises(WireError, match="nested more than 32 levels deep"):
        loads('{"k":' + "[" * 33 + "1" + "]" * 33 + "}")
    with pytest.raises(WireError):
        loads('{"k":' + "[" * 100_000)
    with pytest.raises(WireError):
        loads('{"k":' + "[" * 100_000 + "]" * 100_000 + "}")
    with pytest.raises(WireError, match="nested more than 32 levels deep"):
        dumps(Data({"k": loads(deep)}))


def test_long_texts_and_many_elements_are_refused() -> None:
    text = '{"k":[1,2,3],"p":{"@Coords":[1,2]}}'
    assert loads(text, limits=Limits(max_bytes=len(text), max_elements=7))
    with pytest.raises(WireError, match="max_bytes"):
        loads(text, limits=Limits(max_bytes=len(text) - 1))
    with pytest.raises(WireError, match="max_elements"):
        loads(text, limits=Limits(max_elements=6))


def test_text_that_has_no_utf8_is_an_error_when_written() -> None:
    with pytest.raises(WireError, match="surrogate"):
        dumps(Data({"k": "\ud800"}))


def test_the_plain_form_is_what_a_json_parser_gives() -> None:
    data = Data({str(number): value for number, value in enumerate(VALUES)}, metadata={"m": 1})
    plain = to_plain(data)
    assert json.loads(dumps(data)) == plain
    assert loads(json.dumps(plain)) == data


def test_a_single_value_has_a_plain_form() -> None:
    assert value_to_plain(Point([0.5])) == {"@Coords": [0.5]}
    assert value_from_plain({"coords": [0.5], "label": "a"}) == Point([0.5], "a")
    assert value_from_plain({"@cx": 0, "@cy": 0, "@h": 1, "@w": 1}) == BoundingBox.center(0, 0, 1, 1)
    assert value_from_plain([1, 2.5]) == [1.0, 2.5]
    with pytest.raises(WireError):
        value_from_plain(None)


def test_dates_integer_keys_and_sets_of_yaml_are_refused() -> None:
    for text in ("k: 2020-01-01", "1: a", "k: !!set {a}"):
        with pytest.raises(WireError):
            value_from_plain(yaml.safe_load(text))


@pytest.mark.parametrize("number", ["1e400", "-1e400", "1" + "0" * 400 + ".0"])
@pytest.mark.parametrize(
    "form",
    [
        '{{"a": {}}}',
        '{{"a": [1.5, {}]}}',
        '{{"a": {{"b": {}}}}}',
        '{{"a": {{"@x1": {}, "@x2": 1, "@y1": 1, "@y2": 1}}}}',
        '{{"a": {{"@Coords": [{}]}}}}',
        '{{"a": {{"@Coords": [1], "probability": {}}}}}',
    ],
)
def test_a_number_beyond_the_largest_is_refused_as_infinity_is(form: str, number: str) -> None:
    with pytest.raises(WireError, match=r'beyond the largest, 1\.8e308; write "-?Infinity"'):
        Data.from_json(form.format(number))
    with pytest.raises(WireError, match="Infinity is no JSON"):
        Data.from_json(form.format("Infinity"))
