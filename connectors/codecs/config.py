"""`CodecConfig`: the base of codecs' configurations, the fields of `codec: {type: NAME, ...}` in a service file.

`PayloadFields` is what some of them say of payloads.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal, Self

from pydantic import PositiveInt, PrivateAttr

from connectors.codec import Codec
from connectors.units import Size
from pipelines.described import FrozenSettings
from pipelines.late import late
from pipelines.plugins.requirements import Requires
from pipelines.wire.limits import DEFAULT_LIMITS, Limits


@dataclass(frozen=True, slots=True)
class PayloadFields:
    """The fields of payloads, as far as a schema or a list of columns states them."""

    names: frozenset[str]
    required: frozenset[str] = frozenset()
    """Those without which no payload can be written."""
    others: bool = False
    """Whether a payload may have further fields."""
    images: frozenset[str] = frozenset()
    """The keys whose values are images, as far as that is known."""


class CodecConfig(FrozenSettings):
    """The configuration of a codec. Frozen; an unknown field is an error.

    A codec derives its own model with `type: Literal["name"] = "name"`, `built_by`, and its options with a docstring
    each, which become the JSON schema and the reference page.
    """

    built_by: ClassVar[str]
    """The class of the codec, as `module:Class`: it is imported when the codec is built, and called with this
    configuration. A plug-in may override `build` instead."""

    requires: ClassVar[Requires] = ()
    """The packages that it needs, by import name: checked before anything connects."""

    carries: ClassVar[Literal["bytes", "objects"]] = "bytes"
    """The kind of payloads that it reads and writes. Objects are for connectors that carry them inside the process,
    such as a camera's frames; `ConnectorConfig.carries` says which connectors do."""

    remembers: ClassVar[bool] = False
    """Whether it reads records by what earlier ones said, so that it has to see those, too, that are not run."""

    type: str
    """The type of codec."""

    _sink_topic: str | None = PrivateAttr(default=None)

    @property
    def sink_topic(self) -> str | None:
        """The topic that its sink writes to, as the service file says it; `None` if it has none, or is a source."""
        return self._sink_topic

    def with_sink_topic(self, topic: str | None) -> Self:
        """The same configuration in a sink that writes to this topic."""
        copy = self.model_copy()
        copy._sink_topic = topic
        return copy

    @property
    def needs(self) -> Requires:
        """The packages that it needs as configured: those of `requires`, unless options change that."""
        return self.requires

    @property
    def several(self) -> bool:
        """Whether a payload may hold several records, as configured."""
        return False

    @property
    def wrapped(self) -> CodecConfig | None:
        """The inner codec, for a codec that only wraps and unwraps payloads; else `None`."""
        return None

    @property
    def layers(self) -> Iterator[CodecConfig]:
        """This codec and those that it wraps, from the outermost to the one that reads the content."""
        layer: CodecConfig | None = self
        while layer is not None:
            yield layer
            layer = layer.wrapped

    def of_values(self, key: str) -> Self | None:
        """The same codec, which also reads payloads that are one value and no record, such as record keys.

        Args:
            key: The key that such a value gets.

        Returns:
            `None`: it only reads records.
        """
        return None

    def ask(self) -> str | None:
        """Ask a server that it depends on, such as a schema registry, and return the findings as a text.

        Returns:
            `None`: there is no such server.

        Raises:
            ConnectorError: The server does not answer or lacks a schema that is needed.
        """
        return None

    def read_fields(self, topic: str | None = None) -> PayloadFields | None:
        """The fields of the records that it reads, where its configuration states all of them; else `None`.

        Args:
            topic: A server that it depends on is asked for the fields of this topic's latest records.

        Raises:
            DefinitionError: A schema cannot be read.
            ConnectorError: As for `ask`.
        """
        return None if self.wrapped is None else self.wrapped.read_fields(topic)

    def written_fields(self, *, ask: bool = False) -> PayloadFields | None:
        """The fields that the results it writes may have and must have; `None`: it writes any, or they are not known.

        Args:
            ask: A server that it depends on is asked for them.

        Raises:
            DefinitionError: A schema cannot be read.
            ConnectorError: As for `ask`.
        """
        inner = self.wrapped
        return None if inner is None else inner.with_sink_topic(self.sink_topic).written_fields(ask=ask)

    def build(self) -> Codec:
        """The codec.

        Raises:
            DefinitionError: A schema cannot be read or used.
            HotPathError: The compiled form is insisted on and was not built.
            MissingPackageError: A library that it needs is not installed.
        """
        codec: Codec = late(self.built_by)(self)
        return codec


class MessageConfig(CodecConfig):
    """The fields of codecs whose messages have keys and values: the limits that are checked while a message is read."""

    max_bytes: Size = DEFAULT_LIMITS.max_bytes
    """Size of the largest payload; a larger one is an error of its record."""
    max_depth: PositiveInt = DEFAULT_LIMITS.max_depth
    """How deep values may be nested."""
    max_elements: PositiveInt = DEFAULT_LIMITS.max_elements
    """How many entries, list elements and coordinates a payload may have, counted together."""

    max_keys: PositiveInt = DEFAULT_LIMITS.max_keys
    """How many keys a payload may have, and each `Data` in it."""

    @property
    def limits(self) -> Limits:
        """The limits as an argument of readers."""
        return Limits(self.max_bytes, self.max_depth, self.max_elements, self.max_keys)
