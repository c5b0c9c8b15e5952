"""The fields of MQTT sinks in a service file."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import ConfigDict, Field, field_validator, model_validator

from connectors.config import Addressing, SinkConfig, SourceConfig
from connectors.mqtt.client import MqttClientFields
from connectors.mqtt.protocol.packets import Publish, Will
from connectors.mqtt.protocol.properties import Place, Properties, encode_properties
from connectors.mqtt.protocol.topics import why_not_published, why_shunned
from connectors.mqtt.publishing.style import Style
from connectors.mqtt.qos import Qos
from connectors.mqtt.session.settings import Settings
from connectors.units import Duration, OneOrMore, Size
from pipelines.described import FrozenSettings
from pipelines.errors import DefinitionError

SESSION_KEPT = 3600
"""Seconds that a broker keeps the session of a sink whose connection is lost: so long it knows which messages it
has."""
_LONGEST_EXPIRY = 0xFFFF_FFFF
_REACHING = ("url", "version", "tls", "client")
"""The fields of the connection that a sink without a `url` takes from the service's source."""
_LOGIN = ("username", "password", "token")
"""The fields of the login. A sink that sets one of them uses none of its source's."""


_VALUE = re.compile(r"\{[^{}]*\}")
_NO_NAME = re.compile("[+#{}]")


class Announcement(FrozenSettings):
    """A message about the sink itself."""

    topic: str
    """The topic, a plain name without values."""
    payload: str = ""
    """The payload, as text."""
    qos: Qos = 1
    """The QoS of the message."""
    retain: bool = True
    """Whether the broker keeps it for later subscribers."""

    @field_validator("topic")
    @classmethod
    def _name(cls, topic: str) -> str:
        if reason := why_not_published(topic):
            raise ValueError(f'nothing can be published to "{topic[:100]}": {reason}')
        return topic

    def message(self) -> Publish:
        """The message as a packet."""
        return Publish(self.topic, self.payload.encode(), self.qos, self.retain)


class LastWill(Announcement):
    """The message that the broker publishes when the connection is lost. The sink itself publishes it when it
    disconnects."""

    delay: Annotated[Duration, Field(le=_LONGEST_EXPIRY)] = 0.0
    """How long the broker waits for the sink to reconnect before it publishes the message; MQTT 5 only. Whole
    seconds."""

    def will(self) -> Will:
        """The message as the will of CONNECT."""
        delay = round(self.delay)
        properties = Properties(will_delay_interval=delay) if delay else Properties()
        return Will(self.topic, self.payload.encode(), self.qos, self.retain, properties)


class MqttSinkConfig(MqttClientFields, SinkConfig):
    """Messages published to MQTT topics, confirmed when the broker has acknowledged them."""

    model_config = ConfigDict(hide_input_in_errors=True)
    built_by: ClassVar[str] = "connectors.mqtt.sink:MqttSink"
    default_client_id: ClassVar[str] = "{service}-{label}-out"

    type: Literal["mqtt"] = "mqtt"
    """The type of connector."""
    url: str = "mqtt://localhost:1883"
    """The broker: `mqtt://host:1883`, or `mqtts://host:8883` with TLS; with `client: paho` also `ws://host/path` and `wss://host/path`. A sink that names none uses that of the service's first MQTT source, and its login."""  # noqa: E501
    topic: str = Field(min_length=1)
    """The topic; may be made from values: `results/{device}`, `{record.topic}/out`, `{record.response_topic}`. Then `topics` says which are allowed."""  # noqa: E501
    topics: OneOrMore = ()
    """Topics that may be made from values: names, or regular expressions that begin with ^."""
    default_topic: str | None = Field(default=None, min_length=1)
    """The topic of results for which `topic` cannot be made, as a value in it is missing or empty, such as the address of an answer that nobody asked for; by default such a record fails."""  # noqa: E501
    qos: Qos = 1
    """The QoS of messages: 0 without acknowledgement (a message counts as confirmed when a ping sent after it is answered), 1 at least once, 2 with one more round trip."""  # noqa: E501
    retain: bool = False
    """Whether the broker keeps the last message of each topic for later subscribers. An empty payload removes it."""
    expiry: Annotated[Duration, Field(ge=1, le=_LONGEST_EXPIRY)] | None = None
    """How long the broker keeps a message for subscribers that are away; MQTT 5 only. Whole seconds; by default for good."""  # noqa: E501
    content_type: str | None = None
    """The content type of payloads: `application/json`; MQTT 5 only."""
    user_properties: dict[str, str] = Field(default={})
    """User properties of every message; MQTT 5 only."""
    headers: bool = True
    """Whether the record's headers are written as user properties of the result; headers that are no text are left out. MQTT 5 only."""  # noqa: E501
    correlation: str | None = None
    """The value of the result that becomes the message's correlation data, instead of the record's key; MQTT 5 only. For answers to requests: `record.correlation`, the correlation data of the record."""  # noqa: E501
    window: Annotated[int, Field(ge=1, le=65_533)] | None = None
    """How many messages are published ahead of their acknowledgements, if the broker accepts as many (its Receive Maximum). By default 2000, and 20 with `qos: 2` over MQTT 3.1.1, where brokers cannot tell their limit and mosquitto loses messages beyond it."""  # noqa: E501
    buffer: Annotated[Size, Field(ge=1024)] = 16 << 20
    """The most bytes of unacknowledged messages; beyond that the service waits. No message may be larger."""
    birth: Announcement | None = None
    """A message published whenever the sink has connected: `{topic: devices/edge-1, payload: online}`."""
    will: LastWill | None = None
    """A message that the broker publishes when the connection is lost, and that the sink publishes when it disconnects."""  # noqa: E501
    dead_letters: bool = False
    """Whether messages are dead letters: over MQTT 3.1.1, which has no user properties, each is a JSON document of its headers, key and payload. A service sets it by itself for its `dead_letter`."""  # noqa: E501

    @field_validator("topic")
    @classmethod
    def _can_be_published_to(cls, topic: str) -> str:
        # Values in the template are known, and checked, with each result.
        if reason := why_not_published(_VALUE.sub("x", topic)):
            raise ValueError(f'nothing can be published to "{topic[:100]}": {reason}')
        return topic

    @field_validator("topics")
    @classmethod
    def _names_or_expressions(cls, topics: tuple[str, ...]) -> tuple[str, ...]:
        for topic in topics:
            if not topic.startswith("^") and _NO_NAME.search(topic):
                raise ValueError(
                    f'invalid topic name "{topic[:100]}"; write a regular expression that begins with ^, such as '
                    "^factory/[^/]+/score$"
                )
        return topics

    @model_validator(mode="after")
    def _properties_that_can_be_written(self) -> Self:
        try:
            encode_properties(self._properties(), Place.PUBLISH)
        except ValueError as error:
            raise ValueError(f"content_type, user_properties: {error}") from None
        for text in (self.content_type or "", *self.user_properties, *self.user_properties.values()):
            if reason := why_shunned(text):
                raise ValueError(f"content_type, user_properties: {text[:100]!r}: {reason}")
        if self.client == "paho" and self.qos == 2:
            raise ValueError("paho does not do QoS 2 here; write qos: 1, or leave out client: paho")
        return self

    @property
    def addressing(self) -> Addressing:
        """As `SinkConfig.addressing`."""
        return Addressing(self.topic, self.topics, self.correlation, self.headers, default_topic=self.default_topic)

    @property
    def place(self) -> str:
        """Its topic."""
        return self.topic

    def in_service(self, service: str, sources: Sequence[SourceConfig] = ()) -> Self:
        """The same sink. Where it names no `client_id`, the names of the service and the sink make it; where it names
        no `url`, it uses the broker of the service's first MQTT source, and logs in as that does."""
        changes: dict[str, Any] = {} if self.client_id is not None else {"client_id": self.named_in(service)}
        source = next((config for config in sources if isinstance(config, MqttClientFields)), None)
        if source is not None and "url" not in self.model_fields_set:
            set_fields = self.model_fields_set
            names = _REACHING if set_fields.intersection(_LOGIN) else _REACHING + _LOGIN
            changes |= {name: getattr(source, name) for name in names if name not in set_fields}
            if changes.get("client") == "paho" and self.qos == 2:
                raise DefinitionError(
                    f'sink "{self.label}": its source has client: paho, which does not do QoS 2; write qos: 1, or a url'
                )
        return self.model_copy(update=changes) if changes else self

    def for_dead_letters(self) -> Self:
        """The same sink, for dead letters."""
        return self.model_copy(update={"dead_letters": True})

    def style(self) -> Style:
        """The properties that all its messages share."""
        encoded = encode_properties(self._properties(), Place.PUBLISH)
        return Style(
            topic=self.topic,
            qos=self.qos,
            retain=self.retain,
            # Without their length in front, as the properties of each message are appended.
            properties=encoded[next(at for at, byte in enumerate(encoded) if byte < 128) + 1 :],
            content_type=self.content_type is not None,
            headers=self.headers or self.dead_letters,
            letters=self.dead_letters,
            birth=None if self.birth is None else self.birth.message(),
            leaving=None if self.will is None else self.will.message(),
        )

    def settings(self) -> Settings:
        """The settings of its session. Raises `ConnectorError` for a `token` that cannot be loaded."""
        made = Settings(f"sink {self.label}", **self.connection(), expiry=SESSION_KEPT, takes_over=False)
        return made if self.will is None else replace(made, will=self.will.will())

    def _properties(self) -> Properties:
        return Properties(
            message_expiry_interval=None if self.expiry is None else round(self.expiry),
            content_type=self.content_type,
            user_properties=tuple(self.user_properties.items()),
        )
