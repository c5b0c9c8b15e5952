"""Konduit Serving's `InferenceConfiguration` as a service file."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pytest
import yaml

import pipelines
from pipelines.definitions.definition import CONFIGURATION_KEYS
from pipelines.definitions.documents import parse_document
from pipelines.errors import DefinitionError
from streamer.definition.konduit import InferenceConfiguration, KonduitWarning, from_konduit, is_konduit
from streamer.definition.loading import load, loads

CLASSES = "io.vertx.kafka.client.serialization."


def configuration(**kafka: Any) -> dict[str, Any]:
    return {
        "host": "broker",
        "port": 9093,
        "protocol": "KAFKA",
        "kafkaConfiguration": {"startHttpServerForKafka": False, **kafka},
        "pipeline": {"steps": [{"@type": "LOGGING"}]},
    }


def translated(data: dict[str, Any], **environment: str) -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", KonduitWarning)
        return from_konduit(parse_document(json.dumps(data, indent=1), "k.json"), environment)


def test_an_inference_configuration_is_told_from_a_service() -> None:
    assert is_konduit({"protocol": "KAFKA", "pipeline": {}})
    assert is_konduit({"kafka_configuration": {}})
    assert is_konduit({"host": "localhost", "port": 0, "pipeline": None})
    assert not is_konduit({"source": {}, "sink": {}, "pipeline": {}, "host": "x"})
    assert not is_konduit({"pipeline": {}})
    assert not is_konduit([])


def test_topics_group_and_broker_are_taken_over() -> None:
    found = translated(configuration(consumerTopicName="a", producerTopicName="b", consumerGroupId="g"))
    source, sink = found["source"], found["sink"]
    assert (source["bootstrap"], source["topics"], source["group"], source["start"]) == (
        "broker:9093",
        ["a"],
        "g",
        "earliest",
    )
    assert (sink["bootstrap"], sink["topic"]) == ("broker:9093", "b")
    assert "control" not in found


def test_absent_fields_of_a_configuration_have_konduits_defaults() -> None:
    found = translated({"protocol": "KAFKA", "pipeline": {"steps": []}})
    assert found["source"]["topics"] == ["inference-in"]
    assert found["sink"]["topic"] == "inference-out"
    assert found["source"]["group"] == "konduit-serving-consumer-group"
    assert found["source"]["bootstrap"] == "localhost:9092"
    assert found["source"]["codec"] == {"type": "konduit-json", "byte_order": "little"}
    assert found["control"] == {"listen": "localhost:0"}


@pytest.mark.parametrize(
    ("name", "codec"),
    [
        (f"{CLASSES}JsonObjectDeserializer", {"type": "konduit-json", "byte_order": "little"}),
        ("org.apache.kafka.common.serialization.StringDeserializer", {"type": "konduit-json", "byte_order": "little"}),
        (f"{CLASSES}BufferDeserializer", {"type": "protodata"}),
        ("org.apache.kafka.common.serialization.ByteArrayDeserializer", {"type": "protodata"}),
    ],
)
def test_classes_of_values_are_codecs(name: str, codec: dict[str, str]) -> None:
    writer = name.replace("Deserializer", "Serializer")
    found = translated(configuration(consumerValueDeserializerClass=name, producerValueSerializerClass=writer))
    assert found["source"]["codec"] == codec
    # Konduit Serving writes a text with indentation, an object without, and reads no images but PNG.
    written = {**codec, "images": "png"}
    assert found["sink"]["codec"] == (written | {"pretty": True} if "String" in name else written)


def test_an_unknown_class_of_values_is_an_error_at_its_line() -> None:
    data = configuration(consumerValueDeserializerClass="com.example.AvroDeserializer")
    with pytest.raises(DefinitionError, match=r'^k\.json:7: kafkaConfiguration\.consumerValueDeserializerClass: "com'):
        translated(data)


def test_the_environment_goes_before_the_configuration_and_an_empty_variable_does_not_count() -> None:
    found = translated(
        configuration(consumerTopicName="a", producerTopicName="b"),
        KONDUIT_CONSUMER_TOPIC_NAME="c",
        KONDUIT_PRODUCER_TOPIC_NAME="",
        KONDUIT_KAFKA_CONSUMER_DESERIALIZER_CLASS=f"{CLASSES}BufferDeserializer",
        KONDUIT_SERVING_PORT="1234",
    )
    assert found["source"]["topics"] == ["c"]
    assert found["sink"]["topic"] == "b"
    assert found["source"]["codec"] == {"type": "protodata"}
    assert found["sink"]["bootstrap"] == "broker:1234"


@pytest.mark.parametrize("port", ["x", "70000", "-1"])
def test_a_port_variable_that_is_no_port_is_an_error(port: str) -> None:
    with pytest.raises(DefinitionError, match="KONDUIT_SERVING_PORT is not a port"):
        translated(configuration(), KONDUIT_SERVING_PORT=port)


def test_the_health_port_becomes_the_control_port() -> None:
    found = translated(configuration(startHttpServerForKafka=True, httpKafkaHost="0.0.0.0", httpKafkaPort=8080))
    assert found["control"] == {"listen": "0.0.0.0:8080"}


def test_addresses_of_ipv6_are_written_as_addresses_with_a_port_are() -> None:
    data = configuration(startHttpServerForKafka=True, httpKafkaHost="::1", httpKafkaPort=8080)
    data["host"] = "fd00::5"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", KonduitWarning)
        service = loads(json.dumps(data), environment={})
    assert service.control is not None
    assert service.control.listen == "[::1]:8080"
    assert translated(data)["source"]["bootstrap"] == translated(data)["sink"]["bootstrap"] == "[fd00::5]:9093"


def test_a_health_port_that_is_no_port_is_an_error_at_its_own_key() -> None:
    with pytest.raises(DefinitionError, match=r"k\.json:\d+: kafkaConfiguration\.httpKafkaPort: .*65535"):
        translated(configuration(startHttpServerForKafka=True, httpKafkaPort=99999))


def test_mqtt_makes_the_service_a_server_that_answers_its_clients() -> None:
    found = translated({**configuration(), "protocol": "MQTT", "host": "0.0.0.0", "port": 1884})
    assert found["source"] == {
        "type": "mqtt_endpoint",
        "listen": "0.0.0.0:1884",
        "codec": {"type": "konduit-json", "byte_order": "little"},
    }
    codec = {"type": "konduit-json", "byte_order": "little", "pretty": True, "images": "png"}
    assert found["sink"] == {"type": "mqtt_endpoint", "qos": 2, "codec": codec}
    assert found["dead_letter"] == {"type": "mqtt_endpoint", "qos": 2}


def test_the_port_of_mqtt_is_any_by_default_and_the_environments_if_it_has_one() -> None:
    data = {"protocol": "MQTT", "pipeline": {"steps": []}}
    assert translated(data)["source"]["listen"] == "localhost:0"
    assert translated(data, KONDUIT_SERVING_PORT="1999")["source"]["listen"] == "localhost:1999"
    with pytest.raises(DefinitionError, match="KONDUIT_SERVING_PORT is not a port"):
        translated(data, KONDUIT_SERVING_PORT="many")


@pytest.mark.parametrize(
    ("paths", "tls"),
    [
        ({}, {}),
        ({"sslKeyPath": "k.pem"}, {}),
        ({"sslKeyPath": "k.pem", "sslCertificatePath": "c.pem"}, {"cert": "c.pem", "key": "k.pem"}),
    ],
)
def test_tls_of_mqtt_takes_both_paths_or_a_certificate_of_its_own(paths: dict[str, str], tls: dict[str, str]) -> None:
    data = {"protocol": "MQTT", "useSsl": True, "pipeline": {"steps": []}, **paths}
    assert translated(data)["source"]["tls"] == tls


def test_differences_of_mqtt_from_konduit_serving_are_a_warning() -> None:
    data = {"protocol": "MQTT", "useSsl": True, "pipeline": {"steps": []}}
    with pytest.warns(KonduitWarning, match=r"little-endian.*passwords are not checked.*self-signed"):
        from_konduit(parse_document(json.dumps(data), "k.json"), {})


def test_http_makes_the_service_answer_requests_at_its_host_and_port() -> None:
    found = translated({**configuration(), "protocol": "HTTP", "host": "0.0.0.0", "port": 8080})
    codec = {"type": "konduit"}
    assert found == {
        "source": {"type": "http", "listen": "0.0.0.0:8080", "codec": codec},
        "sink": {"type": "http", "codec": codec},
    }


def test_http_is_the_protocol_by_default_and_the_environment_has_its_port() -> None:
    data = {"host": "::1", "useSsl": True, "pipeline": {"steps": []}}
    source = translated(data, KONDUIT_SERVING_PORT="1999")["source"]
    assert (source["listen"], source["tls"]) == ("[::1]:1999", {})


def test_grpc_has_the_port_of_the_configuration_and_http_is_for_this_machine_only() -> None:
    found = translated({"protocol": "GRPC", "host": "0.0.0.0", "port": 9090, "pipeline": {"steps": []}})
    assert found["source"] == {
        "type": "http",
        "listen": "127.0.0.1:0",
        "grpc": "0.0.0.0:9090",
        "codec": "protodata",
    }
    assert found["sink"] == {"type": "http", "codec": {"type": "protodata", "images": "png"}}


def test_parts_of_konduits_http_server_that_are_not_there_are_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "static-content").mkdir()
    monkeypatch.chdir(tmp_path)
    data = {"protocol": "HTTP", "customEndpoints": ["a.B"], "pipeline": {"steps": []}}
    with pytest.warns(KonduitWarning, match=r"static-content are not served.*customEndpoints are classes of Java"):
        from_konduit(parse_document(json.dumps(data), "k.json"), {})


@pytest.mark.parametrize("protocol", ["HTTP", "GRPC"])
def test_a_configuration_over_http_or_grpc_loads_as_a_service(protocol: str) -> None:
    with pytest.warns(KonduitWarning):
        service = loads(json.dumps({"protocol": protocol, "pipeline": {"steps": []}}), environment={})
    assert [part.type for part in (*service.sources, *service.sinks)] == ["http", "http"]


@pytest.mark.parametrize("protocol", ["HTTP", "GRPC", "KAFKA", "MQTT"])
@pytest.mark.parametrize("spelt", [json.dumps, yaml.safe_dump])
def test_the_pipeline_of_any_configuration_runs_by_itself(protocol: str, spelt: Any, tmp_path: Path) -> None:
    path = tmp_path / "server.json"
    path.write_text(spelt({**configuration(), "protocol": protocol, "use_ssl": False}))
    with pipelines.load(path).open() as executor:
        assert executor.run({"a": 1}) == pipelines.Data({"a": 1})


def test_a_service_of_ours_takes_the_pipeline_of_a_configuration(tmp_path: Path) -> None:
    (tmp_path / "server.json").write_text(json.dumps({**configuration(), "protocol": "HTTP"}))
    service = loads(
        "{source: {type: memory, topic: a}, pipeline: server.json, sink: {type: memory, topic: b}}", base=tmp_path
    )
    assert [step.type_name for step in service.pipeline.steps] == ["LOGGING"]


def test_a_mistake_in_the_pipeline_of_a_configuration_is_told_with_its_place() -> None:
    text = "protocol: HTTP\npipeline:\n  steps:\n  - '@type': LOGING"
    with pytest.raises(DefinitionError, match=r'4: pipeline\.steps\[0\]\.@type: no such step type: "LOGING"'):
        pipelines.loads(text)


def test_the_keys_of_a_configuration_are_known_to_pipelines_too() -> None:
    assert InferenceConfiguration.keys().keys() - {"pipeline"} == CONFIGURATION_KEYS


def test_a_configuration_without_pipeline_or_with_a_misspelt_key_is_an_error() -> None:
    with pytest.raises(DefinitionError, match="has no pipeline"):
        translated({"protocol": "KAFKA"})
    with pytest.raises(DefinitionError, match='consumerTopicNam: no such field; did you mean "consumerTopicName"'):
        translated(configuration(consumerTopicNam="a"))


def test_differences_from_konduit_serving_are_a_warning() -> None:
    with pytest.warns(KonduitWarning, match=r"little-endian.*on_error: drop.*producerAcks is all, not 1"):
        from_konduit(parse_document(json.dumps(configuration()), "k.json"), {})


YAML = """\
host: "broker"
port: 9092
protocol: "KAFKA"
kafka_configuration:
  start_http_server_for_kafka: false
  consumer_topic_name: "in"
  producer_topic_name: "out"
  producer_acks: "all"
  consumer_value_deserializer_class: "io.vertx.kafka.client.serialization.BufferDeserializer"
  producer_value_serializer_class: "io.vertx.kafka.client.serialization.BufferSerializer"
mqtt_configuration: {}
pipeline:
  steps:
  - '@type': "LOGGING"
    logLevel: "INFO"
    log: "KEYS_AND_VALUES"
"""


def test_a_konduit_file_loads_as_a_service(tmp_path: Path) -> None:
    file = tmp_path / "inference.yaml"
    file.write_text(YAML)
    with pytest.warns(KonduitWarning):
        service = load(file)
    assert service.name == "inference"
    assert service.sources[0].model_dump()["topics"] in (["in"], ("in",))
    assert service.sources[0].codec == {"type": "protodata"}
    assert service.on_error == "drop"
    assert service.control is None


def test_a_mistake_in_the_pipeline_of_a_konduit_file_is_named_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "inference.yaml"
    file.write_text(YAML.replace("KEYS_AND_VALUES", "ALL"))
    with (
        pytest.warns(KonduitWarning),
        pytest.raises(DefinitionError, match=r"inference\.yaml:16: pipeline\.steps\[0\]"),
    ):
        load(file)
