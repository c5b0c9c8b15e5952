"""From where dead letters are read, and to which brokers and topics they may go back."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from connectors.kafka.client.properties import is_security
from connectors.kafka.config import KafkaSinkConfig, KafkaSourceConfig
from pipelines.errors import DefinitionError
from streamer.definition.loading import load
from streamer.routing.template import Allowed, allowed

_ENDINGS: Final = (".yaml", ".yml", ".json")


@dataclass(frozen=True, slots=True)
class Brokers:
    """A cluster, and the properties of librdkafka with which it is reached."""

    bootstrap: str
    client: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Route:
    """The way of dead letters."""

    topic: str
    """Where they are."""
    there: Brokers
    """Those of that topic."""
    back: Brokers
    """Those that they are sent back to."""
    to: Allowed | None
    """The topics that they may be sent back to; `None`: nobody has said so, and it is none."""
    whose: str = "--to"
    """Who says so."""

    def refusal(self, topic: str) -> str | None:
        """Why a letter that says it came from this topic is not sent there; `None` if it may be."""
        named = topic[:200]
        if self.to is None:
            return f'the letters say "{named}"; if that is right: --to {shlex.quote(named)}'
        return None if self.to.allows(topic) else f'"{named}" is not among the topics of {self.whose}'

    def sink(self) -> KafkaSinkConfig:
        """The sink that sends them back; each message says its topic."""
        return KafkaSinkConfig(
            name="replay", bootstrap=self.back.bootstrap, topic=self.topic, client=dict(self.back.client)
        )


def is_service_file(name: str) -> bool:
    """Whether this is meant to be a service file, and not a topic, which has no slash and rarely such an ending."""
    return name.endswith(_ENDINGS) and ("/" in name or Path(name).is_file())


def route_of(topic: str, bootstrap: str, to: Sequence[str], client: Mapping[str, Any]) -> Route:
    """The way of dead letters of a topic. Raises `DefinitionError` for a regular expression that is none."""
    brokers = Brokers(bootstrap, client)
    return Route(topic, brokers, brokers, allowed(to) if to else None)


def route_of_service(file: Path, to: Sequence[str], client: Mapping[str, Any]) -> Route:
    """The way of a service's dead letters: back to what its sources read, unless `to` says otherwise.

    `client` goes before the service's own login. Raises `DefinitionError` for a file that is wrong, and for a service
    that has no dead letter on Kafka, reads no Kafka or from several clusters.
    """
    service = load(file)
    dead = service.dead_letter
    if not isinstance(dead, KafkaSinkConfig) or dead.bootstrap is None:
        raise DefinitionError(f"{file}: the service {service.name} has no dead_letter of type kafka to replay from")
    sources = [source for source in service.sources if isinstance(source, KafkaSourceConfig)]
    if len({source.bootstrap for source in sources}) != 1:
        raise DefinitionError(
            f"{file}: the service {service.name} reads from {'several clusters' if sources else 'no Kafka'}; "
            "name the topic of the dead letters instead of the file, and -b and --to"
        )
    topics = to or [topic for source in sources for topic in source.topics]
    return Route(
        dead.topic,
        Brokers(dead.bootstrap, {**_login(dead), **client}),
        Brokers(sources[0].bootstrap, {**_login(sources[0]), **client}),
        allowed(topics),
        "--to" if to else "the service's source",
    )


def _login(config: KafkaSourceConfig | KafkaSinkConfig) -> dict[str, Any]:
    return {name: value for name, value in config.client.items() if is_security(name)}
