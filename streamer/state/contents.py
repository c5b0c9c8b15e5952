"""What is in a state file, and forgetting parts of it, for people."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from connectors.databasefile import DatabaseFile, looked_into
from pipelines.errors import ConnectorError, nearest
from streamer.state.filestore import STATE


@dataclass(frozen=True, slots=True)
class KeyState:
    """The state of one key of a step."""

    step: str
    """The name by which the step's state is saved."""
    source: str
    partition: str
    key: str
    """The JSON text of the key."""
    bytes: int
    """How large its state is."""


@dataclass(frozen=True, slots=True)
class Contents:
    """What is in a state file."""

    service: str
    host: str
    """The machine where it was used last."""
    checkpoint: int
    """How often something was saved."""
    positions: list[dict[str, Any]]
    """Of each partition the source, its name, and the position after the last record that the state has seen."""
    steps: dict[str, dict[str, Any]]
    """Type, number of keys and bytes, by the name of the step."""


def contents(path: Path) -> Contents:
    """What is in this file, also while a service uses it. Raises `ConnectorError` for another file."""
    with looked_into(path, STATE) as connection:
        execute = connection.execute
        service, host, checkpoint = execute("SELECT service, host, checkpoint FROM store").fetchone()
        scopes = execute("SELECT source, partition, position FROM scopes ORDER BY source, partition").fetchall()
        steps = execute(
            "SELECT identity, type, count(DISTINCT scope || ' ' || key), coalesce(sum(length(value)), 0) FROM steps "
            "LEFT JOIN items ON step = number GROUP BY number ORDER BY identity"
        ).fetchall()
    return Contents(
        service,
        host,
        checkpoint,
        [{"source": source, "partition": partition, "position": position} for source, partition, position in scopes],
        {identity: {"type": kind, "keys": keys, "bytes": size} for identity, kind, keys, size in steps},
    )


def keys(path: Path, step: str | None, key: str | None) -> list[KeyState]:
    """The keys of a step (`None`: of all), or a single one. Raises `ConnectorError` for an unknown step or key."""
    with looked_into(path, STATE) as connection:
        _check_step(connection, path, step)
        rows = connection.execute(
            "SELECT identity, source, partition, key, sum(length(value)) FROM items "
            "JOIN steps ON steps.number = step JOIN scopes ON scopes.number = scope "
            "WHERE (? IS NULL OR identity = ?) GROUP BY step, scope, key ORDER BY identity, source, partition, key",
            (step, step),
        ).fetchall()
    states = [KeyState(*row) for row in rows]
    return states if key is None else _of_key(states, key, path)


def forget(path: Path, step: str | None = None, key: str | None = None) -> int:
    """Delete the state of a step, of a key or of both; without them all state and all positions.

    Returns how many keys had state. Raises `ConnectorError` for an unknown step or key, or while a service uses the
    file.
    """
    gone = keys(path, step, key)
    file = DatabaseFile(path, STATE)
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


def _check_step(connection: Any, path: Path, step: str | None) -> None:
    names = [name for (name,) in connection.execute("SELECT identity FROM steps ORDER BY identity")]
    if step is not None and step not in names:
        others = nearest(step, names) or f"; it has {_named(names)}"
        raise ConnectorError(f'state {path}: there is no step "{step}"{others}')


def _of_key(states: Sequence[KeyState], key: str, path: Path) -> list[KeyState]:
    # A text may be given without its quotation marks.
    same = [state for state in states if state.key in (key, f'"{key}"')]
    if not same:
        known = [state.key.strip('"') for state in states]
        raise ConnectorError(f'state {path}: there is no key "{key}"{nearest(key, known)}')
    return same


def _named(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"
