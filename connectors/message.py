"""`Message`: one message as an object, for memory topics, tests and notebooks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from connectors.records import Header, Lane, Messages, Records, Span


class Message(NamedTuple):
    """A payload with its key, headers and timestamp. On the hot path `Records` and `Messages` hold many as columns."""

    value: Any
    """The payload, `None` for a tombstone."""
    key: bytes | None = None
    headers: tuple[Header, ...] = ()
    timestamp: int | None = None
    """Milliseconds since 1970."""
    partition: int | None = None
    """The partition; `None` in a message to send: the topic chooses."""
    topic: str | None = None
    """Of a record: its topic. Of a message to send: its topic instead of the sink's own."""
    extras: tuple[tuple[str, Any], ...] = ()
    """Pairs of name and value of `Records.extras`."""


def messages_of_records(records: Records) -> list[Message]:
    """The rows of a block of records."""
    headers = _listed(records.header_column(), len(records))
    stamps = records.timestamp_column()
    topics = records.topics_of()
    return [
        Message(
            records.values[row],
            None if records.keys is None else records.keys[row],
            tuple(headers[row] or ()),
            None if stamps[row] < 0 else int(stamps[row]),
            records.partitions[number],
            topics[row],
            tuple(records.extras_of(row).items()) if records.extras else (),
        )
        for number, span in enumerate(records.spans)
        for row in range(span.start, span.stop)
    ]


def records_of(messages: Sequence[Message], source: str) -> Records:
    """A block of records of these messages, all of one partition, for a codec that reads written messages back."""
    count = len(messages)
    return Records(
        source,
        [message.value for message in messages],
        [message.key for message in messages],
        np.arange(count, dtype=np.int64),
        [Span(Lane(source, "0", 0), 0, count)],
        [source],
        [0],
        0,
        headers=lambda: [message.headers for message in messages],
    )


def messages_of_block(block: Messages) -> list[Message]:
    """The messages of a block for a sink."""
    headers = _listed(block.headers, len(block))
    stamps = block.timestamps
    return [
        Message(
            value,
            None if block.keys is None else block.keys[index],
            tuple(headers[index] or ()),
            None if stamps is None or stamps[index] < 0 else int(stamps[index]),
            None,
            None if block.topics is None else block.topics[index],
        )
        for index, value in enumerate(block.values)
    ]


def block_of(messages: Sequence[Message], first: int = 0) -> Messages:
    """A block for `Sink.send` with row numbers from `first` on; a column that no message uses is left out."""
    keyed = any(message.key is not None for message in messages)
    stamped = any(message.timestamp is not None for message in messages)
    return Messages(
        np.arange(first, first + len(messages), dtype=np.int64),
        [message.value for message in messages],
        [message.key for message in messages] if keyed else None,
        [list(message.headers) or None for message in messages] if any(m.headers for m in messages) else None,
        np.array([-1 if m.timestamp is None else m.timestamp for m in messages], np.int64) if stamped else None,
        [message.topic or "" for message in messages] if any(m.topic for m in messages) else None,
    )


def _listed(headers: Sequence[Sequence[Header] | None] | None, count: int) -> Sequence[Sequence[Header] | None]:
    """The headers of each row. Columns are read at once: a row of them alone costs several times as much."""
    return [None] * count if headers is None else list(headers)
