"""`Pending`: messages that came and have not been polled."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np

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

    def __len__(self) -> int:
        return self.stop - self.start

    @property
    def picked(self) -> slice | Ints:
        """Which rows of the block they are, to index its columns with."""
        return slice(self.start, self.stop) if self.rows is None else self.rows[self.start : self.stop]

    def byte_count(self) -> int:
        """Bytes of the payloads."""
        return int(self.block.payload_lengths[self.picked].sum())

    def within(self, count: int, byte_count: int) -> int:
        """How many of the first ones to take for at most so many, and so many bytes; one at least may be larger."""
        count = min(count, len(self))
        sizes = self.block.payload_lengths[self.picked][:count].cumsum()
        if count and sizes[-1] > byte_count:
            count = max(1, int(np.searchsorted(sizes, byte_count, side="right")))
        return count


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
        self.byte_count += part.byte_count()

    def take(self, count: int, byte_count: int) -> list[Part]:
        """The first ones: at most `count`, and about `byte_count` bytes of payloads; the last may exceed it."""
        found: list[Part] = []
        while self._parts and count > 0 and (byte_count > 0 or not found):
            part = self._parts[0]
            size = part.byte_count()
            taken = len(part) if len(part) <= count and size <= byte_count else part.within(count, byte_count)
            if taken < len(part):
                first = Part(part.block, part.rows, part.start, part.start + taken, part.positions, part.received_at)
                part.start += taken
                size = first.byte_count()
                part = first
            else:
                self._parts.popleft()
            found.append(part)
            self.count -= taken
            self.byte_count -= size
            count -= taken
            byte_count -= size
        return found

    def clear(self) -> int:
        """Forget them; how many there were."""
        count, self.count, self.byte_count = self.count, 0, 0
        self._parts.clear()
        return count
