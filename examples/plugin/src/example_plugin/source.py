"""`SqliteSource`: records from the rows of a table."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterable, Mapping

import numpy as np
from connectors.records import Lane, Records, Span
from connectors.source import Event, LaneBegan, LaneEnded, Replays, Settle, Source, SourceEnded
from pipelines.errors import ConnectorError

from example_plugin.config import SqliteSourceConfig
from example_plugin.table import opened

LOOK = 0.02
"""Seconds between two looks for new rows."""
BLOCK = 100
"""Rows that are read at once: what is fetched and not yet delivered is bounded by it."""


class SqliteSource(Source):
    """Delivers the rows of a table in the order of their numbers; one process at a time.

    There is one lane. What was acknowledged is kept in the database, by the source's name: the next run goes on there.
    """

    replays = Replays.OFFSET

    def __init__(self, config: SqliteSourceConfig) -> None:
        self.name = config.label
        self._path = config.path
        self._table = config.table
        self._follow = config.follow
        self._database: sqlite3.Connection | None = None
        self._lane = Lane(self.name, self._table, -1)
        self._next = 0
        self._events: list[Event] = []
        self._ended = False
        self._woken = threading.Event()

    def open(self, settle: Settle | None = None, *, commits: bool = True) -> None:
        """Open the database. `ConnectorError` if it cannot be."""
        self._database = opened(self._path, self._table)
        self._begin()

    def poll(self, max_records: int, max_bytes: int, timeout: float) -> Records:
        """As `Source.poll`."""
        deadline = time.monotonic() + timeout
        rows: list[tuple[int, bytes | None, bytes | None]] = []
        size = 0
        while True:
            found = self._rows(min(max_records - len(rows), BLOCK))
            for row in found:
                size += len(row[1] or b"") + len(row[2] or b"")
                rows.append(row)
                self._next = row[0] + 1
                if size >= max_bytes:
                    break
            left = deadline - time.monotonic()
            if len(rows) >= max_records or size >= max_bytes or left <= 0:
                break
            if found:
                continue
            if not self._follow:
                if not self._ended:
                    self._ended = True
                    self._events.append(SourceEnded(self.name))
                break
            if self._woken.wait(min(left, LOOK)):
                self._woken.clear()
                break
        return self._block(rows, size)

    def acknowledge(self, positions: Mapping[Lane, int], *, wait: bool = False) -> None:
        """As `Source.acknowledge`; what comes from a lane that has ended is ignored."""
        if self._lane in positions:
            database = self._open()
            database.execute("INSERT OR REPLACE INTO positions VALUES (?, ?)", (self.name, positions[self._lane]))
            database.commit()

    def rewind(self, lanes: Iterable[Lane]) -> None:
        """As `Source.rewind`."""
        if self._lane in lanes:
            self._events.append(LaneEnded(self._lane))
            self._begin()

    def events(self) -> list[Event]:
        """As `Source.events`."""
        events, self._events = self._events, []
        return events

    def close(self) -> None:
        """Let go of the database."""
        if self._database is not None:
            self._database.close()
            self._database = None

    def wake(self) -> None:
        """As `Source.wake`."""
        self._woken.set()

    def _begin(self) -> None:
        row = self._open().execute("SELECT next FROM positions WHERE reader = ?", (self.name,)).fetchone()
        self._next = 0 if row is None else int(row[0])
        self._lane = Lane(self.name, self._table, self._lane.epoch + 1)
        self._ended = False
        first = self._rows(1)
        self._events.append(LaneBegan(self._lane, self._table, 0, first[0][0] if first else -1))

    def _rows(self, count: int) -> list[tuple[int, bytes | None, bytes | None]]:
        # The table's name is checked by the configuration.
        query = f"SELECT number, key, value FROM {self._table} WHERE number >= ? ORDER BY number LIMIT ?"
        try:
            return self._open().execute(query, (self._next, count)).fetchall()
        except sqlite3.Error as error:
            raise ConnectorError(f"{self._path}: {error}") from error

    def _block(self, rows: list[tuple[int, bytes | None, bytes | None]], size: int) -> Records:
        if not rows:
            return Records.empty(self.name)
        numbers, keys, values = zip(*rows, strict=True)
        return Records(
            source=self.name,
            values=values,
            keys=keys,
            positions=np.array(numbers, np.int64),
            spans=[Span(self._lane, 0, len(rows))],
            topics=[self._table],
            partitions=[0],
            byte_count=size,
        )

    def _open(self) -> sqlite3.Connection:
        if self._database is None:
            raise ConnectorError(f"{self.name} is not open")
        return self._database
