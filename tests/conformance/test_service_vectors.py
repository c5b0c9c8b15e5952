"""Konduit Serving's server configurations as services.

The vectors are the files of `vectors/konduit-definitions` that are an `InferenceConfiguration`, and the keys of
`vectors/config-keys.json`. What variables and classes mean is in the specification's table of the Kafka configuration.
"""

from __future__ import annotations

import json
import time
import warnings
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

import streamer
import streamer.testing
from pipelines import Data
from pipelines.definitions.documents import parse_document, read_document
from pipelines.definitions.validation import validated
from pipelines.definitions.yamlwriter import write_yaml
from pipelines.errors import DefinitionError
from streamer.definition.konduit import InferenceConfiguration, KafkaConfiguration, KonduitWarning, from_konduit
from streamer.devbroker import Broker

VECTORS = Path(__file__).parent / "vectors"
FOLDER = VECTORS / "konduit-definitions"
KEYS: dict[str, list[dict[str, Any]]] = json.loads((VECTORS / "config-keys.json").read_text())
FILES = sorted(path for path in FOLDER.iterdir() if path.suffix != ".tsv" and "host" in read_document(path).data)
WRITTEN = [path for path in FILES if path.name.startswith("serialized__")]
KAFKA = [path for path in FILES if read_document(path).data["protocol"] == "KAFKA"]
MQTT = [path for path in FILES if read_document(path).data["protocol"] == "MQTT"]
MISSPELT = {
    "konduit-serving-docs__quickstart__using-docker__3.yaml": r"34: pipeline\.steps\[1\]\.input_names: no such field",
    "konduit-serving-docs__examples__java__server__pipeline-steps__tensorflow-step__1.yaml": "constants: no such field",
}
"""Documents with a field that Konduit Serving does not have either."""
ASKED = [path for path in FILES if path not in [*KAFKA, *MQTT]]

VERTX = "io.vertx.kafka.client.serialization"
APACHE = "org.apache.kafka.common.serialization"
# The array is [0, 1, 2], little-endian as later Konduit Serving writes it.
RECORD = '{"x":{"@NDArrayType":"FLOAT","@NDArrayShape":[3],"@NDArrayDataBase64":"AAAAAAAAgD8AAABA"},"id":7}'


def name(value: object) -> str:
    return value.name if isinstance(value, Path) else str(value)


def form(path: Path) -> Any:
    return path.suffix[1:]


def translated(data: dict[str, Any], environment: dict[str, str]) -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", KonduitWarning)
        return from_konduit(parse_document(json.dumps(data)), environment)


def over_kafka(**fields: Any) -> dict[str, Any]:
    return {"protocol": "KAFKA", "pipeline": {"steps": [{"@type": "LOGGING"}]}, "kafkaConfiguration": fields}


@pytest.mark.parametrize("path", FILES, ids=name)
def test_a_server_configuration_is_read_and_equal_after_writing(path: Path) -> None:
    found = validated(InferenceConfiguration, read_document(path))

    assert found.protocol == read_document(path).data["protocol"]
    for text in (json.dumps(found.to_dict("json")), write_yaml(found.to_dict("yaml"))):
        assert validated(InferenceConfiguration, parse_document(text)) == found


@pytest.mark.parametrize("path", WRITTEN, ids=name)
def test_a_server_configuration_that_konduit_wrote_is_written_back_as_it_was(path: Path) -> None:
    document = read_document(path)
    assert json.dumps(validated(InferenceConfiguration, document).to_dict(form(path))) == json.dumps(document.data)


def test_an_empty_inference_configuration_has_konduits_defaults() -> None:
    written = read_document(FOLDER / "serialized__inference-configuration__no_pipeline.json").data
    assert InferenceConfiguration().to_dict() == written


@pytest.mark.parametrize("model", [InferenceConfiguration, KafkaConfiguration], ids=lambda model: model.__name__)
def test_keys_are_spelled_as_konduit_spells_them(model: type[Any]) -> None:
    ours = [(model.key(field), model.key(field, "yaml")) for field in model.model_fields]
    assert ours == [(row["json"], row["yaml"]) for row in KEYS[model.__name__] if row["written"]]


@pytest.mark.parametrize("path", ASKED, ids=name)
def test_a_service_over_http_or_grpc_answers_requests_at_its_address(path: Path) -> None:
    given = validated(InferenceConfiguration, read_document(path))
    wrong = "has no pipeline" if given.pipeline is None else MISSPELT.get(path.name)
    if wrong is not None:
        warnings.simplefilter("ignore", KonduitWarning)
        with pytest.raises(DefinitionError, match=wrong):
            streamer.load(path)
        return
    with pytest.warns(KonduitWarning):
        service: Any = streamer.load(path)
    (source,), (sink,) = service.sources, service.sinks
    address = f"{given.host}:{given.port}"
    assert (source.type, sink.type) == ("http", "http")
    assert (source.grpc if given.protocol == "GRPC" else source.listen) == address


@pytest.mark.parametrize("path", MQTT, ids=name)
def test_a_service_over_mqtt_has_an_mqtt_endpoint_as_its_source_and_its_sink(path: Path) -> None:
    with pytest.warns(KonduitWarning, match="little-endian"):
        service: Any = streamer.load(path)
    assert [one.type for one in (*service.sources, *service.sinks)] == ["mqtt_endpoint", "mqtt_endpoint"]


@pytest.mark.parametrize("path", KAFKA, ids=name)
def test_a_service_over_kafka_loads_with_its_topics_and_codecs(path: Path) -> None:
    given = validated(InferenceConfiguration, read_document(path)).kafka_configuration
    with pytest.warns(KonduitWarning, match="little-endian" if "buffers" not in path.name else "on_error: drop"):
        service: Any = streamer.load(path)

    (source,), (sink,) = service.sources, service.sinks
    assert (source.topics, source.group, source.start) == (
        (given.consumer_topic_name,),
        given.consumer_group_id,
        "earliest",
    )
    assert sink.topic == given.producer_topic_name
    codec = {"type": "protodata"} if "buffers" in path.name else {"type": "konduit-json", "byte_order": "little"}
    assert (source.codec, sink.codec) == (codec, {**codec, "images": "png"})


@pytest.mark.parametrize("value", ["JsonObject", "String", "Buffer"])
def test_records_keep_their_values_in_the_forms_of_konduits_classes(value: str) -> None:
    package = APACHE if value == "String" else VERTX
    data = Data.from_json(RECORD, byte_order="little")
    assert data["x"].tolist() == [0, 1, 2]
    payload = data.to_bytes() if value == "Buffer" else RECORD.encode()
    configuration = over_kafka(
        startHttpServerForKafka=False,
        consumerValueDeserializerClass=f"{package}.{value}Deserializer",
        producerValueSerializerClass=f"{package}.{value}Serializer",
    )
    with pytest.warns(KonduitWarning):
        service = streamer.loads(json.dumps(configuration))

    # A record that cannot be read is logged and lost, as in Konduit.
    report = streamer.testing.run(service, [payload, b"\xff broken", payload])

    assert report.results == [data, data]
    assert report.dead == []
    (messages,) = report.sinks.values()
    for message in messages:
        assert message.key is None
        written = bytes(message.value or b"")
        if value == "Buffer":
            assert Data.from_bytes(written) == data
        elif value == "JsonObject":
            assert written.decode() == RECORD
        else:
            assert json.loads(written) == json.loads(RECORD)
            assert b"\n" in written


# Konduit's names, two of them misleading; where the value arrives, or None where a service of ours has no such thing.
VARIABLES: list[tuple[str, str, tuple[str, ...] | None]] = [
    ("KONDUIT_START_HTTP_SERVER_FOR_KAFKA", "true", ("control",)),
    ("KONDUIT_HTTP_KAFKA_HOST", "0.0.0.0", ("control", "listen")),
    ("KONDUIT_HTTP_KAFKA_PORT", "8081", ("control", "listen")),
    ("KONDUIT_CONSUMER_TOPIC_NAME", "other-in", ("source", "topics")),
    ("KONDUIT_KAFKA_CONSUMER_SERIALIZER_CLASS", f"{APACHE}.StringDeserializer", None),
    ("KONDUIT_KAFKA_CONSUMER_DESERIALIZER_CLASS", f"{VERTX}.BufferDeserializer", ("source", "codec")),
    ("KONDUIT_CONSUMER_GROUP_ID", "other", ("source", "group")),
    ("KONDUIT_CONSUMER_OFFSET_RESET", "latest", ("source", "start")),
    ("KONDUIT_CONSUMER_AUTO_COMMIT", "false", None),
    ("KONDUIT_PRODUCER_TOPIC_NAME", "other-out", ("sink", "topic")),
    ("KONDUIT_KAFKA_PRODUCER_SERIALIZER_CLASS", f"{APACHE}.StringSerializer", None),
    ("KONDUIT_KAFKA_PRODUCER_DESERIALIZER_CLASS", f"{VERTX}.BufferSerializer", ("sink", "codec")),
    ("KONDUIT_PRODUCER_ACKS", "all", None),
    ("KONDUIT_SERVING_PORT", "19092", ("source", "bootstrap")),
]


def at(tree: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        tree = tree.get(key) if tree is not None else None
    return tree


@pytest.mark.parametrize(("variable", "value", "place"), VARIABLES, ids=[row[0] for row in VARIABLES])
def test_a_variable_goes_before_the_configuration_and_an_empty_one_does_not_count(
    variable: str, value: str, place: tuple[str, ...] | None
) -> None:
    configuration = over_kafka(startHttpServerForKafka=variable != "KONDUIT_START_HTTP_SERVER_FOR_KAFKA")
    plain = translated(configuration, {})
    changed = translated(configuration, {variable: value})

    assert translated(configuration, {variable: ""}) == plain
    if place is None:
        assert changed == plain
        return
    words = {"BufferDeserializer": "protodata", "BufferSerializer": "protodata", "true": "localhost:0"}
    assert at(changed, place) != at(plain, place)
    assert words.get(value.rpartition(".")[2], value) in str(at(changed, place))
    assert {key for key in changed if changed[key] != plain.get(key)} <= {
        place[0],
        *(("sink",) if value == "19092" else ()),
    }


def test_every_variable_of_the_table_is_known() -> None:
    from streamer.definition.konduit import _VARIABLES

    assert {*_VARIABLES.values(), "KONDUIT_SERVING_PORT"} == {variable for variable, _, _ in VARIABLES}
    assert _VARIABLES.keys() == KafkaConfiguration.model_fields.keys()


@pytest.mark.kafka
def test_konduits_file_runs_on_a_real_kafka(
    kafka: Broker, topics: Any, topic_name: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host, _, port = kafka.bootstrap.split(",")[0].rpartition(":")
    source, sink = topics(prefix="konduit-in"), topics(prefix="konduit-out")
    data = read_document(FOLDER / "serialized__inference-configuration__KAFKA.json").data
    data["host"] = host
    data["kafkaConfiguration"].update(startHttpServerForKafka=False, consumerGroupId=topic_name("group"))
    file = tmp_path / "konduit.json"
    file.write_text(json.dumps(data))
    # As one does with Konduit in a container: the file as it is, the rest from the environment.
    monkeypatch.setenv("KONDUIT_SERVING_PORT", port)
    monkeypatch.setenv("KONDUIT_CONSUMER_TOPIC_NAME", source)
    monkeypatch.setenv("KONDUIT_PRODUCER_TOPIC_NAME", sink)
    with pytest.warns(KonduitWarning):
        service = streamer.load(file)

    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    texts = [RECORD.replace(":7}", f":{number}}}") for number in range(20)]
    for text in texts:
        producer.produce(source, text.encode())
    assert producer.flush(60) == 0

    with service:
        found = consumed(kafka.bootstrap, sink, len(texts))
    assert [(message.value().decode(), message.key(), message.headers()) for message in found] == [
        (text, None, None) for text in texts
    ]


def consumed(bootstrap: str, topic: str, count: int) -> list[Any]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": f"{topic}-test", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found: list[Any] = []
    end = time.monotonic() + 120
    while len(found) < count and time.monotonic() < end:
        found += [message for message in consumer.consume(count, 0.2) if message.error() is None]
    consumer.close()
    return found
