"""Converts blocks of messages to the blobs of a database row, and back, without an object for each message.

Each column of a block is one blob of lengths (`int64`, little-endian, -1 for null) and one of all strings,
concatenated; a column that no message has is null.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from connectors.headers import Headers
from connectors.records import Ints, Messages
from pipelines.data.spans import Spans

BLOBS = (
    "lengths",
    "payloads",
    "key_lengths",
    "keys",
    "header_counts",
    "name_lengths",
    "names",
    "header_lengths",
    "headers",
    "timestamps",
    "topic_lengths",
    "topics",
)
"""The database's columns that hold a block, in the order of `PackedColumns.blobs`."""
OVERHEAD = 64
"""Bytes that a message counts for besides its payload, key, headers and topic."""

Blob = memoryview | bytes | None

_LONG = np.dtype("<i8")


@dataclass(slots=True)
class PackedColumns:
    """A block of N messages as columns that can be cut and stored."""

    values: Spans
    keys: Spans | None
    headers: Headers | None
    timestamps: Ints | None
    topics: Spans | None

    @staticmethod
    def of(messages: Messages) -> PackedColumns:
        """The columns of these messages. Strings that cannot be UTF-8 (half surrogate pairs, as JSON allows them) are
        kept too."""
        topics = messages.topics
        return PackedColumns(
            Spans.of(messages.values),
            None if messages.keys is None else Spans.of(messages.keys),
            None if messages.headers is None else Headers.of(messages.headers),
            messages.timestamps,
            None if topics is None else Spans.of([topic.encode(errors="surrogatepass") for topic in topics]),
        )

    def sizes(self) -> Ints:
        """Bytes that each message counts for, `int64 (N,)`."""
        total = np.maximum(self.values.lengths, 0) + OVERHEAD
        for column in (self.keys, self.topics):
            if column is not None:
                total += np.maximum(column.lengths, 0)
        if self.headers is not None:
            each = self.headers.names.lengths + np.maximum(self.headers.values.lengths, 0)
            ends = np.concatenate([[0], np.cumsum(each)])
            total += ends[self.headers.starts + self.headers.counts] - ends[self.headers.starts]
        return total

    def take(self, rows: Ints) -> PackedColumns:
        """The messages at these positions."""
        return PackedColumns(
            self.values.take(rows),
            None if self.keys is None else self.keys.take(rows),
            None if self.headers is None else self.headers.take(rows),
            None if self.timestamps is None else self.timestamps[rows],
            None if self.topics is None else self.topics.take(rows),
        )

    def blobs(self) -> tuple[Blob, ...]:
        """The blobs of `BLOBS`."""
        return (
            *_packed(self.values),
            *_packed(self.keys),
            *_packed_headers(self.headers),
            None if self.timestamps is None else _bytes(self.timestamps),
            *_packed(self.topics),
        )


def pieces(sizes: Ints, max_bytes: int, max_messages: int) -> Iterator[tuple[int, int]]:
    """Where to cut a block of messages of these sizes: runs `[start, stop)` of at least one message and, if it is more
    than one, of so many messages and bytes at most."""
    ends = np.cumsum(sizes)
    start = 0
    while start < len(sizes):
        before = int(ends[start - 1]) if start else 0
        fits = int(np.searchsorted(ends, before + max_bytes, side="right"))
        stop = max(start + 1, min(fits, start + max_messages))
        yield start, stop
        start = stop


def messages_of(first: int, blobs: tuple[bytes | None, ...]) -> Messages:
    """The messages of these blobs; their rows are `first`, `first + 1`, ...

    Raises `ValueError` for blobs that do not fit together.
    """
    values = _unpacked(blobs[0], blobs[1])
    if values is None:
        raise ValueError("there are no payloads")
    count = len(values)
    topics = _unpacked(blobs[10], blobs[11])
    messages = Messages(
        np.arange(first, first + count, dtype=np.int64),
        values,
        _unpacked(blobs[2], blobs[3]),
        _unpacked_headers(blobs[4:9]),
        None if blobs[9] is None else np.frombuffer(blobs[9], _LONG),
        None if topics is None else [(topic or b"").decode(errors="surrogatepass") for topic in topics],
        row_range=range(first, first + count),
    )
    columns = (messages.keys, messages.headers, messages.timestamps, messages.topics)
    if any(column is not None and len(column) != count for column in columns):
        raise ValueError("its columns have different lengths")
    return messages


def _packed(column: Spans | None) -> tuple[Blob, Blob]:
    if column is None:
        return None, None
    if not len(column):
        return b"", b""
    compact = column.compact()
    stop = int(np.maximum(compact.lengths, 0).sum())
    return _bytes(compact.lengths), compact.buffer.data[:stop]


def _packed_headers(headers: Headers | None) -> tuple[Blob, ...]:
    if headers is None:
        return (None,) * 5
    counts = headers.counts
    ends = np.cumsum(counts)
    places = np.repeat(headers.starts - (ends - counts), counts) + np.arange(int(ends[-1]) if len(ends) else 0)
    return _bytes(counts), *_packed(headers.names.take(places)), *_packed(headers.values.take(places))


def _unpacked(lengths: bytes | None, strings: bytes | None) -> Spans | None:
    if lengths is None or strings is None:
        return None
    signed_lengths = np.frombuffer(lengths, _LONG).astype(np.int64, copy=False)
    sizes = np.maximum(signed_lengths, 0)
    ends = sizes.cumsum()
    if len(ends) and int(ends[-1]) != len(strings):
        raise ValueError(f"{len(strings)} bytes are there instead of {int(ends[-1])}")
    return Spans(np.frombuffer(strings, np.uint8), ends - sizes, signed_lengths)


def _unpacked_headers(blobs: tuple[bytes | None, ...]) -> Headers | None:
    names, values = _unpacked(blobs[1], blobs[2]), _unpacked(blobs[3], blobs[4])
    if blobs[0] is None or names is None or values is None:
        return None
    counts = np.frombuffer(blobs[0], _LONG).astype(np.int64, copy=False)
    ends = counts.cumsum()
    if len(names) != len(values) or (len(ends) and int(ends[-1]) != len(names)):
        raise ValueError("its headers do not fit together")
    return Headers(names, values, ends - counts, counts)


def _bytes(numbers: Ints) -> bytes:
    return numbers.astype(_LONG, copy=False).tobytes()
