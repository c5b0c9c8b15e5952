"""The sinks of a service that have an outbox, and the messages in its file."""

from __future__ import annotations

import time
from pathlib import Path

from connectors.config import SinkConfig
from connectors.databasefile import looked_into
from connectors.outbox.store import OUTBOX
from connectors.sink import Sink


def with_outbox(config: SinkConfig, sink: Sink, service: str) -> Sink:
    """The sink, behind the outbox of its configuration if that has one. Neither is opened yet."""
    if config.outbox is None:
        return sink
    from connectors.outbox.sink import OutboxSink

    destination = f"{config.type} {config.place}".rstrip()
    return OutboxSink(sink, config.outbox, service=f'service "{service}"', destination=destination)


def contents(path: Path) -> str:
    """The messages that wait in an outbox, and those that its sink refused, in words. Changes nothing; a service may
    use the file.

    Raises `ConnectorError` for a file that is no outbox.
    """
    if not path.exists():
        return "nothing is in it yet"
    with looked_into(path, OUTBOX) as connection:
        execute = connection.execute
        messages, size, since = execute("SELECT total(count), total(bytes), min(stored) FROM blocks").fetchone()
        refused, last = execute("SELECT count(*), max(number) FROM refused").fetchone()
        reason = execute("SELECT reason FROM refused WHERE number = ?", (last,)).fetchone()
    waiting = "nothing waits"
    if messages:
        age = max(0.0, time.time() - since)
        waiting = f"{int(messages)} messages ({int(size)} bytes) wait to be sent, the oldest for {age:.0f} s"
    return waiting if reason is None else f"{waiting}; {refused} were refused, the last one: {reason[0]}"
