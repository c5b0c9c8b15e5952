"""`DatabaseFile`: an SQLite database that one process at a time writes: its lock, settings, and errors in words.

SQLite's log (`-wal` beside the file) brings back whole transactions only: a crash of the process loses none that was
committed; whether a power cut loses the last ones is for `sync` to say, and it leaves the file whole in any case.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from connectors.file.lock import lock
from pipelines.errors import ConnectorError

MAGIC: Final = b"SQLite format 3\x00"
"""The first bytes of every SQLite database."""
BUSY: Final = 5.0
"""Seconds to wait for another program that reads the file."""
LOG_BYTES: Final = 2**24
"""Bytes of the log after which it is written into the file."""

Sync = Literal["full", "normal"]


class DiskFull(ConnectorError):
    """There is no room on the disk. Retriable: nothing was written."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what}: there is no room on the disk; make some", retriable=True)


@dataclass(frozen=True, slots=True)
class FileKind:
    """What a database is for: its tables, and how errors speak of it."""

    name: str
    """What it is called in errors: `outbox`."""
    application: int
    """SQLite's `application_id`, by which it is told from databases of other programs."""
    version: int
    """SQLite's `user_version`: the form of the tables."""
    tables: str
    """The statements that make the tables, each ended by a semicolon."""
    page: int
    """Bytes of a page of the file, a power of two."""
    writer: str
    """What writes it, for the error of a file that is in use: `sink`."""
    other_release: str
    """What to do with a file that another release of this package wrote."""

    @property
    def a_name(self) -> str:
        """The name with its article."""
        return f"{'an' if self.name[0] in 'aeiou' else 'a'} {self.name}"


class DatabaseFile:
    """The file. Any thread may call, one at a time. Its errors are `ConnectorError`s that say what to do."""

    def __init__(self, path: Path, kind: FileKind, *, sync: Sync = "full") -> None:
        """The file at `path`, not opened yet.

        `sync`: when a transaction counts as committed: when it is on the disk (`full`), or when the operating system
        has it (`normal`).
        """
        self.path = path
        self._kind = kind
        self._sync = sync
        self._lock_file: Any = None
        self._connection: sqlite3.Connection | None = None

    def __str__(self) -> str:
        return f"{self._kind.name} {self.path}"

    def open(self) -> None:
        """Create the file, or open an existing one.

        `ConnectorError` if it is in use, damaged, of another kind or release, or cannot be written.
        """
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            # A separate file for the lock: closing the database file a second time would release SQLite's own locks.
            self._lock_file = self.path.with_name(f"{self.path.name}-lock").open("wb")
        except OSError as error:
            raise ConnectorError(f"{self}: it cannot be made: {error.strerror}; see to its folder") from error
        try:
            lock(self._lock_file.fileno(), self.path, self._kind.writer)
            self._check_beginning()
            with self.explained():
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

    @property
    def connection(self) -> sqlite3.Connection:
        """The open database. `ConnectorError` if it is not open."""
        if self._connection is None:
            raise ConnectorError(f"{self} is not open")
        return self._connection

    @contextmanager
    def transaction(self, *, safe: bool = True) -> Iterator[sqlite3.Connection]:
        """A database transaction, of which all or nothing is written; `safe`: as `sync` says, else as `normal`."""
        connection = self.connection
        with self.explained():
            if not safe:
                self._set_sync("normal")
            try:
                connection.execute("BEGIN IMMEDIATE")
                yield connection
                connection.execute("COMMIT")
            finally:
                if connection.in_transaction:
                    # The error may have rolled it back already.
                    with suppress(sqlite3.Error):
                        connection.execute("ROLLBACK")
                if not safe:
                    self._set_sync(self._sync)

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Turns SQLite's errors into `ConnectorError`s; `DiskFull` without room on the disk."""
        try:
            yield
        except sqlite3.Error as error:
            raise self._of(error) from error

    def damaged(self, why: str) -> ConnectorError:
        """The error of a file whose content cannot be."""
        return ConnectorError(
            f"{self}: it is damaged, or not {self._kind.a_name}: {why}; move it away to go on with an empty one "
            "(SQLite's `.recover` reads the rest of its data)"
        )

    def _check_beginning(self) -> None:
        """Raise `ConnectorError` for another kind of file: SQLite would overwrite a file of a few bytes."""
        try:
            begins = _beginning(self.path)
        except OSError as error:
            raise ConnectorError(f"{self}: it cannot be read: {error.strerror}; see to its rights") from error
        if begins and begins != MAGIC:
            raise self.damaged("it does not begin as one")

    def _begin(self) -> None:
        connection, kind = self.connection, self._kind
        tables = _check_kind(connection, self, kind)
        connection.execute(f"PRAGMA page_size = {kind.page}")
        connection.execute(f"PRAGMA wal_autocheckpoint = {LOG_BYTES // kind.page}")
        if connection.execute("PRAGMA journal_mode = WAL").fetchone()[0] != "wal":
            raise ConnectorError(
                f"{self}: its file system cannot share memory between processes, as SQLite's log needs; put it on a "
                "local disk"
            )
        self._set_sync(self._sync)
        if not tables:
            with self.transaction():
                for statement in kind.tables.split(";")[:-1]:
                    connection.execute(statement)
                connection.execute(f"PRAGMA application_id = {kind.application}")
                connection.execute(f"PRAGMA user_version = {kind.version}")
        _check_version(connection, self, kind)

    def _set_sync(self, sync: Sync) -> None:
        self.connection.execute(f"PRAGMA synchronous = {sync}")

    def _of(self, error: sqlite3.Error) -> ConnectorError:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code == sqlite3.SQLITE_FULL:
            return DiskFull(str(self))
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return ConnectorError(
                f"{self}: another program has locked it for {BUSY:g} s; let it finish", retriable=True
            )
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            return self.damaged(str(error))
        return ConnectorError(f"{self}: it cannot be read or written: {error}; see to the disk and its rights")


@contextmanager
def looked_into(path: Path, kind: FileKind) -> Iterator[sqlite3.Connection]:
    """The file, read-only; also while a service uses it. `ConnectorError` for a missing, foreign or damaged file."""
    if not path.is_file():
        raise ConnectorError(f"{kind.name} {path}: there is no such file")
    what = f"{kind.name} {path}"
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            if not _check_kind(connection, what, kind):
                raise ConnectorError(f"{what}: it is empty, and not {kind.a_name}; choose another path")
            _check_version(connection, what, kind)
            yield connection
    except sqlite3.Error as error:
        raise ConnectorError(f"{what}: it is not {kind.a_name}, or damaged: {error}; choose another path") from error


def _check_kind(connection: sqlite3.Connection, what: object, kind: FileKind) -> int:
    """The number of its tables. `ConnectorError` for a database of another program."""
    application, tables = (
        int(connection.execute(query).fetchone()[0])
        for query in ("PRAGMA application_id", "SELECT count(*) FROM sqlite_master")
    )
    if application != kind.application and (application or tables):
        raise ConnectorError(f"{what}: it is a database of another program; choose another path")
    return tables


def _check_version(connection: sqlite3.Connection, what: object, kind: FileKind) -> None:
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version != kind.version:
        raise ConnectorError(
            f"{what}: version {version} of another release of this package wrote it, this one reads {kind.version}; "
            f"{kind.other_release}, or move it away"
        )


def _beginning(path: Path) -> bytes:
    if not path.exists():
        return b""
    with path.open("rb") as file:
        return file.read(len(MAGIC))
