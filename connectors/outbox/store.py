"""`Store`: the file of an outbox, an SQLite database of blocks of messages.

A block is a row: tens of times cheaper than a row for each message. Each call is one transaction, whose data are on the
disk when it returns (`sync: full`), except for removals: after a power cut, messages that were removed last may be
there again, and are sent twice. SQLite's log (`-wal` beside the file) brings back whole transactions only, so that a
torn file loses no block that was stored.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from connectors.file.lock import lock
from connectors.outbox.packing import BLOBS, Blob, PackedColumns, messages_of
from connectors.records import Messages
from pipelines.errors import ConnectorError

APPLICATION = 0x5354524D
"""SQLite's `application_id` of an outbox."""
VERSION = 1
"""SQLite's `user_version`: the form of the tables."""
MAGIC = b"SQLite format 3\x00"
"""The first bytes of every SQLite database."""
BUSY = 5.0
"""Seconds to wait for another program that reads the file."""
PAGE = 16384
"""Bytes of a page of the file: a batch takes a third of the time that it takes with SQLite's 4,096."""
LOG_PAGES = 1024
"""Pages of the log after which it is written into the file: 16 MiB."""
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
_DROP = "DELETE FROM blocks WHERE first IN (SELECT first FROM blocks ORDER BY first LIMIT ?)"
_OLDEST = "SELECT total(count), total(bytes) FROM (SELECT count, bytes FROM blocks ORDER BY first LIMIT ?)"
_NAMES = ", ".join(BLOBS)


class OutboxFull(ConnectorError):
    """There is no room on the disk."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"outbox {path}: there is no room on the disk; make some", retriable=True)


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

    def __init__(self, path: Path, owner: Owner, *, sync: str = "full") -> None:
        self.path = path
        self.held = Held()
        """Its present contents, counted."""
        self.oldest: float | None = None
        """When the oldest message that waits was stored, seconds since 1970; `None` if none waits."""
        self._owner = owner
        self._sync = sync
        self._next = 0
        self._lock_file: Any = None
        self._connection: sqlite3.Connection | None = None

    def open(self) -> None:
        """Create the file, or open an existing one. `ConnectorError` if it belongs to another sink, is in use, damaged
        or cannot be written."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            # A separate file for the lock: closing the database file a second time would release SQLite's own locks.
            self._lock_file = self.path.with_name(f"{self.path.name}-lock").open("wb")
        except OSError as error:
            raise ConnectorError(
                f"outbox {self.path}: it cannot be made: {error.strerror}; see to its folder"
            ) from error
        try:
            lock(self._lock_file.fileno(), self.path)
            self._check_kind()
            with self._explained():
                self._connection = sqlite3.connect(
                    self.path, timeout=BUSY, isolation_level=None, check_same_thread=False
                )
                self._begin()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the file. Idempotent."""
        if self._connection is not None:
            # Committed data are safe, even if closing fails.
            with suppress(sqlite3.Error):
                self._connection.close()
            self._connection = None
        if self._lock_file is not None:
            self._lock_file.close()
            self._lock_file = None

    def add(self, blocks: Sequence[tuple[PackedColumns, int]], *, without_oldest: int = 0) -> None:
        """Store these blocks, each with its bytes; all of them or none.

        `without_oldest`: this many of the oldest blocks go first. `OutboxFull` without room on the disk.
        """
        if not blocks and not without_oldest:
            return
        now = time.time()
        with self._transaction() as execute:
            number = self._next
            for columns, size in blocks:
                count = len(columns.values)
                row: tuple[int | float | Blob, ...] = (number, count, size, now, *columns.blobs())
                execute(_ADD, row)
                number += count
            gone = self._oldest(execute, without_oldest)
            if without_oldest:
                execute(_DROP, (without_oldest,))
        self._next = number
        self.held.messages += sum(len(columns.values) for columns, _ in blocks) - gone[0]
        self.held.bytes += sum(size for _, size in blocks) - gone[1]
        self._look_at_oldest()

    def oldest_holding(self, messages: int, size: int) -> tuple[int, int]:
        """How many of the oldest blocks hold at least so many messages and bytes, or all; and their messages."""
        blocks = held = 0
        with self._explained():
            for count, more in self._open().execute("SELECT count, bytes FROM blocks ORDER BY first"):
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
        with self._transaction(safe=False) as execute:
            messages = size = 0
            for first in firsts:
                row = execute("SELECT count, bytes FROM blocks WHERE first = ?", (first,)).fetchone()
                if row is not None:
                    messages, size = messages + row[0], size + row[1]
                    execute("DELETE FROM blocks WHERE first = ?", (first,))
        self.held.messages -= messages
        self.held.bytes -= size
        self._look_at_oldest()

    def refuse(self, number: int, message: Messages, reason: str) -> None:
        """Set this message aside; it stays in its block until that is removed. Idempotent."""
        columns = PackedColumns.of(message)
        size = int(columns.sizes()[0])
        with self._transaction() as execute:
            before = execute("SELECT bytes FROM refused WHERE number = ?", (number,)).fetchone()
            row = (number, reason, size, time.time(), *columns.blobs())
            execute(_REFUSE, row)
        if before is None:
            self.held.refused += 1
            self.held.refused_bytes += size

    def refused(self) -> list[int]:
        """The numbers of the messages that were refused, in their order."""
        with self._explained():
            return [number for (number,) in self._open().execute("SELECT number FROM refused ORDER BY number")]

    def send_refused_again(self, numbers: Sequence[int]) -> None:
        """Append these refused messages to those that wait, in this order; all of them or none."""
        now = time.time()
        with self._transaction() as execute:
            number = self._next
            for refused in numbers:
                row = execute(_REFUSED, (refused,)).fetchone()
                waits = execute("SELECT 1 FROM blocks WHERE first <= ? AND first + count > ?", (refused, refused))
                # If the process ended before the block was removed, the message is still in it, and is sent with it.
                if row is not None and waits.fetchone() is None:
                    execute(_ADD, (number, 1, row[0], now, *row[1:]))
                    number += 1
                execute("DELETE FROM refused WHERE number = ?", (refused,))
        self._count()

    def forget_refused(self, numbers: Sequence[int]) -> None:
        """Remove these refused messages."""
        with self._transaction() as execute:
            for number in numbers:
                execute("DELETE FROM refused WHERE number = ?", (number,))
        self._count()

    def drop_refused(self) -> int:
        """Remove all refused messages. Returns their number."""
        dropped = self.held.refused
        with self._transaction() as execute:
            execute("DELETE FROM refused")
        self.held.refused = self.held.refused_bytes = 0
        return dropped

    def give_back_room(self) -> None:
        """Shrink an empty file. Does nothing if it has messages."""
        if self.held.messages or self.held.refused:
            return
        with self._explained():
            if self._open().execute("PRAGMA page_count").fetchone()[0] > SPARE_PAGES:
                self._open().execute("VACUUM")

    def _check_kind(self) -> None:
        """Raise `ConnectorError` for another kind of file: SQLite would overwrite a file of a few bytes."""
        try:
            begins = _beginning(self.path)
        except OSError as error:
            raise ConnectorError(
                f"outbox {self.path}: it cannot be read: {error.strerror}; see to its rights"
            ) from error
        if begins and begins != MAGIC:
            raise self._damaged("it does not begin as one")

    def _begin(self) -> None:
        connection = self._open()
        kind, tables = (
            connection.execute(query).fetchone()[0]
            for query in ("PRAGMA application_id", "SELECT count(*) FROM sqlite_master")
        )
        if kind != APPLICATION and (kind or tables):
            raise ConnectorError(f"outbox {self.path}: it is a database of another program; choose another path")
        connection.execute(f"PRAGMA page_size = {PAGE}")
        connection.execute(f"PRAGMA wal_autocheckpoint = {LOG_PAGES}")
        if connection.execute("PRAGMA journal_mode = WAL").fetchone()[0] != "wal":
            raise ConnectorError(
                f"outbox {self.path}: its file system cannot share memory between processes, as SQLite's log needs; "
                "put it on a local disk"
            )
        self._set_sync(safe=True)
        if not tables:
            with self._transaction() as execute:
                for statement in _TABLES.split(";")[:-1]:
                    execute(statement)
                execute(f"PRAGMA application_id = {APPLICATION}")
                execute(f"PRAGMA user_version = {VERSION}")
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if version != VERSION:
            raise ConnectorError(
                f"outbox {self.path}: version {version} of another release of this package wrote it, this one reads "
                f"{VERSION}; have that release send its messages, or move it away"
            )
        self._count()
        self._take_over()

    def _count(self) -> None:
        execute = self._open().execute
        waiting = execute("SELECT count(*), total(count), total(bytes), max(first + count) FROM blocks").fetchone()
        refused = execute("SELECT count(*), total(bytes), max(number) + 1 FROM refused").fetchone()
        self.held = Held(int(waiting[1]), int(waiting[2]), int(refused[0]), int(refused[1]))
        self._next = max(waiting[3] or 0, refused[2] or 0)
        self._look_at_oldest()

    def _look_at_oldest(self) -> None:
        row = None
        if self.held.messages:
            with self._explained():
                row = self._open().execute("SELECT stored FROM blocks ORDER BY first LIMIT 1").fetchone()
        self.oldest = None if row is None else float(row[0])

    def _take_over(self) -> None:
        owner = (self._owner.name, self._owner.destination)
        row = self._open().execute("SELECT name, destination FROM owner").fetchone()
        if row == owner:
            return
        if row is not None and (self.held.messages or self.held.refused):
            raise ConnectorError(
                f"outbox {self.path}: it holds {self.held.messages} messages and {self.held.refused} refused ones of "
                f"{row[0]} to {row[1]}, and this is {owner[0]} to {owner[1]}; give each sink a path of its own, or let "
                "that one send them first, or move the file away"
            )
        with self._transaction() as execute:
            execute("DELETE FROM owner")
            execute("INSERT INTO owner VALUES (?, ?)", owner)

    def _oldest(self, execute: Any, blocks: int) -> tuple[int, int]:
        if not blocks:
            return 0, 0
        row = execute(_OLDEST, (blocks,)).fetchone()
        return int(row[0]), int(row[1])

    def _read(self, query: str, number: int) -> Messages | None:
        with self._explained():
            row = self._open().execute(query.format(_NAMES), (number,)).fetchone()
        if row is None:
            return None
        try:
            return messages_of(row[0], row[1:])
        except ValueError as error:
            raise self._damaged(f"the block of message {row[0]}: {error}") from error

    @contextmanager
    def _transaction(self, *, safe: bool = True) -> Iterator[Any]:
        """A database transaction; `safe`: synced to the disk at the end."""
        connection = self._open()
        with self._explained():
            if not safe:
                self._set_sync(safe=False)
            try:
                connection.execute("BEGIN IMMEDIATE")
                yield connection.execute
                connection.execute("COMMIT")
            finally:
                if connection.in_transaction:
                    # The error may have rolled it back already.
                    with suppress(sqlite3.Error):
                        connection.execute("ROLLBACK")
                if not safe:
                    self._set_sync(safe=True)

    def _set_sync(self, *, safe: bool) -> None:
        self._open().execute(f"PRAGMA synchronous = {self._sync if safe else 'normal'}")

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            raise ConnectorError(f"outbox {self.path} is not open")
        return self._connection

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise self._of(error) from error

    def _of(self, error: sqlite3.Error) -> ConnectorError:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code == sqlite3.SQLITE_FULL:
            return OutboxFull(self.path)
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return ConnectorError(
                f"outbox {self.path}: another program has locked it for {BUSY:g} s; let it finish", retriable=True
            )
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            return self._damaged(str(error))
        return ConnectorError(
            f"outbox {self.path}: it cannot be read or written: {error}; see to the disk and its rights"
        )

    def _damaged(self, why: str) -> ConnectorError:
        return ConnectorError(
            f"outbox {self.path}: it is damaged, or not an outbox: {why}; move it away to go on with an empty one "
            "(SQLite's `.recover` reads the rest of its data)"
        )


def _beginning(path: Path) -> bytes:
    if not path.exists():
        return b""
    with path.open("rb") as file:
        return file.read(len(MAGIC))
