"""The fields of an endpoint in a service file: a source that listens, and sinks that answer its clients."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import ConfigDict, Field, PrivateAttr, SecretStr, field_validator

from connectors.config import Addressing, SinkConfig, SourceConfig
from connectors.metadata.typedfields import TypedHeaders
from connectors.mqtt.protocol.reading import LARGEST
from connectors.mqtt.protocol.topics import SHARE, TopicPatterns, levels_as_values
from connectors.mqtt.qos import Qos
from connectors.tls.fields import ServerTls
from connectors.units import Duration, OneOrMore, Size, listening
from pipelines.errors import DefinitionError
from pipelines.plugins.requirements import Package

COLUMNS = ("qos", "retained", "duplicate", "content_type", "response_topic", "correlation", "user")
"""The metadata of a message besides its topic, its levels and its user properties, which are headers.

`user` is the name that its client has logged in with, where `users` are given."""

REQUEST_HEADERS = {"response_topic": "streamer-mqtt-response-topic", "correlation": "streamer-mqtt-correlation"}
"""The headers by which a result carries the response topic and the correlation data of its request."""


class MqttEndpointSourceConfig(TypedHeaders):
    """Messages of MQTT clients that connect to the service itself. There is no broker, and no message goes from one
    client to another."""

    model_config = ConfigDict(hide_input_in_errors=True)
    built_by: ClassVar[str] = "connectors.mqtt.endpoint.source:MqttEndpointSource"
    topic_columns: ClassVar[tuple[str, ...]] = ("levels.NAME",)
    record_columns: ClassVar[tuple[str, ...]] = (*topic_columns, *COLUMNS)
    _service: str = PrivateAttr("")

    type: Literal["mqtt_endpoint"] = "mqtt_endpoint"
    """The type of connector."""
    listen: Annotated[str, listening(1883)] = "127.0.0.1:1883"
    """The address on which it listens, `host:port`; port 0 is any free one, which the log names. `0.0.0.0:1883` is open to the network: give it `tls` and `users` then."""  # noqa: E501
    topics: OneOrMore = Field(default=("#",), min_length=1)
    """Topic filters of the messages that are accepted; messages for other topics are refused. One text instead of a list is one filter. A level may have a name, which `into` and topics of sinks can use: `factory/{line}/{device}/+`."""  # noqa: E501
    window: Annotated[int, Field(ge=1, le=65_535)] = 100
    """How many messages a client may send ahead of their acknowledgement (Receive Maximum of MQTT 5). Clients of MQTT 3.1.1 cannot be told."""  # noqa: E501
    tls: ServerTls | None = None
    """Accepts encrypted connections only. `tls: {}` makes a self-signed certificate at each start (extra `tls`)."""
    users: dict[str, SecretStr] | None = None
    """Names and passwords of the users that may log in; without it any client may connect."""
    max_message: Annotated[Size, Field(ge=128, le=LARGEST - 128 * 1024)] = 16 << 20
    """Bytes of the largest payload. A client that sends a larger one is disconnected."""
    max_held: Annotated[Size, Field(ge=1 << 20)] = 64 << 20
    """Bytes of messages of all clients that may wait to be run; beyond that clients are not read until there is
    room."""
    connections: Annotated[int, Field(ge=1)] = 1000
    """The most connections at a time. For one more the oldest that has not logged in is closed; if all have, the new one is refused."""  # noqa: E501
    per_address: Annotated[int, Field(ge=1)] | None = None
    """The most connections from one IP address at a time, likewise; by default half of `connections`, and all of them from this machine, where a proxy may stand in front of the clients."""  # noqa: E501

    @field_validator("topics")
    @classmethod
    def _filters(cls, topics: tuple[str, ...]) -> tuple[str, ...]:
        TopicPatterns(topics)
        if any(topic.startswith(f"{SHARE}/") for topic in topics):
            raise ValueError("nothing is shared here, as every client is the service's own: leave out $share/GROUP/")
        return tuple(dict.fromkeys(topics))

    def check_packages(self) -> None:
        """As in `ConnectorConfig`, and cryptography if a certificate has to be made."""
        super().check_packages()
        if self.tls is not None and self.tls.cert is None:
            Package("cryptography", "tls").check(f"{self.label} (tls without cert)")

    @property
    def record_names(self) -> tuple[str, ...]:
        """The named levels of its topics, and the metadata of every message."""
        return (*(f"levels.{name}" for name in TopicPatterns(self.topics).names), *COLUMNS)

    @property
    def topic_names(self) -> tuple[str, ...]:
        """Its topic filters, with the names of their levels."""
        return self.topics

    @property
    def sent_to(self) -> str | None:
        """As `SourceConfig.sent_to`: a named level is the value that `into` makes of it, else the value of its name."""
        return levels_as_values(self.topics, self.into)

    def topic_extras(self, topic: str) -> Mapping[str, Any]:
        """The named levels of this topic; empty if no filter matches it."""
        return {f"levels.{name}": level for name, level in TopicPatterns(self.topics).levels(topic).items()}

    @property
    def place(self) -> str:
        """The address on which it listens, and its topics."""
        return f"{self.listen} {', '.join(self.topics)}"

    @property
    def endpoint(self) -> str:
        """The name by which its sinks find it in this process."""
        return f"{self._service}/{self.label}" if self._service else self.label

    def in_service(self, service: str, sources: Sequence[SourceConfig] = ()) -> Self:
        """The same source, to be found by the sinks of this service."""
        copy = self.model_copy()
        copy._service = service
        return copy


class MqttEndpointSinkConfig(SinkConfig):
    """Results to the MQTT clients whose messages they answer, on the connection of the service's `mqtt_endpoint`
    source. As a sink of dead letters it sends the error to the client: `{"errorMessage": ...}`."""

    model_config = ConfigDict(hide_input_in_errors=True)
    built_by: ClassVar[str] = "connectors.mqtt.endpoint.sink:MqttEndpointSink"
    answers: ClassVar[bool] = True
    _endpoint: str = PrivateAttr("")
    _answered: str | None = PrivateAttr(None)
    _failures: bool = PrivateAttr(False)

    type: Literal["mqtt_endpoint"] = "mqtt_endpoint"
    """The type of connector."""
    source: str | None = None
    """The name of the `mqtt_endpoint` source whose clients are answered, if the service has several; by default the first."""  # noqa: E501
    topic: str = Field(default="{record.topic}-out", min_length=1)
    """The topic of the answer; may be made from values. Only the client that sent the record gets it, whether it has subscribed or not."""  # noqa: E501
    response_topic: bool = True
    """Whether the answer to a request with a response topic (MQTT 5) goes there instead of to `topic`. The answer has the request's correlation data in any case."""  # noqa: E501
    qos: Qos = 1
    """The QoS of answers: with 1 and 2 they are confirmed when the client has acknowledged them, with 0 when they are sent."""  # noqa: E501
    headers: bool = True
    """Whether the record's user properties go with its result (MQTT 5)."""
    timeout: Annotated[Duration, Field(gt=0)] = 30.0
    """How long a client may take to acknowledge an answer; then it is disconnected."""

    @property
    def addressing(self) -> Addressing | None:
        """Any topic: a client can only choose the topic of its own answer. A dead letter names its record itself."""
        if self._failures:
            return None
        return Addressing(self.topic, ("^",), headers=self.headers, record_headers=REQUEST_HEADERS)

    @property
    def place(self) -> str:
        """Its topic."""
        return self.topic

    @property
    def takes_from(self) -> tuple[str, ...] | None:
        """The source whose clients it answers."""
        return self.sources if self._answered is None else (self._answered,)

    def in_service(self, service: str, sources: Sequence[SourceConfig] = ()) -> Self:
        """The same sink, with the endpoint whose clients it answers."""
        endpoints = [config for config in sources if isinstance(config, MqttEndpointSourceConfig)]
        chosen = next((config for config in endpoints if self.source in (None, config.label)), None)
        if chosen is None:
            return self
        if self.sources not in (None, (chosen.label,)):
            raise DefinitionError(
                f'sources: sink "{self.label}" answers the clients of the source "{chosen.label}", and gets results '
                "of their records only; leave out sources, or choose another endpoint by source: NAME"
            )
        copy = self.model_copy()
        copy._endpoint, copy._answered = chosen.endpoint, chosen.label
        return copy

    def for_dead_letters(self) -> Self:
        """The same sink, which sends errors to clients. Raises `DefinitionError` for a topic made from results."""
        if re.search(r"[{}]", self.topic.replace("{record.topic}", "")):
            raise DefinitionError(
                f'dead_letter: topic "{self.topic}" is made from a result, and a record that failed has none; '
                "use {record.topic} alone"
            )
        copy = self.model_copy()
        copy._failures = True
        return copy

    def for_failures(self) -> Self:
        """The same sink, which sends errors to clients: on {record.topic}-out, if its topic is made from results."""
        is_made = re.search(r"[{}]", self.topic.replace("{record.topic}", ""))
        return (self.model_copy(update={"topic": "{record.topic}-out"}) if is_made else self).for_dead_letters()

    @property
    def failures(self) -> bool:
        """Whether it sends errors to clients, rather than results."""
        return self._failures

    @property
    def endpoint(self) -> str:
        """The name of the endpoint whose clients it answers. `DefinitionError` where the service has no such source."""
        if not self._endpoint:
            named = "no mqtt_endpoint source" if self.source is None else f'no mqtt_endpoint source "{self.source}"'
            raise DefinitionError(
                f'sink "{self.label}" answers the clients of an endpoint, and the service has {named}; '
                "for a broker use type: mqtt"
            )
        return self._endpoint
