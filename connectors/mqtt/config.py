"""The fields of MQTT sources in a service file."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Final, Literal, Self

from pydantic import ConfigDict, Field, field_validator, model_validator

from connectors.browser import Browser
from connectors.config import ConnectorConfig, SourceConfig
from connectors.metadata.typedfields import TypedHeaders
from connectors.mqtt.client import MqttClientFields
from connectors.mqtt.columns import COLUMNS
from connectors.mqtt.protocol.packets import Subscription
from connectors.mqtt.protocol.reading import LARGEST
from connectors.mqtt.protocol.topics import SHARE, TopicPatterns, levels_as_values, matches, why_no_name, why_shunned
from connectors.mqtt.qos import Qos
from connectors.mqtt.session.settings import Settings
from connectors.units import Duration, OneOrMore, Size
from pipelines.described import FrozenSettings
from pipelines.errors import DefinitionError, nearest
from pipelines.late import late

_browser_at: Final[Callable[[str, Mapping[str, Any]], Browser]] = late("connectors.mqtt.browser:MqttBrowser.at")

_ORDINAL = re.compile(r"(?:.*-)?([0-9]+)")
_OVERHEAD = 128 * 1024
"""Bytes of a packet besides its payload: room for a long topic and properties."""
_SHORT = 60
"""Seconds within which an available broker is reached again, with a margin."""
_LONGEST_EXPIRY = 0xFFFF_FFFF


class Shard(FrozenSettings):
    """One of several processes that divide the topics among themselves."""

    index: Annotated[int, Field(ge=0)]
    """The number of this process, from 0; may be a host name that ends with its number, as `${HOSTNAME}` of a stateful set is: `sensors-3`."""  # noqa: E501
    count: Annotated[int, Field(ge=1)]
    """The number of processes; the same in all of them."""
    level: str
    """The named level of `topics` by which they divide: all topics with the same value of it go to one process."""

    @field_validator("index", mode="before", json_schema_input_type=int | str)
    @classmethod
    def _ordinal(cls, index: object) -> object:
        if not isinstance(index, str):
            return index
        match = _ORDINAL.fullmatch(index)
        if match is None:
            raise ValueError(
                f'"{index}" is neither a number from 0 nor a host name that ends with one, as sensors-3 does'
            )
        return int(match[1])

    @model_validator(mode="after")
    def _one_of_them(self) -> Self:
        if self.index >= self.count:
            raise ValueError(f"index is {self.index}, but there are only {self.count}: they count from 0")
        return self


class CanaryConfig(FrozenSettings):
    """A message that the source publishes to itself, to notice when it gets no messages any more."""

    topic: str | None = None
    """Its topic, of this process alone: by default `streamer/canary/` and the client id. The client has to be allowed to publish and to subscribe there."""  # noqa: E501
    every: Annotated[Duration, Field(ge=1)] = 30.0
    """How often it is published, and how long the source waits for any message before it connects and subscribes
    anew."""

    @field_validator("topic")
    @classmethod
    def _name(cls, topic: str | None) -> str | None:
        if topic is not None and (reason := why_no_name(topic)):
            raise ValueError(f"{reason}; name one topic")
        return topic


class MqttSourceConfig(MqttClientFields, TypedHeaders):
    """Messages of MQTT topics, as one client of a broker."""

    model_config = ConfigDict(hide_input_in_errors=True)
    built_by: ClassVar[str] = "connectors.mqtt.source:MqttSource"
    topic_columns: ClassVar[tuple[str, ...]] = ("levels.NAME",)
    record_columns: ClassVar[tuple[str, ...]] = (*topic_columns, *COLUMNS)

    type: Literal["mqtt"] = "mqtt"
    """The type of connector."""
    topics: OneOrMore = Field(min_length=1)
    """Topic filters; one text instead of a list is one filter. A level may have a name, which `into` and topics of sinks can use: `factory/{line}/{device}/+`."""  # noqa: E501
    qos: Qos = 1
    """The QoS of the subscriptions: 0 at most once, 1 at least once, 2 as 1 with one more round trip, for brokers that need it. Messages that were published with a lower QoS keep it."""  # noqa: E501
    expiry: Annotated[Duration, Field(le=_LONGEST_EXPIRY)] | None = None
    """How long the broker keeps the session and its messages while the service is away: by default 1h, and 0 with `qos: 0`. A broker of MQTT 3.1.1 keeps it for good."""  # noqa: E501
    window: Annotated[int, Field(ge=1, le=65_535)] = 2000
    """How many messages may be unacknowledged at a time, and so come again after a crash; a broker of MQTT 5 is told not to send more (Receive Maximum). For full speed it has to be at least three times `batch.max_records`."""  # noqa: E501
    share: str | None = Field(default=None, min_length=1)
    """The group of a shared subscription: its members divide the messages. The messages of a member that dies wait in its session, and are lost when that expires; with `shard` they are not."""  # noqa: E501
    shard: Shard | None = None
    """Divides the topics among processes that each have their own session."""
    canary: CanaryConfig | None = None
    """Detects that the broker has lost the session's subscriptions, so that it is connected but gets no messages: the source publishes a message to itself, and subscribes again if that message does not come back. Over MQTT 5 it also sends SUBSCRIBE again each time, in case only one of several subscriptions was lost. `canary: {}` is enough."""  # noqa: E501
    key: str | None = None
    """The named level of `topics` that becomes the record's key; by default records have no key."""
    retained: Literal["take", "skip"] = "take"
    """Whether retained messages are delivered: the broker sends the last one of each topic at a new subscription."""
    max_message: Annotated[Size, Field(ge=128, le=LARGEST - 1024)] = 16 << 20
    """Bytes of the largest payload. Larger messages are not delivered: a broker of MQTT 5 is told the limit; those of a broker of 3.1.1 are counted, acknowledged and discarded."""  # noqa: E501

    @field_validator("topics")
    @classmethod
    def _filters(cls, topics: tuple[str, ...]) -> tuple[str, ...]:
        TopicPatterns(topics)
        for topic in topics:
            if reason := why_shunned(topic):
                raise ValueError(f"topic {topic!r}: {reason}")
        if any(topic.startswith(f"{SHARE}/") for topic in topics):
            raise ValueError(f"write the group of a shared subscription as share, and the topic without {SHARE}/GROUP/")
        return tuple(dict.fromkeys(topics))

    @field_validator("share")
    @classmethod
    def _group(cls, share: str | None) -> str | None:
        if share is not None and re.search(r"[/+#{}\0]", share):
            raise ValueError("the group of a shared subscription holds no / + # { }")
        return share

    @model_validator(mode="after")
    def _levels_that_are_there(self) -> Self:
        names = TopicPatterns(self.topics).names
        for field, level in (("shard.level", None if self.shard is None else self.shard.level), ("key", self.key)):
            if level is not None and level not in names:
                known = f"there are {', '.join(names)}" if names else "topics names none: write one as {device}"
                raise ValueError(f'{field}: "{level}" is not a named level of topics{nearest(level, names)}; {known}')
        if self.shard is not None and self.share is not None:
            raise ValueError("share and shard are two ways to divide the work; leave one of them out")
        if self.client == "paho" and self.qos == 2:
            raise ValueError(
                "paho acknowledges QoS 2 before a message is done; write qos: 1, or leave out client: paho"
            )
        return self

    @property
    def session_expiry(self) -> int:
        """Seconds that the session is to be kept."""
        if self.expiry is None:
            return 3600 if self.qos else 0
        return round(self.expiry)

    @property
    def canary_topic(self) -> str | None:
        """The topic of the canary; `None` without one."""
        if self.canary is None:
            return None
        client = re.sub(r"[/+#\0]", "-", self.client_id or self.label)
        return self.canary.topic or f"streamer/canary/{client}"

    @property
    def record_names(self) -> tuple[str, ...]:
        """The named levels of its topics, and the metadata of every message."""
        return (*(f"levels.{name}" for name in TopicPatterns(self.topics).names), *COLUMNS)

    def check_into(self) -> None:
        """As `SourceConfig.check_into`; where no level has a name, the error says how to give it one."""
        wanted = next((name for name in self.into if name.startswith("levels.")), None)
        if wanted is not None and not TopicPatterns(self.topics).names:
            plus = next((topic for topic in self.topics if "+" in topic.split("/")), "devices/+")
            level = wanted.partition(".")[2]
            named = plus.replace("+", f"{{{level}}}", 1)
            raise DefinitionError(f'no level of topics has the name "{level}": write one in braces, as in {named}')
        super().check_into()

    @property
    def topic_names(self) -> tuple[str, ...]:
        """Its topic filters, as regular expressions where they have wildcards or named levels."""
        return tuple(_expression(topic) for topic in self.topics)

    @property
    def sent_to(self) -> str | None:
        """As `SourceConfig.sent_to`: a named level is the value that `into` makes of it, else the value of its name."""
        return levels_as_values(self.topics, self.into)

    def topic_extras(self, topic: str) -> Mapping[str, Any]:
        """The named levels of this topic; empty if no filter matches it."""
        return {f"levels.{name}": level for name, level in TopicPatterns(self.topics).levels(topic).items()}

    @property
    def exclusive(self) -> Mapping[str, str]:
        """Its client id, and which part of the messages it takes."""
        part = {} if self.shard is None else {"shard.index": str(self.shard.index)}
        return {**super().exclusive, **part}

    @property
    def undivided(self) -> str | None:
        """Why processes do not divide its messages, unless it has `share` or `shard`."""
        if self.share is not None or self.shard is not None:
            return None
        return "each process would get all messages; add share, the name of a group whose members divide them"

    @property
    def most_ahead(self) -> int | None:
        """Its window: brokers of MQTT 5 send no more messages ahead, and from others no more are polled."""
        return self.window if self.qos else None

    @property
    def notes(self) -> tuple[str, ...]:
        """The effects of a share, QoS 0 or a short expiry."""
        notes: list[str] = []
        if not self.qos:
            notes.append("at QoS 0 no message comes again: those in hand when the process is killed are lost")
        elif not self.session_expiry:
            notes.append("with expiry: 0 each cut of the connection loses messages")
        elif self.session_expiry < _SHORT:
            notes.append(
                f"its session is kept for {self.session_expiry} s, and connecting again can take {_SHORT}: raise expiry"
            )
        if self.share is not None and self.qos and self.session_expiry:
            notes.append(
                "a member of share that dies keeps its part until its session expires; shard does without that"
            )
        return tuple(notes)

    def conflicts(self, others: Sequence[ConnectorConfig]) -> list[str]:
        """As every client of a broker, and sinks that publish to topics that it reads."""
        patterns = [pattern.filter for pattern in TopicPatterns(self.topics).patterns]
        return [
            *super().conflicts(others),
            *(
                f'{other.label} publishes to "{other.place}", which this source reads: each result would be read '
                "again, for ever"
                for other in others
                if isinstance(other, MqttClientFields)
                and not isinstance(other, SourceConfig)
                and other.address == self.address
                and not why_no_name(other.place)
                and any(matches(pattern, other.place) for pattern in patterns)
            ),
        ]

    @property
    def place(self) -> str:
        """Its topic filters."""
        return ", ".join(self.topics)

    @classmethod
    def browser_at(cls, address: str, client: Mapping[str, Any]) -> Browser:
        """The broker at this URL; `client` are fields of a source, such as `username`, `password` and `tls.ca`."""
        return _browser_at(address, client)

    def in_service(self, service: str, sources: Sequence[SourceConfig] = ()) -> Self:
        """The same source; where it names no `client_id`, the names of the service and the source make it."""
        client_id = self.named_in(service)
        if self.client_id is None and self.shard is not None:
            client_id = f"{client_id}-{self.shard.index}"
        return self if client_id == self.client_id else self.model_copy(update={"client_id": client_id})

    @property
    def max_packet(self) -> int:
        """Bytes of the largest packet that is received: `max_message`, with a topic and properties."""
        return self.max_message + _OVERHEAD

    def settings(self) -> Settings:
        """The settings of its session. Raises `ConnectorError` for a `token` that cannot be loaded."""
        share = "" if self.share is None else f"{SHARE}/{self.share}/"
        handling = 2 if self.retained == "skip" else 1
        canary = self.canary_topic
        return Settings(
            name=f"source {self.label}",
            expiry=self.session_expiry,
            receive_maximum=self.window,
            max_packet=self.max_packet,
            subscriptions=(
                *(
                    Subscription(f"{share}{topic_filter}", self.qos, retain_handling=handling)
                    for topic_filter in TopicPatterns(self.topics).filters
                ),
                *(() if canary is None else (Subscription(canary, 0, retain_handling=2),)),
            ),
            **self.connection(),
        )


def _expression(topic: str) -> str:
    levels = topic.split("/")
    if not any(level in ("+", "#") or level.startswith("{") for level in levels):
        return topic
    parts = ["[^/]*" if level == "+" or level.startswith("{") else re.escape(level) for level in levels]
    if levels[-1] == "#":
        return f"^{'/'.join(parts[:-1])}(/.*)?$" if len(parts) > 1 else "^.*$"
    return f"^{'/'.join(parts)}$"
