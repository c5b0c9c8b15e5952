"""`Records`, a block of records from a source, and `Messages`, a block of messages for a sink.

A block is columns, not a list of objects, so that compiled code can fill and read it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from connectors.blockcolumns import joined, take_rows
from connectors.coded import Coded
from pipelines.data.columns import MISSING, Column
from pipelines.data.data import RecordContext
from pipelines.data.record import RecordPlace, RecordPlaces, objects
from pipelines.data.rowrange import RowNumbers, RowRange
from pipelines.data.spans import Spans
from pipelines.errors import WireError

Ints = npt.NDArray[np.int64]
Header = tuple[str, bytes | None]


class Lane(NamedTuple):
    """One partition of one source during one assignment; positions are counted in it.

    `epoch` (0 or more) rises whenever the partition is revoked or begun again, so that records of an earlier assignment
    are told apart and never acknowledged.
    """

    source: str
    partition: str
    epoch: int


class Span(NamedTuple):
    """A run of rows `[start, stop)` of a block that belong to one lane; their positions rise."""

    lane: Lane
    start: int
    stop: int


@runtime_checkable
class PayloadObject(Protocol):
    """A payload that is an object, such as a frame of a camera, and can be had as bytes where these are needed."""

    def payload(self) -> bytes:
        """Bytes that stand for it: for a frame a JPEG file. Called seldom, for dead letters; it may take its time."""


def no_headers() -> None:
    """The `headers` of a block whose records carry none."""
    return


@dataclass(slots=True)
class Records:
    """A block of N records, undecoded.

    Attributes:
        source: Name of the source.
        values: N payloads, `None` for a tombstone. Connectors that do not carry bytes put their own objects here, such
            as camera frames (`PayloadObject`); `payloads` gives bytes in any case.
        keys: N keys, each bytes or `None`; `None` where no record has one.
        positions: `int64 (N,)`: Kafka offset, MQTT arrival number, frame number, line number; rises within a span.
        spans: Runs of rows of one lane; they cover all rows in order.
        topics: The topic of each span; where the rows of one lane come from many topics a `Coded`, with the topic of
            each row. `topics_of` and `topic_of` read both.
        partitions: The partition number of each span.
        byte_count: Size of all payloads and keys.
        headers: Gives a list of N, each a list of (name, bytes | None) pairs or `None`, or gives `None` where no record
            has any. A function, as reading them costs: called at most once a block, and only if they are needed.
        timestamps: Gives `int64 (N,)`, milliseconds since 1970, -1 where unknown; called as `headers` is. `None`: all
            are unknown.
        extras: Metadata that only this type of source has, by the names that its configuration declares
            (`record_names`): each a function that gives a `Column` of N rows, called as `headers` is. A row lacks the
            value if its record does.
        faults: Errors, by row, of records that the source itself cannot accept, such as a topic that is not UTF-8: such
            a row fails as if its payload could not be decoded, and no codec sees it.
        keys_are_names: Keys are the names of the files that the records are; errors show them beside the positions.
        received: When the oldest of these records came into this process, in seconds of `time.monotonic`; `None`: when
            they were polled.
    """

    source: str
    values: Sequence[Any]
    keys: Sequence[bytes | None] | None
    positions: Ints
    spans: list[Span]
    topics: Sequence[str]
    partitions: list[int]
    byte_count: int
    headers: Callable[[], Sequence[Sequence[Header] | None] | None] = no_headers
    timestamps: Callable[[], Ints] | None = None
    extras: Mapping[str, Callable[[], Column]] = field(default_factory=dict)
    faults: Mapping[int, Exception] = field(default_factory=dict)
    keys_are_names: bool = False
    received: float | None = None
    _cache: dict[str, Any] = field(default_factory=dict, repr=False)

    def __len__(self) -> int:
        return len(self.values)

    def header_column(self) -> Sequence[Sequence[Header] | None] | None:
        """All rows' headers, read once."""
        if "headers" not in self._cache:
            self._cache["headers"] = self.headers()
        column: Sequence[Sequence[Header] | None] | None = self._cache["headers"]
        return column

    def timestamp_column(self) -> Ints:
        """All rows' timestamps in milliseconds, -1 where unknown, read once."""
        if "timestamps" not in self._cache:
            self._cache["timestamps"] = (
                np.full(len(self), -1, np.int64) if self.timestamps is None else self.timestamps()
            )
        column: Ints = self._cache["timestamps"]
        return column

    def extra_column(self, name: str) -> Column:
        """All rows' values of this name, read once; a column that lacks all rows if there is no such name."""
        column: Column | None = self._cache.get(f"extras.{name}")
        if column is None:
            read = self.extras.get(name)
            column = self._cache[f"extras.{name}"] = Column.absent(len(self)) if read is None else read()
        return column

    def extras_of(self, row: int) -> dict[str, Any]:
        """The `extras` of this row's record by name; names that it lacks are left out."""
        extras: dict[str, Any] = {}
        for name in self.extras:
            value = self.extra_column(name)[row]
            if value is not MISSING:
                extras[name] = value
        return extras

    def payloads(self, rows: Ints, failed: dict[int, Exception]) -> Sequence[bytes | None]:
        """The payloads of these rows as bytes, even if the connector carries objects.

        Args:
            rows: `int64 (n,)`.
            failed: Gets an error for each payload that cannot be had as bytes, by its place in `rows`; that payload is
                `None` in the result.
        """
        values = take_rows(self.values, rows)
        if isinstance(values, Spans) or all(value is None or isinstance(value, bytes) for value in values):
            return values
        written: list[bytes | None] = []
        for place, value in enumerate(values):
            try:
                written.append(_written(value))
            except Exception as error:  # noqa: BLE001 - any error of payload() fails this record alone
                failed[place] = error
                written.append(None)
        return written

    def topic_of(self, row: int) -> str:
        """The topic of this row."""
        return self.topics[row if isinstance(self.topics, Coded) else self.span_of(row)]

    def topics_of(self, rows: Ints | None = None) -> list[str]:
        """The topics of these rows, `int64 (n,)`; of all by default."""
        if isinstance(self.topics, Coded):
            return (self.topics if rows is None else self.topics.take(rows)).texts()
        if len(self.spans) == 1:
            return [self.topics[0]] * (len(self) if rows is None else len(rows))
        numbers = np.arange(len(self)) if rows is None else rows
        spans = np.searchsorted([span.stop for span in self.spans], numbers, side="right")
        return [self.topics[span] for span in spans.tolist()]

    def places(self) -> set[tuple[str, int]]:
        """The partitions that these records are from, by topic and number."""
        topics = self.topics
        if not isinstance(topics, Coded):
            return set(zip(topics, self.partitions, strict=True))
        return {
            (topic, partition)
            for (_, start, stop), partition in zip(self.spans, self.partitions, strict=True)
            for topic in topics[start:stop].distinct().values()
        }

    def lane_of(self, row: int) -> Lane:
        """The lane of this row."""
        return self.spans[self.span_of(row)].lane

    def span_of(self, row: int) -> int:
        """Index of the span that holds this row."""
        return next(k for k, span in enumerate(self.spans) if span.start <= row < span.stop)

    def context(self, row: int) -> RecordContext:
        """Where the record of this row came from."""
        headers = self.header_column()
        stamp = int(self.timestamp_column()[row])
        return RecordContext(
            source=self.source,
            topic=self.topic_of(row),
            partition=self.partitions[self.span_of(row)],
            offset=int(self.positions[row]),
            key=None if self.keys is None else self.keys[row],
            headers=tuple(headers[row] or ()) if headers is not None else (),
            timestamp=None if stamp < 0 else stamp,
            extras=self.extras_of(row) if self.extras else {},
            lane=self.lane_of(row),
        )

    def record_places(self, rows: Ints, *, keys: bool = True) -> RecordPlaces:
        """Where the records of these rows came from, without their keys if these are not asked for."""
        spans = [
            RecordPlace(self.source, "" if isinstance(self.topics, Coded) else self.topics[at], partition, span.lane)
            for at, (span, partition) in enumerate(zip(self.spans, self.partitions, strict=True))
        ]
        if len(spans) == 1:
            numbers = np.zeros(len(rows), np.int64)
        else:
            numbers = np.searchsorted([span.stop for span in self.spans], rows, side="right")
        if isinstance(self.topics, Coded):
            known: dict[tuple[int, str], int] = {}
            pairs = zip(numbers.tolist(), self.topics_of(rows), strict=True)
            numbers = np.array([known.setdefault(pair, len(known)) for pair in pairs], np.int64)
            spans = [replace(spans[number], topic=topic) for number, topic in known]
        bare = None if self.keys is None or not keys else self.keys
        of_rows = [None] * len(rows) if bare is None else [bare[row] for row in rows.tolist()]
        return RecordPlaces(objects(spans), numbers, self.positions[rows], objects(of_rows))

    def of_spans(self, kept: Sequence[int]) -> Records:
        """The rows of these spans, by their places in `spans`, which rise."""
        return self.take(np.concatenate([np.zeros(0, np.int64), *(np.arange(*self.spans[at][1:]) for at in kept)]))

    def part(self, start: int, stop: int) -> Records:
        """The rows `[start, stop)`."""
        return self.take(np.arange(start, stop))

    def take(self, rows: Ints) -> Records:
        """These rows, `int64 (n,)` and rising."""
        edges = np.searchsorted(rows, [span.stop for span in self.spans]).tolist()
        kept = [at for at, (start, stop) in enumerate(itertools.pairwise([0, *edges])) if stop > start]
        spans = [Span(self.spans[at].lane, edges[at - 1] if at else 0, edges[at]) for at in kept]

        def headers() -> Sequence[Sequence[Header] | None] | None:
            column = self.header_column()
            return None if column is None else take_rows(column, rows)

        return Records(
            self.source,
            take_rows(self.values, rows),
            None if self.keys is None else take_rows(self.keys, rows),
            self.positions[rows],
            spans,
            self.topics.take(rows) if isinstance(self.topics, Coded) else [self.topics[at] for at in kept],
            [self.partitions[at] for at in kept],
            # Connectors count sizes in their own ways: a proportion is exact enough for a limit.
            self.byte_count * len(rows) // max(len(self), 1),
            headers=headers,
            timestamps=lambda: self.timestamp_column()[rows],
            extras={name: _extra_reader(self, name, rows) for name in self.extras},
            faults=_taken_faults(self.faults, rows) if self.faults else {},
            keys_are_names=self.keys_are_names,
            received=self.received,
        )

    def with_values(self, values: Sequence[Any]) -> Records:
        """The same records with other payloads, N of them, such as those that envelopes held."""
        return replace(self, values=values)

    def without_payloads(self) -> Records:
        """The same records without payloads, headers and extras, so that they take little memory.

        Places, topics and keys stay.
        """
        return Records(
            self.source,
            [None] * len(self),
            self.keys,
            self.positions,
            self.spans,
            self.topics,
            self.partitions,
            0,
            keys_are_names=self.keys_are_names,
        )

    def without_headers(self, names: Container[str]) -> Records:
        """The same records without the headers of these lower-case names; the headers' names may be of any case."""

        def headers() -> Sequence[Sequence[Header] | None] | None:
            column = self.header_column()
            if column is None:
                return None
            return [[header for header in row or () if header[0].lower() not in names] or None for row in column]

        return self._reading(headers)

    def with_timestamps(self, timestamps: Ints) -> Records:
        """The same records with these timestamps, `int64 (N,)` milliseconds since 1970, -1 where unknown."""
        # Headers and extras are still read at most once.
        extras = {name: partial(self.extra_column, name) for name in self.extras}
        return replace(self, headers=self.header_column, timestamps=lambda: timestamps, extras=extras, _cache={})

    def with_headers(self, headers: Sequence[Sequence[Header] | None]) -> Records:
        """The same records with these headers, N of them."""
        return self._reading(lambda: headers)

    def _reading(self, headers: Callable[[], Sequence[Sequence[Header] | None] | None]) -> Records:
        # Written out: `dataclasses.replace` takes several times as long, and requests come one by one.
        return Records(
            self.source,
            self.values,
            self.keys,
            self.positions,
            self.spans,
            self.topics,
            self.partitions,
            self.byte_count,
            headers=headers,
            timestamps=self.timestamps,
            extras=self.extras,
            faults=self.faults,
            keys_are_names=self.keys_are_names,
            received=self.received,
        )

    @staticmethod
    def concat(blocks: Sequence[Records]) -> Records:
        """The rows of all blocks of one source, one after the other."""
        if len(blocks) == 1:
            return blocks[0]
        return _concat(blocks)

    @staticmethod
    def empty(source: str) -> Records:
        """A block without rows: the result of a poll without records."""
        return Records(source, [], None, np.zeros(0, np.int64), [], [], [], 0)


@dataclass(slots=True)
class Messages:
    """A block of M messages for a sink.

    Attributes:
        rows: `int64 (M,)`: the number of the record that each message answers, by which the sink names the messages
            that it refused or lost.
        values: M payloads, `None` for a tombstone: bytes, or for sinks that encode themselves
            (`ConnectorConfig.carries`) the objects that the codec made.
        keys: M keys; `None` where no message has one.
        headers: M sequences of (name, bytes | None) pairs; `None` where no message has any.
        timestamps: `int64 (M,)`, milliseconds since 1970, -1 for none; `None` where no message sets its own.
        topics: The topic of each message in place of the sink's; `None` where no message sets its own.
        splits: `int64 (M + 1,)`, where messages answer several records: message i answers `rows[splits[i]:splits[i +
            1]]`, as in `pipelines.Batch`.
        row_range: `rows` as a range, if they are known to be consecutive and each message answers one record.
        extras: For dead letters that `streamer replay` sends back: the record's `Records.extras`, by name. A sink of
            the source's type restores from them the properties that it can, in place of those that it would derive from
            the key; other sinks ignore them.
        positions: `int64 (M,)`: the position of the record that each message answers, the first of several, for sinks
            whose clients wait for an answer (`SinkConfig.awaited`); else `None`.
        partitions: `int64 (M,)`: the partition of each message, for sinks of Kafka; `None` where its key chooses.
    """

    rows: Ints
    values: Sequence[Any]
    keys: Sequence[bytes | None] | None = None
    headers: Sequence[Sequence[Header] | None] | None = None
    timestamps: Ints | None = None
    topics: Sequence[str] | None = None
    splits: Ints | None = None
    row_range: RowRange | None = None
    """`rows` as a range, if they are known to be consecutive and each message answers one record."""
    extras: Sequence[Mapping[str, Any] | None] | None = None
    """For dead letters that `streamer replay` sends back: the record's `Records.extras`, by name. A sink of the
    source's type restores from them the properties that it can, in place of those that it would derive from the key;
    other sinks ignore them."""
    positions: Ints | None = None
    """The position of the record that each message answers, the first of several, for sinks whose clients wait for an
    answer (`SinkConfig.awaited`)."""
    partitions: Ints | None = None
    """The partition of each message, for sinks of Kafka in plain Python; `None` where its key chooses."""

    def __len__(self) -> int:
        return len(self.values)

    @property
    def row_numbers(self) -> RowNumbers:
        """`rows`, as a range if they are known to be one."""
        return self.rows if self.row_range is None else self.row_range

    def parents(self, index: int) -> Ints:
        """Row numbers that the message at this index answers."""
        if self.splits is None:
            return self.rows[index : index + 1]
        return self.rows[self.splits[index] : self.splits[index + 1]]

    def take(self, index: Ints) -> Messages:
        """The messages at these positions, in this order."""
        if self.splits is None:
            rows, splits = self.rows[index], None
        else:
            parts = [self.parents(position) for position in index.tolist()]
            rows = np.concatenate(parts) if parts else np.zeros(0, np.int64)
            splits = np.concatenate([[0], np.cumsum([len(part) for part in parts])]).astype(np.int64)

        def pick(column: Any) -> Any:
            return None if column is None else take_rows(column, index)

        return Messages(
            rows,
            pick(self.values),
            pick(self.keys),
            pick(self.headers),
            None if self.timestamps is None else self.timestamps[index],
            pick(self.topics),
            splits,
            extras=None if self.extras is None else [self.extras[at] for at in index.tolist()],
            positions=None if self.positions is None else self.positions[index],
            partitions=None if self.partitions is None else self.partitions[index],
        )


def _written(value: Any) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    if isinstance(value, PayloadObject):
        return value.payload()
    raise WireError(f"a payload of type {type(value).__name__} cannot be written as bytes: it has no method payload()")


def _concat(blocks: Sequence[Records]) -> Records:
    spans: list[Span] = []
    base = 0
    for block in blocks:
        spans.extend(Span(lane, start + base, stop + base) for lane, start, stop in block.spans)
        base += len(block)
    keyed = any(block.keys is not None for block in blocks)
    return Records(
        blocks[0].source,
        joined([block.values for block in blocks]),
        joined([_nothing(block) if block.keys is None else block.keys for block in blocks]) if keyed else None,
        np.concatenate([block.positions for block in blocks]),
        spans,
        _joined_topics(blocks),
        [number for block in blocks for number in block.partitions],
        sum(block.byte_count for block in blocks),
        headers=lambda: _joined_headers(blocks),
        timestamps=lambda: np.concatenate([block.timestamp_column() for block in blocks]),
        extras={name: _joined_extras(blocks, name) for block in blocks for name in block.extras},
        faults=_joined_faults(blocks) if any(block.faults for block in blocks) else {},
        keys_are_names=blocks[0].keys_are_names,
        received=min((block.received for block in blocks if block.received is not None), default=None),
    )


def _joined_topics(blocks: Sequence[Records]) -> Sequence[str]:
    if not any(isinstance(block.topics, Coded) for block in blocks):
        return [topic for block in blocks for topic in block.topics]
    return Coded.concat(
        [Coded.of(block.topics if isinstance(block.topics, Coded) else block.topics_of()) for block in blocks]
    )


def _joined_extras(blocks: Sequence[Records], name: str) -> Callable[[], Column]:
    return lambda: Column.concat([block.extra_column(name) for block in blocks])


def _extra_reader(records: Records, name: str, rows: Ints) -> Callable[[], Column]:
    return lambda: records.extra_column(name).take(rows)


def _taken_faults(faults: Mapping[int, Exception], rows: Ints) -> dict[int, Exception]:
    return {at: faults[row] for at, row in enumerate(rows.tolist()) if row in faults}


def _joined_faults(blocks: Sequence[Records]) -> dict[int, Exception]:
    starts = itertools.accumulate((len(block) for block in blocks), initial=0)
    return {
        start + row: error for block, start in zip(blocks, starts, strict=False) for row, error in block.faults.items()
    }


def _joined_headers(blocks: Sequence[Records]) -> Sequence[Sequence[Header] | None] | None:
    columns = [block.header_column() for block in blocks]
    if all(column is None for column in columns):
        return None
    return joined(
        [column if column is not None else _nothing(block) for block, column in zip(blocks, columns, strict=True)]
    )


def _nothing(block: Records) -> Sequence[Any]:
    return [None] * len(block)
