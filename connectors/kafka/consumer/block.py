"""Makes blocks of records from the client's messages, with as little Python for each message as possible."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate, pairwise
from operator import itemgetter, lt

import numpy as np
from confluent_kafka import Message

from connectors.kafka.consumer.lanes import Place
from connectors.records import Header, Ints, Lane, Records, Span, no_headers

# Unbound, to be mapped: a method call in a comprehension costs three times as much.
_value: Callable[[Message], bytes | None] = Message.value
_key: Callable[[Message], bytes | None] = Message.key
_offset: Callable[[Message], int] = Message.offset  # type: ignore[assignment]
_partition: Callable[[Message], int] = Message.partition  # type: ignore[assignment]
_topic: Callable[[Message], str] = Message.topic  # type: ignore[assignment]
_header_list: Callable[[Message], Sequence[Header] | None] = Message.headers  # type: ignore[assignment]


def by_place(messages: Sequence[Message], only_topic: str | None) -> dict[Place, Sequence[Message]]:
    """The messages of each partition in their order. `only_topic`: all are of this one, so it need not be read."""
    partitions = list(map(_partition, messages))
    count = len(messages)
    topics = list(map(_topic, messages)) if only_topic is None else [only_topic] * count
    one_topic = only_topic is not None or topics.count(topics[0]) == count
    if one_topic and partitions.count(partitions[0]) == count:
        return {(topics[0], partitions[0]): messages}
    places = list(zip(topics, partitions, strict=True))
    # Messages that were fetched together come together: there are few runs, so slices rather than rows.
    edges = [0, *(at for at in range(1, count) if places[at] != places[at - 1]), count]
    groups: dict[Place, Sequence[Message]] = {}
    for start, stop in pairwise(edges):
        place = places[start]
        run = messages[start:stop]
        groups[place] = run if place not in groups else [*groups[place], *run]
    return groups


def rising(group: Sequence[Message]) -> int:
    """How many of a partition's messages, counted from the first, have rising offsets: nearly always all."""
    offsets = list(map(_offset, group))
    # First and last offset are not enough, as there may be gaps between them.
    if all(map(lt, offsets, offsets[1:])):
        return len(offsets)
    return next(at for at in range(1, len(offsets)) if offsets[at] <= offsets[at - 1])


def block(
    source: str, groups: Mapping[Place, Sequence[Message]], lanes: Mapping[Place, Lane], *, headers: bool = True
) -> Records:
    """Columns of these messages, one span for each partition; with or without their headers. All places have a lane."""
    spans: list[Span] = []
    messages: Sequence[Message] = []
    for place, group in groups.items():
        spans.append(Span(lanes[place], len(messages), len(messages) + len(group)))
        messages = group if not messages else [*messages, *group]
    values = list(map(_value, messages))
    keys: Sequence[bytes | None] | None = list(map(_key, messages))
    # any() looks at the first key only, where there is one; an empty key is a key.
    if keys is not None and not any(keys) and keys.count(None) == len(keys):
        keys = None
    return Records(
        source,
        values,
        keys,
        np.array(list(map(_offset, messages)), np.int64),
        spans,
        [topic for topic, _ in groups],
        [partition for _, partition in groups],
        _size(values) + (0 if keys is None else _size(keys)),
        headers=(lambda: _headers(messages)) if headers else no_headers,
        timestamps=lambda: _timestamps(messages),
    )


def offset_of(message: Message) -> int:
    """The record's position."""
    return _offset(message)


def fitting(messages: Sequence[Message], max_bytes: int) -> int:
    """How many of the messages, counted from the first, have `max_bytes` together or exceed it by one of them."""
    sizes = accumulate(len(value or b"") + len(key or b"") for value, key in _pairs(messages))
    for count, size in enumerate(sizes, 1):
        if size >= max_bytes:
            return count
    return len(messages)


def _pairs(messages: Sequence[Message]) -> list[tuple[bytes | None, bytes | None]]:
    return list(zip(map(_value, messages), map(_key, messages), strict=True))


def _size(column: Sequence[bytes | None]) -> int:
    try:
        return sum(map(len, column))  # type: ignore[arg-type]
    except TypeError:
        return sum(len(value) for value in column if value is not None)


def _headers(messages: Sequence[Message]) -> Sequence[Sequence[Header] | None] | None:
    rows: list[Sequence[Header] | None] = []
    # By `map`, which checks each result, and once for each message: for a name that is not UTF-8 the client raises and
    # keeps a list with a null pointer, which crashes the next reader. Such a record gets no headers.
    each = map(_header_list, messages)
    while len(rows) < len(messages):
        try:
            rows.extend(each)
        except SystemError:
            rows.append(None)
    return rows if any(rows) else None


def _timestamps(messages: Sequence[Message]) -> Ints:
    # A message without a timestamp has (0, -1).
    return np.array(list(map(itemgetter(1), map(Message.timestamp, messages))), np.int64)
