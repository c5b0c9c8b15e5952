"""What every codec's configuration has in common: the fields of `codec: {type: NAME, ...}` in a service file."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, PositiveInt, PrivateAttr

from connectors.codec import Codec
from connectors.units import Size
from pipelines.plugins.requirements import Requires
from pipelines.wire.limits import DEFAULT_LIMITS, Limits


class CodecConfig(BaseModel, ABC):
    """The configuration of a codec. Frozen; an unknown field is an error.

    A codec derives its own model with `type: Literal["name"] = "name"` and its options with a docstring each, which
    become the JSON schema and the reference page.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, hide_input_in_errors=True)

    requires: ClassVar[Requires] = ()
    """The packages that it cannot do without, by import name: checked before anything connects."""

    carries: ClassVar[Literal["bytes", "objects"]] = "bytes"
    """What the payloads are that it reads and writes. Objects are for connectors that carry them inside the process,
    such as a camera's frames; `ConnectorConfig.carries` says which do."""

    type: str
    """Which codec this is."""

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
        """What it cannot do without as it is configured: `requires`, where options make no difference."""
        return self.requires

    @property
    def wrapped(self) -> CodecConfig | None:
        """The codec that reads and writes what is inside, of one that opens and closes payloads only."""
        return None

    def ask(self) -> str | None:
        """What is found out by asking what it depends on, such as a schema registry; `None` if that is nothing.

        Raises `ConnectorError` for one that does not answer or lacks what is needed.
        """
        return None

    @abstractmethod
    def build(self) -> Codec:
        """The codec. Raises `MissingPackageError` without a library it cannot do without."""


class MessageConfig(CodecConfig):
    """The bounds that a codec checks before it believes a message of keys and values."""

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
        """These bounds as readers take them."""
        return Limits(self.max_bytes, self.max_depth, self.max_elements, self.max_keys)
