"""`json-schema`: JSON in the framing of a registry, checked if asked."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest
from codecsupport import block, read
from confluent_kafka.schema_registry import Schema, SchemaReference
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from hypothesis import given, settings
from hypothesis import strategies as st

from connectors.codec import Codec
from connectors.codecs.registry import codec_of
from connectors.codecs.schemas.jsonschema import JsonSchemaConfig
from connectors.codecs.schemas.registry import mock_registry
from connectors.contract import CodecContract
from examples import examples
from pipelines import Batch, Data
from pipelines.errors import ConnectorError, DefinitionError

SCHEMA: dict[str, Any] = {
    "title": "Reading",
    "type": "object",
    "properties": {"temp": {"type": "number", "maximum": 100}, "id": {"type": "string"}},
    "required": ["temp"],
}
CONTEXT = SerializationContext("in", MessageField.VALUE, [])


def setting(url: str, codec: dict[str, Any] | None = None, **registry: Any) -> dict[str, Any]:
    return {"type": "json-schema", "registry": {"url": url, **registry}, **(codec or {})}


@pytest.fixture
def url() -> str:
    return f"mock://{uuid.uuid4()}"


class TestJsonSchema(CodecContract):
    bad = (
        b"",
        b"{",
        b"\0\0\0\0\1",
        b"\0\0\0\0\1{",
        b'\0\0\0\0\1{"temp": 101}',
        b'\0\0\0\0\2{"temp": 1}',
        b'{"temp": 1}',
        7,
    )
    unwritable = (Data({"id": "a"}), Data({"temp": "warm"}))

    @pytest.fixture
    def codec(self, url: str) -> Codec:
        fields = setting(url, {"schema": SCHEMA, "validate": True}, auto_register=True, subject="s")
        return JsonSchemaConfig.model_validate(fields).build()

    @pytest.fixture
    def record(self) -> Data:
        return Data({"temp": 30.5, "id": "é", "more": 7})


def test_confluents_serializer_and_ours_read_each_other(url: str) -> None:
    client = mock_registry(url)
    payload = JSONSerializer(json.dumps(SCHEMA), client)({"temp": 1.5, "id": "a"}, CONTEXT)
    assert read(setting(url), payload) == [Data({"temp": 1.5, "id": "a"})]
    client.register_schema("out-value", Schema(json.dumps(SCHEMA), "JSON"))
    (value,) = codec_of(setting(url), topic="out").encode(Batch.of([Data({"temp": 2.5})])).values
    assert JSONDeserializer(json.dumps(SCHEMA), schema_registry_client=client)(value, CONTEXT) == {"temp": 2.5}


def test_payloads_are_checked_only_if_asked_and_the_place_is_named(url: str) -> None:
    schema_id = mock_registry(url).register_schema("s", Schema(json.dumps(SCHEMA), "JSON"))
    frame = b"\0" + schema_id.to_bytes(4, "big")
    hot, good = frame + b'{"temp": 101}', frame + b'{"temp": 1}'
    assert read(setting(url), hot, good) == [Data({"temp": 101}), Data({"temp": 1})]
    bad, fine = read(setting(url, {"validate": True}), hot, good)
    assert "the payload does not follow its schema: $.temp: 101 is greater than the maximum of 100" in str(bad)
    assert fine == Data({"temp": 1})


@pytest.mark.slow
def test_a_schema_asks_nobody_for_others(url: str) -> None:
    client = mock_registry(url)
    texts = ['{"$ref": "http://127.0.0.1:9/x.json"}', '{"$ref": "file:///etc/passwd"}', '{"type": 7}', "{", "[1]"]
    for number, text in enumerate(texts):
        schema_id = client.register_schema(f"s{number}", Schema(text, "JSON"))
        (error,) = read(setting(url, {"validate": True}), b"\0" + schema_id.to_bytes(4, "big") + b'{"temp": 1}')
        assert "cannot be checked" in str(error) or "is wrong" in str(error)
    avro = client.register_schema("a", Schema('{"type": "record", "name": "R", "fields": []}', "AVRO"))
    (error,) = read(setting(url), b"\0" + avro.to_bytes(4, "big") + b"{}")
    assert "the schema is AVRO, not JSON" in str(error)


@pytest.mark.slow
def test_schemas_that_refer_to_others_are_followed(url: str) -> None:
    client = mock_registry(url)
    client.register_schema("temp", Schema('{"type": "number", "maximum": 100}', "JSON"))
    whole = {"type": "object", "properties": {"temp": {"$ref": "temp.json"}}}
    references = [SchemaReference("temp.json", "temp", 1)]
    schema_id = client.register_schema("whole", Schema(json.dumps(whole), "JSON", references))
    frame = b"\0" + schema_id.to_bytes(4, "big")
    good, bad = read(setting(url, {"validate": True}), frame + b'{"temp": 1}', frame + b'{"temp": 101}')
    assert good == Data({"temp": 1})
    assert "$.temp" in str(bad)


@pytest.mark.slow
def test_a_schema_that_contains_itself_and_a_deep_payload_are_the_failure_of_one_record(url: str) -> None:
    tree = {"type": "object", "properties": {"next": {"$ref": "#"}}}
    schema_id = mock_registry(url).register_schema("tree", Schema(json.dumps(tree), "JSON"))
    frame = b"\0" + schema_id.to_bytes(4, "big")
    deep = frame + b'{"next":' * 20_000 + b"{}" + b"}" * 20_000
    bad, good = read(setting(url, {"validate": True}), deep, frame + b'{"next": {"a": 1}}')
    assert isinstance(bad, str)
    assert good == Data({"next": Data({"a": 1})})


def test_without_a_registry_a_schema_checks_bare_json() -> None:
    good, bad = read({"type": "json-schema", "schema": SCHEMA, "validate": True}, b'{"temp": 1}', b'{"id": "a"}')
    assert good == Data({"temp": 1})
    assert "'temp' is a required property" in str(bad)


def test_a_payload_that_is_no_json_or_a_list_is_told_without_advice_about_models() -> None:
    setting = {"type": "json-schema", "schema": SCHEMA, "validate": True}
    no_json, no_text, a_list = read(setting, b"temp=1", b'{"id": "\xff"}', b"[1]")
    assert str(no_json) == "the payload is not valid JSON: Expecting value: line 1 column 1 (char 0)"
    assert str(no_text) == "the payload is not valid JSON: it is not UTF-8 at byte 8"
    assert str(a_list) == "the payload does not follow its schema: $: [1] is not of type 'object'"


def test_contradictory_settings_are_refused(url: str) -> None:
    for fields, told in (
        ({}, "for plain JSON use the codec json"),
        ({"schema": {"type": 7}, "validate": True}, "the JSON schema is wrong"),
        ({"schema": "nowhere.json"}, "nowhere.json cannot be read"),
    ):
        with pytest.raises(DefinitionError, match=told):
            codec_of({"type": "json-schema", **fields})
    with pytest.raises(ConnectorError, match='has no subject "out-value"'):
        codec_of(setting(url), topic="out").encode(Batch.of([Data({"temp": 1})]))


@settings(max_examples=examples(60), deadline=None)
@given(st.binary(max_size=30), st.booleans())
def test_any_bytes_are_a_record_or_the_failure_of_one(raw: bytes, with_frame: bool) -> None:
    codec = codec_of({"type": "json-schema", "schema": SCHEMA, "validate": True})
    decoded = codec.decode(block([b'{"temp": ' + raw if with_frame else raw]), None)
    assert decoded.batch.size + len(decoded.failed) == 1
