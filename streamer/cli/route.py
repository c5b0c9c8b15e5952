"""The topic that dead letters are read from, and the bus and topics that they may be sent back to."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from connectors.browser import Browser
from pipelines.errors import DefinitionError
from streamer.cli.trusted import service_of
from streamer.routing.template import Allowed, allowed

_ENDINGS: Final = (".yaml", ".yml", ".json")


@dataclass(frozen=True, slots=True)
class Route:
    """The topic of dead letters, and where they may be sent back to."""

    topic: str
    """The topic of the dead letters."""
    there: Browser
    """The bus of that topic."""
    back: Browser
    """The bus that they are sent back to."""
    to: Allowed | None
    """The topics that they may be sent back to; `None`: none, as none was allowed."""
    whose: str = "--to"
    """The option or the part of the service that allows these topics, for messages."""

    def refusal(self, topic: str) -> str | None:
        """Why a letter that says it came from this topic is not sent there; `None` if it may be."""
        named = topic[:200]
        if self.to is None:
            return f'the letters say "{named}"; if that is right: --to {shlex.quote(named)}'
        return None if self.to.allows(topic) else f'"{named}" is not among the topics of {self.whose}'


def is_service_file(name: str) -> bool:
    """Whether this names a service file rather than a topic: topics have no slash, and rarely such an ending."""
    return resembles_file(name) and ("/" in name or Path(name).is_file())


def resembles_file(name: str) -> bool:
    """Whether the name ends like a service file."""
    return name.endswith(_ENDINGS)


def route_of(topic: str, bus: Browser, to: Sequence[str]) -> Route:
    """The route of a topic's dead letters. Raises `DefinitionError` for an invalid regular expression in `to`."""
    return Route(topic, bus, bus, allowed(to) if to else None)


def route_of_service(file: Path, to: Sequence[str], client: Mapping[str, Any]) -> Route:
    """The route of a service's dead letters: back to the topics of its sources, or those of `to`.

    `client` overrides the service's login. Raises `DefinitionError` for an invalid file, and for a service that has no
    dead letter in a topic, or whose sources read no topics or several buses.
    """
    service = service_of(file)
    dead = service.dead_letter
    there = None if dead is None else dead.browser(client)
    if dead is None or there is None:
        raise DefinitionError(
            f"{file}: the service {service.name} has no dead_letter in a topic of a bus, or in a file with format: "
            "jsonl, to replay from"
        )
    sources = [(source, bus) for source in service.sources if (bus := source.browser(client)) is not None]
    if len({bus.address for _, bus in sources}) != 1:
        raise DefinitionError(
            f"{file}: the service {service.name} reads from {'several buses' if sources else 'no bus with topics'}; "
            "name the topic of the dead letters instead of the file, and -b and --to"
        )
    topics = to or [topic for source, _ in sources for topic in source.topic_names]
    where = dead.place if dead.addressing is None else dead.addressing.topic
    return Route(where, there, sources[0][1], allowed(topics), "--to" if to else "the service's source")
