"""`Pending`: messages that were received and not polled."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from connectors.mqtt.protocol.scan import Scanned
from pipelines.data.spans import Ints, Spans


@dataclass(slots=True)
class Part:
    """Some messages of a block that are to be delivered, in order."""

    block: Scanned
    rows: Ints | None
    """The rows of the block; `None`: `[start, stop)`."""
    start: int
    stop: int
    """The range in `rows`, or in the block."""
    positions: Ints
    """The positions of all rows of the block."""
    received_at: int
    """When the block was received, in milliseconds since 1970."""
    totals: Ints
    """Cumulative bytes of payloads, of all rows."""
    byte_count: int
    """Bytes of the payloads."""

    @classmethod
    def of(cls, block: Scanned, rows: Ints | None, positions: Ints, received_at: int) -> Part:
        """A part with all rows of the block."""
        sizes = block.payload_lengths
        totals = (sizes if rows is None else sizes[rows]).cumsum()
        return cls(block, rows, 0, len(totals), positions, received_at, totals, int(totals[-1]))

    def __len__(self) -> int:
        return self.stop - self.start

    @property
    def picked(self) -> slice | Ints:
        """The rows, as an index into the columns of the block."""
        return slice(self.start, self.stop) if self.rows is None else self.rows[self.start : self.stop]

    def strings(self, name: str) -> Spans:
        """The `payload` or `property` strings of the rows."""
        block, picked = self.block, self.picked
        return Spans(block.buffer, getattr(block, f"{name}_starts")[picked], getattr(block, f"{name}_lengths")[picked])

    def split(self, count: int, byte_count: int) -> Part:
        """Split off the first messages, at most so many, and so many bytes; at least one, which may be larger."""
        totals, start = self.totals, self.start
        before = int(totals[start - 1]) if start else 0
        size = int(totals[start + count - 1]) - before
        if size > byte_count:
            count = max(1, int(totals[start:].searchsorted(before + byte_count, side="right")))
            size = int(totals[start + count - 1]) - before
        first = Part(self.block, self.rows, start, start + count, self.positions, self.received_at, totals, size)
        self.start += count
        self.byte_count -= size
        return first


@dataclass(slots=True)
class Taken:
    """The messages of one poll: some parts, in order."""

    parts: list[Part]
    byte_count: int
    """Bytes of the payloads."""

    def __len__(self) -> int:
        return sum(part.stop - part.start for part in self.parts)

    def column(self, name: str) -> npt.NDArray[Any]:
        """This column of `Scanned` for these messages."""
        if len(self.parts) == 1:
            part = self.parts[0]
            return getattr(part.block, name)[part.picked]  # type: ignore[no-any-return]
        return np.concatenate([getattr(part.block, name)[part.picked] for part in self.parts])

    @property
    def positions(self) -> Ints:
        """The messages' positions, `int64 (N,)`."""
        return _joined([part.positions[part.picked] for part in self.parts])

    @property
    def payloads(self) -> Spans:
        """The messages' payloads; not copied if they lie in one block of memory."""
        if len(self.parts) == 1:
            return self.parts[0].strings("payload")
        last = self.parts[-1].block.buffer
        # Views of received bytes always begin at the start of their block of memory, so the last view has the bytes of
        # all.
        if last.base is not None and all(part.block.buffer.base is last.base for part in self.parts):
            return Spans(last, self.column("payload_starts"), self.column("payload_lengths"))
        return Spans.concat([part.strings("payload") for part in self.parts])

    @property
    def received_at(self) -> Ints:
        """When they were received, in milliseconds since 1970, `int64 (N,)`."""
        return _joined([np.full(len(part), part.received_at, np.int64) for part in self.parts])


def _joined(columns: list[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    return columns[0] if len(columns) == 1 else np.concatenate(columns)


class Pending:
    """Messages received ahead of polls, in order."""

    def __init__(self) -> None:
        self._parts: deque[Part] = deque()
        self.count = 0
        self.byte_count = 0

    def add(self, part: Part) -> None:
        """Add messages at the end."""
        self._parts.append(part)
        self.count += len(part)
        self.byte_count += part.byte_count

    def take(self, count: int, byte_count: int) -> Taken:
        """Remove and return the first messages: at most `count`, and about `byte_count` bytes of payloads; the last may
        exceed it."""
        parts: list[Part] = []
        before = self.byte_count
        while self._parts and count > 0 and (byte_count > 0 or not parts):
            part = self._parts[0]
            if len(part) <= count and part.byte_count <= byte_count:
                self._parts.popleft()
            else:
                part = part.split(min(count, len(part)), byte_count)
                if not len(self._parts[0]):
                    self._parts.popleft()
            parts.append(part)
            count -= len(part)
            byte_count -= part.byte_count
            self.count -= len(part)
            self.byte_count -= part.byte_count
        return Taken(parts, before - self.byte_count)

    def clear(self) -> None:
        """Drop all messages."""
        self._parts.clear()
        self.count = self.byte_count = 0
