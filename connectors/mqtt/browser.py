"""`MqttBrowser`: reads and writes topics of a broker, for `tap`, `send`, `replay` and `check`."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Self, TypeVar

from pydantic import ValidationError

from connectors.browser import AT_ONCE, Browser, Mark, TopicReader
from connectors.mqtt.client import MqttClientFields
from connectors.mqtt.config import MqttSourceConfig
from connectors.mqtt.protocol.packets import V5, Packet
from connectors.mqtt.protocol.topics import TopicPatterns, covering
from connectors.mqtt.session.choose import session
from connectors.mqtt.session.inbound import PacketInbound
from connectors.mqtt.session.settings import NEVER, Granted, Grants
from connectors.mqtt.sinkconfig import MqttSinkConfig
from connectors.mqtt.source import MqttSource
from connectors.records import Records
from connectors.sink import Sink
from connectors.units import Position
from pipelines.errors import ConnectorError, DefinitionError, nearest

_WAIT = 5.0
"""Seconds within which a broker has to answer."""
_LARGEST_ANSWER = 1 << 20
_LOGIN = tuple(name for name in ("url", "version", "keepalive", "username", "password", "token", "tls", "client"))
_NO_BEGINNING = (
    "a topic of MQTT has no beginning and no end: a broker sends retained messages and those published from now on; "
    "keep messages that have to be read again in a file or in Kafka"
)


class MqttBrowser(Browser):
    """A broker, reached with `login` (fields of a source). `config`: the connector that is checked, if there is one.

    It connects with client ids of its own and without a session, so that it does not disturb other clients.
    """

    lists_topics = False
    topics_end = False

    def __init__(self, login: Mapping[str, Any], config: MqttClientFields | None = None) -> None:
        self._login = dict(login)
        self._config = config
        self._url = _made(MqttSourceConfig, {**self._login, "topics": "#"}).url

    @classmethod
    def of(cls, config: MqttClientFields, client: Mapping[str, Any]) -> Self:
        """The broker of this connector, reached with its login and the fields in `client`."""
        return cls({**{name: getattr(config, name) for name in _LOGIN}, **_fields_of(client)}, config)

    @classmethod
    def at(cls, address: str, client: Mapping[str, Any]) -> Self:
        """The broker at this URL, reached with the fields in `client`."""
        return cls({**_fields_of(client), "url": address})

    @property
    def address(self) -> str:
        return self._url

    def topics(self) -> dict[str, int]:
        """Always empty: brokers do not list topics. Raises `ConnectorError`, retriable if no broker answers."""
        self._look(self._source("look", ("#",), qos=0), subscribe=False)
        return {}

    def checked(self, wanted: Sequence[str]) -> str:
        """The QoS, session and limits that the broker grants to the connector, as a text."""
        if isinstance(self._config, MqttSourceConfig):
            config = self._config.model_copy(update={"client_id": _name("check")})
            granted, grants = self._look(config, subscribe=True)
            return f"{self._url}: {'; '.join(_of_source(config, granted, grants))}"
        granted, _ = self._look(self._source("check", ("#",), qos=0), subscribe=False)
        return f"{self._url}: {'; '.join(_of_sink(granted))}"

    def covering(self, template: str) -> str:
        return covering(template)

    def reader(self, topic: str, group: str) -> TopicReader:
        return MqttTopicReader(self._source(group, (topic,), qos=0), topic)

    def sink(self, topic: str, name: str) -> Sink:
        if named := [level for level in topic.split("/") if level.startswith("{") and level.endswith("}")]:
            # A source matches any text there; published as it is, it would be one odd topic for all records.
            raise DefinitionError(f'topic: "{topic[:100]}": write a text in place of {named[0][:100]}')
        fields = {**self._login, "topic": topic or "none", "client_id": _name(name), "name": name}
        return _made(MqttSinkConfig, fields).build()

    def _source(self, purpose: str, topics: tuple[str, ...], qos: int) -> MqttSourceConfig:
        fields = {**self._login, "topics": topics, "qos": qos, "client_id": _name(purpose)}
        return _made(MqttSourceConfig, fields)

    def _look(self, config: MqttSourceConfig, *, subscribe: bool) -> tuple[Granted, Grants]:
        """Connect, subscribe if asked, and disconnect without leaving a session."""
        answers = _Answers()
        settings = replace(config.settings(), takes_over=False, lasts=False, name=f"{self._url}")
        if not subscribe:
            settings = replace(settings, subscriptions=(), expiry=0)
        link = session(config.client, settings, answers, PacketInbound(_LARGEST_ANSWER))
        deadline = time.monotonic() + _WAIT
        try:
            while answers.granted is None or (subscribe and answers.grants is None):
                if time.monotonic() >= deadline:
                    raise ConnectorError(f"{self._url} does not answer: {link.down or 'no SUBACK'}", retriable=True)
                link.turn(0.1)
        finally:
            link.close()
        return answers.granted, answers.grants or {}


def _fields_of(client: Mapping[str, Any]) -> dict[str, Any]:
    """Fields from properties as the command line has them: `tls.ca` is the field `ca` of `tls`."""
    fields: dict[str, Any] = {}
    for name, value in client.items():
        outer, dot, inner = name.partition(".")
        if dot:
            fields.setdefault(outer, {})[inner] = value
        else:
            fields[name] = value
    return fields


_Made = TypeVar("_Made", bound=MqttClientFields)


def _made(kind: type[_Made], fields: Mapping[str, Any]) -> _Made:
    """The configuration with these fields. Raises `DefinitionError` that names the first wrong one."""
    try:
        return kind.model_validate(fields)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"]) or str(fields.get("url", kind.__name__))
        if first["type"] == "extra_forbidden":
            raise DefinitionError(f"{place}: no such field{nearest(place, kind.model_fields)}") from None
        raise DefinitionError(f"{place}: {first['msg'].removeprefix('Value error, ')}") from None


class MqttTopicReader(TopicReader):
    """Reads retained messages and those published from now on, at QoS 0."""

    def __init__(self, config: MqttSourceConfig, topic: str) -> None:
        super().__init__(topic)
        self._source = MqttSource(config)

    def __enter__(self) -> Self:
        self._source.open()
        if not self._source.connected:
            reason = self._source.down
            self._source.close()
            raise ConnectorError(f"the broker does not answer: {reason}", retriable=True)
        self.partitions = [0]
        return self

    def __exit__(self, *exception: object) -> None:
        self._source.close()

    def committed(self) -> dict[int, Mark]:
        """Raises `ConnectorError`: MQTT has no positions, so reading cannot go on at a committed one."""
        raise ConnectorError(_NO_BEGINNING)

    def commit(self, marks: Mapping[int, Mark]) -> None:
        """Raises `ConnectorError`, as `committed`."""
        raise ConnectorError(_NO_BEGINNING)

    def starts(self, position: Position) -> dict[int, int]:
        """The present, for `latest`. Raises `ConnectorError` for any other position."""
        if position != "latest":
            raise ConnectorError(_NO_BEGINNING)
        return {0: 0}

    def begin(self, starts: Mapping[int, int]) -> None:
        """Does nothing: reading began when it was entered."""

    def poll(self, timeout: float, at_most: int = AT_ONCE) -> Records:
        return self._source.poll(1, 1 << 24, timeout) if at_most == 1 else self._first_and_more(timeout, at_most)

    def _first_and_more(self, timeout: float, at_most: int) -> Records:
        first = self._source.poll(1, 1 << 24, timeout)
        if not len(first):
            return first
        more = self._source.poll(at_most - 1, 1 << 24, 0.0)
        return Records.concat([first, more]) if len(more) else first


class _Answers:
    """A `SessionClient` that notes the broker's grants."""

    def __init__(self) -> None:
        self.granted: Granted | None = None
        self.grants: Grants | None = None

    def begun(self, granted: Granted) -> None:
        self.granted = granted

    def subscribed(self, grants: Grants) -> None:
        self.grants = grants

    def received(self, packet: Packet) -> None:
        """Does nothing: messages are ignored."""

    def ended(self, reason: str) -> None:
        """Does nothing: the session connects again by itself."""


def _of_source(config: MqttSourceConfig, granted: Granted, grants: Grants) -> list[str]:
    topics = ", ".join(f"{topic} at QoS {qos}" for topic, qos in grants.items())
    notes = [_version(granted), topics, _session(granted), f"keep-alive {granted.keep_alive} s"]
    asked = config.session_expiry
    if granted.expiry < asked:
        notes.append(f"note: the session is kept for {granted.expiry} s only, not {asked} s")
    if any(qos < config.qos for topic, qos in grants.items() if topic != config.canary_topic):
        notes.append(f"note: QoS {config.qos} was asked for")
    if config.share is not None and asked:
        notes.append(
            "note: a member of share that dies keeps its part of the messages until its session expires; shard does "
            "without that"
        )
    if config.qos and not asked:
        notes.append("note: with expiry: 0 each cut of the connection loses messages")
    if granted.keep_alive != config.settings().keep_alive:
        notes.append("note: the broker has chosen the keep-alive")
    if len(set(TopicPatterns(config.topics).filters)) < len(config.topics):
        notes.append("note: some of topics are the same filter; of their names the first ones count")
    return notes


def _of_sink(granted: Granted) -> list[str]:
    notes = [_version(granted), f"takes QoS {granted.max_qos}", f"Receive Maximum {granted.receive_maximum}"]
    if not granted.retain:
        notes.append("note: it retains nothing")
    return [*notes, f"packets of at most {granted.max_packet} bytes"]


def _version(granted: Granted) -> str:
    return "MQTT 5.0" if granted.version == V5 else "MQTT 3.1.1"


def _session(granted: Granted) -> str:
    if not granted.expiry:
        return "no session"
    return "session kept for good" if granted.expiry == NEVER else f"session kept {granted.expiry} s"


def _name(purpose: str) -> str:
    return f"{purpose}-{secrets.token_hex(4)}"
