"""`OnlyOnce`: the messages in hand that the broker will not send again, as they came at QoS 0."""

from __future__ import annotations

from collections import deque

from pipelines.data.spans import Ints


class OnlyOnce:
    """Knows their positions until they are done, so that those that get lost can be counted."""

    def __init__(self) -> None:
        self._blocks: deque[Ints] = deque()

    def add(self, positions: Ints) -> None:
        """These came, `int64 (n,)` and rising, behind all others."""
        if len(positions):
            self._blocks.append(positions)

    def done(self, mark: int) -> None:
        """All positions below `mark` are done."""
        while self._blocks and self._blocks[0][-1] < mark:
            self._blocks.popleft()

    def clear(self, mark: int) -> int:
        """Forget them; how many were at `mark` or behind it."""
        count = sum(int((positions >= mark).sum()) for positions in self._blocks)
        self._blocks.clear()
        return count
