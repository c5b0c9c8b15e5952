"""`types` of codecs: what values become, the same in all of them, and what happens to those of no such type."""

from __future__ import annotations

import base64
import json
import math
import struct
import zlib
from collections.abc import Iterator
from typing import Any, Literal

import msgpack
import numpy as np
import pytest
from codecsupport import block, service_of
from hypothesis import given, settings
from hypothesis import strategies as st

import pipelines
from connectors.codec import Codec
from connectors.codecs.registry import codec_config, codec_of
from examples import examples
from pipelines import Batch, Data, Image
from pipelines.data.columns import MISSING
from pipelines.errors import DefinitionError
from pipelines.hotpath import choosing, why_not
from streamer import testing
from streamer.testing.running import payload

Way = Literal["python", "native"]


def _chunk(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))


PNG = (
    b"\x89PNG\r\n\x1a\n"
    + _chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0))
    + _chunk(b"IDAT", zlib.compress(b"\0\7"))
    + _chunk(b"IEND", b"")
)
FILE = base64.b64encode(PNG).decode()
LINES = base64.encodebytes(bytes(100)).decode()


class Wrong:
    """The error of a value: how its text goes on behind the key."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return f"Wrong({self.text!r})"


# Type, value as any of the formats has it, and what it becomes.
TEXTS: list[tuple[str, Any, Any]] = [
    ("number", "23.5", 23.5),
    ("number", " 23.5 ", 23.5),
    ("number", "\t-1e3\r\n", -1000.0),
    ("number", "30", 30.0),
    ("number", "+.5", 0.5),
    ("number", "7.", 7.0),
    ("number", "0012", 12.0),
    ("number", "9007199254740993", 9007199254740992.0),
    ("number", "1E-400", 0.0),
    ("number", "NaN", MISSING),
    ("number", " nan", MISSING),
    ("number", "-NAN", MISSING),
    ("number", "-Infinity", -math.inf),
    ("number", "inf", math.inf),
    ("number", "on", Wrong('"on" is no number')),
    ("number", "21,5", Wrong('"21,5" is no number')),
    ("number", "0x1F", Wrong('"0x1F" is no number')),
    ("number", "1_000", Wrong('"1_000" is no number')),
    ("number", "1 000", Wrong('"1 000" is no number')),
    ("number", "٣", Wrong('"٣" is no number')),
    ("number", "\xa01", Wrong('"\xa01" is no number')),
    ("number", "1e400", Wrong('"1e400" is no number: it is beyond the largest, 1.8e308')),
    ("number", "infinit", Wrong('"infinit" is no number')),
    ("number", "true", Wrong('"true" is no number')),
    ("number", "x" * 50, Wrong(f'"{"x" * 40}..." is no number')),
    ("integer", "7", 7),
    ("integer", " -007 ", -7),
    ("integer", "+9223372036854775807", 2**63 - 1),
    ("integer", "-9223372036854775808", -(2**63)),
    ("integer", "9223372036854775808", Wrong('"9223372036854775808" is no integer: it does not fit in 64 bits')),
    ("integer", "1" * 5000, Wrong(f'"{"1" * 40}..." is no integer: it does not fit in 64 bits')),
    ("integer", "0" * 5000 + "5", 5),
    ("integer", "1.0", Wrong('"1.0" is no integer')),
    ("integer", "1e3", Wrong('"1e3" is no integer')),
    ("integer", "nan", Wrong('"nan" is no integer')),
    ("boolean", "true", True),
    ("boolean", " FALSE ", False),
    ("boolean", "1", True),
    ("boolean", "0", False),
    ("boolean", "on", Wrong('"on" is no boolean: true, false, 1 or 0')),
    ("boolean", "01", Wrong('"01" is no boolean')),
    ("text", " a ", " a "),
    ("text", "7.50", "7.50"),
    ("bytes", "aGk=", b"hi"),
    ("bytes", " aGk=\n", b"hi"),
    ("bytes", LINES, bytes(100)),
    ("bytes", "aGk", Wrong('"aGk" is no base64')),
    ("bytes", "a!Gk=", Wrong('"a!Gk=" is no base64')),
    ("bytes", "é", Wrong('"é" is no base64')),
    ("image", FILE, Image(PNG)),
    ("image", f" data:image/png;base64,{FILE}", Image(PNG)),
    ("image", "aGk=", Wrong('"aGk=" is no image: its 2 bytes are not a PNG')),
    ("image", "data:image/png,hi", Wrong('"data:image/png,hi" is no image: an image is base64 or a data URI')),
]
BLANK: list[tuple[str, Any, Any]] = [
    ("number", "", Wrong('"" is no number')),
    ("integer", " ", Wrong('" " is no integer')),
    ("boolean", "", Wrong('"" is no boolean')),
    ("text", "", ""),
    ("bytes", "", b""),
    ("image", "", Wrong('"" is no image')),
]
OTHERS: list[tuple[str, Any, Any]] = [
    ("number", 7, 7),
    ("number", 7.5, 7.5),
    ("number", 2**63, Wrong("key cannot be read: the integer 9223372036854775808 does not fit in 64 bits")),
    ("number", True, Wrong("true is no number")),
    ("number", [1.0], Wrong("a list is no number")),
    ("number", {"a": 1}, Wrong("an object is no number")),
    ("number", None, MISSING),
    ("integer", 7, 7),
    ("integer", 7.0, Wrong("7.0 is no integer")),
    ("integer", False, Wrong("false is no integer")),
    ("boolean", True, True),
    ("boolean", 1, Wrong("1 is no boolean")),
    ("boolean", None, MISSING),
    ("text", 7, "7"),
    ("text", 1.5, "1.5"),
    ("text", 2**64 - 1, "18446744073709551615"),
    ("text", True, "true"),
    ("text", None, MISSING),
    ("text", [1], Wrong("a list is no text")),
    ("text", {}, Wrong("an object is no text")),
    ("bytes", 7, Wrong("7 is no base64")),
    ("image", {"format": "png", "base64": FILE}, Image(PNG)),
    ("image", {"format": "png", "base64": 7}, Wrong("an object is no image")),
    ("image", [FILE], Wrong("a list is no image")),
    ("image", 7, Wrong("7 is no image")),
]
OF_JSON: list[tuple[str, bytes, Any]] = [
    ("text", b"1.10", "1.10"),
    ("text", b"-0", "-0"),
    ("text", b"1E5", "1E5"),
    ("text", b"12345678901234567890123456789", "12345678901234567890123456789"),
    ("text", b"1" * 5000, "1" * 5000),
    ("text", b"1e400", "1e400"),
    ("text", rb'"\u00e9\n"', "é\n"),
    ("number", rb'"\t2\u0030"', 20.0),
    ("number", rb'"\ud800"', Wrong('"\\ud800" is no number')),
    ("number", b'"21.5\\u0000"', Wrong('"21.5\\u0000" is no number: it has a NUL byte (\\x00) at the end')),
    ("number", b"1e400", Wrong("key cannot be read: a number is beyond the largest")),
]
OF_MSGPACK: list[tuple[str, Any, Any]] = [
    ("bytes", b"\xff\0", b"\xff\0"),
    ("image", PNG, Image(PNG)),
    ("image", {"format": "png", "bytes": PNG}, Image(PNG)),
    ("image", b"hi", Wrong("a value of 2 bytes is no image: its 2 bytes are not a PNG")),
    ("text", "é".encode(), "é"),
    ("text", b"\xff", Wrong("a value of 1 bytes is no text")),
    ("text", math.nan, "nan"),
    ("number", math.inf, math.inf),
    ("number", b"1", Wrong("a value of 1 bytes is no number")),
]
WAYS: tuple[Way, ...] = ("python",) if why_not() is not None else ("python", "native")


def packed(value: Any) -> bytes:
    return bytes(msgpack.packb(value))


def json_object(values: Any) -> bytes:
    return json.dumps(values, separators=(",", ":")).encode()


def json_text(value: Any) -> bytes:
    return json.dumps({"k": value, "other": 1}).encode()


def csv_row(value: Any) -> bytes:
    return b'"%s",1' % str(value).replace('"', '""').encode()


def cases() -> Iterator[Any]:
    """Codec, its way, payload, type, and what the value of `k` becomes."""
    event = {"specversion": "1.0", "id": "1", "source": "s", "type": "t"}
    for kind, value, becomes in (*TEXTS, *BLANK, *OTHERS):
        for way in WAYS:
            yield "json", way, json_text(value), kind, becomes
        # The library packs no larger integers than those of 64 bits without a sign.
        yield "msgpack", "python", packed({"k": value, "other": 1}), kind, becomes
        document = json.dumps({**event, "data": {"k": value, "other": 1}}).encode()
        yield "cloudevents", WAYS[-1], document, kind, becomes
    for kind, value, becomes in TEXTS:
        yield "csv", "python", csv_row(value), kind, becomes
    for kind, value, _ in BLANK:
        yield "csv", "python", csv_row(value), kind, "" if kind == "text" else MISSING
    for kind, text, becomes in OF_JSON:
        for way in WAYS:
            yield "json", way, b'{"k": %s , "other": 1}' % text, kind, becomes
    for kind, value, becomes in OF_MSGPACK:
        yield "msgpack", "python", packed({"k": value, "other": 1}), kind, becomes


def codec(name: str, types: dict[str, str], way: Way = WAYS[-1]) -> Codec:
    names = {"names": ["k", "other"]} if name == "csv" else {}
    config: dict[str, Any] = {"type": "json" if name == "cloudevents" else name, "types": types, **names}
    made: Codec = choosing(way)(codec_of)({"type": name, "codec": config} if name == "cloudevents" else config)
    return made


def error_of(becomes: Wrong) -> str:
    return f'key "k"{becomes.text[3:]}' if becomes.text.startswith("key ") else f"k: {becomes.text}"


def check_read(made: Codec, payloads: list[bytes], places: list[int], becomes: Any) -> None:
    """The values of `k` in the payloads at these places are so, both if a step is known to read them, and if not."""
    now, later = (made.decode(block(payloads), wanted) for wanted in (frozenset({"k"}), None))
    assert not later.failed
    if isinstance(becomes, Wrong):
        assert sorted(now.failed) == places
        assert all(str(error).startswith(error_of(becomes)) for error in now.failed.values())
        failed: dict[int, Exception] = {}
        list(later.batch.column("k").cells(failed))
        assert {row: str(error) for row, error in failed.items()} == {row: str(e) for row, e in now.failed.items()}
        return
    assert not now.failed
    for batch in (now.batch, later.batch):
        values = batch.column("k").values() if "k" in batch else [MISSING] * batch.size
        for place in places:
            assert values[place] == becomes
            assert type(values[place]) is type(becomes)


@pytest.mark.parametrize(("name", "way", "payload", "kind", "becomes"), list(cases()))
def test_a_value_becomes_one_of_the_type_in_every_codec_whatever_its_neighbours_are(
    name: str, way: Way, payload: bytes, kind: str, becomes: Any
) -> None:
    made = codec(name, {"k": kind}, way)
    check_read(made, [payload], [0], becomes)
    usual = {"number": "1.5", "integer": "2", "boolean": "true", "text": "a", "bytes": "aGk=", "image": FILE}[kind]
    other = csv_row(usual) if name == "csv" else packed({"k": usual}) if name == "msgpack" else json_text(usual)
    if name == "cloudevents":
        other = payload.replace(payload[payload.index(b'"data"') :], b'"data": {"k": "%s"}}' % usual.encode())
    check_read(made, [other, payload, other, payload, *[other] * 20], [1, 3], becomes)


@pytest.mark.parametrize("name", ["json", "msgpack", "csv"])
@pytest.mark.parametrize("way", WAYS)
def test_values_that_no_step_reads_go_on_byte_for_byte_right_or_wrong(name: str, way: Way) -> None:
    values = [" 23.5 ", "on", "1.10", "NaN", *([] if name == "csv" else [1.5, True, [1, "a"]])]
    pack = {"json": lambda value: b'{"k":%s,"other":1.10}' % json.dumps(value).encode(), "csv": csv_row}.get(
        name, lambda value: packed({"k": value, "other": 1})
    )
    made, payloads = codec(name, {"k": "number"}, way), [pack(value) for value in values]
    if name == "csv":
        payloads = [row.replace(b'"', b"") for row in payloads]
    batch = made.decode(block(payloads), frozenset({"nothing"})).batch
    assert [bytes(value or b"") for value in made.encode(batch).values] == payloads
    # Also in parts, joined and taken apart by steps.
    rows = np.array([2, 0, 1])
    joined = Batch.concat([batch.take(rows), batch])
    assert [bytes(value or b"") for value in made.encode(joined).values] == [payloads[row] for row in rows] + payloads


@pytest.mark.parametrize("name", ["json", "msgpack"])
def test_a_function_gets_values_of_the_type_and_a_wrong_one_only_fails_what_looks_at_it(name: str) -> None:
    def looking(data: Data) -> Data | None:
        if data["other"] == 1:
            data["double"] = data["k"] * 2
        return data

    pack = packed if name == "msgpack" else json_object
    setting: dict[str, Any] = {"type": name, "types": {"k": "number"}}
    rows = [{"k": "1.5", "other": 1}, {"k": "on", "other": 1}, {"k": "on", "other": 2}]
    report = testing.run(service_of(looking, setting, name), [pack(row) for row in rows])
    found = [message.value for message in report.sinks["memory"]]
    assert found == [pack({"k": 1.5, "other": 1, "double": 3.0}), pack(rows[2])]
    assert ['k: "on" is no number' in letter.error for letter in report.dead] == [True]


@pytest.mark.parametrize("name", ["json", "msgpack"])
def test_a_wrong_value_goes_on_as_it_came_through_a_function_that_adds_others(name: str) -> None:
    def adding(data: Data) -> Data:
        data["more"] = 1
        return data

    pack = packed if name == "msgpack" else json_object
    made = codec(name, {"k": "number"})
    rows = [pack({"k": "on"}), pack({"k": "1.50"})]
    written: list[Any] = []
    # A number is one whether a record of its batch is wrong or not.
    for together in ([rows[0]], [rows[1]], rows):
        with pipelines.Sequence([adding]).open() as executor:
            result = executor.run_batch(made.decode(block(together), None).batch)
        written += made.encode(result.batch).values
    on, number = pack({"k": "on", "more": 1}), pack({"k": 1.5, "more": 1})
    assert [bytes(value or b"") for value in written] == [on, number, on, number]


def test_fields_of_a_table_are_numbers_in_other_formats() -> None:
    rows = block([b"1.50,7", b"on,8", b",9"])
    batch = codec_of({"type": "csv", "names": ["k", "n"], "types": {"k": "number", "n": "integer"}}).decode(rows, None)
    written = codec_of("msgpack").encode(batch.batch)
    assert [value and msgpack.unpackb(value) for value in written.values] == [{"k": 1.5, "n": 7}, None, {"n": 9}]
    assert [str(error) for error in written.failed.values()] == ['k: "on" is no number']


def test_a_codec_of_another_format_has_to_read_the_values() -> None:
    batch = codec("json", {"k": "number"}).decode(block([b'{"k": "1.50"}', b'{"k": "on"}']), None).batch
    for other in ("msgpack", "csv"):
        written = codec_of({"type": other, "names": ["k"]} if other == "csv" else other).encode(batch)
        assert written.values[0] in (b"1.5", packed({"k": 1.5}))
        assert [str(error) for error in written.failed.values()] == ['k: "on" is no number']


def test_an_image_in_a_payload_is_one_for_models_and_keeps_its_file() -> None:
    batch = codec("json", {"k": "image"}).decode(block([json_text(FILE)]), frozenset({"k"})).batch
    image = batch["k"][0]
    assert (image.width, image.height, image.encoded) == (1, 1, PNG)
    assert batch.may_hold_images
    assert json.loads(codec_of("json").encode(batch).values[0] or b"")["k"] == {"format": "png", "base64": FILE}
    undecoded = codec("json", {"k": "image"}).decode(block([json_text(FILE)]), frozenset({"other"})).batch
    assert undecoded.may_hold_images
    assert (
        not codec("json", {"k": "bytes"}).decode(block([json_text(FILE)]), frozenset({"other"})).batch.may_hold_images
    )


def test_types_are_those_of_the_keys_that_fields_give() -> None:
    config = {"type": "json", "fields": {"temp": "/r/0", "id": "/id"}, "types": {"temp": "number", "id": "text"}}
    for way in WAYS:
        made = choosing(way)(codec_of)(config)
        decoded = made.decode(block([b'{"r": ["21.5"], "id": 7}', b'{"r": ["on"], "temp": 1}']), frozenset({"temp"}))
        assert decoded.batch.to_list() == [Data({"r": ["21.5"], "temp": 21.5, "id": "7"})]
        assert [str(error) for error in decoded.failed.values()] == ['temp: "on" is no number']


def test_a_column_without_any_value_is_none() -> None:
    for way in WAYS:
        decoded = codec("json", {"k": "number"}, way).decode(block([b'{"k": "NaN"}'] * 3), frozenset({"k"}))
        assert (decoded.batch.keys(), decoded.batch.size, decoded.failed) == ([], 3, {})


@pytest.mark.parametrize("name", ["json", "msgpack", "csv"])
def test_a_type_that_there_is_not_is_refused_with_those_that_there_are(name: str) -> None:
    with pytest.raises(DefinitionError, match="'number', 'integer', 'boolean', 'text', 'bytes' or 'image'"):
        codec_of({"type": name, "types": {"k": "float"}})


@pytest.mark.parametrize("name", ["json", "msgpack", "csv"])
def test_which_values_are_images_is_known_before_any_record(name: str) -> None:
    fields = codec_config({"type": name, "types": {"k": "image", "n": "number"}}).read_fields()
    assert fields is not None
    assert (fields.images, fields.others) == (frozenset({"k"}), True)
    assert codec_config(name).read_fields() is None
    wrapped = codec_config({"type": "cloudevents", "codec": {"type": name, "types": {"k": "image"}}}).read_fields()
    assert wrapped is not None
    assert wrapped.images == frozenset({"k"})


def test_cases_of_a_test_are_written_with_a_codec_that_states_types() -> None:
    assert json.loads(payload(Data({"k": 1.5}), {"type": "json", "types": {"k": "number"}})) == {"k": 1.5}


plain = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
    st.sampled_from([value for _, value, _ in TEXTS]),
    st.lists(st.integers(0, 3), max_size=2),
    st.dictionaries(st.sampled_from(["base64", "a"]), st.text("aGk=", max_size=4), max_size=1),
)
KINDS = ("number", "integer", "boolean", "text", "bytes", "image")


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(plain, min_size=1, max_size=12), st.sampled_from(KINDS), st.booleans())
def test_json_and_msgpack_read_the_same_values_and_say_the_same_errors(
    values: list[Any], kind: str, wanted: bool
) -> None:
    rows = [{"k": value} for value in values]
    keys = frozenset({"k"} if wanted else ())
    found = []
    for name, pack in (("json", json_object), ("msgpack", packed)):
        decoded = codec(name, {"k": kind}).decode(block([pack(row) for row in rows]), keys)
        failed: dict[int, Exception] = dict(decoded.failed)
        cells = {}
        if "k" in decoded.batch:
            wrong: dict[int, Exception] = {}
            numbers = decoded.batch.rows.tolist()
            cells = {numbers[at]: (type(value), value) for at, value in decoded.batch.column("k").cells(wrong)}
            failed |= {numbers[at]: error for at, error in wrong.items()}
        found.append((cells, {row: str(error) for row, error in sorted(failed.items())}))
    (cells, failed_json), others = found
    assert failed_json == others[1]
    if kind == "text":
        # A number of JSON has the digits that it came with.
        assert cells.keys() == others[0].keys()
    else:
        assert cells == others[0]
