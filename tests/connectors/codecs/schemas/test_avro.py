"""`avro`: records by a schema of a file or of a registry, and back, with confluent-kafka's own serializers."""

from __future__ import annotations

import io
import json
import uuid
from pathlib import Path
from typing import Any

import fastavro
import pytest
from codecsupport import block, read, service_of
from confluent_kafka.schema_registry import Schema as ConfluentSchema
from confluent_kafka.schema_registry import SchemaRegistryClient, header_schema_id_serializer
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from hypothesis import given, settings
from hypothesis import strategies as st

from connectors.codec import Codec
from connectors.codecs.registry import codec_of
from connectors.codecs.schemas.avro import AvroConfig
from connectors.codecs.schemas.derived import derived_schema
from connectors.codecs.schemas.registry import mock_registry
from connectors.contract import CodecContract
from examples import examples
from pipelines import Batch, Data
from pipelines.errors import ConnectorError, DefinitionError, WireError
from streamer import testing

pytestmark = pytest.mark.usefixtures("hot_path")

READING: dict[str, Any] = {
    "type": "record",
    "name": "Reading",
    "namespace": "plant",
    "fields": [
        {"name": "machine", "type": "string"},
        {"name": "temp", "type": "double"},
        {"name": "count", "type": ["null", "int"], "default": None},
        {"name": "ok", "type": "boolean"},
        {"name": "x", "type": {"type": "array", "items": "float"}},
        {
            "name": "at",
            "type": {
                "type": "record",
                "name": "Place",
                "fields": [{"name": "line", "type": "long"}, {"name": "kind", "type": ["null", "Kind"]}],
            },
        },
    ],
}
READING["fields"][5]["type"]["fields"][1]["type"][1] = {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}
RECORD: dict[str, Any] = {
    "machine": "pump é",
    "temp": 30.5,
    "count": 7,
    "ok": True,
    "x": [1.5, 2.0],
    "at": {"line": 3, "kind": "B"},
}
READ = Data({**RECORD, "at": Data(RECORD["at"])})
SETTING: dict[str, Any] = {"type": "avro", "schema": READING}


def avro(schema: Any, value: Any) -> bytes:
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, fastavro.parse_schema(json.loads(json.dumps(schema))), value)
    return buffer.getvalue()


class TestSchemaOfAFile(CodecContract):
    bad = (b"", avro(READING, RECORD)[:-1], avro(READING, RECORD) + b"\0", b"\xff" * 30, 7, "text")
    unwritable = (
        Data({**RECORD, "more": 1}),
        Data({"machine": "pump"}),
        Data({**RECORD, "temp": "warm"}),
        Data({**RECORD, "count": 1 << 40}),
        Data({**RECORD, "at": Data({"line": 1, "kind": "C"})}),
    )

    @pytest.fixture
    def codec(self) -> Codec:
        return AvroConfig(schema=READING).build()

    @pytest.fixture
    def record(self) -> Data:
        return READ


class TestRegistry(CodecContract):
    bad = (b"", b"\0\0\0\0\1", b"\0\0\0\xff\xff\1", b"\1" * 17, b'{"a": 1}', avro(READING, RECORD), 7)
    unwritable = TestSchemaOfAFile.unwritable

    @pytest.fixture
    def codec(self) -> Codec:
        url = f"mock://{uuid.uuid4()}"
        setting = {"type": "avro", "registry": {"url": url, "subject": "s", "auto_register": True}, "schema": READING}
        return AvroConfig.model_validate(setting).build()

    @pytest.fixture
    def record(self) -> Data:
        return READ


class TestRegistryByHeader(TestRegistry):
    """The contract does not give headers to all that it reads, so that payloads without are read by id."""

    @pytest.fixture
    def codec(self) -> Codec:
        url = f"mock://{uuid.uuid4()}"
        registry = {"url": url, "strategy": "record", "auto_register": True}
        return AvroConfig.model_validate({"type": "avro", "registry": registry, "schema": READING}).build()


class World:
    """A registry in memory, and confluent-kafka's serializers on it."""

    def __init__(self) -> None:
        self.url = f"mock://{uuid.uuid4()}"
        self.client: SchemaRegistryClient = mock_registry(self.url)
        self.context = SerializationContext("readings", MessageField.VALUE, [])

    def setting(self, codec: dict[str, Any] | None = None, **registry: Any) -> dict[str, Any]:
        return {"type": "avro", "registry": {"url": self.url, **registry}, **(codec or {})}

    def written(self, schema: Any, value: Any, **config: Any) -> bytes:
        found: bytes = AvroSerializer(self.client, json.dumps(schema), conf=config)(value, self.context)
        return found

    def read(self, payload: bytes | None) -> Any:
        return AvroDeserializer(self.client)(payload, self.context)


@pytest.fixture
def world() -> World:
    return World()


def test_a_payload_of_confluents_serializer_is_read(world: World) -> None:
    payload = world.written(READING, RECORD)
    assert payload[0] == 0
    assert read(world.setting(), payload) == [READ]


def test_our_payloads_are_read_by_confluents_deserializer(world: World) -> None:
    world.client.register_schema("out-value", ConfluentSchema(json.dumps(READING), "AVRO"))
    codec = codec_of(world.setting(), topic="out")
    encoded = codec.encode(Batch.of([Data(RECORD), Data({**RECORD, "count": 1})]))
    assert not encoded.failed
    assert [world.read(value) for value in encoded.values] == [RECORD, {**RECORD, "count": 1}]


def test_a_schema_in_a_header_is_read_and_written(world: World) -> None:
    world.context = SerializationContext("readings", MessageField.VALUE, [])
    bare = AvroSerializer(
        world.client, json.dumps(READING), conf={"schema.id.serializer": header_schema_id_serializer}
    )(RECORD, world.context)
    assert bare == avro(READING, RECORD)
    headers: list[Any] = [tuple(world.context.headers or ()), ()]
    good, bad = read(world.setting(), bare, bare, headers=headers)
    assert good == Data(RECORD)
    assert "was not written through a registry" in str(bad)
    decoded = codec_of(world.setting()).decode(block([bare], headers[:1]), None)
    assert decoded.batch.origin is not None
    record = decoded.batch.origin.record(0)
    assert record is not None
    assert record.headers == ()

    encoded = codec_of(world.setting({"schema": READING}, framing="header"), topic="readings").encode(
        Batch.of([Data(RECORD)])
    )
    assert encoded.headers is not None
    world.context = SerializationContext("readings", MessageField.VALUE, list(encoded.headers[0]))
    assert world.read(encoded.values[0]) == RECORD


def test_records_of_several_schemas_stand_in_one_batch(world: World) -> None:
    newer = json.loads(json.dumps(READING))
    newer["fields"].append({"name": "unit", "type": "string", "default": "C"})
    payloads = [world.written(READING, RECORD), world.written(newer, {**RECORD, "unit": "F"})]
    old, new = read(world.setting(), *payloads)
    assert isinstance(old, Data)
    assert isinstance(new, Data)
    assert ("unit" in old, new["unit"]) == (False, "F")
    old, new = read(world.setting({"reader_schema": newer}), *payloads)
    assert (old["unit"], new["unit"]) == ("C", "F")  # type: ignore[index]
    small = {"type": "record", "name": "Reading", "namespace": "plant", "fields": [{"name": "temp", "type": "double"}]}
    assert read(world.setting({"reader_schema": small}), *payloads) == [Data({"temp": 30.5})] * 2


def test_an_unknown_id_is_the_failure_of_its_record_and_asked_for_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    real = world.client.get_schema

    def get_schema(schema: int) -> Any:
        asked.append(schema)
        return real(schema)

    monkeypatch.setattr(world.client, "get_schema", get_schema)
    good = world.written(READING, RECORD)
    unknown = b"\0\0\0\x03\xe7" + good[5:]
    found = read(world.setting(), *[good, unknown] * 50)
    assert found[::2] == [READ] * 50
    assert all("has no schema 999; is it the registry that the producer writes to?" in str(one) for one in found[1::2])
    assert asked == [1, 999]


@pytest.mark.slow
def test_a_registry_that_does_not_answer_is_waited_for_and_no_record_is_blamed() -> None:
    for auth in ({"user": "me", "password": "s3cret-word"}, {"token": "s3cret-word"}):
        codec = codec_of({"type": "avro", "registry": {"url": "http://127.0.0.1:9", "auth": auth}}, topic="results")
        told = "the schema registry http://127.0.0.1:9 does not answer"
        with pytest.raises(ConnectorError, match=told) as reading:
            codec.decode(block([b"\0\0\0\0\1abc"]), None)
        with pytest.raises(ConnectorError, match=told) as writing:
            codec.encode(Batch.of([Data({"x": 1})]))
        for raised in (reading.value, writing.value):
            assert raised.retriable
            assert "s3cret" not in str(raised)


def test_an_answer_that_forbids_ends_the_service_and_shows_no_password(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    from confluent_kafka.schema_registry import SchemaRegistryError

    def answer(status: int) -> Any:
        def get_schema(schema: int) -> Any:
            raise SchemaRegistryError(status, status * 100, "no: me:s3cret-word")

        return get_schema

    setting = world.setting(auth={"user": "me", "password": "s3cret-word"})
    for status, retriable in ((401, False), (403, False), (500, True), (503, True), (429, True), (422, False)):
        monkeypatch.setattr(world.client, "get_schema", answer(status))
        with pytest.raises(ConnectorError) as raised:
            read(setting, b"\0\0\0\0\1abc")
        assert raised.value.retriable is retriable
        assert "s3cret" not in str(raised.value)


def test_logical_types_are_numbers_and_texts_both_ways(world: World) -> None:
    import datetime
    import decimal

    def field(name: str, kind: Any) -> dict[str, Any]:
        return {"name": name, "type": kind}

    schema = {
        "type": "record",
        "name": "L",
        "fields": [
            field("ms", {"type": "long", "logicalType": "timestamp-millis"}),
            field("us", {"type": "long", "logicalType": "timestamp-micros"}),
            field("day", ["null", {"type": "int", "logicalType": "date"}]),
            field("noon", {"type": "int", "logicalType": "time-millis"}),
            field("late", {"type": "long", "logicalType": "time-micros"}),
            field("price", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}),
            field(
                "fine", {"type": "fixed", "name": "F", "size": 8, "logicalType": "decimal", "precision": 18, "scale": 4}
            ),
            field("id", {"type": "string", "logicalType": "uuid"}),
            field("odd", {"type": "string", "logicalType": "of-our-own"}),
        ],
    }
    moment = datetime.datetime(2026, 11, 23, 1, 2, 3, 456000, tzinfo=datetime.UTC)
    given = {
        "ms": moment,
        "us": moment,
        "day": moment.date(),
        "noon": datetime.time(12),
        "late": datetime.time(23, 59, 59, 1000),
        "price": decimal.Decimal("-12.34"),
        "fine": decimal.Decimal("12345678901.2345"),
        "id": uuid.UUID(int=7),
        "odd": "x",
    }
    ms = int(moment.timestamp() * 1000)
    numbers = {
        "ms": ms,
        "us": ms,
        "day": ms // 86_400_000 * 86_400_000,
        "noon": 43_200_000,
        "late": 86_399_001,
        "price": -12.34,
        "fine": 12345678901.2345,
        "id": str(uuid.UUID(int=7)),
        "odd": "x",
    }
    payload = world.written(schema, given)
    assert read(world.setting(), payload) == [Data(numbers)]
    texts = {**numbers, "price": "-12.34", "fine": "12345678901.2345"}
    assert read(world.setting({"decimals": "text"}), payload) == [Data(texts)]
    codec = codec_of(world.setting({"schema": schema}, subject="readings-value"))
    encoded = codec.encode(Batch.of([Data(numbers), Data(texts), Data({**numbers, "price": 1e9})]))
    assert [world.read(value) for value in encoded.values[:2]] == [given, given]
    assert "the decimal holds 9 digits, 2 of them behind the point" in str(encoded.failed[2])


def test_a_missing_field_is_an_error_and_a_union_with_null_an_absent_value() -> None:
    bare = {**RECORD, "count": None, "at": {"line": 1, "kind": None}}
    assert read(SETTING, avro(READING, bare)) == [
        Data({k: v for k, v in bare.items() if k not in ("count", "at")} | {"at": Data({"line": 1})})
    ]
    codec = codec_of(SETTING)
    without = {key: value for key, value in RECORD.items() if key != "count"}
    encoded = codec.encode(Batch.of([Data(without), Data({k: v for k, v in RECORD.items() if k != "temp"})]))
    assert encoded.values[0] == avro(READING, {**RECORD, "count": None})
    assert "temp" in str(encoded.failed[1])


def test_a_value_without_a_field_names_the_nearest() -> None:
    codec = codec_of(SETTING)
    (error,) = codec.encode(Batch.of([Data({**RECORD, "tmep": 1.0})])).failed.values()
    assert 'has no field "tmep"; did you mean "temp"?; choose what the sink writes' in str(error)


def test_the_schema_of_results_is_derived_from_the_first_of_them(world: World) -> None:
    codec = codec_of(world.setting({"record_name": "plant.Score"}, auto_register=True), topic="scores")
    first = Batch.of([Data({"score": 1, "label": "a", "x": [1.5]}), Data({"score": 0.5, "label": "b", "x": []})])
    values = codec.encode(first).values
    assert world.read(values[1]) == {"score": 0.5, "label": "b", "x": []}
    registered = world.client.get_latest_version("scores-value")
    schema = json.loads(registered.schema.schema_str or "")
    assert (schema["name"], [field["type"] for field in schema["fields"]]) == (
        "plant.Score",
        ["double", "string", {"type": "array", "items": "double"}],
    )
    again = codec_of(world.setting(), topic="scores")
    assert again.encode(Batch.of([Data({"score": 2.0, "label": "c", "x": [1.0]})])).values[0] is not None
    (error,) = again.encode(Batch.of([Data({"score": 2.0, "label": "c", "x": [1.0], "new": 1})])).failed.values()
    assert 'no field "new"' in str(error)


def test_nothing_is_registered_unless_asked(world: World) -> None:
    for setting in (world.setting(), world.setting({"schema": READING})):
        with pytest.raises(ConnectorError, match="auto_register") as raised:
            codec_of(setting, topic="out").encode(Batch.of([Data(RECORD)]))
        assert not raised.value.retriable
    assert world.client.get_subjects() == []


@pytest.mark.parametrize(
    ("registry", "topic", "subject"),
    [
        ({}, "out", "out-value"),
        ({"strategy": "record"}, "{label}", "plant.Reading"),
        ({"strategy": "topic_record"}, "out", "out-plant.Reading"),
        ({"subject": "mine"}, None, "mine"),
    ],
)
def test_the_subject_is_named_as_the_strategy_says(
    world: World, registry: dict[str, Any], topic: str | None, subject: str
) -> None:
    codec = codec_of(world.setting({"schema": READING}, auto_register=True, **registry), topic=topic)
    assert not codec.encode(Batch.of([Data(RECORD)])).failed
    assert world.client.get_subjects() == [subject]


def test_a_subject_that_cannot_be_known_is_refused_when_the_service_is_loaded(world: World) -> None:
    with pytest.raises(DefinitionError, match=r"results.{label} is made from values: add strategy: record"):
        codec_of(world.setting(), topic="results.{label}")


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ({}, "give the codec avro a registry, or a schema"),
        ({"schema": "nowhere.avsc"}, "nowhere.avsc cannot be read: No such file"),
        ({"schema": {"type": "string"}}, "not one of a record, but of the type string"),
        ({"schema": {"type": "record", "name": "R", "fields": [{"name": "a", "type": "nmae"}]}}, 'a type "nmae"'),
        ({"registry": {"url": "localhost:8081"}}, "begins with http://"),
        ({"registry": {"url": "http://me:word@host"}}, "write user and password in auth"),
        ({"registry": {"url": "http://host", "auth": {"user": "me"}}}, "give user and password, or token"),
        ({"registry": {"url": "http://host", "client": {"url": "x"}}}, "url is said by a field"),
        ({"registry": {"url": "http://host", "fraiming": "header"}}, 'did you mean "framing"'),
    ],
)
def test_contradictory_settings_are_refused_at_loading(setting: dict[str, Any], told: str) -> None:
    with pytest.raises(DefinitionError, match=told):
        codec_of({"type": "avro", **setting})


def test_a_schema_file_is_found_beside_the_service_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from streamer.definition.loading import load

    (tmp_path / "schemas").mkdir()
    (tmp_path / "schemas" / "reading.avsc").write_text(json.dumps(READING))
    (tmp_path / "service.yaml").write_text(
        "source:\n  type: memory\n  topic: in\n"
        "  codec: {type: compressed, codec: {type: avro, schema: schemas/reading.avsc}}\n"
        "pipeline: {'@type': SEQUENCE_PIPELINE, steps: []}\n"
        "sink: {type: memory, topic: out, codec: {type: avro, schema: schemas/reading.avsc}}\n"
    )
    monkeypatch.chdir("/")
    service = load(tmp_path / "service.yaml")
    report = testing.run(service, [avro(READING, RECORD)])
    assert [message.value for message in report.sinks["memory"]] == [avro(READING, RECORD)]


def test_a_schema_that_is_no_use_fails_its_records_and_no_others(world: World) -> None:
    """Another client has registered it."""
    endless = {"type": "record", "name": "N", "fields": [{"name": "next", "type": ["null", "N"]}]}
    nothing = {"type": "record", "name": "E", "fields": [{"name": "x", "type": {"type": "array", "items": "null"}}]}
    deep: Any = "int"
    for _ in range(5000):
        deep = {"type": "array", "items": deep}
    laughs: list[Any] = [{"type": "record", "name": "L0", "fields": [{"name": "a", "type": "null"}]}]
    for level in range(1, 40):
        fields = [{"name": "a", "type": laughs[-1]}, {"name": "b", "type": f"L{level - 1}"}]
        laughs.append({"type": "record", "name": f"L{level}", "fields": fields})
    texts = [json.dumps(endless), json.dumps(nothing), json.dumps(laughs[-1]), "{", "7", '{"type": "record"}']
    texts.append(
        '{"type":"record","name":"D","fields":[{"name":"a","type":'
        + '{"type":"array","items":' * 3000
        + '"int"'
        + "}" * 3000
        + "}]}"
    )
    told = [
        "contains itself",
        "could be endless",
        "levels deep|values",
        "wrong",
        "where a type stands",
        "wrong|no name",
        "deep",
    ]
    good = world.written(READING, RECORD)
    import re

    for text, why in zip(texts, told, strict=True):
        schema_id = world.client.register_schema(f"s{len(text)}", ConfluentSchema(text, "AVRO"))
        for payload in (b"\x02" * 100_000, b"", b"\xfe\xff\xff\xff\x0f"):
            bad, neighbour = read(world.setting(), b"\0" + schema_id.to_bytes(4, "big") + payload, good)
            assert re.search(why, str(bad)), bad
            assert isinstance(neighbour, Data)


def test_schemas_that_refer_to_others_are_read(world: World) -> None:
    from confluent_kafka.schema_registry import SchemaReference

    place = {"type": "record", "name": "Place", "namespace": "plant", "fields": [{"name": "line", "type": "long"}]}
    whole = {
        "type": "record",
        "name": "Whole",
        "namespace": "plant",
        "fields": [{"name": "a", "type": "Place"}, {"name": "b", "type": "plant.Place"}],
    }
    world.client.register_schema("place", ConfluentSchema(json.dumps(place), "AVRO"))
    reference = SchemaReference("plant.Place", "place", 1)
    schema_id = world.client.register_schema("whole", ConfluentSchema(json.dumps(whole), "AVRO", [reference]))
    payload = b"\0" + schema_id.to_bytes(4, "big") + b"\x02\x04"
    assert read(world.setting(), payload) == [Data({"a": Data({"line": 1}), "b": Data({"line": 2})})]


def test_one_bad_record_of_many_fails_alone_in_a_service(world: World) -> None:
    payloads = [world.written(READING, {**RECORD, "temp": float(number)}) for number in range(100)]
    payloads[40] = payloads[40][:-1]
    payloads[50] = b'{"temp": 1}'

    def warm(data: Data) -> Data:
        return Data({"machine": data["machine"], "warm": data["temp"] > 50})

    sink = world.setting(auto_register=True, subject="warm-value")
    report = testing.run(service_of(warm, world.setting(), sink), payloads)
    assert [data["warm"] for data in report.results if data is not None] == [False] * 49 + [True] * 49
    assert [dead.origin.offset for dead in report.dead] == [40, 50]


_SCALARS: dict[str, st.SearchStrategy[Any]] = {
    "boolean": st.booleans(),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "string": st.text(max_size=10),
    "bytes": st.binary(max_size=10),
}


@st.composite
def _typed(draw: st.DrawFn, depth: int = 0, names: Any = None) -> tuple[Any, st.SearchStrategy[Any]]:
    """A type and its values."""
    kind = draw(st.sampled_from([*_SCALARS, *(["array", "map", "record", "null"] if depth < 3 else [])]))
    if kind in _SCALARS:
        return kind, _SCALARS[kind]
    inner, values = draw(_typed(depth + 1))
    if kind == "array":
        # A list with absent elements is no value.
        if isinstance(inner, list) or (isinstance(inner, dict) and inner["type"] == "map"):
            inner, values = "double", _SCALARS["double"]
        return {"type": "array", "items": inner}, st.lists(values, max_size=4)
    if kind == "map":
        return {"type": "map", "values": inner}, st.dictionaries(
            st.text("abc", min_size=1, max_size=3), values, max_size=3
        )
    if kind == "null":
        return (inner, values) if isinstance(inner, list) else (["null", inner], st.none() | values)
    return (
        {"type": "record", "name": f"R{draw(st.uuids()).hex}", "fields": [{"name": "v", "type": inner}]},
        st.fixed_dictionaries({"v": values}),
    )


@settings(max_examples=examples(60), deadline=None)
@given(st.data())
def test_any_record_of_any_schema_is_read_as_fastavro_reads_it(data: st.DataObject) -> None:
    kinds = data.draw(st.lists(_typed(), min_size=1, max_size=4))
    schema = {
        "type": "record",
        "name": "Top",
        "fields": [{"name": f"f{number}", "type": kind} for number, (kind, _) in enumerate(kinds)],
    }
    rows = [{f"f{number}": data.draw(values) for number, (_, values) in enumerate(kinds)} for _ in range(3)]
    payloads = [avro(schema, row) for row in rows]
    codec = codec_of({"type": "avro", "schema": schema})
    decoded = codec.decode(block(payloads), None)
    assert not decoded.failed
    encoded = codec.encode(decoded.batch)
    assert not encoded.failed
    assert list(encoded.values) == payloads


@settings(max_examples=examples(150), deadline=None)
@given(st.binary(max_size=60), st.integers(0, 60))
def test_damaged_bytes_are_a_record_or_the_failure_of_one(noise: bytes, cut: int) -> None:
    good = avro(READING, RECORD)
    codec = codec_of(SETTING)
    for raw in (noise, good[:cut] + noise, good[:cut] + noise + good[cut + len(noise) :]):
        decoded = codec.decode(block([raw]), None)
        assert decoded.batch.size + len(decoded.failed) == 1
        assert all(isinstance(error, WireError) for error in decoded.failed.values())


def test_a_derived_schema_says_what_makes_no_type() -> None:
    wrong: list[tuple[list[dict[str, Any]], str]] = [
        ([{"a-b": 1}], "invalid Avro field name"),
        ([{"x": []}], "no Avro type can be derived"),
        ([{"x": 1}, {"x": "a"}], "no Avro type can be derived"),
    ]
    for rows, told in wrong:
        with pytest.raises(WireError, match=told):
            derived_schema(rows, "R")
    schema = json.loads(derived_schema([{"x": 1, "in": {"a": True}}, {"in": {"a": False, "b": b"x"}}], "R"))
    fastavro.parse_schema(schema)
    assert schema["fields"][0] == {"name": "x", "type": ["null", "long"], "default": None}


def test_results_that_are_written_together_are_what_they_are_alone() -> None:
    schema = {
        "type": "record",
        "name": "Out",
        "fields": [
            {"name": "y", "type": {"type": "array", "items": "float"}},
            {"name": "n", "type": "int"},
            {"name": "label", "type": ["null", "string"], "default": None},
        ],
    }
    setting = {"type": "avro", "schema": schema}
    for change in ({}, {"n": 1 << 40}, {"label": 7}, {"more": 1}, {"y": [0.5] * 200}):
        rows = [Data({"y": [0.5, number / 4], "n": number, "label": f"l{number}"}) for number in range(20)]
        rows[11] = Data({**rows[11], **change})
        encoded = codec_of(setting).encode(Batch.of(rows))
        alone = [codec_of(setting).encode(Batch.of([row])) for row in rows]
        assert list(encoded.values) == [one.values[0] for one in alone]
        assert {at: str(error) for at, error in encoded.failed.items()} == {
            at: str(one.failed[0]) for at, one in enumerate(alone) if one.failed
        }
