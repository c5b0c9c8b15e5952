"""What service files say about the source and the sink: `{type: sqlite, path: results.db, table: results}`."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from connectors.config import LocalPath, SinkConfig, SourceConfig
from pipelines.plugins.requirements import Requires
from pydantic import Field

# A name that SQL takes without quotes.
Table = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]


class SqliteSourceConfig(SourceConfig):
    """Rows of a table, in the order of their numbers."""

    # Imported when a service starts, and called with this configuration.
    built_by: ClassVar[str] = "example_plugin.source:SqliteSource"
    # Some systems build Python without it. A client library is declared in the same way.
    requires: ClassVar[Requires] = "sqlite3"

    type: Literal["sqlite"] = "sqlite"
    """The type of connector."""
    path: LocalPath
    """The database, relative to the service file."""
    table: Table = "records"
    """The table; it is created if it is not there."""
    follow: bool = True
    """Whether to wait for more rows, or to end when all were delivered."""


class SqliteSinkConfig(SinkConfig):
    """Results as rows of a table."""

    built_by: ClassVar[str] = "example_plugin.sink:SqliteSink"
    requires: ClassVar[Requires] = "sqlite3"

    type: Literal["sqlite"] = "sqlite"
    """The type of connector."""
    path: LocalPath
    """The database, relative to the service file."""
    table: Table = "records"
    """The table; it is created if it is not there."""
