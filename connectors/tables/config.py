"""The fields of tables that are topics, `table` of a LOOKUP."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Final, Literal, TypeAlias

from pydantic import Field

from connectors.config import ConnectorConfig
from connectors.units import Duration
from pipelines.late import late
from pipelines.plugins.requirements import Requirement, all_of, required
from pipelines.plugins.tables import KeyKind, TableReader

KeyType: TypeAlias = Literal["text", "long", "int", "double", "uuid", "integer", "number", "boolean"]
"""The types of keys (`connectors.metadata.bytetypes.ByteType`) that values of records can be equal to."""

_KINDS: Final[Mapping[KeyType, KeyKind]] = MappingProxyType(
    {
        "text": "text",
        "uuid": "text",
        "long": "integer",
        "int": "integer",
        "integer": "integer",
        "double": "number",
        "number": "number",
        "boolean": "boolean",
    }
)


class TopicTableConfig(ConnectorConfig):
    """A topic whose records are the rows of a table, by their keys; the latest of each key counts."""

    built_by: ClassVar[str] = "connectors.tables.topictable:TopicTable"

    topic: str = Field(min_length=1)
    """The topic. A record without a payload (a tombstone) removes the row of its key."""
    key: KeyType = "text"
    """The type of the records' keys: `text` is UTF-8; `long`, `int` and `double` are numbers as Kafka's Java serializers write them (8, 4 and 8 bytes, big-endian), `uuid` is one in text or in 16 bytes; `integer`, `number` and `boolean` are written as texts."""  # noqa: E501
    timeout: Annotated[Duration, Field(gt=0)] = 60.0
    """How long no record may come while the topic is read at the start; then the service does not start."""

    @property
    def label(self) -> str:
        """As in messages: the topic."""
        return f"topic {self.topic}"

    @property
    def key_kind(self) -> KeyKind:
        """The type of its keys, as of a column."""
        return _KINDS[self.key]

    @property
    def key_hint(self) -> str:
        """What to write if keys are texts."""
        return "leave out key of the table if its keys are texts"

    @property
    def patience(self) -> float:
        """Its `timeout`, in seconds."""
        return self.timeout

    @property
    def properties(self) -> Mapping[str, Any]:
        """Properties of the client library."""
        return {}

    @property
    def needs(self) -> Requirement:
        """Also what its codec needs."""
        return all_of(super().needs, *(required(codec.needs) for codec in self.codecs.values()))

    def check(self) -> None:
        """As `pipelines.plugins.tables.TableConfig`."""
        self.check_codec()
        self.needs.check(f"the table {self.topic}")

    def reader(self, columns: Sequence[str], base: Path) -> TableReader:
        """As `pipelines.plugins.tables.TableConfig`."""
        self.check()
        reader: TableReader = late(self.built_by)(self, columns, base)
        return reader
