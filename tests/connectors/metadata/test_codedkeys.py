"""Keys that a codec reads: Avro of a registry or of a schema, records and single values, and wrong ones."""

from __future__ import annotations

import io
import json
import uuid
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import fastavro
import pytest
from codecsupport import block
from confluent_kafka.schema_registry import Schema

from connectors.codecs.schemas.registry import mock_registry
from connectors.metadata.codedkeys import CodedKeys
from connectors.records import Header, Records
from pipelines.data.columns import MISSING
from pipelines.data.spans import Spans
from pipelines.errors import ConnectorError, DefinitionError
from pipelines.hotpath import choosing
from streamer.definition.loading import loads
from streamer.definition.service import Service

MACHINE = {
    "type": "record",
    "name": "Machine",
    "fields": [{"name": "id", "type": "long"}, {"name": "site", "type": "string"}],
}
AVRO: dict[str, Any] = {"type": "avro", "schema": MACHINE}


def avro(schema: Any, value: Any) -> bytes:
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, fastavro.parse_schema(json.loads(json.dumps(schema))), value)
    return buffer.getvalue()


def keyed(keys: Sequence[bytes | None] | None, headers: Sequence[Sequence[Header] | None] | None = None) -> Records:
    records = block([b"{}"] * (1 if keys is None else len(keys)))
    return replace(records, keys=keys, headers=lambda: headers)


def read(setting: Any, into: Sequence[str], records: Records) -> tuple[dict[str, list[Any]], dict[int, str]]:
    failed: dict[int, Exception] = {}
    columns = CodedKeys(setting, {name: name for name in into}).read(records, failed)
    return {name: column.values() for name, column in columns.items()}, {row: str(why) for row, why in failed.items()}


@pytest.fixture(params=["auto", "python"], autouse=True)
def _both_hot_paths(request: pytest.FixtureRequest) -> Any:
    with choosing(request.param):
        yield


@pytest.mark.parametrize("form", [list, Spans.of])
def test_values_of_a_record_are_read_from_each_key(form: Any) -> None:
    keys = [avro(MACHINE, {"id": n, "site": f"s{n}"}) for n in range(4)]
    values, failed = read(AVRO, ["key.id", "key.site"], keyed(form([keys[3], None, keys[0], b"", keys[1][:-1]])))
    assert values == {"key.id": [3, MISSING, 0, MISSING, MISSING], "key.site": ["s3", MISSING, "s0", MISSING, MISSING]}
    assert failed == dict.fromkeys(
        (3, 4), "the key cannot be read: the payload does not follow its schema: it ends too soon"
    )


def test_a_block_without_keys_has_no_values() -> None:
    assert read(AVRO, ["key.id"], keyed(None)) == ({"key.id": [MISSING]}, {})
    assert read(AVRO, ["key.id"], keyed([None, None])) == ({"key.id": [MISSING] * 2}, {})


@pytest.mark.parametrize(
    ("schema", "values"),
    [
        ("long", [5, -1]),
        ("string", ["a", ""]),
        (["null", "string", "long"], ["a", None, 7]),
        ({"type": "long", "logicalType": "timestamp-millis"}, [5]),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, ["B"]),
    ],
)
def test_a_key_that_is_one_value_is_read_by_the_schema_of_its_registry(schema: Any, values: list[Any]) -> None:
    url = f"mock://{uuid.uuid4()}"
    number = mock_registry(url).register_schema("t-key", Schema(json.dumps(schema), "AVRO"))
    frame = b"\0" + number.to_bytes(4, "big")
    keys = [frame + avro(schema, value) for value in values]
    setting = {"type": "avro", "registry": {"url": url}}
    expected = [MISSING if value is None else value for value in values]
    assert read(setting, ["key"], keyed(keys)) == ({"key": expected}, {})


def test_a_key_may_name_its_schema_in_a_header() -> None:
    url = f"mock://{uuid.uuid4()}"
    client = mock_registry(url)
    one, other = (
        client.register_schema(f"{kind}-key", Schema(json.dumps(kind), "AVRO")) for kind in ("long", "string")
    )
    # The header of the payload's schema is not that of the key's.
    headers = [
        [("__value_schema_id", b"\0" + other.to_bytes(4, "big")), ("__key_schema_id", b"\0" + one.to_bytes(4, "big"))]
    ]
    setting = {"type": "avro", "registry": {"url": url}}
    assert read(setting, ["key"], keyed([avro("long", 9)], headers)) == ({"key": [9]}, {})


def test_a_key_that_is_a_record_where_one_value_was_meant_says_what_to_take() -> None:
    url = f"mock://{uuid.uuid4()}"
    client = mock_registry(url)
    frames = [
        b"\0" + client.register_schema("t-key", Schema(json.dumps(schema), "AVRO")).to_bytes(4, "big")
        for schema in ("long", MACHINE)
    ]
    keys = [frames[0] + avro("long", 5), frames[1] + avro(MACHINE, {"id": 1, "site": "s"})]
    values, failed = read({"type": "avro", "registry": {"url": url}}, ["key"], keyed(keys))
    assert values == {"key": [5, MISSING]}
    assert failed == {1: "the key is a record with the values id, site; take one of them, into: {key.id: KEY}"}


def test_json_keys_are_read_and_those_of_several_records_fail() -> None:
    records = keyed([b'{"id":1}', b"{", b"[]", b'{"id":"x","more":[1]}'])
    values, failed = read({"type": "json"}, ["key.id"], records)
    assert values == {"key.id": [1, MISSING, MISSING, "x"]}
    assert sorted(failed) == [1, 2]
    several = read({"type": "json", "each": True}, ["key.id"], keyed([b'[{"id":1},{"id":2}]', b'[{"id":3}]']))
    assert several[1] == {0: "the key holds several records; its codec has to read it as one"}
    assert several[0]["key.id"][1] == 3


def test_a_registry_that_does_not_answer_is_no_failure_of_records() -> None:
    setting = {"type": "avro", "registry": {"url": "http://127.0.0.1:9", "timeout": "1s"}}
    with pytest.raises(ConnectorError):
        read(setting, ["key.id"], keyed([b"\0\0\0\0\1\2"]))


def load(source: str) -> Service:
    rest = "pipeline: []\nsink: {type: memory, topic: out}\non_error: drop"
    return loads(f"source: {{type: kafka, topics: in, {source}}}\n{rest}")


SCHEMA = json.dumps(MACHINE)


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ("key: long, into: {key.id: id}", r"key\.id is a value inside of the key.*write key: \{type: avro"),
        ("key: {type: arvo}, into: {key.id: id}", 'did you mean "avro"'),
        (
            "key: {type: json, feilds: {}}, into: {key.id: id}",
            r'<text>:1: source\.key\.feilds: .*did you mean "fields"',
        ),
        (
            "key: {type: json}, into: {key: id}",
            r"reads keys that are records; name a value in it, into: \{key\.NAME: id\}",
        ),
        ("key: {type: json}, into: {key: id, key.a: a}", "one value .* or a record"),
        ("key: {type: frame}, into: {key.id: id}", "is for objects, and keys are bytes"),
        (f"key: {{type: avro, schema: {SCHEMA}}}, into: {{key.ids: id}}", r'keys have no "ids"; did you mean "id"\?'),
        ("into: {kye.id: id}", 'did you mean "key.id"'),
    ],
)
def test_mistakes_are_named_with_what_to_do(source: str, error: str) -> None:
    with pytest.raises(DefinitionError, match=error):
        load(source)


def test_the_schema_of_keys_is_a_file_beside_the_service(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "key.avsc").write_text(SCHEMA)
    text = (
        "source: {type: kafka, topics: in, key: {type: avro, schema: key.avsc}, into: {key.id: id}}\n"
        "pipeline: []\nsink: {type: memory, topic: out}\non_error: drop"
    )
    (config,) = loads(text, base=tmp_path).sources
    assert dict(config.file_keys)["key.schema_"] == tmp_path / "key.avsc"
    assert [*config.codecs] == ["codec", "key"]
