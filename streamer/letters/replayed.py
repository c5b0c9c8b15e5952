"""The offsets of a partition of dead letters that have been replayed, as a consumer group's commit keeps them."""

from __future__ import annotations

from collections.abc import Iterable

GROUP = "streamer-replay"
"""The group whose commits say which letters were replayed, unless another one is named."""
MAX_METADATA = 4000
"""Characters of a commit's metadata that are used; brokers take 4096 bytes by default."""


class Replayed:
    """Offsets that are done with: all below `position`, and some beyond it.

    A group's commit is one position with a text. The text lists the offsets beyond it as `5-8,12`, counted from the
    position, so that letters that a filter has left out can be replayed later, and no other twice.
    """

    def __init__(self, position: int = 0, metadata: str | None = None) -> None:
        """`position` and `metadata` are those of a commit; metadata in another format is ignored."""
        self.position = max(position, 0)
        self._beyond = _parsed(metadata or "", self.position)

    def __contains__(self, offset: int) -> bool:
        return offset < self.position or any(start <= offset < stop for start, stop in self._beyond)

    def add(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Add these ranges of offsets, each from `start` to `stop - 1`."""
        merged: list[tuple[int, int]] = [(0, self.position)]
        for start, stop in sorted([*self._beyond, *ranges]):
            if start <= merged[-1][1]:
                merged[-1] = (merged[-1][0], max(merged[-1][1], stop))
            else:
                merged.append((start, stop))
        self.position = merged[0][1]
        self._beyond = merged[1:]

    def metadata(self) -> tuple[str, bool]:
        """The text to commit with the position, and whether it holds all offsets beyond."""
        text = ",".join(_written(start - self.position, stop - self.position) for start, stop in self._beyond)
        if len(text) <= MAX_METADATA:
            return text, True
        return text[:MAX_METADATA].rpartition(",")[0], False


def _written(start: int, stop: int) -> str:
    return str(start) if stop == start + 1 else f"{start}-{stop - 1}"


def _parsed(text: str, position: int) -> list[tuple[int, int]]:
    ranges = []
    for part in text.split(",") if text else ():
        first, _, last = part.partition("-")
        if not (first.isdecimal() and (last or first).isdecimal()):
            return []
        ranges.append((position + int(first), position + int(last or first) + 1))
    return ranges
