"""A database as the place that connectors' contracts feed, read and look at."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from connectors.contract import SinkBus, SourceBus
from connectors.message import Message

from example_plugin.config import SqliteSinkConfig, SqliteSourceConfig
from example_plugin.sink import SqliteSink
from example_plugin.source import SqliteSource
from example_plugin.table import opened


class Database(SourceBus, SinkBus):
    """One table of one database."""

    patience = 10.0
    quiet = 0.1

    def __init__(self, path: Path) -> None:
        self.path = path
        self.follow = True

    def source(self) -> SqliteSource:
        return SqliteSource(SqliteSourceConfig(path=self.path, follow=self.follow))

    def sink(self) -> SqliteSink:
        return SqliteSink(SqliteSinkConfig(path=self.path))

    def feed(self, messages: Sequence[Message]) -> None:
        database = opened(self.path, "records")
        rows = [(message.key, message.value) for message in messages]
        database.executemany("INSERT INTO records (key, value) VALUES (?, ?)", rows)
        database.commit()
        database.close()

    def end(self) -> None:
        self.follow = False

    def read_back(self, count: int, topic: str | None = None) -> list[Message]:
        database = opened(self.path, "records")
        rows = database.execute("SELECT value, key FROM records ORDER BY number").fetchall()
        database.close()
        return [Message(value, key) for value, key in rows]

    def vanish(self) -> None:
        database = opened(self.path, "records")
        database.execute("DROP TABLE records")
        database.close()

    def restore(self) -> None:
        opened(self.path, "records").close()


@pytest.fixture
def bus(tmp_path: Path) -> Database:
    """A fresh one for each test."""
    return Database(tmp_path / "test.db")
