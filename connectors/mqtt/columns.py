"""The columns of a block of MQTT messages, besides their payloads: each is read on first use."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from connectors.coded import Coded
from connectors.mqtt.pending import Part, Taken
from connectors.mqtt.protocol.properties import NONE, Properties, decode_properties
from connectors.mqtt.protocol.reasons import ProtocolError
from connectors.mqtt.protocol.topics import TopicPatterns
from connectors.records import Header, Lane, Records, Span
from pipelines.data.columns import MISSING, Column
from pipelines.data.spans import Spans
from pipelines.errors import WireError

Flags = npt.NDArray[np.uint8]
_LEVELS: Final = "levels."
_OF_FLAGS: Final[Mapping[str, Callable[[Flags], npt.NDArray[Any]]]] = {
    "qos": lambda flags: flags >> 1 & 3,
    "retained": lambda flags: flags & 1 > 0,
    "duplicate": lambda flags: flags & 8 > 0,
}
_OF_PROPERTIES: Final = {
    "content_type": "content_type",
    "response_topic": "response_topic",
    "correlation": "correlation_data",
}
COLUMNS: Final = (*_OF_FLAGS, *_OF_PROPERTIES)
"""The metadata of an MQTT message besides its topic, its levels and its user properties, which are headers."""
NO_TOPIC: Final = ""
"""The topic of a message whose topic breaks the rules."""


class Columns:
    """Makes blocks of records of one source.

    `key` is the named level that becomes the key; with `empty_is_none` a message with an empty payload, with which a
    retained message is removed, has no payload.
    """

    def __init__(self, source: str, patterns: TopicPatterns, key: str | None, *, empty_is_none: bool = False) -> None:
        self._source = source
        self._patterns = patterns
        self._key = key
        self._empty_is_none = empty_is_none

    def records(self, arrivals: Taken, lane: Lane) -> Records:
        """The records of these messages; those whose topic or properties break the rules of MQTT are its `faults`."""
        topics = _topics(arrivals.parts)
        count, byte_count = len(topics), arrivals.byte_count
        keys = None
        if self._key is not None:
            keys = Spans.of([(value or "").encode() for value in _levels(self._patterns, self._key, topics)])
            byte_count += keys.byte_count
        extras = _Extras(arrivals, topics, self._patterns)
        return Records(
            self._source,
            _without_empty(arrivals.payloads) if self._empty_is_none else arrivals.payloads,
            keys,
            arrivals.positions,
            [Span(lane, 0, count)],
            topics,
            [0],
            byte_count,
            headers=extras.headers,
            timestamps=lambda: arrivals.received_at,
            extras=extras,
            faults=_faults(arrivals.parts),
        )


def _without_empty(payloads: Spans) -> Spans:
    return Spans(payloads.buffer, payloads.starts, np.where(payloads.lengths == 0, -1, payloads.lengths))


def _topics(parts: Sequence[Part]) -> Coded:
    columns: list[Coded] = []
    for part in parts:
        codes, names = part.block.topic_codes[part.picked], part.block.topics.names
        if part.block.faults and (codes < 0).any():
            columns.append(Coded.of([NO_TOPIC if code < 0 else names[code] for code in codes.tolist()]))
        else:
            columns.append(Coded(names, codes))
    return columns[0] if len(columns) == 1 else Coded.concat(columns)


def _faults(parts: Sequence[Part]) -> dict[int, Exception]:
    faults: dict[int, Exception] = {}
    start = 0
    for part in parts:
        if part.block.faults:
            rows = np.arange(len(part.block))[part.picked].tolist()
            wrong = {fault.row: fault.error for fault in part.block.faults}
            for at, row in enumerate(rows, start):
                if row in wrong:
                    faults[at] = WireError(f"the message breaks the rules: {wrong[row]}")
        start += len(part)
    return faults


def _levels(patterns: TopicPatterns, name: str, topics: Coded) -> list[str | None]:
    known = {code: patterns.levels(topic).get(name) for code, topic in topics.distinct().items()}
    return [known[code] for code in topics.codes.tolist()]


class _Extras(Mapping[str, Callable[[], Column]]):
    """The columns of some messages by name, each made on first use; properties are decoded once."""

    def __init__(self, arrivals: Taken, topics: Coded, patterns: TopicPatterns) -> None:
        self._arrivals = arrivals
        self._topics = topics
        self._patterns = patterns
        self._decoded: list[Properties | ProtocolError] | None = None

    def __len__(self) -> int:
        return len(COLUMNS) + len(self._patterns.names)

    def __iter__(self) -> Iterator[str]:
        yield from (f"{_LEVELS}{name}" for name in self._patterns.names)
        yield from COLUMNS

    def __getitem__(self, name: str) -> Callable[[], Column]:
        if name.startswith(_LEVELS) and name.removeprefix(_LEVELS) in self._patterns.names:
            return lambda: self._level(name.removeprefix(_LEVELS))
        if name not in COLUMNS:
            raise KeyError(name)
        if name in _OF_PROPERTIES:
            return lambda: self._property(_OF_PROPERTIES[name])
        return lambda: Column.of(_OF_FLAGS[name](self._arrivals.column("flags")).tolist())

    def headers(self) -> Sequence[Sequence[Header] | None] | None:
        """User properties, in order; `None` for a message without any, and for one that breaks the rules."""
        if not self._has_properties():
            return None
        headers = [
            [(name, value.encode()) for name, value in properties.user_properties]
            if isinstance(properties, Properties)
            else []
            for properties in self._all()
        ]
        return [row or None for row in headers] if any(headers) else None

    def _level(self, name: str) -> Column:
        values = _levels(self._patterns, name, self._topics)
        return Column.of([MISSING if value is None else value for value in values])

    def _property(self, name: str) -> Column:
        """Rows whose properties break the rules lack it: they are `faults`."""
        if not self._has_properties():
            return Column.absent(len(self._topics))
        values = [
            None if isinstance(properties, ProtocolError) else getattr(properties, name) for properties in self._all()
        ]
        return Column.of([MISSING if value is None else value for value in values])

    def _has_properties(self) -> bool:
        return bool(self._arrivals.column("property_lengths").any())

    def _all(self) -> list[Properties | ProtocolError]:
        if self._decoded is None:
            raws = [raw for part in self._arrivals.parts for raw in part.strings("property")]
            known: dict[bytes, Properties | ProtocolError] = {b"": NONE}
            self._decoded = [_decoded(raw or b"", known) for raw in raws]
        return self._decoded


def _decoded(raw: bytes, known: dict[bytes, Properties | ProtocolError]) -> Properties | ProtocolError:
    decoded = known.get(raw)
    if decoded is None:
        try:
            decoded = decode_properties(raw)
        except ProtocolError as error:
            decoded = error
        known[raw] = decoded
    return decoded
