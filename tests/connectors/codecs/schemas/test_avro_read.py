"""Payloads of others: by schemas that their readers take, by unions at the top, and in forms of other registries."""

from __future__ import annotations

import io
import json
import uuid
from collections.abc import Sequence
from typing import Any

import fastavro
import pytest
from codecsupport import block
from confluent_kafka.schema_registry import Schema, SchemaReference

from connectors.codecs.registry import codec_of
from connectors.codecs.schemas.avro import AvroConfig
from connectors.codecs.schemas.registry import mock_registry
from pipelines import Data
from pipelines.errors import DefinitionError
from pipelines.hotpath import HotPath

LONG = {"type": "record", "name": "R", "fields": [{"name": "k", "type": "long"}]}
A = {"type": "record", "name": "A", "namespace": "shop", "fields": [{"name": "a", "type": "long"}]}
B = {
    "type": "record",
    "name": "B",
    "namespace": "shop",
    "fields": [{"name": "b", "type": "string"}, {"name": "inner", "type": ["null", "A"]}],
}


def avro(schema: Any, value: Any) -> bytes:
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, fastavro.parse_schema(json.loads(json.dumps(schema))), value)
    return buffer.getvalue()


class Registry:
    """A registry in memory."""

    def __init__(self) -> None:
        self.url = f"mock://{uuid.uuid4()}"
        self.client = mock_registry(self.url)

    def frame(self, schema: Any, subject: str = "t-value", references: Sequence[SchemaReference] = ()) -> bytes:
        number = self.client.register_schema(subject, Schema(json.dumps(schema), "AVRO", list(references)))
        return b"\0" + number.to_bytes(4, "big")

    def read(self, *payloads: bytes, wanted: frozenset[str] = frozenset(), **options: Any) -> list[Any]:
        """The record of each payload, or its error."""
        setting = {"type": "avro", "registry": {"url": self.url}, **options}
        decoded = codec_of(setting).decode(block(list(payloads)), wanted)
        found: list[Any] = [decoded.failed.get(row) for row in range(len(payloads))]
        for row, data in zip(decoded.batch.rows.tolist(), decoded.batch.to_list(), strict=True):
            found[row] = data
        return found


@pytest.fixture
def registry() -> Registry:
    return Registry()


@pytest.mark.parametrize(
    ("type", "default", "value"),
    [
        ("long", None, 5),
        ("long", "x", 5),
        (["null", "long"], "null", 5),
        ({"type": "map", "values": "string"}, "{}", {"a": "b"}),
        ({"type": "array", "items": "long"}, None, [1, 2]),
        ({"type": "int", "logicalType": "date"}, "1970-01-01", 0),
        ({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}, 0, 0.0),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"], "default": "Q"}, "Z", "B"),
        ({"type": "record", "name": "I", "fields": [{"name": "x", "type": "long", "default": "y"}]}, {}, {"x": 1}),
    ],
    ids=str,
)
def test_defaults_of_those_who_wrote_a_payload_do_not_matter(
    type: Any, default: Any, value: Any, registry: Registry, hot_path: HotPath
) -> None:
    stored = b"" if value == 0.0 and isinstance(value, float) else value
    bare = json.loads(json.dumps(type).replace(', "default": "y"', "").replace(', "default": "Q"', ""))
    if isinstance(bare, dict):
        bare.pop("logicalType", None)
    schema = {"type": "record", "name": "R", "fields": [{"name": "k", "type": type, "default": default}]}
    body = avro({"type": "record", "name": "R", "fields": [{"name": "k", "type": bare}]}, {"k": stored})
    for wanted in (frozenset("k"), frozenset[str]()):
        (found,) = registry.read(registry.frame(schema) + body, wanted=wanted)
        assert found["k"] == (Data(value) if isinstance(value, dict) else Data({"k": value})["k"])
    # So it is without a registry, where the schema is in a file.
    alone = AvroConfig.model_validate({"type": "avro", "schema": schema}).build()
    assert not alone.decode(block([body]), frozenset("k")).failed


@pytest.mark.parametrize("wanted", [frozenset[str](), frozenset({"a", "b", "kind"})], ids=["undecoded", "read"])
def test_a_union_at_the_top_gives_the_record_of_its_type(
    wanted: frozenset[str], registry: Registry, hot_path: HotPath
) -> None:
    frame = registry.frame([A, B])
    first = frame + b"\0" + avro(A, {"a": 5})
    second = frame + b"\2" + b"\2x" + b"\2" + avro(A, {"a": 7})
    bad = frame + b"\x08" + avro(A, {"a": 5})
    records = [Data({"a": 5}), Data({"b": "x", "inner": Data({"a": 7})})]
    found = registry.read(*[first, second] * 5, bad, wanted=wanted)
    assert found[:-1] == records * 5
    assert "it begins with none of its types shop.A, shop.B" in str(found[-1])
    named = [Data({**records[0], "kind": "shop.A"}), Data({**records[1], "kind": "shop.B"})]
    assert registry.read(*[first, second] * 5, wanted=wanted, type_key="kind") == named * 5
    assert registry.read(*[first] * 5, wanted=wanted, type_key="kind") == named[:1] * 5


def test_null_at_the_top_is_a_record_without_values(registry: Registry, hot_path: HotPath) -> None:
    frame = registry.frame(["null", A])
    payloads = [frame + b"\0", frame + b"\2" + avro(A, {"a": 5})]
    assert registry.read(*payloads) == [Data(), Data({"a": 5})]
    assert registry.read(*payloads, type_key="kind") == [Data({"kind": "null"}), Data({"a": 5, "kind": "shop.A"})]
    assert registry.read(*payloads * 20, wanted=frozenset("a"), reader_schema=A) == [Data(), Data({"a": 5})] * 20
    (wrong,) = registry.read(frame + b"\0\0")
    assert "1 bytes follow the record" in str(wrong)


def test_a_union_of_schemas_that_the_registry_has_under_other_subjects_is_read(
    registry: Registry, hot_path: HotPath
) -> None:
    """As Confluent recommends it for several types in one topic."""
    registry.frame(A, "a")
    registry.frame(B, "b", [SchemaReference("shop.A", "a", 1)])
    references = [SchemaReference("shop.A", "a", 1), SchemaReference("shop.B", "b", 1)]
    frame = registry.frame(["shop.A", "shop.B"], "t-value", references)
    assert registry.read(frame + b"\0\x0a", frame + b"\2\2x\0") == [Data({"a": 5}), Data({"b": "x"})]


def test_a_union_in_a_schema_file_is_read(tmp_path: Any, hot_path: HotPath) -> None:
    (tmp_path / "u.avsc").write_text(json.dumps(["null", A]))
    codec = codec_of({"type": "avro", "schema": str(tmp_path / "u.avsc"), "type_key": "kind"})
    decoded = codec.decode(block([b"\2\x0a", b"\0"] * 10), None)
    assert not decoded.failed
    assert decoded.batch.to_list() == [Data({"a": 5, "kind": "shop.A"}), Data({"kind": "null"})] * 10


def test_a_key_for_the_type_that_is_a_field_is_refused(registry: Registry) -> None:
    with pytest.raises(DefinitionError, match='has a field "k", which type_key takes'):
        codec_of({"type": "avro", "schema": LONG, "type_key": "k"})
    (error,) = registry.read(registry.frame(LONG) + b"\2", type_key="k")
    assert 'the record R has a field "k", which type_key takes; choose another key' in str(error)


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ("string", "not one of a record, but of the type string; make it a record with a field of that type"),
        ({"type": "map", "values": "long"}, "not one of a record, but of the type map; make it a record"),
        ([A, "string"], "not one of a record, but of the type string"),
    ],
    ids=str,
)
def test_a_schema_of_no_record_is_told_in_words(schema: Any, told: str, registry: Registry) -> None:
    (error,) = registry.read(registry.frame(schema) + b"\2\2")
    assert told in str(error)


@pytest.mark.parametrize(
    ("reader", "told"),
    [
        (
            {"type": "record", "name": "Other", "fields": [{"name": "k", "type": "long"}]},
            "the record type is called R in the schema of the payload, and Other in reader_schema; give it the same "
            'name there, or an alias ("aliases": ["R"])',
        ),
        (
            {"type": "record", "name": "R", "fields": [{"name": "k", "type": "string"}]},
            '"k" is long in the schema of the payload, which is not read as string',
        ),
        (
            {"type": "record", "name": "R", "fields": [{"name": "k", "type": ["null", "string"]}]},
            '"k" is long in the schema of the payload, which is not read as null or string',
        ),
        (
            {"type": "record", "name": "R", "fields": [{"name": "k", "type": "long"}, {"name": "q", "type": "long"}]},
            'the schema of the payload has no field "q", and that of reader_schema has no default',
        ),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_a_payload_that_a_reader_schema_cannot_read_is_told_in_words(
    reader: Any, told: str, registry: Registry, hot_path: HotPath
) -> None:
    (error,) = registry.read(registry.frame(LONG) + b"\x0a", reader_schema=reader)
    assert f"the payload cannot be read by reader_schema: {told}" in str(error)
    assert "__fastavro" not in str(error)


@pytest.mark.parametrize(
    ("payload", "told"),
    [
        (b"\xc3\1" + b"\0" * 8 + b"\x0a", "Avro's single-object encoding"),
        (b"Obj\1" + b"\0" * 30, "a whole Avro file: send its records one by one"),
        (b"\3\0" + bytes(range(16)) + b"\x0a", "AWS Glue's (schema version 00010203-0405-0607-0809-0a0b0c0d0e0f)"),
        (b"\3\5" + bytes(range(16)) + b"\x0a", "AWS Glue's"),
        (b"\0" + (7).to_bytes(8, "big") + b"\x0a", "the id seems to have 8 bytes (7), as Apicurio's serializers"),
        (b'{"k": 5}', "it looks like JSON; use the codec json"),
        (b"\x0a", "it was not written through a registry; leave registry out, and give the codec its schema"),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
@pytest.mark.parametrize("codec", ["avro", "json-schema", "protobuf"])
def test_payloads_of_other_forms_are_told_by_their_names(
    codec: str, payload: bytes, told: str, registry: Registry
) -> None:
    (error,) = registry.read(payload, type=codec)
    assert told in str(error)


def test_payloads_that_are_no_records_have_their_value_under_a_key(registry: Registry) -> None:
    union = ["null", "string", A]
    number, one, many = (
        registry.frame("long"),
        registry.frame(union, "u"),
        registry.frame({"type": "array", "items": "int"}, "m"),
    )
    payloads = [number + avro("long", 7), one + avro(union, None), one + avro(union, "x"), one + avro(union, {"a": 5})]
    payloads += [many + avro({"type": "array", "items": "int"}, [1, 2]), number]
    for wanted in (frozenset[str](), frozenset({"v"})):
        *good, wrong = registry.read(*payloads, wanted=wanted, value_key="v", type_key="kind")
        assert [dict(data) for data in good] == [
            {"v": 7, "kind": "long"},
            {"kind": "null"},
            {"v": "x", "kind": "string"},
            {"a": 5, "kind": "shop.A"},
            {"v": [1, 2], "kind": "array"},
        ]
        assert str(wrong) == "the payload does not follow its schema: it ends too soon"


def test_a_schema_of_no_record_says_what_reads_it(registry: Registry) -> None:
    (error,) = registry.read(registry.frame("long") + avro("long", 7))
    assert "of the type long; make it a record with a field of that type, or give the codec value_key" in str(error)
