"""Listing, sending again and removing messages in an outbox that its sink refused, while no service uses it."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from connectors.databasefile import looked_into
from connectors.outbox.packing import BLOBS, messages_of
from connectors.outbox.store import OUTBOX, Owner, Store
from connectors.records import Messages
from pipelines.errors import ConnectorError

_QUERY = f"SELECT number, reason, bytes, refused, {', '.join(BLOBS)} FROM refused ORDER BY number"  # noqa: S608 - ours


@dataclass(frozen=True, slots=True)
class Refusal:
    """A message that the sink refused for good."""

    number: int
    reason: str
    bytes: int
    at: float
    """When it was refused, in seconds since 1970."""
    message: Messages
    """The message, as a block of one row."""


def refusals(path: Path) -> list[Refusal]:
    """The messages that were refused, in their order; also while a service uses the file.

    Raises `ConnectorError` for a file that is no outbox, or damaged.
    """
    with looked_into(path, OUTBOX) as connection:
        rows = connection.execute(_QUERY).fetchall()
    try:
        return [
            Refusal(number, reason, size, at, messages_of(number, tuple(blobs)))
            for number, reason, size, at, *blobs in rows
        ]
    except ValueError as error:
        raise ConnectorError(f"outbox {path}: it is damaged: {error}") from error


def resend(path: Path, numbers: Collection[int] | None = None) -> int:
    """Append refused messages to those that wait, so that the next start of the service sends them. Returns their
    number.

    `numbers`: only these. Raises `ConnectorError` for a file that is no outbox, damaged, or in use, and for a number
    that no refused message has.
    """
    with _opened(path) as store:
        chosen = _chosen(store, numbers)
        store.send_refused_again(chosen)
        return len(chosen)


def forget(path: Path, numbers: Collection[int] | None = None) -> int:
    """Remove refused messages from the file. Returns their number. Arguments and errors as of `resend`."""
    with _opened(path) as store:
        chosen = _chosen(store, numbers)
        store.forget_refused(chosen)
        return len(chosen)


@contextmanager
def _opened(path: Path) -> Iterator[Store]:
    """The open file, in the name of the sink that owns it."""
    with looked_into(path, OUTBOX) as connection:
        owner = connection.execute("SELECT name, destination FROM owner").fetchone()
    store = Store(path, Owner(*owner or ("", "")))
    try:
        store.open()
    except ConnectorError as error:
        raise ConnectorError(f"{error}; its messages can be changed only while no service uses it") from error
    try:
        yield store
    finally:
        store.close()


def _chosen(store: Store, numbers: Collection[int] | None) -> list[int]:
    known = store.refused()
    if numbers is None:
        return known
    if unknown := sorted(set(numbers) - set(known)):
        raise ConnectorError(f"outbox {store.path}: no refused message has the number {unknown[0]}")
    return [number for number in known if number in numbers]
