"""`OnlyOnce`: unfinished messages of QoS 0, which the broker will not send again."""

from __future__ import annotations

from collections import deque

from pipelines.data.spans import Ints


class OnlyOnce:
    """Keeps their positions until they are done, so that lost ones can be counted."""

    def __init__(self) -> None:
        self._blocks: deque[Ints] = deque()

    def add(self, positions: Ints) -> None:
        """Messages came at these positions, `int64 (n,)` and rising, after all others."""
        if len(positions):
            self._blocks.append(positions)

    def done(self, mark: int) -> None:
        """All positions below `mark` are done."""
        while self._blocks and self._blocks[0][-1] < mark:
            self._blocks.popleft()

    def clear(self, mark: int) -> int:
        """Drop all; returns how many were at `mark` or after it."""
        count = sum(int((positions >= mark).sum()) for positions in self._blocks)
        self._blocks.clear()
        return count
