"""How much one message may ask of its reader."""

from __future__ import annotations

from dataclasses import dataclass

from pipelines.errors import WireError


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds that a reader checks before it believes a message. What exceeds one is a `WireError`."""

    max_bytes: int = 64 * 1024 * 1024
    """Length of the whole message, in bytes."""
    max_depth: int = 32
    """Levels of nesting: a `Data` in a `Data`, a list in a list, metadata."""
    max_elements: int = 16_000_000
    """Entries, list elements and coordinates of the whole message, counted together.

    Elements of arrays do not count: their bytes must be in the message.
    """

    def check_bytes(self, size: int) -> None:
        """Raise `WireError` if a message of `size` bytes is too long."""
        if size > self.max_bytes:
            raise WireError(f"a message of {size} bytes; the limit is {self.max_bytes} (max_bytes)")

    def check_depth(self, depth: int) -> None:
        """Raise `WireError` if `depth` levels are too many."""
        if depth > self.max_depth:
            raise WireError(f"values nested more than {self.max_depth} levels deep (max_depth)")

    def check_elements(self, elements: int) -> None:
        """Raise `WireError` if `elements` are too many."""
        if elements > self.max_elements:
            raise WireError(f"a message of more than {self.max_elements} elements (max_elements)")


DEFAULT_LIMITS = Limits()
