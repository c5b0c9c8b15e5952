"""`Store`: the file of an outbox, an SQLite database of blocks of messages.

A block is a row: tens of times cheaper than a row for each message. Each call is one transaction, whose data are on the
disk when it returns (`sync: full`), except for removals: after a power cut, messages that were removed last may be
there again, and are sent twice. SQLite's log (`-wal` beside the file) brings back whole transactions only, so that a
torn file loses no block that was stored.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from connectors.databasefile import DatabaseFile, FileKind, Sync
from connectors.outbox.packing import BLOBS, Blob, PackedColumns, messages_of
from connectors.records import Messages
from pipelines.errors import ConnectorError

SPARE_PAGES = 4096
"""Pages that an empty file may keep for reuse: 64 MiB."""

_COLUMNS = ", ".join(f"{name} BLOB" for name in BLOBS)
_TABLES = f"""
CREATE TABLE owner (name TEXT NOT NULL, destination TEXT NOT NULL);
CREATE TABLE blocks (first INTEGER PRIMARY KEY, count INTEGER NOT NULL, bytes INTEGER NOT NULL, stored REAL NOT NULL,
                     {_COLUMNS});
CREATE TABLE refused (number INTEGER PRIMARY KEY, reason TEXT NOT NULL, bytes INTEGER NOT NULL, refused REAL NOT NULL,
                      {_COLUMNS});
"""
_MARKS = ", ".join("?" * (4 + len(BLOBS)))
_ADD = f"INSERT INTO blocks VALUES ({_MARKS})"  # noqa: S608 - nothing but question marks
_REFUSE = f"INSERT OR REPLACE INTO refused VALUES ({_MARKS})"  # noqa: S608 - as above
_REFUSED = f"SELECT bytes, {', '.join(BLOBS)} FROM refused WHERE number = ?"  # noqa: S608 - our own names
_WAITS = "SELECT 1 FROM blocks WHERE first <= ? AND first + count > ?"
_DROP = "DELETE FROM blocks WHERE first IN (SELECT first FROM blocks ORDER BY first LIMIT ?)"
_OLDEST = "SELECT total(count), total(bytes) FROM (SELECT count, bytes FROM blocks ORDER BY first LIMIT ?)"
_NAMES = ", ".join(BLOBS)


OUTBOX = FileKind(
    name="outbox",
    application=0x5354524D,
    version=1,
    tables=_TABLES,
    # A batch takes a third of the time that it takes with SQLite's pages of 4,096 bytes.
    page=16384,
    writer="sink",
    other_release="have that release send its messages",
)


@dataclass(slots=True)
class Owner:
    """The sink whose messages a file holds."""

    name: str
    """The service and the sink."""
    destination: str
    """The destination of the sink: its type and its topic, file or address."""


@dataclass(slots=True)
class Held:
    """The number and size of the messages in a file."""

    messages: int = 0
    bytes: int = 0
    refused: int = 0
    refused_bytes: int = 0


class Store:
    """The file. Its callers hold one lock during all calls but `open` and `close`; any thread may call.

    Messages are numbered in the order in which they came, from 0 on or from where the last run ended.
    """

    def __init__(self, path: Path, owner: Owner, *, sync: Sync = "full") -> None:
        self.path = path
        self.held = Held()
        """Its present contents, counted."""
        self.oldest: float | None = None
        """When the oldest message that waits was stored, seconds since 1970; `None` if none waits."""
        self._owner = owner
        self._file = DatabaseFile(path, OUTBOX, sync=sync)
        self._next = 0

    def open(self) -> None:
        """Create the file, or open an existing one. `ConnectorError` if it belongs to another sink, is in use, damaged
        or cannot be written."""
        self._file.open()
        try:
            with self._file.explained():
                self._count()
                self._take_over()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the file. Idempotent."""
        self._file.close()

    def add(self, blocks: Sequence[tuple[PackedColumns, int]], *, without_oldest: int = 0) -> None:
        """Store these blocks, each with its bytes; all of them or none.

        `without_oldest`: this many of the oldest blocks go first. `DiskFull` without room on the disk.
        """
        if not blocks and not without_oldest:
            return
        now = time.time()
        with self._file.transaction() as connection:
            number = self._next
            for columns, size in blocks:
                count = len(columns.values)
                row: tuple[int | float | Blob, ...] = (number, count, size, now, *columns.blobs())
                connection.execute(_ADD, row)
                number += count
            gone = self._oldest(connection.execute, without_oldest)
            if without_oldest:
                connection.execute(_DROP, (without_oldest,))
        self._next = number
        self.held.messages += sum(len(columns.values) for columns, _ in blocks) - gone[0]
        self.held.bytes += sum(size for _, size in blocks) - gone[1]
        self._look_at_oldest()

    def oldest_holding(self, messages: int, size: int) -> tuple[int, int]:
        """How many of the oldest blocks hold at least so many messages and bytes, or all; and their messages."""
        blocks = held = 0
        with self._file.explained():
            for count, more in self._file.connection.execute("SELECT count, bytes FROM blocks ORDER BY first"):
                if held >= messages and size <= 0:
                    break
                blocks, held, size = blocks + 1, held + count, size - more
        return blocks, held

    def after(self, number: int) -> Messages | None:
        """The first block with message numbers of at least `number`; `None` if there is no such block."""
        return self._read("SELECT first, {} FROM blocks WHERE first >= ? ORDER BY first LIMIT 1", number)

    def block(self, first: int) -> Messages | None:
        """The block whose first message has this number; `None` if it was dropped."""
        return self._read("SELECT first, {} FROM blocks WHERE first = ?", first)

    def remove(self, firsts: Sequence[int]) -> None:
        """Remove these blocks. Those that were dropped already are ignored."""
        with self._file.transaction(safe=False) as connection:
            messages = size = 0
            for first in firsts:
                row = connection.execute("SELECT count, bytes FROM blocks WHERE first = ?", (first,)).fetchone()
                if row is not None:
                    messages, size = messages + row[0], size + row[1]
                    connection.execute("DELETE FROM blocks WHERE first = ?", (first,))
        self.held.messages -= messages
        self.held.bytes -= size
        self._look_at_oldest()

    def refuse(self, number: int, message: Messages, reason: str) -> None:
        """Set this message aside; it stays in its block until that is removed. Idempotent."""
        columns = PackedColumns.of(message)
        size = int(columns.sizes()[0])
        with self._file.transaction() as connection:
            before = connection.execute("SELECT bytes FROM refused WHERE number = ?", (number,)).fetchone()
            row = (number, reason, size, time.time(), *columns.blobs())
            connection.execute(_REFUSE, row)
        if before is None:
            self.held.refused += 1
            self.held.refused_bytes += size

    def refused(self) -> list[int]:
        """The numbers of the messages that were refused, in their order."""
        with self._file.explained():
            return [number for (number,) in self._file.connection.execute("SELECT number FROM refused ORDER BY number")]

    def send_refused_again(self, numbers: Sequence[int]) -> None:
        """Append these refused messages to those that wait, in this order; all of them or none."""
        now = time.time()
        with self._file.transaction() as connection:
            number = self._next
            for refused in numbers:
                row = connection.execute(_REFUSED, (refused,)).fetchone()
                waits = connection.execute(
                    "SELECT 1 FROM blocks WHERE first <= ? AND first + count > ?", (refused, refused)
                )
                # If the process ended before the block was removed, the message is still in it, and is sent with it.
                if row is not None and waits.fetchone() is None:
                    connection.execute(_ADD, (number, 1, row[0], now, *row[1:]))
                    number += 1
                connection.execute("DELETE FROM refused WHERE number = ?", (refused,))
        self._count()

    def forget_refused(self, numbers: Sequence[int]) -> None:
        """Remove these refused messages."""
        with self._file.transaction() as connection:
            for number in numbers:
                connection.execute("DELETE FROM refused WHERE number = ?", (number,))
        self._count()

    def drop_refused(self) -> int:
        """Remove all refused messages. Returns their number."""
        dropped = self.held.refused
        with self._file.transaction() as connection:
            connection.execute("DELETE FROM refused")
        self.held.refused = self.held.refused_bytes = 0
        return dropped

    def give_back_room(self) -> None:
        """Shrink an empty file. Does nothing if it has messages."""
        if self.held.messages or self.held.refused:
            return
        with self._file.explained():
            if self._file.connection.execute("PRAGMA page_count").fetchone()[0] > SPARE_PAGES:
                self._file.connection.execute("VACUUM")

    def _count(self) -> None:
        execute = self._file.connection.execute
        waiting = execute("SELECT count(*), total(count), total(bytes), max(first + count) FROM blocks").fetchone()
        refused = execute("SELECT count(*), total(bytes), max(number) + 1 FROM refused").fetchone()
        self.held = Held(int(waiting[1]), int(waiting[2]), int(refused[0]), int(refused[1]))
        self._next = max(waiting[3] or 0, refused[2] or 0)
        self._look_at_oldest()

    def _look_at_oldest(self) -> None:
        row = None
        if self.held.messages:
            with self._file.explained():
                row = self._file.connection.execute("SELECT stored FROM blocks ORDER BY first LIMIT 1").fetchone()
        self.oldest = None if row is None else float(row[0])

    def _take_over(self) -> None:
        owner = (self._owner.name, self._owner.destination)
        row = self._file.connection.execute("SELECT name, destination FROM owner").fetchone()
        if row == owner:
            return
        if row is not None and (self.held.messages or self.held.refused):
            raise ConnectorError(
                f"outbox {self.path}: it holds {self.held.messages} messages and {self.held.refused} refused ones of "
                f"{row[0]} to {row[1]}, and this is {owner[0]} to {owner[1]}; give each sink a path of its own, or let "
                "that one send them first, or move the file away"
            )
        with self._file.transaction() as connection:
            connection.execute("DELETE FROM owner")
            connection.execute("INSERT INTO owner VALUES (?, ?)", owner)

    def _oldest(self, execute: Any, blocks: int) -> tuple[int, int]:
        if not blocks:
            return 0, 0
        row = execute(_OLDEST, (blocks,)).fetchone()
        return int(row[0]), int(row[1])

    def _read(self, query: str, number: int) -> Messages | None:
        with self._file.explained():
            row = self._file.connection.execute(query.format(_NAMES), (number,)).fetchone()
        if row is None:
            return None
        try:
            return messages_of(row[0], row[1:])
        except ValueError as error:
            raise self._file.damaged(f"the block of message {row[0]}: {error}") from error
