"""The fields that all sources and sinks of a service file have, and how a connector adds its own.

A connector derives one model for its source and one for its sink, gives them `type: Literal["name"] = "name"`,
their own fields with a docstring each (they become the JSON schema and the reference page), and `built_by`, which
names the connector's class, so that no connector and no client library is imported before it is used.
`connectors.registry` finds the models by name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Final, Literal, Self

from pydantic import BaseModel, Field, field_validator, model_validator

from connectors.browser import Browser
from connectors.codecs.config import CodecConfig
from connectors.localpath import LocalPath as LocalPath
from connectors.metadata.bytetypes import ByteType
from connectors.outbox.config import OutboxConfig
from connectors.recordnames import instead_of, is_record_name
from connectors.sink import Sink, TransactionalSink
from connectors.source import Source
from connectors.statetopic import StateTopic
from connectors.units import OneOrMore
from pipelines.conditions.condition import Conditions, packages
from pipelines.described import FrozenSettings
from pipelines.errors import DefinitionError, nearest
from pipelines.harmless import refused_options
from pipelines.late import late
from pipelines.plugins.requirements import Requirement, Requires, all_of, required
from pipelines.steps.timefield import TimeConfig

_codec_config: Final[Callable[[str | Mapping[str, Any]], CodecConfig]] = late("connectors.codecs.registry:codec_config")


@dataclass(frozen=True, slots=True)
class Addressing:
    """How a sink that writes to topics addresses its messages."""

    topic: str
    """The topic; made from values where it has braces: `results.{label}`."""
    topics: tuple[str, ...] = ()
    """The topics that may be made from values: names, or regular expressions that begin with ^."""
    key: str | None = None
    """The value of a result that becomes the message's key; `None`: the record's key."""
    headers: bool = True
    """Whether the record's headers go with its results."""
    default_topic: str | None = None
    """The topic of messages for which `topic` cannot be made, as a value is missing or empty."""
    source_timestamp: bool = False
    """Whether a message has the time of its record, rather than that of its writing."""
    record_headers: Mapping[str, str] = field(default_factory=dict)
    """Metadata of the record (names of `Records.extras`) that its results carry as headers, with the header's name for
    each. Only text and bytes; they replace headers of the record that have the same names."""
    added_headers: Mapping[str, str] = field(default_factory=dict)
    """Headers of every message, by name. In their texts `{record.NAME}` stands for metadata of the record; a message
    whose record lacks it does not have the header. They replace headers that have the same names."""


class ConnectorConfig(FrozenSettings):
    """The fields that sources and sinks share. Frozen; an unknown field is an error."""

    built_by: ClassVar[str]
    """The class of the source or sink, or a function that makes it, as `module:name`: it is imported when the connector
    is built, and called with this configuration. A plug-in may override `build` instead."""

    browsed_by: ClassVar[str | None] = None
    """What `browser` calls with this configuration and `client`, as `module:name`; `None`: it cannot be browsed."""

    requires: ClassVar[Requires] = ()
    """The packages that it needs, by import name: checked before anything connects."""

    carries: ClassVar[frozenset[Literal["bytes", "objects"]]] = frozenset({"bytes"})
    """The kinds of its payloads: bytes, or objects (`CodecConfig.carries`), as those of a source of frames, or of a
    sink that encodes them itself. Only a sink of bytes can take dead letters."""

    type: str
    """The type of connector."""
    name: str | None = None
    """Its name in metrics, logs and messages; by default its type."""
    codec: str | dict[str, Any] = "protodata"
    """How payloads become values, or a sink's values payloads: the name of a codec, or `{type: NAME, OPTION: ...}`."""

    @property
    def needs(self) -> Requirement:
        """The packages that it needs as configured: those of `requires`, and others because of its fields."""
        return required(self.requires)

    @property
    def label(self) -> str:
        """Its name in metrics, logs and messages."""
        return self.name or self.type

    @property
    def code_keys(self) -> tuple[str, ...]:
        """Keys of the functions, libraries and commands that the file names and it runs; `--no-code` refuses them."""
        return ()

    @property
    def functions(self) -> tuple[str, ...]:
        """The functions that it names as `module:function` and calls, such as one that gives a token.

        An image that is built of the service takes their modules along.
        """
        return ()

    @property
    def file_keys(self) -> Mapping[str, Path]:
        """The files, folders and patterns of files that it reads or writes, by the key that names each.

        All fields that hold a path (`LocalPath`), those of the codec included. Under `--no-code` each has to be
        allowed.
        """
        return {name: path for key, config in self._parts() for name, path in _paths(config, key).items()}

    @property
    def option_keys(self) -> Mapping[str, str]:
        """Options of its libraries that may do more than reading and writing records, and why `--no-code` refuses them.

        By key: all options that its fields, and those of the codec, do not mark as `pipelines.harmless.Harmless`.
        """
        return {name: why for key, config in self._parts() for name, why in refused_options(config, key).items()}

    @property
    def codec_settings(self) -> dict[str, str | dict[str, Any]]:
        """The settings of its codecs, by the names of the fields."""
        return {"codec": self.codec}

    @property
    def codecs(self) -> dict[str, CodecConfig]:
        """Its codecs and the codecs inside of these, by the key of each: `codec`, `codec.codec`, ...

        Raises:
            DefinitionError: Unknown codec or option.
        """
        codecs: dict[str, CodecConfig] = {}
        for name, setting in self.codec_settings.items():
            codecs |= _with_inner(name, setting)
        return codecs

    def _parts(self) -> Iterator[tuple[str, BaseModel]]:
        """Its fields, those of its codecs and of the codecs inside of these, each with the key that they are below."""
        yield "", self
        for name, setting in self.codec_settings.items():
            if isinstance(setting, dict):
                yield from _with_inner(name, setting).items()

    @property
    def identity_keys(self) -> tuple[str, ...]:
        """Keys by which it logs in as the machine or user that runs it, without credentials from the file.

        `--no-code` refuses them.
        """
        return ()

    @property
    def place(self) -> str:
        """Which topics, folder or device it reads or writes, for the log; empty if it does not say."""
        return ""

    def browser(self, client: Mapping[str, Any] | None = None) -> Browser | None:
        """A browser of this connector's bus; `None` if the bus cannot be browsed.

        Args:
            client: Properties of the client library that override its own.

        Raises:
            DefinitionError: The connector names no bus.
        """
        if self.browsed_by is None:
            return None
        browser: Browser = late(self.browsed_by)(self, client or {})
        return browser

    def check_codec(self) -> None:
        """Raise `DefinitionError` unless its codec is known and for the kind of payloads of this connector."""
        codec = _codec_config(self.codec)
        if codec.carries not in self.carries:
            raise DefinitionError(
                f"the codec {codec.type} is for {codec.carries}, and a connector of type {self.type} has "
                f"{' or '.join(sorted(self.carries))}; choose another codec"
            )

    def check_packages(self) -> None:
        """Raise `MissingPackageError` unless the packages that it `requires` are installed."""
        self.needs.check(f'{self.label} (type "{self.type}")')

    def check_client(self) -> None:
        """Raise `ConnectorError` for settings that its client library refuses. Nothing is connected to."""

    def in_service(self, service: str, sources: Sequence[SourceConfig] = ()) -> Self:
        """The same connector as part of a service, from which it may take fields that are not given.

        Args:
            service: The service's name.
            sources: The service's sources.
        """
        return self

    @property
    def variables(self) -> tuple[str, ...]:
        """The environment variables that it reads in place of fields that are not given."""
        return ()

    @property
    def exclusive(self) -> Mapping[str, str]:
        """What only one process can have at a time, such as a file or a name, by key of the field that says it.

        Of the same service in several processes each needs a value of its own.
        """
        return {}

    @property
    def notes(self) -> tuple[str, ...]:
        """Effects of its fields that their author may not expect, in a few words each, for `streamer check`."""
        return ()

    def conflicts(self, others: Sequence[ConnectorConfig]) -> list[str]:
        """Why it cannot work beside these connectors of the same service, a sentence each."""
        return []


class SourceConfig(ConnectorConfig):
    """Base of sources' configurations: the fields that every source of a service has."""

    record_columns: ClassVar[tuple[str, ...]] = ()
    """Properties that its records have besides key, timestamp, topic, partition, offset, source and headers: the names
    of `Records.extras`. A name that ends with `.NAME`, as `levels.NAME`, stands for all names that begin as it does."""

    topic_columns: ClassVar[tuple[str, ...]] = ()
    """Those of `record_columns` that records of the same topic have alike."""

    into_columns: ClassVar[tuple[str, ...]] = ()
    """Names that only `into` takes, in the form of `record_columns`."""

    by_key: ClassVar[bool] = False
    """Whether its topics have partitions, and a record's key says in which of them it is."""

    keeps_footage: ClassVar[bool] = False
    """Whether its source can keep the packets that its records were decoded from, for sinks that write clips."""

    into: dict[str, str] = Field(default_factory=dict)
    """Metadata of the record that become values: `{key: device_id, headers.trace: trace}`. Every source has key, timestamp, topic, partition, offset, source and headers.NAME; some types have more."""  # noqa: E501
    time: TimeConfig | None = None
    """The value that is the time of a record, in place of the time that the bus knows: `{field: ts, unit: ms}`. A record without one that can be read keeps the bus's."""  # noqa: E501
    tombstones: Literal["forward", "skip", "dead_letter"] = "forward"
    """What happens to records without a payload (Kafka's tombstones): they are sent to the sinks unchanged, without a run of the pipeline (`forward`), acknowledged and forgotten (`skip`), or become dead letters (`dead_letter`)."""  # noqa: E501

    where: Conditions | None = None
    """Which records are run, by their values and by the metadata that `into` makes values of: an SQL expression, `topic not like '%/bridge/%'`, a mapping, `{kind: lamp}`, or a list of these, which all have to hold. The others pass by: they are acknowledged, counted and nothing else."""  # noqa: E501

    @field_validator("into")
    @classmethod
    def _known_metadata(cls, into: dict[str, str]) -> dict[str, str]:
        for source in into:
            names = (*cls.record_columns, *cls.into_columns)
            if not is_record_name(source, names):
                raise ValueError(f'"{source}" is not metadata of a record{instead_of(source, names)}')
        first: dict[str, str] = {}
        for source, key in into.items():
            if (other := first.setdefault(key, source)) != source:
                raise ValueError(f'"{other}" and "{source}" would both become "{key}"; give one of them another key')
        return into

    @model_validator(mode="after")
    def _time_of_a_value(self) -> Self:
        if self.time is not None and self.time.field == self.into.get("timestamp"):
            raise ValueError(
                f'time: "{self.time.field}" is what into makes of timestamp, which is the time of the record itself; '
                "name the value that has the time, or give that of into another key"
            )
        return self

    @property
    def needs(self) -> Requirement:
        """Also what the expressions of `where` need."""
        return all_of(super().needs, packages(self.where))

    @property
    def record_names(self) -> tuple[str, ...]:
        """The `record_columns` of this very source.

        Where its fields say which members a family has, they stand in the family's place (`levels.line` instead of
        `levels.NAME`). `check_into` and topics made from values go by it.
        """
        return self.record_columns

    @property
    def key_type(self) -> ByteType | None:
        """The type of its records' keys, as `into` takes them; `None`: texts if they are UTF-8, else bytes."""
        return None

    @property
    def key_codec(self) -> dict[str, Any] | None:
        """The codec of its records' keys; `None`: they have none."""
        return None

    @property
    def codec_settings(self) -> dict[str, str | dict[str, Any]]:
        """As `ConnectorConfig.codec_settings`, with the codec of the keys, if there is one."""
        return {**super().codec_settings, **({} if self.key_codec is None else {"key": self.key_codec})}

    @property
    def header_types(self) -> Mapping[str, ByteType]:
        """The types of headers by their names, as `into` takes them; others are texts if they are UTF-8, else bytes."""
        return {}

    @property
    def undecoded_keys(self) -> frozenset[str]:
        """The keys of the values that `into` makes of a record before its payload is decoded."""
        # A codec of keys may have to wait, as that of payloads.
        coded = self.key_codec is not None
        return frozenset(
            key
            for name, key in self.into.items()
            if not (name == "timestamp" and self.time is not None)
            and not (coded and (name == "key" or name.startswith("key.")))
        )

    def check_into(self) -> None:
        """Raise `DefinitionError` if `into` names metadata that no record of this source has."""
        for name in self.into:
            names = (*self.record_names, *self.into_columns)
            if not is_record_name(name, names):
                raise DefinitionError(f'"{name}" is not metadata of a record{instead_of(name, names)}')

    @property
    def topic_names(self) -> tuple[str, ...]:
        """The topics that it reads: names, or regular expressions that begin with ^; empty for one without topics."""
        return ()

    @property
    def sent_to(self) -> str | None:
        """The topic to which records for it are sent, in which `{NAME}` stands for the value NAME of each record.

        `None` if it reads several topics, or none is known.
        """
        names = self.topic_names
        return names[0] if len(names) == 1 and not names[0].startswith("^") else None

    def reads(self, topic: str) -> bool:
        """Whether it reads the topic of this name."""
        return any(topic == name or (name.startswith("^") and re.search(name, topic)) for name in self.topic_names)

    @property
    def parted(self) -> str | None:
        """Why another process may read partitions of its topics that have the same number; `None`: none does."""
        return None

    @property
    def perishable(self) -> bool:
        """Whether its source is `perishable`, which is known before it is built."""
        return False

    def topic_extras(self, topic: str) -> Mapping[str, Any]:
        """The metadata that a record of this topic has by its topic alone, by the names of `Records.extras`.

        For example the named levels of `factory/{line}/{machine}`. For records of tests, which no source has delivered.
        """
        return {}

    @property
    def most_ahead(self) -> int | None:
        """How many records it gives at most before some of them are acknowledged; `None`: there is no such bound."""
        return None

    @property
    def group_name(self) -> str | None:
        """The consumer group that it is a member of; `None` if it is in none."""
        return None

    @property
    def undivided(self) -> str | None:
        """Why several processes with this source do not share its records, and what to do; `None` if they do."""
        if self.group_name is not None:
            return None
        return f"each process would read all records of a source of type {self.type}; run it in one"

    def of_worker(self, name: str) -> Self:
        """The same source in one of several processes that run its service, and that are started again when they die.

        Args:
            name: A name of the process that stays the same when it is started again.
        """
        return self

    def put_back(self) -> None:
        """Reset it now, once for all processes that will read it, if it is to be reset when it opens (`starting`).

        Raises:
            ConnectorError: It cannot be reset, for instance as others read it.
        """

    @classmethod
    def browser_at(cls, address: str, client: Mapping[str, Any]) -> Browser:
        """A browser of the bus at this address.

        Args:
            address: The bus, as the connector's URL or server list.
            client: Properties of its client library.

        Raises:
            DefinitionError: The bus of this type of source cannot be browsed.
        """
        raise DefinitionError(f"{cls.__name__}: its bus cannot be browsed")

    def starting(self, position: str) -> Self:
        """The same source, reset when it opens, as for `streamer run --from`.

        Args:
            position: `earliest`, `latest` or a time.

        Raises:
            DefinitionError: The source cannot be reset.
        """
        raise DefinitionError(f'source "{self.label}" ({self.type}) cannot be told to start at {position}')

    @property
    def outside_transactions(self) -> str | None:
        """Why its positions cannot be committed by transactions (`delivery: exactly_once`), and what to do about that.

        `None` if they can.
        """
        return f'positions of a source of type "{self.type}" cannot be committed by transactions; use at_least_once'

    @property
    def outside_state_files(self) -> str | None:
        """Why state of steps cannot be kept in a file beside its positions, and what to do; `None` if it can."""
        return None

    @property
    def outside_state_topics(self) -> str | None:
        """Why state of steps cannot be kept in a topic of its bus, and what to do about that; `None` if it can."""
        return f'a source of type "{self.type}" has no topics for state; write {{path: FILE}} or memory'

    def build_state(self, topic: str) -> StateTopic:
        """The topic of its bus that keeps the state of the steps, not yet open.

        Raises:
            DefinitionError: It has none.
            MissingPackageError: Its client library is not installed.
        """
        raise DefinitionError(f'source "{self.label}": {self.outside_state_topics}')

    def build(self) -> Source:
        """The source, not yet open.

        Raises:
            DefinitionError: A field is missing without which there is no source.
            MissingPackageError: Its client library is not installed.
        """
        self.check_packages()
        source: Source = late(self.built_by)(self)
        return source


class SinkConfig(ConnectorConfig):
    """A sink of a service. `when`, `keys`, `drop` and `sources` are plain data here; the agent acts on them."""

    transactional_by: ClassVar[str]
    """What makes the sink of transactions, as `module:name`; called with the arguments of `build_transactional`."""

    awaited: ClassVar[bool] = False
    """Whether a client waits for the answer to each of its records, so that it is told of a failure in any case
    (`for_failures`): such failures are no dead letters. Only for a sink that `answers`."""

    answers: ClassVar[bool] = False
    """Whether its messages go back to the clients that sent the records. Such a sink gets results and failures of the
    records of its own source only (`takes_from`). Failures of these records never stop the service, and the service
    does not wait until a client has taken an answer."""

    when: Conditions | None = None
    """Which results it gets: an expression (`prob > 0.8 and lower(label) = 'cat'`), a mapping (`{label: [cat, dog]}`, `{prob: {gt: 0.8}}`), or a list of these, which must all hold; by default all."""  # noqa: E501
    sources: OneOrMore | None = Field(default=None, min_length=1)
    """Names of sources: it gets the results of their records only; by default those of all sources. A result of several records, such as that of a window, has to be of these sources' records alone."""  # noqa: E501
    keys: tuple[str, ...] | None = None
    """The keys of the values that it writes; by default all."""
    drop: tuple[str, ...] = ()
    """The keys of values that it does not write."""
    errors: bool = False
    """Whether a record that failed is answered, too, besides its dead letter: `{"error": TEXT, "step": NAME}` in the sink's codec, with the header `streamer-error`, at the topic of its record. For requests over topics."""  # noqa: E501
    when_full: Literal["wait", "drop"] | None = None
    """What happens while the sink accepts no more messages: the service waits and reads nothing (`wait`), or messages are dropped, counted and logged (`drop`). The default is `drop` if all sources are live (cameras), else `wait`."""  # noqa: E501
    outbox: OutboxConfig | None = None
    """A file that keeps the sink's messages until the sink has confirmed them, so that they wait there while its broker is away: `{path: results.outbox, max: 1GiB}`; by default none."""  # noqa: E501

    @property
    def needs(self) -> Requirement:
        """Also what the expressions of `when` need."""
        return all_of(super().needs, packages(self.when))

    @property
    def exclusive(self) -> Mapping[str, str]:
        """The file of its outbox."""
        return {} if self.outbox is None else {"outbox.path": str(self.outbox.path)}

    @property
    def addressing(self) -> Addressing | None:
        """How messages are addressed; `None` for a sink without topics."""
        return None

    @property
    def takes_from(self) -> tuple[str, ...] | None:
        """Names of the sources whose records' results and failures it gets; `None`: of all."""
        return self.sources

    def check_sources(self, known: Sequence[str]) -> None:
        """Raise `DefinitionError` for a name in `sources` that none of the service's sources has."""
        for name in self.sources or ():
            if name not in known:
                raise DefinitionError(
                    f'the service has no source "{name}"{nearest(name, known)}; there are {", ".join(known)}'
                )

    def check_outbox(self) -> None:
        """Raise `DefinitionError` for an outbox where the codec makes objects: a file keeps bytes."""
        if self.outbox is not None and _codec_config(self.codec).carries != "bytes":
            raise DefinitionError(
                f'an outbox keeps bytes, and the sink "{self.label}" (type {self.type}) takes results as they are in '
                "memory, with their pictures; remove the outbox"
            )

    def for_dead_letters(self) -> Self:
        """The same sink as the one for dead letters, for which it may change fields that are not given."""
        return self

    def for_failures(self) -> Self | None:
        """The sink that tells clients of their records' failures, as dead letters.

        It is used where the service has no `dead_letter`, or in any case if the clients' answers are `awaited`. `None`
        if it does not answer.
        """
        return None

    def outside_transactions(self, source: SourceConfig, first: SinkConfig) -> str | None:
        """Why it cannot send in transactions that commit positions of `source`, and what to do about that.

        `None` if it can.

        Args:
            source: The source whose positions are committed.
            first: The service's first sink, which sends in these transactions too; it may be this one.
        """
        return f'a sink of type "{self.type}" sends in no transactions; use at_least_once'

    def build_transactional(self, source: SourceConfig, timeout: float) -> TransactionalSink:
        """The sink, not yet open, sending in transactions that commit positions of `source`.

        The service's other sinks are made by its `sibling`.

        Args:
            source: The source whose positions are committed.
            timeout: Seconds after which the bus aborts a transaction that is not committed.

        Raises:
            DefinitionError: The sink is outside of transactions.
            MissingPackageError: Its client library is not installed.
        """
        if (reason := self.outside_transactions(source, self)) is not None:
            raise DefinitionError(f'sink "{self.label}": {reason}')
        self.check_packages()
        sink: TransactionalSink = late(self.transactional_by)(self, source, timeout)
        return sink

    def build(self) -> Sink:
        """The sink, not yet open.

        Raises:
            DefinitionError: A field is missing without which there is no sink.
            MissingPackageError: Its client library is not installed.
        """
        self.check_packages()
        sink: Sink = late(self.built_by)(self)
        return sink


def _with_inner(key: str, setting: str | dict[str, Any]) -> dict[str, CodecConfig]:
    """The codec of this setting and those inside of it, each with the key that its options are below."""
    return {key + ".codec" * depth: codec for depth, codec in enumerate(_codec_config(setting).layers)}


def _paths(value: object, key: str) -> dict[str, Path]:
    if isinstance(value, Path):
        return {key: value}
    inside: Iterable[tuple[object, object]] = ()
    if isinstance(value, BaseModel):
        inside = ((name, getattr(value, name)) for name in type(value).model_fields)
    elif isinstance(value, Mapping):
        inside = value.items()
    elif isinstance(value, (list, tuple, set, frozenset)):
        inside = enumerate(value)
    return {
        name: path
        for part, item in inside
        for name, path in _paths(item, f"{key}.{part}" if key else str(part)).items()
    }
