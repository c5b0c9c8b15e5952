"""`FileStore`: state in a file of this machine, an SQLite database.

Every save is on the disk before it returns, and so before the positions are acknowledged to the source. Were it only
with the operating system, a power cut could leave the file behind positions that a broker has: the records between them
would be missing in the state, and would not come again.
"""

from __future__ import annotations

import json
import secrets
import socket
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from connectors.databasefile import DatabaseFile, FileKind
from connectors.records import Lane
from pipelines.errors import ConnectorError
from pipelines.runners.state.item import Change, Item
from streamer.delivery.confirming import Upstream
from streamer.state.store import NOTHING, Loaded, SavedStep, Scope

STATE: Final = FileKind(
    name="state",
    application=0x53545253,
    version=1,
    # Scopes and steps are numbers among the items, whose keys are long enough. Not WITHOUT ROWID: there, values of more
    # than a quarter of a page leave most of a page of their own empty, and a save takes three times as long.
    tables="""
    CREATE TABLE store (id TEXT NOT NULL, service TEXT NOT NULL, host TEXT NOT NULL, checkpoint INTEGER NOT NULL,
                        begins_anew INTEGER NOT NULL DEFAULT 0);
    CREATE TABLE scopes (number INTEGER PRIMARY KEY, source TEXT NOT NULL, partition TEXT NOT NULL,
                         position INTEGER, acknowledged INTEGER, UNIQUE (source, partition));
    CREATE TABLE steps (number INTEGER PRIMARY KEY, identity TEXT NOT NULL UNIQUE, type TEXT NOT NULL,
                        fields TEXT NOT NULL);
    CREATE TABLE items (scope INTEGER NOT NULL, step INTEGER NOT NULL, key TEXT NOT NULL, part INTEGER NOT NULL,
                        value BLOB NOT NULL, UNIQUE (scope, step, key, part));
    """,
    # Each changed key is somewhere else in the file, so small pages have less written than large ones.
    page=4096,
    writer="service",
    other_release="start that release",
)
"""The kind of file that a store is."""

_PUT = (
    "INSERT INTO items VALUES (?, ?, ?, ?, ?) ON CONFLICT (scope, step, key, part) DO UPDATE SET value = excluded.value"
)
_DROP = "DELETE FROM items WHERE scope = ? AND step = ? AND key = ? AND part = ?"
_LOAD = "SELECT step, key, part, value FROM items WHERE scope = ? ORDER BY step, key, part"


class FileStore:
    """The state of one service in a file. Implements `StateStore`.

    Opening raises `ConnectorError` for a file that is in use, belongs to another service, is damaged, or was written by
    another release.
    """

    commits_positions = False

    def __init__(self, path: Path, service: str) -> None:
        self.path = path
        self.id = ""
        self.host = socket.gethostname()
        self.checkpoint = 0
        self.begins_anew = False
        self._service = service
        self._file = DatabaseFile(path, STATE)
        self._scopes: dict[Scope, int] = {}
        self._steps: dict[str, int] = {}

    @property
    def place(self) -> str:
        """See `StateStore.place`."""
        return str(self.path)

    @property
    def bytes(self) -> int:
        """See `StateStore.bytes`. Without pages of the file that are free."""
        with self._file.explained():
            execute = self._file.connection.execute
            pages, free, size = (
                execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
            )
        return int((pages - free) * size)

    def open(self) -> None:
        """See `StateStore.open`."""
        self._file.open()
        try:
            with self._file.transaction():
                self._take_over()
            self._read_names()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """See `StateStore.close`."""
        self._file.close()

    def attach(self, upstream: Upstream, check: Callable[[Mapping[str, SavedStep]], None]) -> None:
        """See `StateStore.attach`: it needs neither."""

    def ready(self) -> Mapping[Lane, int]:
        """See `StateStore.ready`."""
        return {}

    def steps(self) -> Mapping[str, SavedStep]:
        """See `StateStore.steps`."""
        with self._file.explained():
            rows = self._file.connection.execute("SELECT identity, type, fields FROM steps ORDER BY number").fetchall()
        try:
            return {identity: SavedStep(kind, json.loads(fields)) for identity, kind, fields in rows}
        except ValueError as error:
            raise self._file.damaged(f"the fields of a step: {error}") from error

    def define(self, steps: Mapping[str, SavedStep]) -> None:
        """See `StateStore.define`. Steps that were defined before and have no state are forgotten."""
        with self._file.transaction() as connection:
            connection.execute("DELETE FROM steps WHERE number NOT IN (SELECT step FROM items)")
            connection.executemany(
                "INSERT INTO steps (identity, type, fields) VALUES (?, ?, ?) ON CONFLICT (identity) DO UPDATE SET "
                "type = excluded.type, fields = excluded.fields",
                [(identity, step.type, json.dumps(step.fields)) for identity, step in steps.items()],
            )
        self._read_names()

    def load(self, scope: Scope) -> Loaded:
        """See `StateStore.load`."""
        number = self._scopes.get(scope)
        if number is None:
            return Loaded(None, {})
        names = {step: identity for identity, step in self._steps.items()}
        items: dict[str, list[Item]] = {}
        with self._file.explained():
            execute = self._file.connection.execute
            position, acknowledged = execute(
                "SELECT position, acknowledged FROM scopes WHERE number = ?", (number,)
            ).fetchone()
            of_step, into = None, []
            for step, *item in execute(_LOAD, (number,)):
                if step != of_step:
                    if step not in names:
                        raise self._file.damaged("state of a step that is not in it")
                    of_step, into = step, items.setdefault(names[step], [])
                into.append(Item(*item))
        return Loaded(position, items, acknowledged)

    def save(
        self,
        changes: Iterable[tuple[Scope, str, Change]],
        positions: Mapping[Scope, int],
        acknowledged: Mapping[Scope, int] = NOTHING,
    ) -> int:
        """See `StateStore.save`. A step that was not defined is added, without type and fields."""
        last: dict[tuple[Scope, str, str, int], bytes | None] = {
            (scope, step, change.key, change.part): change.value for scope, step, change in changes
        }
        scopes = dict.fromkeys([*(scope for scope, *_ in last), *positions, *acknowledged])
        steps = dict.fromkeys(step for _, step, _, _ in last)
        number = self.checkpoint + 1
        try:
            with self._file.transaction() as connection:
                self._number(scopes, steps)
                put, drop = [], []
                for (scope, step, key, part), value in last.items():
                    place = (self._scopes[scope], self._steps[step], key, part)
                    if value is None:
                        drop.append(place)
                    else:
                        put.append((*place, value))
                connection.executemany(_DROP, drop)
                connection.executemany(_PUT, put)
                connection.executemany(
                    "UPDATE scopes SET position = ? WHERE number = ?",
                    [(position, self._scopes[scope]) for scope, position in positions.items()],
                )
                connection.executemany(
                    "UPDATE scopes SET acknowledged = ? WHERE number = ?",
                    [(position, self._scopes[scope]) for scope, position in acknowledged.items()],
                )
                connection.execute("UPDATE store SET checkpoint = ?, begins_anew = 0", (number,))
        except BaseException:
            # Numbers that were given in the transaction are not in the file.
            with suppress(ConnectorError):
                self._read_names()
            raise
        self.checkpoint = number
        return number

    def _number(self, scopes: Iterable[Scope], steps: Iterable[str]) -> None:
        """Give new scopes and steps their numbers."""
        execute = self._file.connection.execute
        for scope in scopes:
            if scope not in self._scopes:
                made = execute("INSERT INTO scopes (source, partition) VALUES (?, ?)", scope)
                self._scopes[scope] = int(made.lastrowid or 0)
        for step in steps:
            if step not in self._steps:
                made = execute("INSERT INTO steps (identity, type, fields) VALUES (?, '', '{}')", (step,))
                self._steps[step] = int(made.lastrowid or 0)

    def _read_names(self) -> None:
        with self._file.explained():
            execute = self._file.connection.execute
            self._scopes = {
                Scope(*names): number for number, *names in execute("SELECT number, source, partition FROM scopes")
            }
            self._steps = dict(execute("SELECT identity, number FROM steps").fetchall())

    def _take_over(self) -> None:
        execute = self._file.connection.execute
        rows = execute("SELECT id, service, checkpoint, begins_anew FROM store").fetchall()
        if not rows:
            self.id = secrets.token_hex(8)
            execute(
                "INSERT INTO store (id, service, host, checkpoint) VALUES (?, ?, ?, 0)",
                (self.id, self._service, self.host),
            )
            return
        self.id, service, self.checkpoint, begins_anew = rows[0]
        self.begins_anew = bool(begins_anew)
        if service != self._service:
            raise ConnectorError(
                f'{self._file}: it has the state of service "{service}", and this is "{self._service}"; give each '
                "service a path of its own, or move the file away"
            )
        execute("UPDATE store SET host = ?", (self.host,))
