"""`protobuf`: the user's own messages by descriptors or by a registry, and back."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest
from codecsupport import block, read, service_of
from confluent_kafka.schema_registry import Schema, SchemaReference
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from grpc_tools import protoc
from hypothesis import given, settings
from hypothesis import strategies as st

from connectors.codec import Codec
from connectors.codecs.registry import codec_of
from connectors.codecs.schemas.protobuf import ProtobufConfig
from connectors.codecs.schemas.protobufschema import MessageTypes, as_text, indexes_of, of_file
from connectors.codecs.schemas.registry import mock_registry
from connectors.contract import CodecContract
from examples import examples
from pipelines import Batch, Data
from pipelines.errors import ConnectorError, DefinitionError, WireError
from streamer import testing

PLACE = """
syntax = "proto3";
package plant;
message Place { int64 line = 1; Place next = 2; }
"""
READING = """
syntax = "proto3";
package plant;
import "place.proto";
import "google/protobuf/timestamp.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/wrappers.proto";
import "google/protobuf/struct.proto";
message First { bool here = 1; }
message Reading {
  enum Kind { UNKNOWN = 0; PUMP = 1; FAN = 2; }
  message Part { string name = 1; repeated double x = 2; }
  string machine = 1;
  double temp = 2;
  optional int32 count = 3;
  Kind kind = 4;
  repeated float x = 5;
  repeated Part parts = 6;
  map<string, double> limits = 7;
  map<int32, Part> by_number = 8;
  oneof how { string text = 9; int64 code = 10; Part part = 11; }
  google.protobuf.Timestamp at = 12;
  google.protobuf.Duration took = 13;
  google.protobuf.DoubleValue maybe = 14;
  google.protobuf.Struct more = 15;
  Place place = 16;
  bytes raw = 17;
  uint64 large = 18;
  repeated Kind kinds = 19;
  repeated google.protobuf.Timestamp times = 20;
  bool ok = 21;
  map<string, Kind> named = 22;
}
"""
PLAIN: dict[str, Any] = {
    "machine": "é",
    "temp": 30.5,
    "kind": "PUMP",
    "x": [1.5, 2.0],
    "limits": {},
    "by_number": {},
    "raw": b"\xff",
    "large": 7,
    "kinds": ["FAN", "PUMP"],
    "times": [1_700_000_000_123],
    "ok": True,
    "parts": [{"name": "a", "x": [1.0]}],
    "named": {},
}
WHOLE: dict[str, Any] = {
    **PLAIN,
    "count": 0,
    "limits": {"low": 1.5},
    "by_number": {"7": {"name": "seven", "x": []}},
    "code": -5,
    "at": 1_700_000_000_123,
    "took": -1_500,
    "maybe": 0.0,
    "more": {"a": 1.5, "b": ["c"]},
    "place": {"line": 3, "next": {"line": 4}},
    "named": {"a": "FAN"},
}


def nested(value: Any) -> Any:
    if isinstance(value, dict):
        return Data({key: nested(one) for key, one in value.items()})
    return [nested(one) for one in value] if isinstance(value, list) else value


def record(plain: dict[str, Any]) -> Data:
    return Data({key: nested(value) for key, value in plain.items()})


@pytest.fixture(scope="module")
def descriptors(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("protos")
    (folder / "place.proto").write_text(PLACE)
    (folder / "reading.proto").write_text(READING)
    include = Path(protoc.__file__).parent / "_proto"
    out = folder / "plant.desc"
    arguments = ["protoc", f"-I{folder}", f"-I{include}", "--include_imports", f"--descriptor_set_out={out}"]
    assert protoc.main([*arguments, "reading.proto"]) == 0
    return out


@pytest.fixture
def own(descriptors: Path) -> dict[str, Any]:
    return {"type": "protobuf", "descriptors": str(descriptors), "message": "plant.Reading"}


@pytest.fixture
def messages(descriptors: Path) -> MessageTypes:
    return of_file(descriptors)


@pytest.fixture
def payload(messages: MessageTypes) -> bytes:
    made = messages.class_of(messages.of("plant.Reading"))(machine="é", temp=30.5)
    written: bytes = made.SerializeToString()
    return written


class TestDescriptors(CodecContract):
    bad = (b"\xff", b"\x0a\x7f", b"\x0a\x01\xff", 7, "text")
    unwritable = (
        Data({"machine": 7}),
        Data({"tmep": 1.0}),
        Data({"count": 1 << 40}),
        Data({"temp": True}),
        Data({"kind": "PAMP"}),
        Data({"place": 1}),
        Data({"parts": Data({"name": "a"})}),
        Data({"text": "a", "code": 1}),
        Data({"large": -1}),
    )

    @pytest.fixture
    def codec(self, own: dict[str, Any]) -> Codec:
        return ProtobufConfig.model_validate(own).build()

    @pytest.fixture
    def record(self) -> Data:
        return record({**WHOLE, "by_number": {}})


class TestRegistry(CodecContract):
    bad = (b"", b"\0\0\0\0\1", b"\0\0\0\0\1\x80", b"\0\0\0\0\1\xff", b"\0\0\0\0\1\x02\x7f", b"\0\0\0\0\1\0", 7)

    @pytest.fixture
    def codec(self, own: dict[str, Any]) -> Codec:
        registry = {"url": f"mock://{uuid.uuid4()}", "auto_register": True, "strategy": "record"}
        return ProtobufConfig.model_validate({**own, "registry": registry}).build()

    @pytest.fixture
    def record(self) -> Data:
        return record({**PLAIN, "code": 7})


def test_every_kind_of_field_goes_both_ways(own: dict[str, Any], messages: MessageTypes) -> None:
    codec = codec_of(own)
    (value,) = codec.encode(Batch.of([record(WHOLE)])).values
    message = messages.class_of(messages.of("plant.Reading")).FromString(value)
    assert (message.kind, message.by_number[7].name, message.WhichOneof("how")) == (1, "seven", "code")
    assert (message.at.seconds, message.at.nanos, message.took.seconds, message.took.nanos) == (
        1_700_000_000,
        123_000_000,
        -1,
        -500_000_000,
    )
    assert read(own, value) == [record(WHOLE)]


def test_a_field_that_is_not_set_is_absent_if_it_can_say_so_and_else_its_default(own: dict[str, Any]) -> None:
    (found,) = read(own, b"")
    assert isinstance(found, Data)
    assert sorted(found) == sorted(PLAIN)
    assert (found["machine"], found["temp"], found["kind"], found["x"], found["ok"]) == ("", 0.0, "UNKNOWN", [], False)


def test_a_value_of_an_enum_that_is_not_known_is_its_number(own: dict[str, Any]) -> None:
    (found,) = read(own, b"\x20\x63")
    assert isinstance(found, Data)
    assert found["kind"] == "99"
    assert read(own, codec_of(own).encode(Batch.of([found])).values[0]) == [found]


def test_a_value_that_protobuf_cannot_write_fails_with_the_reason(own: dict[str, Any]) -> None:
    for values, told in (
        ({"tmep": 1.0}, 'no field "tmep"; did you mean "temp"?'),
        ({"kind": "PAMP"}, 'Kind has no "PAMP"; did you mean "PUMP"?'),
        ({"text": "a", "code": 1}, '"text" and "code" exclude each other'),
        ({"at": 1.5}, '"at" cannot be written: a time is an integer, in milliseconds, and the value is the number 1.5'),
        ({"at": "2024-01-01T00:00:00Z"}, "and the value is the text '2024-01-01T00:00:00Z'"),
        (
            {"parts": [1]},
            '"parts[0]" cannot be written: a message is a nested Data (an object), and the value is the i',
        ),
        ({"parts": [Data({}), Data({"x": ["a"]})]}, '"parts[1].x[0]" cannot be written'),
        ({"parts": [Data({}), Data({"name": 5})]}, '"parts[1].name" cannot be written: its type is string, and the'),
        ({"x": 1.5}, '"x" cannot be written: the field is repeated, which is a list, and the value is the number 1.5'),
        ({"x": ["a", "b"]}, '"x[0]" cannot be written: its type is float'),
        ({"limits": Data({"low": 1, "high": "x"})}, '"limits.high" cannot be written: its type is double'),
        ({"by_number": Data({"3": Data({"name": 5})})}, '"by_number.3.name" cannot be written: its type is string'),
        ({"place": Data({"line": 1.5})}, '"place.line" cannot be written: its type is int64'),
        ({"count": 2.0**40}, "its type is int32, and the value is the integer 1099511627776"),
    ):
        (error,) = codec_of(own).encode(Batch.of([record(values)])).failed.values()
        assert told in str(error)
        assert type(error) is WireError


def test_a_number_without_a_fraction_is_written_as_an_integer_as_in_avro(own: dict[str, Any]) -> None:
    given = {"large": 7.0, "count": 2.0, "at": 1.5e12, "place": Data({"line": -3.0})}
    (written,) = codec_of(own).encode(Batch.of([record(given)])).values
    (found,) = read(own, written)
    assert isinstance(found, Data)
    values = found["large"], found["count"], found["at"], found["place"]["line"]
    assert values == (7, 2, 1_500_000_000_000, -3)
    assert set(map(type, values)) == {int}


def test_a_map_may_have_keys_that_no_record_can_have_if_no_step_reads_it(
    own: dict[str, Any], messages: MessageTypes
) -> None:
    payload = messages.class_of(messages.of("plant.Reading"))(machine="m", limits={"@type": 1.5}).SerializeToString()
    codec = codec_of(own)
    decoded = codec.decode(block([payload]), None)
    assert not decoded.failed
    assert codec.encode(decoded.batch).values[0] == payload
    unread = testing.run(service_of(lambda data: Data({"machine": data["machine"]}), own), [payload])
    assert [one["machine"] for one in unread.results if one is not None] == ["m"]


def test_a_message_is_named_by_its_place_in_the_schema(messages: MessageTypes) -> None:
    for name, place in (("plant.First", [0]), ("plant.Reading", [1]), ("plant.Reading.Part", [1, 0])):
        assert indexes_of(messages, messages.of(name)) == place
        assert messages.at(place).full_name == name
    for wrong in ([2], [-1], [1, 9], [1, 0, 0]):
        with pytest.raises(WireError, match="no message at"):
            messages.at(wrong)


def registered(client: Any, messages: MessageTypes) -> int:
    """The schemas as Confluent's serializer registers them: descriptors in base64, with references."""
    client.register_schema("place.proto", Schema(as_text(messages.files["place.proto"]), "PROTOBUF"))
    references = [SchemaReference("place.proto", "place.proto", 1)]
    text = as_text(messages.files["reading.proto"])
    schema_id: int = client.register_schema("readings-value", Schema(text, "PROTOBUF", references))
    return schema_id


def test_messages_of_a_registry_are_read_by_their_places(messages: MessageTypes, payload: bytes) -> None:
    url = f"mock://{uuid.uuid4()}"
    frame = b"\0" + registered(mock_registry(url), messages).to_bytes(4, "big")
    setting = {"type": "protobuf", "registry": {"url": url}}
    first, reading, part, wrong, neither = read(
        setting,
        frame + b"\0" + b"\x08\x01",
        frame + b"\x02\x02" + payload,
        frame + b"\x04\x02\x00" + b"\x0a\x01a",
        frame + b"\x02\x08" + payload,
        payload,
    )
    assert (first, part) == (Data({"here": True}), Data({"name": "a", "x": []}))
    assert isinstance(reading, Data)
    assert reading["temp"] == 30.5
    assert "no message at [4]" in str(wrong)
    assert "was not written through a registry" in str(neither)


def test_results_are_written_by_the_latest_schema_of_the_subject(messages: MessageTypes) -> None:
    url = f"mock://{uuid.uuid4()}"
    schema_id = registered(mock_registry(url), messages)
    setting = {"type": "protobuf", "registry": {"url": url, "subject": "readings-value"}}
    (value,) = codec_of(setting).encode(Batch.of([Data({"here": True})])).values
    assert value == b"\0" + schema_id.to_bytes(4, "big") + b"\0\x08\x01"
    inner = {**setting, "message": "plant.Reading.Part"}
    (value,) = codec_of(inner).encode(Batch.of([Data({"name": "a"})])).values
    assert value == b"\0" + schema_id.to_bytes(4, "big") + b"\x04\x02\x00\x0a\x01a"
    with pytest.raises(ConnectorError, match=r'did you mean "plant\.Reading"'):
        codec_of({**setting, "message": "plant.Raeding"}).encode(Batch.of([Data({"name": "a"})]))
    with pytest.raises(ConnectorError, match='no subject "out-value"'):
        codec_of({"type": "protobuf", "registry": {"url": url}}, topic="out").encode(Batch.of([Data({"a": 1})]))


def test_a_schema_that_is_only_text_says_what_to_do() -> None:
    url = f"mock://{uuid.uuid4()}"
    mock_registry(url).register_schema("s", Schema(PLACE, "PROTOBUF"))
    (error,) = read({"type": "protobuf", "registry": {"url": url}}, b"\0\0\0\0\1\0")
    assert "descriptors: FILE, message: NAME" in str(error)


def test_schemas_that_are_no_use_fail_their_records() -> None:
    url = f"mock://{uuid.uuid4()}"
    client = mock_registry(url)
    lost = FileDescriptorProto(name="a.proto", dependency=["nowhere.proto"])
    twice = FileDescriptorProto(name="b.proto")
    for _ in range(2):
        twice.message_type.add(name="M")
    none = FileDescriptorProto(name="c.proto", syntax="proto3")
    itself = FileDescriptorProto(name="d.proto", dependency=["d.proto"])
    for number, (file, told) in enumerate(
        (
            (lost, "nowhere.proto, which is not there"),
            (twice, "cannot be used"),
            (none, "no message at"),
            (itself, "not there|itself"),
        )
    ):
        schema_id = client.register_schema(f"s{number}", Schema(as_text(file), "PROTOBUF"))
        (error,) = read({"type": "protobuf", "registry": {"url": url}}, b"\0" + schema_id.to_bytes(4, "big") + b"\0")
        import re

        assert re.search(told, str(error)), error


def test_messages_nested_without_end_are_refused(own: dict[str, Any], payload: bytes) -> None:
    deep = b""
    for _ in range(5000):
        deep = b"\x12" + protobufschema_varint(len(deep)) + deep
    deep = b"\x82\x01" + protobufschema_varint(len(deep)) + deep
    bad, good = read(own, deep, payload)
    assert "is not a message of the type plant.Reading" in str(bad)
    assert isinstance(good, Data)


def protobufschema_varint(number: int) -> bytes:
    made = bytearray()
    while number > 0x7F:
        made.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*made, number])


def test_contradictory_settings_are_refused_at_loading(own: dict[str, Any], descriptors: Path, tmp_path: Path) -> None:
    (tmp_path / "text.desc").write_text("message A {}")
    alone = FileDescriptorSet(file=list(FileDescriptorSet.FromString(descriptors.read_bytes()).file)[-1:])
    (tmp_path / "alone.desc").write_bytes(alone.SerializeToString())
    for fields, told in (
        ({"descriptors": None, "message": None}, "give the codec protobuf descriptors and message, or a registry"),
        ({"message": None}, "say which message"),
        ({"message": "plant.Raeding"}, 'did you mean "plant.Reading"'),
        ({"descriptors": "nowhere.desc"}, "cannot be read: No such file"),
        ({"descriptors": str(tmp_path / "text.desc")}, "holds no descriptors"),
        ({"descriptors": str(tmp_path / "alone.desc")}, "imports place.proto, which is not there; make it by protoc"),
    ):
        with pytest.raises(DefinitionError, match=told):
            codec_of({**own, **fields})


def test_one_bad_record_of_many_fails_alone_in_a_service(own: dict[str, Any], payload: bytes) -> None:
    def warm(data: Data) -> Data:
        return Data({"machine": data["machine"], "ok": data["temp"] > 20})

    report = testing.run(service_of(warm, own, own), [payload] * 10 + [b"\xff"] + [payload] * 10)
    assert [data is not None and data["ok"] for data in report.results] == [True] * 20
    assert [dead.origin.offset for dead in report.dead] == [10]


_FLOATS = st.floats(allow_nan=False)
_PART = st.fixed_dictionaries({"name": st.text(max_size=5), "x": st.lists(_FLOATS, max_size=3)})


@settings(max_examples=examples(60), deadline=None)
@given(
    st.fixed_dictionaries(
        {
            "machine": st.text(max_size=8),
            "temp": _FLOATS,
            "kind": st.sampled_from(["UNKNOWN", "PUMP", "FAN"]),
            "x": st.lists(st.floats(width=32, allow_nan=False), max_size=3),
            "limits": st.dictionaries(st.text("abc", max_size=3), _FLOATS, max_size=3),
            "parts": st.lists(_PART, max_size=2),
            "by_number": st.just({}),
            "raw": st.binary(max_size=5),
            "large": st.integers(0, 2**63 - 1),
            "kinds": st.lists(st.sampled_from(["PUMP", "FAN"]), max_size=3),
            "times": st.lists(st.integers(-(10**12), 10**13), max_size=3),
            "ok": st.booleans(),
            "named": st.just({}),
        },
        optional={
            "count": st.integers(-(2**31), 2**31 - 1),
            "part": _PART,
            "at": st.integers(-(10**12), 10**13),
            "took": st.integers(-(10**9), 10**9),
            "maybe": _FLOATS,
        },
    )
)
def test_any_message_comes_back_as_it_was(plain: dict[str, Any]) -> None:
    codec = codec_of(_own())
    encoded = codec.encode(Batch.of([record(plain)]))
    assert not encoded.failed
    decoded = codec.decode(block(encoded.values), None)
    assert decoded.batch.to_list() == [record(plain)]


@settings(max_examples=examples(150), deadline=None)
@given(st.binary(max_size=60))
def test_any_bytes_are_a_record_or_the_failure_of_one(raw: bytes) -> None:
    decoded = codec_of(_own()).decode(block([raw]), None)
    assert decoded.batch.size + len(decoded.failed) == 1


_made: list[dict[str, Any]] = []


@pytest.fixture(autouse=True)
def _known(own: dict[str, Any]) -> None:
    _made[:] = [own]


def _own() -> dict[str, Any]:
    return _made[0]


def test_confluents_serializer_and_ours_read_each_other(messages: MessageTypes) -> None:
    pytest.importorskip("google.type", reason="confluent-kafka's serializer of protobuf needs googleapis-common-protos")
    from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
    from confluent_kafka.serialization import MessageField, SerializationContext

    url = f"mock://{uuid.uuid4()}"
    client, context = mock_registry(url), SerializationContext("out", MessageField.VALUE, [])
    for name, values in (("plant.Reading", {"machine": "é", "temp": 1.5}), ("plant.Reading.Part", {"name": "a"})):
        kind = messages.class_of(messages.of(name))
        payload = ProtobufSerializer(kind, client)(kind(**values), context)
        setting = {"type": "protobuf", "registry": {"url": url, "subject": "out-value"}, "message": name}
        (found,) = read(setting, payload)
        assert isinstance(found, Data)
        assert {key: found[key] for key in values} == values
        (value,) = codec_of(setting).encode(Batch.of([found])).values
        assert value == payload
        assert ProtobufDeserializer(kind, schema_registry_client=client)(value, context) == kind(**values)
