"""The topics of a connection by number, so that a batch carries a column of integers instead of names."""

from __future__ import annotations

from typing import Final

MOST_TOPICS: Final = 65_536
MOST_BYTES: Final = 16 << 20


class TopicTable:
    """Topic names in the order in which they first came; the place of one in `names` is its code.

    It only grows, until it is `full`; then its owner begins another one, and columns that use this one keep it.
    """

    __slots__ = ("_bytes", "codes", "names")

    def __init__(self) -> None:
        self.names: list[str] = []
        self.codes: dict[bytes, int] = {}
        """The code of each name by its UTF-8 bytes."""
        self._bytes = 0

    @property
    def full(self) -> bool:
        """Whether no more names may be added: there are 65,536, or 16 MiB of them."""
        return len(self.names) >= MOST_TOPICS or self._bytes >= MOST_BYTES

    def add(self, raw: bytes, name: str) -> int:
        """Add this name, whose UTF-8 bytes are `raw`, and return its code."""
        code = self.codes.setdefault(raw, len(self.names))
        if code == len(self.names):
            self.names.append(name)
            self._bytes += len(raw)
        return code

    def __len__(self) -> int:
        return len(self.names)
