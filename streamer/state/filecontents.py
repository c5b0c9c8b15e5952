"""`FileContents`: what is in a state file, for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

from connectors.databasefile import DatabaseFile, looked_into
from streamer.state.contents import Chosen, KeyState, PartitionState
from streamer.state.filestore import STATE


class FileContents:
    """A state file. Implements `SavedState`. Raises `ConnectorError` for another file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def place(self) -> str:
        """See `SavedState.place`."""
        return str(self._path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *reason: object) -> None: ...

    def about(self) -> Mapping[str, Any]:
        """See `SavedState.about`."""
        with looked_into(self._path, STATE) as connection:
            service, host, checkpoint = connection.execute("SELECT service, host, checkpoint FROM store").fetchone()
        return {"service": service, "host": host, "checkpoint": checkpoint}

    def steps(self) -> Mapping[str, str]:
        """See `SavedState.steps`: they are those of the file."""
        with looked_into(self._path, STATE) as connection:
            return dict(connection.execute("SELECT identity, type FROM steps ORDER BY identity").fetchall())

    def partitions(self) -> Iterator[PartitionState]:
        """See `SavedState.partitions`."""
        with looked_into(self._path, STATE) as connection:
            scopes = connection.execute(
                "SELECT number, source, partition, position FROM scopes ORDER BY source, partition"
            ).fetchall()
            for number, source, partition, position in scopes:
                rows = connection.execute(
                    "SELECT identity, key, sum(length(value)) FROM items JOIN steps ON steps.number = step "
                    "WHERE scope = ? GROUP BY step, key ORDER BY identity, key",
                    (number,),
                )
                keys = [KeyState(step, source, partition, key, size) for step, key, size in rows]
                yield PartitionState(source, partition, position, {}, keys)

    def forget(self, step: str | None, key: str | None) -> int:
        """See `SavedState.forget`. Without step and key all positions go, too."""
        chosen = Chosen(self, step, key)
        gone = [state for partition in self.partitions() for state in chosen.of(partition)]
        chosen.check()
        file = DatabaseFile(self._path, STATE)
        file.open()
        try:
            with file.transaction() as connection:
                if step is None and key is None:
                    connection.execute("DELETE FROM items")
                    connection.execute("DELETE FROM scopes")
                    connection.execute("DELETE FROM steps")
                    connection.execute("UPDATE store SET begins_anew = 1")
                else:
                    connection.executemany(
                        "DELETE FROM items WHERE step = (SELECT number FROM steps WHERE identity = ?) AND key = ?",
                        sorted({(state.step, state.key) for state in gone}),
                    )
                    connection.execute("DELETE FROM steps WHERE number NOT IN (SELECT step FROM items)")
        finally:
            file.close()
        return len(gone)
