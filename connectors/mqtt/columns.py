"""The columns of a block of MQTT messages, besides their payloads: read when asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from connectors.coded import Coded
from connectors.mqtt.pending import Part
from connectors.mqtt.protocol.properties import NONE, Properties, decode_properties
from connectors.mqtt.protocol.reasons import ProtocolError
from connectors.mqtt.protocol.topics import TopicPatterns
from connectors.records import Header, Lane, Records, Span
from pipelines.data.columns import MISSING, Column
from pipelines.data.spans import Spans
from pipelines.errors import RowsFailed

_DUPLICATE = 8
_RETAINED = 1
_OF_PROPERTIES = {
    "content_type": "content_type",
    "response_topic": "response_topic",
    "correlation": "correlation_data",
}
NO_TOPIC = ""
"""The topic of a message whose topic breaks the rules."""


class Columns:
    """Makes blocks of records of one source. `key` is the named level that becomes the key."""

    def __init__(self, source: str, patterns: TopicPatterns, key: str | None) -> None:
        self._source = source
        self._patterns = patterns
        self._key = key

    def records(self, part: Part, lane: Lane) -> Records:
        """The records of these messages."""
        block, picked = part.block, part.picked
        topics = self._topics(part)
        lengths = block.payload_lengths[picked]
        count = len(lengths)
        byte_count = int(lengths.sum())
        keys = None
        if self._key is not None:
            keys = Spans.of([(value or "").encode() for value in self._levels(self._key, topics)])
            byte_count += keys.byte_count
        read = _Properties(part)
        return Records(
            self._source,
            Spans(block.buffer, block.payload_starts[picked], lengths),
            keys,
            part.positions[picked],
            [Span(lane, 0, count)],
            topics,
            [0],
            byte_count,
            headers=read.headers,
            timestamps=lambda: np.full(count, part.received_at, np.int64),
            extras=self._extras(part, topics, read),
        )

    def _topics(self, part: Part) -> Coded:
        codes, names = part.block.topic_codes[part.picked], part.block.topics.names
        if len(part.block.faults) and (codes < 0).any():
            return Coded.of([NO_TOPIC if code < 0 else names[code] for code in codes.tolist()])
        return Coded(names, codes)

    def _levels(self, name: str, topics: Coded) -> list[str | None]:
        known = {code: self._patterns.levels(topic).get(name) for code, topic in topics.distinct().items()}
        return [known[code] for code in topics.codes.tolist()]

    def _extras(self, part: Part, topics: Coded, read: _Properties) -> Mapping[str, Callable[[], Column]]:
        extras: dict[str, Callable[[], Column]] = {
            "qos": lambda: Column.of((part.block.flags[part.picked] >> 1 & 3).tolist()),
            "retained": lambda: Column.of((part.block.flags[part.picked] & _RETAINED > 0).tolist()),
            "duplicate": lambda: Column.of((part.block.flags[part.picked] & _DUPLICATE > 0).tolist()),
        }
        for name in self._patterns.names:
            extras[f"levels.{name}"] = self._level_column(name, topics)
        for name, of_standard in _OF_PROPERTIES.items():
            extras[name] = read.column(of_standard)
        return extras

    def _level_column(self, name: str, topics: Coded) -> Callable[[], Column]:
        return lambda: Column.of([MISSING if one is None else one for one in self._levels(name, topics)])


class _Properties:
    """The properties of some messages, decoded once, when somebody asks."""

    def __init__(self, part: Part) -> None:
        self._part = part
        self._decoded: list[Properties | ProtocolError] | None = None

    def headers(self) -> Sequence[Sequence[Header] | None] | None:
        """User properties, in order; `None` where there are none. Those of a message that breaks the rules are none."""
        if not self._part.block.property_lengths[self._part.picked].any():
            return None
        found = [
            [(name, value.encode()) for name, value in one.user_properties] if isinstance(one, Properties) else []
            for one in self._all()
        ]
        return [one or None for one in found] if any(found) else None

    def column(self, name: str) -> Callable[[], Column]:
        """The property of this name; fails the rows whose properties break the rules."""

        def read() -> Column:
            if not self._part.block.property_lengths[self._part.picked].any():
                return Column.absent(len(self._part))
            values: list[Any] = []
            failures: dict[int, Exception] = {}
            for row, one in enumerate(self._all()):
                if isinstance(one, ProtocolError):
                    failures[row] = one
                    values.append(MISSING)
                else:
                    value = getattr(one, name)
                    values.append(MISSING if value is None else value)
            if failures:
                raise RowsFailed(failures)
            return Column.of(values)

        return read

    def _all(self) -> list[Properties | ProtocolError]:
        if self._decoded is None:
            block, picked = self._part.block, self._part.picked
            raws = Spans(block.buffer, block.property_starts[picked], block.property_lengths[picked]).tolist()
            known: dict[bytes, Properties | ProtocolError] = {b"": NONE}
            self._decoded = [_decoded(raw or b"", known) for raw in raws]
        return self._decoded


def _decoded(raw: bytes, known: dict[bytes, Properties | ProtocolError]) -> Properties | ProtocolError:
    found = known.get(raw)
    if found is None:
        try:
            found = decode_properties(raw)
        except ProtocolError as error:
            found = error
        known[raw] = found
    return found
