"""The topic that dead letters are read from, and the bus and topics that they may be sent back to."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from connectors.browser import Browser
from connectors.sink import Sink
from pipelines.errors import DefinitionError
from streamer.definition.service import Service
from streamer.routing.template import Allowed, allowed


@dataclass(frozen=True, slots=True)
class Back:
    """The sink that dead letters are sent back with."""

    sink: Sink
    topics: frozenset[str] | None
    """The topics that exist; `None` if the bus cannot list them."""


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

    @contextmanager
    def sending(self) -> Iterator[Back]:
        """An open sink to send letters back with, which is closed at the end.

        Raises the errors of `Browser.topics`, `Browser.sink` and `Sink.open`, and `DefinitionError` if none of the
        topics that may be sent to exists.
        """
        # Sending to a topic that does not exist would create it on many brokers.
        topics = frozenset(self.back.topics())
        known = topics if self.back.lists_topics else None
        back = Back(self.back.sink(self._opened_for(known), "replay"), known)
        back.sink.open()
        try:
            yield back
        finally:
            back.sink.close()

    def _opened_for(self, known: frozenset[str] | None) -> str:
        """The topic that the sink is opened for, which exists; each letter names its own."""
        if self.there.address == self.back.address:
            return self.topic
        if known is None:
            return ""
        for topic in sorted(known):
            if self.to is None or self.to.allows(topic):
                return topic
        raise DefinitionError(f"none of the topics of {self.whose} is on {self.back.address}; create the one you mean")


def route_of(topic: str, bus: Browser, to: Sequence[str]) -> Route:
    """The route of a topic's dead letters. Raises `DefinitionError` for an invalid regular expression in `to`."""
    return Route(topic, bus, bus, allowed(to) if to else None)


def route_of_service(service: Service, to: Sequence[str] = (), client: Mapping[str, Any] | None = None) -> Route:
    """The route of a service's dead letters: back to the topics of its sources, or those of `to`.

    `client` overrides the service's login. Raises `DefinitionError` for a service that has no dead letter in a topic,
    or whose sources read no topics or several buses.
    """
    where, there = letters_of(service, client)
    sources = [(source, bus) for source in service.sources if (bus := source.browser(client)) is not None]
    if len({bus.address for _, bus in sources}) != 1:
        raise DefinitionError(
            f"the service {service.name} reads from {'several buses' if sources else 'no bus with topics'}; letters "
            "that a topic holds can be sent elsewhere: streamer replay TOPIC -b BROKERS --to TOPIC"
        )
    topics = to or [topic for source, _ in sources for topic in source.topic_names]
    return Route(where, there, sources[0][1], allowed(topics), "--to" if to else "the service's source")


def letters_of(service: Service, client: Mapping[str, Any] | None = None) -> tuple[str, Browser]:
    """The topic of a service's dead letters, and its bus.

    `client` overrides the service's login. Raises `DefinitionError` for a service that has none in a topic of a bus.
    """
    dead = service.dead_letter
    there = None if dead is None else dead.browser(client)
    if dead is None or there is None:
        raise DefinitionError(
            f"the service {service.name} has no dead_letter in a topic of a bus, or in a file with format: jsonl, to "
            "replay from"
        )
    return dead.place if dead.addressing is None else dead.addressing.topic, there


def readable_letters(service: Service) -> tuple[str, Browser]:
    """As `letters_of`; raises `DefinitionError` also if the bus does not keep letters."""
    topic, there = letters_of(service)
    if not there.topics_end:
        raise DefinitionError(
            f"{topic}: its bus does not keep letters to be read again; send them to a topic of Kafka, or to a file "
            "with format: jsonl"
        )
    return topic, there
