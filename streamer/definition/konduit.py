"""A Konduit Serving `InferenceConfiguration` as a service.

The format is Konduit Serving's own (`InferenceConfiguration` and `KafkaConfiguration` of its vertx-config module). Over
KAFKA: one topic in, one out, values as Konduit's JSON or protobuf. Over MQTT: clients connect to the service, send JSON
on any topic T, and get the answer on T-out. Over HTTP: `POST /predict` with JSON or protobuf. Over GRPC: the method
`predict` of `ai.konduit.serving.Inference`. Unlike there, no record is acknowledged before its results are confirmed.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import Field

from pipelines.definitions.document import Document, KeyPath
from pipelines.definitions.validation import validated
from pipelines.errors import DefinitionError
from pipelines.steps.config import Config

DEFAULT_PORT: Final = 9092
"""Kafka's port, for a configuration whose port is 0."""

_JSON_OBJECT: Final = "io.vertx.kafka.client.serialization.JsonObject"

_VARIABLES: Final = {
    "start_http_server_for_kafka": "KONDUIT_START_HTTP_SERVER_FOR_KAFKA",
    "http_kafka_host": "KONDUIT_HTTP_KAFKA_HOST",
    "http_kafka_port": "KONDUIT_HTTP_KAFKA_PORT",
    "consumer_topic_name": "KONDUIT_CONSUMER_TOPIC_NAME",
    "consumer_key_deserializer_class": "KONDUIT_KAFKA_CONSUMER_SERIALIZER_CLASS",
    "consumer_value_deserializer_class": "KONDUIT_KAFKA_CONSUMER_DESERIALIZER_CLASS",
    "consumer_group_id": "KONDUIT_CONSUMER_GROUP_ID",
    "consumer_auto_offset_reset": "KONDUIT_CONSUMER_OFFSET_RESET",
    "consumer_auto_commit": "KONDUIT_CONSUMER_AUTO_COMMIT",
    "producer_topic_name": "KONDUIT_PRODUCER_TOPIC_NAME",
    "producer_key_serializer_class": "KONDUIT_KAFKA_PRODUCER_SERIALIZER_CLASS",
    "producer_value_serializer_class": "KONDUIT_KAFKA_PRODUCER_DESERIALIZER_CLASS",
    "producer_acks": "KONDUIT_PRODUCER_ACKS",
}
"""Environment variables that override the configuration (two of them are misnamed, in Konduit Serving itself)."""
_PORT_VARIABLE: Final = "KONDUIT_SERVING_PORT"


class KonduitWarning(UserWarning):
    """A service made from a Konduit configuration behaves differently in a way that users should know."""


class KafkaConfiguration(Config):
    """The `kafkaConfiguration` of an `InferenceConfiguration`, with Konduit's defaults."""

    start_http_server_for_kafka: bool = True
    http_kafka_host: str = "localhost"
    http_kafka_port: int = Field(default=0, ge=0, le=65535)
    consumer_topic_name: str = "inference-in"
    consumer_key_deserializer_class: str = f"{_JSON_OBJECT}Deserializer"
    consumer_value_deserializer_class: str = f"{_JSON_OBJECT}Deserializer"
    consumer_group_id: str = "konduit-serving-consumer-group"
    consumer_auto_offset_reset: str = "earliest"
    consumer_auto_commit: str = "true"
    producer_topic_name: str = "inference-out"
    producer_key_serializer_class: str = f"{_JSON_OBJECT}Serializer"
    producer_value_serializer_class: str = f"{_JSON_OBJECT}Serializer"
    producer_acks: str = "1"


class InferenceConfiguration(Config):
    """Konduit Serving's server configuration."""

    host: str = "localhost"
    port: int = Field(default=0, ge=0, le=65535)
    use_ssl: bool = False
    ssl_key_path: str | None = None
    ssl_certificate_path: str | None = None
    protocol: Literal["HTTP", "MQTT", "GRPC", "KAFKA"] = "HTTP"
    static_content_root: str = "static-content"
    static_content_url: str = "/static-content"
    static_content_index_page: str = "/index.html"
    kafka_configuration: KafkaConfiguration = KafkaConfiguration()
    mqtt_configuration: dict[str, Any] = Field(default={})
    custom_endpoints: tuple[str, ...] = ()
    pipeline: Any = None


def is_konduit(data: object) -> bool:
    """Whether this plain data is an `InferenceConfiguration` rather than a service file of streamer."""
    if not isinstance(data, Mapping) or {"source", "sink"} & data.keys():
        return False
    return bool(data.keys() & konduit_keys())


def konduit_keys() -> frozenset[str]:
    """The keys by which an `InferenceConfiguration` is recognised: a service file of streamer has none of them."""
    return frozenset(InferenceConfiguration.keys().keys() - {"pipeline"})


def from_konduit(document: Document, environment: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The equivalent service file as data, without the pipeline, which stays in the document.

    Environment variables override the configuration, as in Konduit Serving. Warns with `KonduitWarning` of differences
    from it, and of its unsafe defaults. Raises `DefinitionError` without a pipeline, and for unknown classes of keys
    and values.
    """
    config = validated(InferenceConfiguration, document)
    if config.pipeline is None:
        raise document.error(("pipeline",) if "pipeline" in document.data else (), "the configuration has no pipeline")
    environment = os.environ if environment is None else environment
    makes = {"HTTP": _http, "GRPC": _grpc, "MQTT": _mqtt, "KAFKA": _kafka}
    return makes[config.protocol](config, environment, document)


def _http(config: InferenceConfiguration, environment: Mapping[str, str], document: Document) -> dict[str, Any]:
    codec = {"type": "konduit"}
    notes = ["arrays in JSON are little-endian, as in later Konduit Serving (ours are big-endian by default)"]
    source: dict[str, Any] = {"type": "http", "listen": _listen(config, environment, document), "codec": codec}
    _encrypted(source, config, notes)
    if Path(config.static_content_root).is_dir():
        notes.append(f"the files in {config.static_content_root} are not served; a web server can serve them")
    if config.custom_endpoints:
        notes.append("customEndpoints are classes of Java, and are not there")
    _warn(document, notes)
    return {"source": source, "sink": {"type": "http", "codec": codec}}


def _grpc(config: InferenceConfiguration, environment: Mapping[str, str], document: Document) -> dict[str, Any]:
    notes = ["health is at a free port of this machine, over HTTP, which the log names"]
    source: dict[str, Any] = {
        "type": "http",
        "listen": "127.0.0.1:0",
        "grpc": _listen(config, environment, document),
        "codec": "protodata",
    }
    if config.use_ssl:
        notes.append("useSsl encrypts connections (Konduit Serving ignores it over GRPC)")
    _encrypted(source, config, notes)
    _warn(document, notes)
    return {"source": source, "sink": {"type": "http", "codec": {"type": "protodata", "images": "png"}}}


def _listen(config: InferenceConfiguration, environment: Mapping[str, str], document: Document) -> str:
    return f"{_host(config.host)}:{_port(config, environment, document)}"


def _encrypted(source: dict[str, Any], config: InferenceConfiguration, notes: list[str]) -> None:
    if not config.use_ssl:
        return
    both = config.ssl_key_path and config.ssl_certificate_path
    source["tls"] = {"cert": config.ssl_certificate_path, "key": config.ssl_key_path} if both else {}
    if not both:
        notes.append("the certificate is self-signed and made at each start (useSsl without both paths)")


def _mqtt(config: InferenceConfiguration, environment: Mapping[str, str], document: Document) -> dict[str, Any]:
    # In Konduit Serving the process is the MQTT broker, and each client gets the answers to its records.
    json = {"type": "konduit-json", "byte_order": "little"}
    source: dict[str, Any] = {
        "type": "mqtt_endpoint",
        "listen": _listen(config, environment, document),
        "codec": json,
    }
    notes = [
        "arrays in JSON are little-endian, as in later Konduit Serving (ours are big-endian by default)",
        "user names and passwords are not checked, as there; a service file can have users",
    ]
    _encrypted(source, config, notes)
    _warn(document, notes)
    return {
        "source": source,
        "sink": {"type": "mqtt_endpoint", "qos": 2, "codec": {**json, "pretty": True, "images": "png"}},
        "dead_letter": {"type": "mqtt_endpoint", "qos": 2},
        # Any client can send records that fail; they must not stop the service for other clients.
        "errors": {"stop_ratio": 1},
    }


def _kafka(config: InferenceConfiguration, environment: Mapping[str, str], document: Document) -> dict[str, Any]:
    kafka = _overridden(config.kafka_configuration, environment, document)
    bootstrap = _bootstrap(config, environment, document)
    codec_in = _codec(kafka.consumer_value_deserializer_class, "Deserializer", document, _place(document, "consumer"))
    codec_out = _codec(kafka.producer_value_serializer_class, "Serializer", document, _place(document, "producer"))
    _warn_of_differences(document, kafka, codec_in, codec_out)
    service: dict[str, Any] = {
        "source": {
            "type": "kafka",
            "bootstrap": bootstrap,
            "topics": [kafka.consumer_topic_name],
            "group": kafka.consumer_group_id,
            "start": kafka.consumer_auto_offset_reset,
            "codec": codec_in,
            "tombstones": "skip",
        },
        "sink": {
            "type": "kafka",
            "bootstrap": bootstrap,
            "topic": kafka.producer_topic_name,
            "codec": codec_out,
        },
        "on_error": "drop",
    }
    if kafka.start_http_server_for_kafka:
        service["control"] = {"listen": f"{_host(kafka.http_kafka_host)}:{kafka.http_kafka_port}"}
    return service


def _overridden(kafka: KafkaConfiguration, environment: Mapping[str, str], document: Document) -> KafkaConfiguration:
    # An empty variable counts as not set.
    overrides = {field: text for field, name in _VARIABLES.items() if (text := _variable(environment, name, document))}
    if not overrides:
        return kafka
    data = {**kafka.model_dump(), **overrides}
    return validated(KafkaConfiguration, Document(data, f"{document.file}, with KONDUIT_ environment variables"))


def _bootstrap(config: InferenceConfiguration, environment: Mapping[str, str], document: Document) -> str:
    return f"{_host(config.host)}:{_port(config, environment, document) or DEFAULT_PORT}"


def _host(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _port(config: InferenceConfiguration, environment: Mapping[str, str], document: Document) -> int:
    text = _variable(environment, _PORT_VARIABLE, document) or str(config.port)
    if not text.isdecimal() or int(text) > 65535:
        raise document.error((), f"the environment variable {_PORT_VARIABLE} is not a port: {text!r}")
    return int(text)


def _variable(environment: Mapping[str, str], name: str, document: Document) -> str | None:
    try:
        return environment.get(name)
    except DefinitionError as error:
        raise document.error((), str(error)) from None


def _codec(class_name: str, ending: str, document: Document, path: KeyPath) -> dict[str, Any]:
    name = class_name.rpartition(".")[2].removesuffix(ending)
    # Konduit Serving's readers support PNG only.
    images = {"images": "png"} if ending == "Serializer" else {}
    if name == "String" and ending == "Serializer":
        return {"type": "konduit-json", "byte_order": "little", "pretty": True, **images}
    if name in ("JsonObject", "String"):
        return {"type": "konduit-json", "byte_order": "little", **images}
    if name in ("Buffer", "ByteArray"):
        return {"type": "protodata", **images}
    raise document.error(
        path,
        f'"{class_name}" is not a class that values can be read or written with; there are JsonObject{ending}, '
        f"String{ending}, Buffer{ending} and ByteArray{ending}",
    )


def _place(document: Document, side: str) -> KeyPath:
    for kafka in ("kafkaConfiguration", "kafka_configuration"):
        for key in (f"{side}Value", f"{side}_value"):
            inner = document.data.get(kafka) or {}
            if field := next((name for name in inner if name.startswith(key)), None):
                return (kafka, field)
    return ()


def _warn_of_differences(
    document: Document, kafka: KafkaConfiguration, codec_in: dict[str, Any], codec_out: dict[str, Any]
) -> None:
    notes = []
    if "konduit-json" in (codec_in["type"], codec_out["type"]):
        notes.append("arrays in JSON are little-endian, as in later Konduit Serving (ours are big-endian by default)")
    notes.append("records that fail are logged and lost (on_error: drop), as there; a service file can keep them")
    if kafka.producer_acks not in ("all", "-1"):
        notes.append(
            f"producerAcks is all, not {kafka.producer_acks}, and positions are acknowledged after the results"
        )
    _warn(document, notes)


def _warn(document: Document, notes: list[str]) -> None:
    warnings.warn(
        f"{document.where()}a Konduit Serving configuration: " + "; ".join(notes), KonduitWarning, stacklevel=5
    )
