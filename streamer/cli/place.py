"""The topic, bus and codec that a command works with, from its options or a service file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import typer

from connectors.browser import Browser
from connectors.config import ConnectorConfig, SinkConfig, SourceConfig
from pipelines.errors import DefinitionError, nearest
from streamer.cli.options import bus, client_properties, codec_setting
from streamer.cli.route import is_service_file, resembles_file
from streamer.cli.terminal import warn
from streamer.cli.trusted import service_of
from streamer.definition.connectors.listed import sinks_of
from streamer.definition.service import Service


@dataclass(frozen=True, slots=True)
class TopicPlace:
    """A topic, its bus and its codec."""

    topic: str
    bus: Browser
    codec: str | dict[str, object]


class Take(Protocol):
    """The type of `place_of_sink` and `place_of_source`."""

    def __call__(self, file: Path, name: str | None, topic: str | None, client: Mapping[str, Any]) -> TopicPlace: ...


def place_named(
    where: str,
    take: Take,
    name: str | None,
    options: Mapping[str, str | None],
    codec: str | None,
    bootstrap: str | None,
    client: list[str] | None,
) -> TopicPlace:
    """The place of a command's argument: a topic on the bus at `bootstrap`, or the one that `take` finds in a file.

    `options` are those that need a service file; `--topic` is among them. Raises `typer.BadParameter` for one of them
    beside a topic, and the errors of `take`.
    """
    if is_service_file(where):
        place = take(Path(where), name, options["--topic"], client_properties(client))
        return place if codec is None else replace(place, codec=codec_setting(codec))
    for option, given in options.items():
        if given is not None:
            raise typer.BadParameter(f"{option} needs a service file, and {where!r} is a topic")
    if resembles_file(where):
        warn(f"there is no file {where} here, so it is taken for a topic")
    return TopicPlace(where, bus(bootstrap, client), codec_setting(codec or "protodata"))


def place_of_sink(file: Path, name: str | None, topic: str | None, client: Mapping[str, Any]) -> TopicPlace:
    """Where the service's sink `name` writes (`dead_letter` and `shadow` too); `None`: the first sink on a bus.

    `topic` is the topic if the sink makes topics from values; `client` overrides the service's own login. Dead
    letters are read with the codec of the source, unless the dead letter names one. Raises `DefinitionError` for an
    invalid file, an unknown sink, and a sink without a bus or topic.
    """
    service = service_of(file)
    config, bus = _chosen(service, "sink", sinks_of(service), name, client)
    assert isinstance(config, SinkConfig)
    written = config.place if config.addressing is None else config.addressing.topic
    if topic is None and "{" in written:
        topic = bus.covering(written)
    if topic is None and (not written or "{" in written):
        raise DefinitionError(f'{file}: the sink "{config.label}" writes to {written}; --topic says which to read')
    codec = config.codec
    if config is service.dead_letter and "codec" not in config.model_fields_set:
        # Dead letters hold records as they came: the codec of the sources reads them, if all sources have the same.
        first, *others = (source.codec for source in service.sources)
        codec = first if all(other == first for other in others) else codec
    return TopicPlace(topic or written, bus, codec)


def place_of_source(file: Path, name: str | None, topic: str | None, client: Mapping[str, Any]) -> TopicPlace:
    """Where the service's source `name` reads; `None`: the first source on a bus.

    `topic` chooses among several topics or a pattern. Other arguments and errors are those of `place_of_sink`.
    """
    service = service_of(file)
    config, bus = _chosen(service, "source", service.sources, name, client)
    assert isinstance(config, SourceConfig)
    topic = topic or config.sent_to
    if topic is None:
        raise DefinitionError(f'{file}: the source "{config.label}" reads {config.place}; --topic says which is meant')
    return TopicPlace(topic, bus, config.codec)


def _chosen(
    service: Service, what: str, configs: Sequence[ConnectorConfig], name: str | None, client: Mapping[str, Any]
) -> tuple[ConnectorConfig, Browser]:
    labels = [config.label for config in configs]
    if name is not None and name not in labels:
        raise DefinitionError(
            f'the service {service.name} has no {what} "{name}"; it has {", ".join(labels)}{nearest(name, labels)}'
        )
    for config in configs:
        if name in (None, config.label) and (bus := config.browser(client)) is not None:
            return config, bus
    if name is not None:
        raise DefinitionError(f'the {what} "{name}" of the service {service.name} is on no bus with topics')
    raise DefinitionError(f"the service {service.name} has no {what} on a bus with topics")
