"""Tables that are followed while they are used, such as topics: where readers of them come from.

The core reads none itself. A configuration like `TableConfig` says where the table is and makes its reader: ours are in
modules of the package `connectors` whose names end with `tableconfig`, those of plug-ins are named by entry points of
the group `streamer.tables`, whose names are the `type` of `table` in a LOOKUP.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Final, Literal, Protocol, Self, cast

from pydantic import BaseModel, ValidationError

from pipelines.errors import DefinitionError
from pipelines.late import late
from pipelines.plugins.catalog import Catalog, types_of
from pipelines.plugins.requirements import Requirement

TABLE_GROUP: Final = "streamer.tables"

KeyKind = Literal["text", "number", "integer", "boolean"]
"""The type of a table's keys, named as types of columns are."""


@dataclass(frozen=True, slots=True)
class TableRows:
    """What N records say about the rows of a table, in order: a later one of the same key replaces an earlier one."""

    keys: Sequence[Hashable] = ()
    """The key of each row, native values of one type; `None`: the record has none, or none that can be read."""
    columns: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """The values of each column that was asked for, `MISSING` where a row has none. They share no memory with the
    records."""
    sizes: Sequence[int] = ()
    """The bytes of each record's payload."""
    gone: frozenset[int] = frozenset()
    """Positions of records that say that there is no row of their key any more."""
    failed: Mapping[int, Exception] = field(default_factory=dict)
    """The errors of records that cannot be read, by position. There is no row of their key either."""

    def __len__(self) -> int:
        """How many records these are."""
        return len(self.keys)


class TableReader(Protocol):
    """Reads a table from its first record on. A context manager, used by one thread at a time.

    Entering connects, and raises `StreamerError` if nothing answers or the table does not exist.
    """

    @property
    def at_end(self) -> bool:
        """Whether all that was there when it was entered has been read."""

    @property
    def total(self) -> int:
        """How many records there were when it was entered, at most."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def poll(self, timeout: float) -> TableRows:
        """The next records; waits `timeout` seconds for the first. Raises `StreamerError` if it cannot go on."""


class TableConfig(Protocol):
    """Where a table is: a pydantic model, whose field `type` has its name as default."""

    model_fields: ClassVar[Mapping[str, Any]]

    @property
    def label(self) -> str:
        """What the table is called in messages: `topic machines`."""

    @property
    def place(self) -> str:
        """Where it is, for `streamer check`: `topic machines on localhost:9092`."""

    @property
    def key_kind(self) -> KeyKind:
        """The type of its keys."""

    @property
    def key_hint(self) -> str:
        """What to write if records have texts, and the keys are of another type."""

    @property
    def patience(self) -> float:
        """How many seconds may pass without a record while the table is read for the first time."""

    @property
    def needs(self) -> Requirement:
        """The packages that it needs."""

    @property
    def code_keys(self) -> tuple[str, ...]:
        """Keys that name code which it runs; refused where code is not allowed."""

    @property
    def option_keys(self) -> Mapping[str, str]:
        """Keys of options that are refused where code is not allowed, and why."""

    @property
    def file_keys(self) -> Mapping[str, Path]:
        """The files that it reads, by the key that names each."""

    @property
    def identity_keys(self) -> tuple[str, ...]:
        """Keys by which it logs in as the machine that runs it."""

    def check(self) -> None:
        """Raise `StreamerError` for settings with which it cannot be read, without connecting."""

    def beside(self, sources: Sequence[object]) -> Self:
        """The same table; if it names no server, on that of these configurations of a service's sources."""

    def reader(self, columns: Sequence[str], base: Path) -> TableReader:
        """A reader of these columns, not connected yet; relative paths start at `base`.

        Raises `StreamerError` for a codec that is not known, and `MissingPackageError`.
        """


def table_config(fields: Mapping[str, Any]) -> TableConfig:
    """The configuration that the field `table` of a step means. Raises `DefinitionError`, `MissingPackageError`."""
    name = fields.get("type", _TYPE)
    if not isinstance(name, str):
        raise DefinitionError(f"type is {name!r}, and not the name of a kind of table: {', '.join(TABLES.known)}")
    model = cast(type[BaseModel], TABLES.get(name))
    try:
        return cast(TableConfig, model.model_validate(dict(fields)))
    except ValidationError as error:
        raise _definition_error(error, _document(dict(fields)), model) from None


def _may_hold_tables(module: str) -> bool:
    return module.endswith("tableconfig")


def _checked(value: object) -> type[TableConfig]:
    if not (isinstance(value, type) and issubclass(value, BaseModel) and hasattr(value, "reader")):
        raise TypeError("the entry point must name a model like pipelines.plugins.tables.TableConfig")
    return cast(type[TableConfig], value)


TABLES: Final[Catalog[type[TableConfig]]] = Catalog(
    "table", TABLE_GROUP, _checked, types_of, "connectors", _may_hold_tables, by_entry=True
)
"""Tables that are followed, by the `type` of `table` in a LOOKUP."""

_TYPE: Final = "kafka"
_document: Final[Callable[[dict[str, Any]], Any]] = late("pipelines.definitions.document:Document")
_definition_error: Final[Callable[..., DefinitionError]] = late("pipelines.definitions.validation:definition_error")
