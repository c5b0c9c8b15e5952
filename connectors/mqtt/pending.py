"""`Pending`: messages that came and have not been polled."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from connectors.mqtt.protocol.scan import Scanned
from pipelines.data.spans import Ints


@dataclass(slots=True)
class Part:
    """Some messages of a block that are to be delivered, in order."""

    block: Scanned
    rows: Ints | None
    """Which rows of the block; `None`: `[start, stop)`."""
    start: int
    stop: int
    """Of `rows`, or of the block."""
    positions: Ints
    """Of all rows of the block."""
    received_at: int
    """When it came, in milliseconds since 1970."""
    byte_count: int
    """Bytes of the payloads."""
    _totals: Ints | None = None
    """Bytes of the payloads of each and all before it, of all rows; once it is needed."""

    def __len__(self) -> int:
        return self.stop - self.start

    @property
    def picked(self) -> slice | Ints:
        """Which rows of the block they are, to index its columns with."""
        return slice(self.start, self.stop) if self.rows is None else self.rows[self.start : self.stop]

    def split(self, count: int, byte_count: int) -> Part:
        """Take the first ones off, at most so many, and so many bytes; one at least, which may be larger."""
        if self._totals is None:
            sizes = self.block.payload_lengths
            self._totals = (sizes if self.rows is None else sizes[self.rows]).cumsum()
        totals, start = self._totals, self.start
        before = int(totals[start - 1]) if start else 0
        size = int(totals[start + count - 1]) - before
        if size > byte_count:
            count = max(1, int(totals[start:].searchsorted(before + byte_count, side="right")))
            size = int(totals[start + count - 1]) - before
        first = Part(self.block, self.rows, start, start + count, self.positions, self.received_at, size)
        self.start += count
        self.byte_count -= size
        return first


class Pending:
    """What was received ahead of polls, in order."""

    def __init__(self) -> None:
        self._parts: deque[Part] = deque()
        self.count = 0
        self.byte_count = 0

    def add(self, part: Part) -> None:
        """These come last."""
        self._parts.append(part)
        self.count += len(part)
        self.byte_count += part.byte_count

    def take(self, count: int, byte_count: int) -> list[Part]:
        """The first ones: at most `count`, and about `byte_count` bytes of payloads; the last may exceed it."""
        found: list[Part] = []
        while self._parts and count > 0 and (byte_count > 0 or not found):
            part = self._parts[0]
            if len(part) <= count and part.byte_count <= byte_count:
                self._parts.popleft()
            else:
                part = part.split(min(count, len(part)), byte_count)
                if not len(self._parts[0]):
                    self._parts.popleft()
            found.append(part)
            count -= len(part)
            byte_count -= part.byte_count
            self.count -= len(part)
            self.byte_count -= part.byte_count
        return found

    def clear(self) -> None:
        """Forget them."""
        self._parts.clear()
        self.count = self.byte_count = 0
