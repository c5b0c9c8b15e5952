"""Tables in SQLite files, read by a connection that cannot write."""

from __future__ import annotations

import sqlite3
from collections.abc import Hashable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from pipelines.errors import StreamerError, nearest
from pipelines.runners.tables.tablefile import Limits, RawTable, TableFile, mark_of

_AT_ONCE: Final = 1000
"""Rows that are fetched at once."""
_BUSY: Final = 5.0
"""Seconds to wait for a program that is writing to the file."""


class SqliteTable(TableFile):
    """A table of an SQLite file; NULL is no value."""

    def __init__(self, path: Path, limits: Limits, table: str) -> None:
        super().__init__(path, limits)
        self._table = table

    @property
    def label(self) -> str:
        return f"{self.path.name}#{self._table}"

    def mark(self) -> Hashable | None:
        status = mark_of(self.path)
        if status is None:
            return None
        # Changes are there first if the file has a write-ahead log. An empty one may be made by reading.
        log = self.path.with_name(f"{self.path.name}-wal")
        try:
            return status, (mark_of(log) if log.stat().st_size else None)
        except OSError:
            return status, None

    def read(self, columns: Sequence[str]) -> RawTable:
        if not self.path.is_file():
            raise StreamerError(f"{self.path} cannot be read: it is no file")
        try:
            uri = f"{self.path.resolve().as_uri()}?mode=ro"
            with closing(sqlite3.connect(uri, uri=True, timeout=_BUSY)) as connection:
                # Views and functions that the file itself brings must not run anything.
                connection.execute("PRAGMA trusted_schema = OFF")
                connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, min(self.limits.bytes, 2**31 - 1))
                self._check(connection, columns)
                return self._read(connection, columns)
        except sqlite3.Error as error:
            raise StreamerError(f"{self.label} cannot be read: {error}") from error

    def _check(self, connection: sqlite3.Connection, columns: Sequence[str]) -> None:
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        if self._table not in tables:
            listed = f"it has {', '.join(tables[:20])}" if tables else "it has none"
            raise StreamerError(
                f'{self.path.name} has no table "{self._table}"{nearest(self._table, tables, 1000)}; {listed}'
            )
        self.checked_columns(
            columns, [name for (name,) in connection.execute("SELECT name FROM pragma_table_info(?)", (self._table,))]
        )

    def _read(self, connection: sqlite3.Connection, columns: Sequence[str]) -> RawTable:
        chosen = ", ".join(map(_quoted, columns))
        # The names are those of a table and columns that are there.
        query = f"SELECT {chosen} FROM {_quoted(self._table)} LIMIT {self.limits.rows + 1}"  # noqa: S608
        cursor = connection.execute(query)
        fields: list[list[Any]] = [[] for _ in columns]
        size = 0
        while rows := cursor.fetchmany(_AT_ONCE):
            for values, more in zip(fields, zip(*rows, strict=True), strict=True):
                values.extend(more)
                size += sum(map(_size, more))
            self.check_bytes(size)
        self.check_rows(len(fields[0]))
        return RawTable(dict(zip(columns, fields, strict=True)), len(fields[0]))


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _size(value: Any) -> int:
    return len(value) if isinstance(value, (str, bytes)) else 8
