"""Services with schema registries, run without any: schemas are in memory for the time of a run."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from connectors.codec import Codec
from connectors.codecs.config import CodecConfig
from connectors.codecs.registry import codec_config, codec_of
from connectors.codecs.schemas.config import RegistryConfig
from connectors.codecs.schemas.registry import SchemaRegistry, forget_mock
from connectors.config import ConnectorConfig, SinkConfig, SourceConfig
from pipelines.errors import DefinitionError
from streamer.definition.connectors.listed import result_sinks_of
from streamer.definition.service import Service
from streamer.models.settings import SHADOW

Schema: TypeAlias = str | Path | Mapping[str, Any]
"""A schema for a codec with a registry: of Avro or JSON a file or the schema itself, of protobuf
`{"descriptors": FILE, "message": NAME}`."""

Config = TypeVar("Config", bound=ConnectorConfig)

_MOCK = "mock:"


@contextmanager
def registries_in_memory(service: Service, schemas: Mapping[str, Schema]) -> Iterator[Service]:
    """The service with schema registries in memory in place of the real ones, for the time of the `with` block.

    A registry whose address is `mock://NAME` is in memory already, and stays. `schemas` has schemas by the names of
    sinks. A sink without one has that of its codec; where only its registry has one, results are not checked by it.
    """
    url = f"mock://streamer.testing.{uuid.uuid4()}"
    sources = [_changed(config, url, {}) for config in service.sources]
    sinks = [_changed(config, url, _given(config, schemas.get(config.label))) for config in result_sinks_of(service)]
    try:
        for at, (config, made) in enumerate(zip(result_sinks_of(service), sinks, strict=True)):
            if not _derives(config) and not _has_schema(made):
                sinks[at] = made.model_copy(update={"codec": _schemaless(made.codec)})
        count = len(service.sinks)
        yield _with_shadow_sink(service, sinks[count:]).model_copy(update={"source": sources, "sink": sinks[:count]})
    finally:
        forget_mock(url)


def _with_shadow_sink(service: Service, sinks: list[SinkConfig]) -> Service:
    """The service whose shadow has this sink, if there is one."""
    if not sinks:
        return service
    shadow = service.variants[SHADOW].model_copy(update={"sink": sinks[0]})
    return service.model_copy(update={"variants": {**service.variants, SHADOW: shadow}})


def input_codec(config: SourceConfig, schema: Schema | None) -> Codec:
    """The codec that writes the records of a test for this source of a service of `registries_in_memory`.

    With a registry they are written by `schema`, else by a schema of the codec, else, for Avro, by one that is derived
    from the records. Raises `DefinitionError` for protobuf where none of these is there.
    """
    changed = _changed(config, None, _given(config, schema))
    codec = _with_registry(changed)
    if codec is not None and codec.type != "avro" and not _has_schema(changed):
        raise DefinitionError(
            f"the source {config.label}: its schema is in a registry, and tests ask none; give the codec its schema, "
            "or the case (schema: {descriptors: FILE, message: NAME})"
        )
    return codec_of(changed.codec, topic=_topic(config))


def _topic(config: ConnectorConfig) -> str:
    """The topic that subjects in the registry are named after."""
    if isinstance(config, SinkConfig):
        return "" if config.addressing is None else config.addressing.topic
    names = config.topic_names if isinstance(config, SourceConfig) else ()
    return next((name for name in names if not set(name) & set("^{}+#")), config.label)


def _changed(config: Config, url: str | None, schema: Mapping[str, Any]) -> Config:
    changed: dict[str, Any] = {field: _in_memory(setting, url, {}) for field, setting in config.codec_settings.items()}
    return config.model_copy(update={**changed, "codec": _in_memory(config.codec, url, schema)})


def _in_memory(setting: str | Mapping[str, Any], url: str | None, schema: Mapping[str, Any]) -> str | dict[str, Any]:
    """The same codec with a registry in memory, at `url` unless it is in memory already, and this schema."""
    if isinstance(setting, str):
        return setting
    changed = dict(setting)
    registry = _registry(codec_config(setting))
    if registry is not None:
        address = registry.url if url is None or registry.url.startswith(_MOCK) else url
        kept = {name: getattr(registry, name) for name in ("framing", "strategy", "subject")}
        return {**changed, "registry": {**kept, "url": address, "auto_register": True}, **schema}
    if "codec" in changed:
        changed["codec"] = _in_memory(changed["codec"], url, schema)
    return changed


def _given(config: ConnectorConfig, schema: Schema | None) -> dict[str, Any]:
    """The fields of the codec that hold this schema; without one, for Avro, those of the schema that it reads as."""
    codec = _with_registry(config)
    if schema is None:
        schemaless = codec is not None and codec.type == "avro" and getattr(codec, "schema_", None) is None
        read_as = getattr(codec, "reader_schema", None) if schemaless and isinstance(config, SourceConfig) else None
        return {} if read_as is None else {"schema": read_as}
    if codec is None:
        raise DefinitionError(f"{config.label}: a schema is only given to a codec with a schema registry")
    if codec.type != "protobuf":
        return {"schema": dict(schema) if isinstance(schema, Mapping) else str(schema)}
    if not isinstance(schema, Mapping) or set(schema) != {"descriptors", "message"}:
        raise DefinitionError(f"{config.label}: a schema of protobuf is {{descriptors: FILE, message: NAME}}")
    return {name: str(value) for name, value in schema.items()}


def _derives(config: SinkConfig) -> bool:
    """Whether a service that runs derives a schema from its first results, where there is none."""
    codec = _with_registry(config)
    registry = _registry(codec)
    return codec is not None and codec.type == "avro" and registry is not None and registry.auto_register


def _has_schema(config: ConnectorConfig) -> bool:
    """Whether results or records of this connector can be written: no registry has to be asked, or there is a schema.

    JSON needs a schema for its id only, so a schema that accepts everything is registered.
    """
    codec = _with_registry(config)
    registry = _registry(codec)
    if codec is None or registry is None:
        return True
    if any(getattr(codec, name, None) is not None for name in ("schema_", "descriptors")):
        return True
    asked = SchemaRegistry(registry)
    name = getattr(codec, "record_name", None) or getattr(codec, "message", None) or ""
    subject = asked.subject(_topic(config), name)
    if asked.latest(subject) is not None:
        return True
    if codec.type == "json-schema":
        asked.written(subject, "JSON", "{}")
    return codec.type == "json-schema"


def _schemaless(setting: str | Mapping[str, Any]) -> str | dict[str, Any]:
    """The same codec with a form that needs no schema in place of the one that has a registry."""
    if isinstance(setting, str) or _registry(codec_config(setting)) is not None:
        return "protodata"
    return {**setting, "codec": _schemaless(setting["codec"])}


def _with_registry(config: ConnectorConfig) -> CodecConfig | None:
    """The codec of the connector, or inside it, that has a registry."""
    codec: CodecConfig | None = codec_config(config.codec)
    while codec is not None and _registry(codec) is None:
        codec = codec.wrapped
    return codec


def _registry(codec: CodecConfig | None) -> RegistryConfig | None:
    registry = getattr(codec, "registry", None)
    return registry if isinstance(registry, RegistryConfig) else None
