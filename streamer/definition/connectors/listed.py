"""`connectors_of`: all sources and sinks of a service, each with the role that it has there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from connectors.config import ConnectorConfig, SinkConfig
from pipelines.definitions.document import KeyPath
from streamer.definition.service import Service
from streamer.models.settings import SHADOW


@dataclass(frozen=True, slots=True)
class Listed:
    """A source or sink of a service."""

    role: Literal["source", "sink", "dead_letter", "shadow"]
    """What it is for: records, results, failed records, or the results of a shadow."""
    config: ConnectorConfig
    path: KeyPath
    """The path of its configuration in the service file, if sources and sinks are in lists there."""

    @property
    def kind(self) -> Literal["source", "sink"]:
        """Whether records come from it or go to it."""
        return "source" if self.role == "source" else "sink"

    @property
    def part(self) -> str:
        """Its name in messages about parts of the service: `sink kafka`."""
        return f"{self.kind} {self.config.label}"


def connectors_of(service: Service) -> list[Listed]:
    """The sources and all sinks of a service, also those of failed records and of a shadow's results.

    Whatever is asked of every connector, such as its packages, variables and files, is asked of these.
    """
    sources = [Listed("source", config, ("source", index)) for index, config in enumerate(service.sources)]
    return [*sources, *_sinks(service)]


def sinks_of(service: Service) -> list[SinkConfig]:
    """All sinks of a service, also those of failed records and of a shadow's results."""
    return [each.config for each in _sinks(service) if isinstance(each.config, SinkConfig)]


def result_sinks_of(service: Service) -> list[SinkConfig]:
    """The sinks of results, also of those of a shadow; not that of failed records."""
    return service.sinks if service.shadow_sink is None else [*service.sinks, service.shadow_sink]


def _sinks(service: Service) -> Iterator[Listed]:
    for index, config in enumerate(service.sinks):
        yield Listed("sink", config, ("sink", index))
    if service.dead_letter is not None:
        yield Listed("dead_letter", service.dead_letter, ("dead_letter",))
    if service.shadow_sink is not None:
        yield Listed("shadow", service.shadow_sink, ("variants", SHADOW, "sink"))
