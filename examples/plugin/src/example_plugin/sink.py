"""`SqliteSink`: messages into the rows of a table."""

from __future__ import annotations

import sqlite3

from connectors.records import Ints, Messages
from connectors.sink import Lost, Refused, Sink
from pipelines.errors import ConnectorError

from example_plugin.config import SqliteSinkConfig
from example_plugin.table import opened


class SqliteSink(Sink):
    """Adds a row for each message; a message is confirmed when the transaction that it is in was committed.

    Rows wait in memory for the barrier, so that no transaction stays open and keeps other writers out; they are no more
    than `limits.in_flight` lets through.
    """

    def __init__(self, config: SqliteSinkConfig) -> None:
        self.name = config.label
        self._path = config.path
        self._table = config.table
        self._database: sqlite3.Connection | None = None
        self._waiting: list[tuple[bytes | None, bytes | None]] = []
        self._sent: list[Ints] = []
        self._confirmed: list[Ints] = []

    def open(self) -> None:
        """Open the database. `ConnectorError` if it cannot be."""
        self._database = opened(self._path, self._table)

    def send(self, messages: Messages, deadline: float) -> Refused:
        """As `Sink.send`; nothing is ever refused."""
        keys = messages.keys or [None] * len(messages)
        self._waiting.extend(zip(keys, messages.values, strict=True))
        self._sent.extend(messages.parents(index) for index in range(len(messages)))
        return {}

    def barrier(self, deadline: float) -> Lost:
        """As `Sink.barrier`. `ConnectorError`, retriable, while another process writes or the disk is full."""
        if not self._waiting:
            return {}
        database = self._open()
        try:
            # All or nothing: what fails is rolled back, and the next barrier writes it.
            with database:
                database.executemany(f"INSERT INTO {self._table} (key, value) VALUES (?, ?)", self._waiting)
        except sqlite3.OperationalError as error:
            raise ConnectorError(f"{self._path}: {error}", retriable=True) from error
        self._waiting = []
        self._confirmed += self._sent
        self._sent = []
        return {}

    def confirmed(self) -> list[Ints]:
        """As `Sink.confirmed`."""
        found, self._confirmed = self._confirmed, []
        return found

    def close(self) -> None:
        """Let go of the database; what was not committed is not there."""
        if self._database is not None:
            self._database.close()
            self._database = None
        self._waiting, self._sent = [], []

    def _open(self) -> sqlite3.Connection:
        if self._database is None:
            raise ConnectorError(f"{self.name} is not open")
        return self._database
