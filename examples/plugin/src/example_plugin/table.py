"""The table that source and sink share: a number that rises, a key, a payload."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from pipelines.errors import ConnectorError

PATIENCE = 10.0
"""Seconds to wait for another process that writes."""


def opened(path: Path, table: str) -> sqlite3.Connection:
    """The database with this table in it. `ConnectorError` if there can be none."""
    try:
        # Agents build and open connectors in one thread, and use and close them in another, never in two at a time.
        database = sqlite3.connect(path, timeout=PATIENCE, check_same_thread=False)
        # AUTOINCREMENT: a number is never used again, so that a position stays true when rows are deleted.
        columns = "number INTEGER PRIMARY KEY AUTOINCREMENT, key BLOB, value BLOB"
        database.execute(f"CREATE TABLE IF NOT EXISTS {table} ({columns})")
        database.execute("CREATE TABLE IF NOT EXISTS positions (reader TEXT PRIMARY KEY, next INTEGER NOT NULL)")
        database.commit()
    except sqlite3.Error as error:
        raise ConnectorError(f"{path}: {error}") from error
    return database
