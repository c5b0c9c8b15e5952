"""Services on a real Kafka and a real schema registry, with confluent-kafka's own serializers on the other side."""

from __future__ import annotations

import datetime
import json
import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from codecsupport import block
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from kafkatopics import read, write

import streamer
from connectors.codecs.registry import codec_of
from pipelines import Batch, Data
from pipelines.errors import ConnectorError, MissingPackageError
from streamer.devbroker import Broker, BrokerError, LocalRegistry

pytestmark = pytest.mark.slow

READING: dict[str, Any] = {
    "type": "record",
    "name": "Reading",
    "fields": [
        {"name": "machine", "type": "string"},
        {"name": "temp", "type": ["null", "double"], "default": None},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
    ],
}
SCORE = {
    "type": "record",
    "name": "Score",
    "fields": [{"name": "machine", "type": "string"}, {"name": "warm", "type": "boolean"}],
}


@pytest.fixture(scope="module")
def registry() -> Iterator[str]:
    """The URL of a real registry: that of `SCHEMA_REGISTRY_URL`, else Apicurio of its archive; in CI one is a must."""
    named = os.environ.get("SCHEMA_REGISTRY_URL")
    if named:
        yield named
        return
    try:
        running = LocalRegistry().start()
    except (BrokerError, MissingPackageError) as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))
    try:
        yield running.url
    finally:
        running.stop()


WARM = """
from pipelines import Data

def warm(data: Data) -> Data:
    return Data({"machine": data["machine"], "warm": data["temp"] > 20})
"""


def context(topic: str) -> SerializationContext:
    return SerializationContext(topic, MessageField.VALUE, [])


@pytest.mark.kafka
def test_a_topic_of_confluents_serializers_becomes_one_for_its_deserializers(
    kafka: Broker, topics: Callable[..., str], registry: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, sink, dead = topics(), topics(), topics()
    client = SchemaRegistryClient({"url": registry})
    serializer = AvroSerializer(client, json.dumps(READING))
    moment = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)
    readings = [{"machine": f"m{number}", "temp": float(number), "at": moment} for number in range(40)]
    payloads = [serializer(reading, context(source)) for reading in readings]
    payloads[7] = serializer({**readings[7], "temp": None}, context(source))
    payloads[9] = b"\0\x7f\xff\xff\xff" + (payloads[9] or b"")[5:]
    payloads[11] = (payloads[11] or b"")[:-2]
    write(kafka.bootstrap, source, payloads)
    # A name of its own, as modules stay imported.
    module = f"warm_{uuid.uuid4().hex}"
    (tmp_path / f"{module}.py").write_text(WARM)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "score.avsc").write_text(json.dumps(SCORE))
    (tmp_path / "service.yaml").write_text(
        f"""
name: warm
source:
  type: kafka
  bootstrap: {kafka.bootstrap}
  topics: {source}
  start: earliest
  codec: {{type: avro, registry: {{url: "{registry}"}}}}
pipeline: [{{'@type': FUNCTION, function: "{module}:warm"}}]
sink:
  type: kafka
  bootstrap: {kafka.bootstrap}
  topic: {sink}
  codec: {{type: avro, schema: score.avsc, registry: {{url: "{registry}", auto_register: true}}}}
dead_letter: {{type: kafka, bootstrap: "{kafka.bootstrap}", topic: {dead}}}
"""
    )
    service = streamer.load(tmp_path / "service.yaml")
    with service:
        results = [AvroDeserializer(client)(one.value, context(sink)) for one in read(kafka.bootstrap, sink, 37)]
        assert len(read(kafka.bootstrap, dead, 3)) == 3
    expected = [{"machine": f"m{n}", "warm": n > 20} for n in range(40) if n not in (7, 9, 11)]
    assert sorted(results, key=str) == sorted(expected, key=str)


def test_an_avro_codec_registers_and_finds_its_schema_in_a_real_registry(registry: str) -> None:
    topic = f"t-{uuid.uuid4().hex}"
    client = SchemaRegistryClient({"url": registry})
    batch = Batch.of([Data({"score": 1, "label": "a"}), Data({"score": 0.5, "label": "b"})])
    setting: dict[str, Any] = {"type": "avro", "registry": {"url": registry}}
    with pytest.raises(ConnectorError, match=f"no subject {topic}-value"):
        codec_of(setting, topic=topic).encode(batch)
    derived = codec_of({**setting, "registry": {"url": registry, "auto_register": True}}, topic=topic).encode(batch)
    again = codec_of(setting, topic=topic).encode(batch)
    assert again.values == derived.values
    assert [AvroDeserializer(client)(value, context(topic)) for value in again.values] == [
        {"score": 1.0, "label": "a"},
        {"score": 0.5, "label": "b"},
    ]
    with pytest.raises(ConnectorError, match="does not have this schema in the subject") as raised:
        codec_of({**setting, "schema": SCORE}, topic=topic).encode(batch)
    assert not raised.value.retriable


def test_json_of_a_real_registry_goes_both_ways(registry: str) -> None:
    topic = f"t-{uuid.uuid4().hex}"
    schema = json.dumps({"title": "R", "type": "object", "properties": {"a": {"type": "number"}}})
    client = SchemaRegistryClient({"url": registry})
    payload = JSONSerializer(schema, client)({"a": 1.5}, context(topic))
    codec = codec_of({"type": "json-schema", "registry": {"url": registry}, "validate": True}, topic=topic)
    decoded = codec.decode(block([payload]), None)
    assert decoded.batch.to_list() == [Data({"a": 1.5})]
    (value,) = codec.encode(decoded.batch).values
    assert JSONDeserializer(schema, schema_registry_client=client)(value, context(topic)) == {"a": 1.5}


def test_protobuf_of_a_real_registry_goes_both_ways(registry: str, tmp_path: Path) -> None:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
    from google.protobuf.timestamp_pb2 import DESCRIPTOR

    file = FileDescriptorProto(name="plant.proto", package="plant", syntax="proto3", dependency=[DESCRIPTOR.name])
    reading = file.message_type.add(name="Reading")
    reading.field.add(name="id", number=1, type=9, label=1)
    reading.field.add(name="at", number=2, type=11, label=1, type_name=".google.protobuf.Timestamp")
    files = FileDescriptorSet(file=[FileDescriptorProto.FromString(DESCRIPTOR.serialized_pb), file])
    (tmp_path / "plant.desc").write_bytes(files.SerializeToString())
    topic, batch = f"t-{uuid.uuid4().hex}", Batch.of([Data({"id": "a", "at": 1_700_000_000_123})])
    own = {"type": "protobuf", "descriptors": str(tmp_path / "plant.desc"), "message": "plant.Reading"}
    written = codec_of({**own, "registry": {"url": registry, "auto_register": True}}, topic=topic).encode(batch)
    assert not written.failed
    for setting in ({**own, "registry": {"url": registry}}, {"type": "protobuf", "registry": {"url": registry}}):
        codec = codec_of(setting, topic=topic)
        assert codec.decode(block(written.values), None).batch.to_list() == batch.to_list()
        assert codec.encode(batch).values == written.values


@pytest.mark.kafka
@pytest.mark.parametrize("hot_path", ["auto", "python"])
def test_keys_of_confluents_serializer_become_values_and_pass_on_as_they_came(
    kafka: Broker, topics: Callable[..., str], registry: str, hot_path: str
) -> None:
    source, out, dead = topics(1), topics(1), topics(1)
    machine = {"type": "record", "name": "Machine", "fields": [{"name": "id", "type": "long"}]}
    serializer = AvroSerializer(SchemaRegistryClient({"url": registry}), json.dumps(machine))
    keys = [serializer({"id": n}, SerializationContext(source, MessageField.KEY, [])) for n in range(3)]
    for key in [*keys, b"none"]:
        write(kafka.bootstrap, source, [b"{}"], key=key)
    service = streamer.loads(f"""
name: {source}
hot_path: {hot_path}
source:
  type: kafka
  bootstrap: {kafka.bootstrap}
  topics: {source}
  codec: json
  key: {{type: avro, registry: {{url: "{registry}"}}}}
  into: {{key.id: machine}}
pipeline: []
sink: {{type: kafka, bootstrap: "{kafka.bootstrap}", topic: {out}, codec: json}}
dead_letter: {{type: kafka, bootstrap: "{kafka.bootstrap}", topic: {dead}}}
""")
    with service:
        results, letters = read(kafka.bootstrap, out, 3), read(kafka.bootstrap, dead, 1)
    assert [(one.key, json.loads(one.value)) for one in results] == [
        (key, {"machine": n}) for n, key in enumerate(keys)
    ]
    assert [one.key for one in letters] == [b"none"]
