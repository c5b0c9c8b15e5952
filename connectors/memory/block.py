"""Makes blocks of records from messages, for sources in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from connectors.coded import Coded
from connectors.message import Message
from connectors.records import Lane, Records, Span
from pipelines.data.columns import MISSING, Column


def block(source: str, topic: str, gathered: Mapping[Lane, Sequence[tuple[int, Message]]], size: int) -> Records:
    """The messages of each lane with their positions, `size` bytes together. `topic`: that of messages that name
    none."""
    spans: list[Span] = []
    rows: list[tuple[int, Message]] = []
    for lane, added in gathered.items():
        spans.append(Span(lane, len(rows), len(rows) + len(added)))
        rows.extend(added)
    messages = [message for _, message in rows]
    return Records(
        source,
        [message.value for message in messages],
        [message.key for message in messages] if any(message.key is not None for message in messages) else None,
        np.array([position for position, _ in rows], np.int64),
        spans,
        _topics(messages, spans, topic),
        [int(span.lane.partition) for span in spans],
        size,
        headers=lambda: [message.headers or None for message in messages],
        timestamps=lambda: np.array(
            [-1 if message.timestamp is None else message.timestamp for message in messages], np.int64
        ),
        extras=_extras(messages),
    )


def _topics(messages: list[Message], spans: list[Span], default: str) -> Sequence[str]:
    if any(message.topic not in (None, default) for message in messages):
        return Coded.of([message.topic or default for message in messages])
    return [default] * len(spans)


def _extras(messages: list[Message]) -> dict[str, Callable[[], Column]]:
    def read(name: str) -> Callable[[], Column]:
        return lambda: Column.of([dict(message.extras).get(name, MISSING) for message in messages])

    return {name: read(name) for name in dict.fromkeys(name for message in messages for name, _ in message.extras)}
