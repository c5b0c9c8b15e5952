"""The fields of Kafka connectors in a service file."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal, Self

from pydantic import (
    ConfigDict,
    Field,
    InstanceOf,
    PrivateAttr,
    SecretStr,
    field_validator,
    model_validator,
)

from connectors import units
from connectors.browser import Browser
from connectors.config import Addressing, ConnectorConfig, SinkConfig, SourceConfig
from connectors.kafka.client.brokers import VARIABLE, Brokers
from connectors.kafka.client.hints import checked_bootstrap
from connectors.kafka.client.internaltopics import reads
from connectors.kafka.client.userproperties import (
    FREE,
    OF_SINKS,
    OF_SOURCES,
    QUEUE,
    code_in,
    files_in,
    functions_in,
    identities_in,
    is_security,
    queue_room,
    refuse,
)
from connectors.metadata.bytetypes import ByteType
from connectors.metadata.typedfields import TypedKeys, check_header_types
from connectors.secrets import wrapped
from connectors.statetopic import StateTopic
from connectors.units import Duration, OneOrMore, Position, Size
from pipelines.errors import DefinitionError
from pipelines.late import late
from pipelines.plugins.requirements import Package, Requires

_LETTER = 16 << 20

Client = dict[str, InstanceOf[SecretStr] | bool | int | float | str]
"""Properties of librdkafka by name; those whose name tells a secret are masked wherever they are shown."""


_OF_PRODUCER = ("brokers", "compression", "linger", "partitioner", "client", "timeout")
"""Settings of sinks that are those of the producer."""
_put_back: Final[Callable[[KafkaSourceConfig], None]] = late("connectors.kafka.consumer.putback:put_back")
_state_topic: Final[Callable[[str, KafkaSourceConfig], StateTopic]] = late(
    "connectors.kafka.statetopic:KafkaStateTopic"
)
_OTHERWISE = "use a sink of type kafka on the source's cluster, or at_least_once"


class KafkaClientConfig(ConnectorConfig):
    """The base of the configurations of sources, sinks and tables: a client of librdkafka, with its properties."""

    model_config = ConfigDict(hide_input_in_errors=True)
    browsed_by: ClassVar[str | None] = "connectors.kafka.browser:KafkaBrowser.of"
    requires: ClassVar[Requires] = Package("confluent_kafka", "kafka")

    if TYPE_CHECKING:
        # Fields of both; here they would stand before all others.
        bootstrap: str | None
        client: Client

    _unnamed: Brokers = PrivateAttr()
    """The brokers if `bootstrap` names none."""
    _given: Brokers | None = PrivateAttr(default=None)
    """The brokers that another part gave it, with their origin; `bootstrap` has their address."""

    def model_post_init(self, context: Any, /) -> None:
        """Note what the environment says about brokers: the one in the validation's context, else the process's."""
        super().model_post_init(context)
        given = context.get("environment") if isinstance(context, Mapping) else None
        self._unnamed = Brokers.unnamed(os.environ if given is None else given)
        if self.bootstrap is None:
            _checked(self._unnamed)

    @property
    def brokers(self) -> Brokers:
        """Its brokers: of `bootstrap`, else of the environment."""
        return self._given or (self._unnamed if self.bootstrap is None else Brokers(self.bootstrap))

    def with_brokers(self, brokers: Brokers) -> Self:
        """The same connector on these brokers, in place of those of `bootstrap`."""
        copy = self.model_copy(update={"bootstrap": brokers.address})
        copy._given = brokers
        return copy

    def with_brokers_of(self, sources: Sequence[object]) -> Self:
        """The same connector; if it names no brokers, with the brokers and the login of the first Kafka source."""
        source = next((config for config in sources if isinstance(config, KafkaSourceConfig)), None)
        if self.bootstrap is not None or source is None:
            return self
        security = {name: value for name, value in source.client.items() if is_security(name)}
        secured = self.model_copy(update={"client": {**security, **self.client}})
        return secured.with_brokers(replace(source.brokers, of_source=True))

    @property
    def notes(self) -> tuple[str, ...]:
        """Where its brokers are, if the file does not say it."""
        brokers = self.brokers
        return (*super().notes, *((f"the brokers are {brokers}",) if brokers.origin and not brokers.of_source else ()))

    @property
    def variables(self) -> tuple[str, ...]:
        """The variable with the brokers, if the file does not say them."""
        return (*super().variables, *((VARIABLE,) if self.brokers.origin else ()))

    @model_validator(mode="before")
    @classmethod
    def _secrets_wrapped(cls, data: Any) -> Any:
        # Before all other validation: errors of validation quote their input.
        if isinstance(data, dict) and isinstance(data.get("client"), dict):
            return {**data, "client": wrapped(data["client"])}
        return data

    @field_validator("bootstrap", check_fields=False)
    @classmethod
    def _brokers(cls, bootstrap: str | None) -> str | None:
        return None if bootstrap is None else checked_bootstrap(bootstrap)

    @property
    def code_keys(self) -> tuple[str, ...]:
        """`when` of a sink, if it is a function, and the functions, libraries and commands that librdkafka is to call,
        load or run."""
        return (*super().code_keys, *code_in(self.client))

    @property
    def functions(self) -> tuple[str, ...]:
        """`oauth_cb`."""
        return functions_in(self.client)

    @property
    def file_keys(self) -> Mapping[str, Path]:
        """Those of the codec, and files with keys for the login."""
        return {**super().file_keys, **files_in(self.client)}

    @property
    def identity_keys(self) -> tuple[str, ...]:
        """Properties that have librdkafka ask the machine's cloud for a token."""
        return identities_in(self.client)

    def check_client(self) -> None:
        """Raise `ConnectorError` for properties that librdkafka refuses."""
        _check_properties(self)


class KafkaSourceConfig(KafkaClientConfig, TypedKeys):
    """Records from Kafka topics, as a member of a consumer group."""

    built_by: ClassVar[str] = "connectors.kafka.source:KafkaSource"
    by_key: ClassVar[bool] = True

    type: Literal["kafka"] = "kafka"
    """The type of connector."""
    bootstrap: str | None = None
    """`host:port` of some of the brokers, separated by commas; by default those of the environment variable `KAFKA_BOOTSTRAP_SERVERS`, else `localhost:9092`."""  # noqa: E501
    topics: OneOrMore = Field(min_length=1)
    """Names of topics; one text instead of a list is one name. One that begins with ^ is a regular expression: topics that match are found as they appear, within `topic.metadata.refresh.interval.ms` (5 min). It leaves out the brokers' internal topics, such as `__consumer_offsets`, which have to be named."""  # noqa: E501
    group: str | None = Field(default=None, min_length=1)
    """The consumer group: its members share the partitions, and positions are kept under its name. By default the service's name. Two services that read the same topic need groups of their own: in one group each record goes to one of them."""  # noqa: E501
    start: Position = "earliest"
    """Where a group without committed positions begins: earliest, latest or a time. Partitions that are added later, and topics that begin to match, are read from their first record."""  # noqa: E501
    out_of_range: Literal["stop", "earliest", "latest"] = "stop"
    """What to do if the records at the group's position were deleted by the topic's retention, or the topic was deleted and created again: `stop` with an error, so that the loss is noticed, or go on at the `earliest` or `latest` record."""  # noqa: E501
    instance: str | None = Field(default=None, min_length=1)
    """A name for this member that stays the same over restarts (static membership): a restart within `session.timeout.ms` (45 s) then moves no partitions. Every process needs its own."""  # noqa: E501
    assignor: Literal["range", "consumer", "roundrobin", "cooperative-sticky"] = "range"
    """How partitions are assigned to the members of the group: range, roundrobin and cooperative-sticky are librdkafka's; consumer is the brokers' own protocol (Kafka 4.0 and later). All members of a group use the same."""  # noqa: E501
    headers: bool | dict[str, ByteType] = True
    """Whether the records' headers are read. With `false`, results and dead letters have none of them, and a record takes up to a fifth less CPU time. `{seq: long}` says what `into` makes of headers, by their names, with the types of `key`. A header that is something else fails its record."""  # noqa: E501
    revoke_timeout: Duration = 10.0
    """How long the service keeps partitions that are taken away (a rebalance), to finish their records in flight; at most 20 % of `max.poll.interval.ms`."""  # noqa: E501
    max_fetch: Annotated[Size, Field(ge=1024, le=1_000_000_000)] = 4 << 20
    """The most bytes of one fetch from all partitions of a broker, as they are transferred; a producer's batch that is larger comes alone. Compressed batches grow when they are unpacked (docs/delivery.md#bounds)."""  # noqa: E501
    client: Annotated[Client, FREE] = Field(default={})
    """Any property of librdkafka, such as `security.protocol`; `oauth_cb` may name a function as module:function."""
    reset: Position | None = None
    """Sets the group to this position at each start, before anything is read, whatever it has committed. The service does not start while the group has other members."""  # noqa: E501

    @field_validator("topics")
    @classmethod
    def _named_topics(cls, topics: tuple[str, ...]) -> tuple[str, ...]:
        if not all(topics):
            raise ValueError("a topic's name is empty")
        return tuple(dict.fromkeys(topics))

    @field_validator("client")
    @classmethod
    def _free_properties(cls, client: Client) -> Client:
        refuse(client, OF_SOURCES)
        return client

    @model_validator(mode="after")
    def _headers_that_are_asked_for(self) -> Self:
        asked = next((name for name in self.into if name.startswith("headers.")), None)
        if asked is not None and not self.reads_headers:
            raise ValueError(
                f"into asks for {asked}, and headers: false leaves all headers unread; leave one of them out"
            )
        check_header_types(self)
        return self

    @property
    def reads_headers(self) -> bool:
        """Whether the records' headers are read."""
        return self.headers is not False

    @property
    def header_types(self) -> Mapping[str, ByteType]:
        """Those of `headers`."""
        return self.headers if isinstance(self.headers, dict) else {}

    @property
    def topic_names(self) -> tuple[str, ...]:
        """Its topics."""
        return self.topics

    def reads(self, topic: str) -> bool:
        """As `SourceConfig.reads`; a pattern leaves out topics in which brokers keep their own records."""
        return reads(self.topics, topic)

    @property
    def parted(self) -> str | None:
        """Refuses assignors that look at each partition alone."""
        if self.assignor == "range":
            return None
        return (
            f"assignor: {self.assignor} may give partitions of the same number of several topics to different "
            "processes; use range"
        )

    @property
    def group_name(self) -> str | None:
        """Its group."""
        return self.group

    @property
    def place(self) -> str:
        """Its topics."""
        return ", ".join(self.topics)

    @property
    def outside_transactions(self) -> str | None:
        """Refuses settings with which it may read uncommitted records, or keep partitions over a rebalance."""
        if self.client.get("isolation.level") == "read_uncommitted":
            return (
                "isolation.level: read_uncommitted reads aborted transactions too, so that results could be of records "
                "that never were; leave it out, or use at_least_once"
            )
        if "cooperative-sticky" in (self.assignor, str(self.client.get("partition.assignment.strategy"))):
            return (
                "assignor: cooperative-sticky stalls while transactions are committed; use range or consumer, or "
                "at_least_once"
            )
        return None

    @classmethod
    def browser_at(cls, address: str | None, client: Mapping[str, Any]) -> Browser:
        """The cluster of these brokers, `host:port` separated by commas, or of those that a connector has that names
        none; `client` are librdkafka's properties.

        Raises `DefinitionError` for an address that is none.
        """
        try:
            if address is None:
                return _browser(_checked(Brokers.unnamed(os.environ)), client)
            return _browser(Brokers(checked_bootstrap(address)), client)
        except ValueError as error:
            raise DefinitionError(str(error)) from None

    def starting(self, position: str) -> Self:
        """The same source with its group put back to `position` first: earliest, latest or a time.

        Raises `DefinitionError` for a position that is none of these.
        """
        try:
            reset = units.position(position)
        except ValueError as error:
            raise DefinitionError(f'source "{self.label}": {error}') from error
        return self.model_copy(update={"reset": reset})

    @property
    def exclusive(self) -> Mapping[str, str]:
        """Its `instance`, if it has one."""
        return {} if self.instance is None else {"instance": self.instance}

    def of_worker(self, name: str) -> Self:
        """The same source as a static member of its group, which has its partitions back at once after a restart.

        Without `reset`, which each restart would repeat.
        """
        instance = self.instance or f"{self.group}-{name}"
        return self.model_copy(update={"instance": instance, "reset": None})

    def put_back(self) -> None:
        """Commit `reset`, if it has one, as the position of its group, which must have no members."""
        if self.reset is not None:
            self.check_packages()
            _put_back(self)

    @property
    def outside_state_topics(self) -> str | None:
        """Why the state of steps cannot be kept in a topic beside its own."""
        pattern = next((topic for topic in self.topics if topic.startswith("^")), None)
        if pattern is None:
            return None
        return (
            f"the topic with the state has a partition for each of the source's, and topics that match {pattern} may "
            "come at any time; name the topics one by one, or write {path: FILE}, for one process"
        )

    def build_state(self, topic: str) -> StateTopic:
        """The compacted topic with this name on its brokers, not yet open."""
        if self.outside_state_topics is not None:
            return super().build_state(topic)
        self.check_packages()
        return _state_topic(topic, self)

    def in_service(self, service: str, sources: Sequence[SourceConfig] = ()) -> Self:
        """The same source; where it names no group, the service's name is the group."""
        return self if self.group else self.model_copy(update={"group": service})


class KafkaSinkConfig(KafkaClientConfig, SinkConfig):
    """Messages to Kafka topics, confirmed when all in-sync replicas have them."""

    built_by: ClassVar[str] = "connectors.kafka.sink:KafkaSink"
    transactional_by: ClassVar[str] = "connectors.kafka.transactionalsink:KafkaTransactionalSink.first"

    type: Literal["kafka"] = "kafka"
    """The type of connector."""
    bootstrap: str | None = None
    """`host:port` of some of the brokers, separated by commas; by default those of the service's Kafka source, with its security properties; without such a source those of `KAFKA_BOOTSTRAP_SERVERS`, else `localhost:9092`."""  # noqa: E501
    topic: str = Field(min_length=1)
    """The topic; may be made from values: `results.{label}`, `{record.topic}.out`. Then `topics` says which are allowed."""  # noqa: E501
    topics: OneOrMore = ()
    """Topics that may be made from values: names, or regular expressions that begin with ^."""
    default_topic: str | None = Field(default=None, min_length=1)
    """The topic of results for which `topic` cannot be made, as a value in it is missing or empty, such as the address of an answer that nobody asked for; by default such a record fails."""  # noqa: E501
    key: str | None = None
    """The key of the value of the result that becomes the message's key, or `record.NAME` for metadata of its record; by default the message has the record's key."""  # noqa: E501
    timestamp: Literal["now", "source"] = "now"
    """The message's time: when it is written, or that of the record."""
    headers: bool = True
    """Whether the record's headers are written with the result."""
    add_headers: dict[str, str] = Field(default={})
    """Headers of every message, instead of the record's of the same names: `{source: digits, answers: "{record.key}"}`. `{record.NAME}` stands for metadata of the record; a message whose record lacks it goes without the header."""  # noqa: E501
    compression: Literal["none", "lz4", "zstd", "snappy", "gzip"] = "lz4"
    """Compression of the batches that are sent to the brokers."""
    linger: Duration = 0.005
    """How long a message waits for others, to be sent with them in one request, while more keep coming. After a pause
    messages are sent at once."""
    partitioner: Literal[
        "murmur2_random", "murmur2", "consistent_random", "consistent", "fnv1a_random", "fnv1a", "random"
    ] = "murmur2_random"
    """Which partition a key goes to. murmur2_random is that of Kafka's Java clients; librdkafka's own default is consistent_random."""  # noqa: E501
    max_message: Annotated[Size, Field(ge=1000, le=1_000_000_000)] = 1 << 20
    """Largest message, counted before compression with its key and headers; one that is larger is refused alone. The topic's `max.message.bytes` has to allow it too. By default the default limit of topics; for dead letters 16 MiB."""  # noqa: E501
    timeout: Annotated[Duration, Field(gt=0)] = 120.0
    """How long the service waits for a deleted topic before it stops. If the field is set, a message that is unconfirmed for so long counts as lost: its record comes again, even after results of later records. Otherwise messages wait as long as it takes."""  # noqa: E501
    client: Annotated[Client, FREE] = Field(default={})
    """Any property of librdkafka, such as `security.protocol`; `oauth_cb` may name a function as module:function."""

    @field_validator("client")
    @classmethod
    def _free_properties(cls, client: Client) -> Client:
        refuse(client, OF_SINKS)
        return client

    @model_validator(mode="after")
    def _room_for_a_message(self) -> Self:
        room = queue_room(self.client)
        if "max_message" in self.model_fields_set and self.max_message > room:
            raise ValueError(
                f"max_message ({self.max_message} bytes) is more than the client's queue holds ({room} bytes), so that "
                f"such a message would wait for ever; raise {QUEUE} under client, or lower max_message"
            )
        return self

    @property
    def message_timeout(self) -> float | None:
        """Seconds after which an unconfirmed message counts as lost; `None`: it waits as long as it takes.

        A limit breaks the order of a key's results: messages sent later may still be confirmed, and the lost one comes
        again after them.
        """
        return self.timeout if "timeout" in self.model_fields_set else None

    @property
    def addressing(self) -> Addressing:
        """As `SinkConfig.addressing`."""
        return Addressing(
            self.topic,
            self.topics,
            self.key,
            self.headers,
            default_topic=self.default_topic,
            source_timestamp=self.timestamp == "source",
            added_headers=self.add_headers,
        )

    @property
    def place(self) -> str:
        """Its topic."""
        return self.topic

    def outside_transactions(self, source: SourceConfig, first: SinkConfig) -> str | None:
        """Refuses a sink that is not on the source's cluster, as far as the service file tells, or needs a producer of
        its own."""
        if not isinstance(source, KafkaSourceConfig):
            return f'its transactions commit no positions of the source "{source.label}" ({source.type}); {_OTHERWISE}'
        return self.differs_from(first)

    def differs_from(self, first: SinkConfig) -> str | None:
        """Why it cannot send by the producer of `first`, and what to do about that; `None` if it can."""
        if not isinstance(first, KafkaSinkConfig):
            return f'it cannot send in the transactions of the sink "{first.label}" ({first.type}); {_OTHERWISE}'
        different = [name for name in _OF_PRODUCER if getattr(self, name) != getattr(first, name)]
        if different:
            fields = " and ".join(different).replace("brokers", "bootstrap")
            return (
                f'{fields} must be the same as of the sink "{first.label}", as one producer sends in '
                f"a transaction; make them equal, or use at_least_once"
            )
        return None

    def in_service(self, service: str, sources: Sequence[SourceConfig] = ()) -> Self:
        """The same sink; if it names no brokers, with the brokers and the login of the first Kafka source."""
        return self.with_brokers_of(sources)

    def for_dead_letters(self) -> Self:
        """The same sink; without a `max_message` of its own, letters may have up to 16 MiB, so the topic's limit
        decides."""
        return self if "max_message" in self.model_fields_set else self.model_copy(update={"max_message": _LETTER})


def _checked(unnamed: Brokers) -> Brokers:
    try:
        checked_bootstrap(unnamed.address)
    except ValueError as error:
        raise ValueError(f"the environment variable {unnamed.setting}: {error}; or set bootstrap") from None
    return unnamed


_browser: Final[Callable[[Brokers, Mapping[str, Any]], Browser]] = late("connectors.kafka.browser:KafkaBrowser")
_check_properties: Final[Callable[[KafkaClientConfig], None]] = late(
    "connectors.kafka.client.refusals:check_properties"
)
