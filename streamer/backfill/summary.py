"""`BackfillSummary`: what a backfill has done."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(slots=True)
class BackfillSummary:
    """Counts of one run."""

    service: str
    pieces: int = 0
    """Pieces that are done now."""
    before: int = 0
    """Pieces that were done by earlier runs."""
    changed: int = 0
    """Pieces that earlier runs have done of files that have changed since; they were done again."""
    left: int = 0
    """Pieces that were not begun, or broken off."""
    rows: int = 0
    """Records that were read."""
    results: int = 0
    errors: int = 0
    """Records that failed."""
    error: str | None = None
    """Why one of them did."""
    failed: list[tuple[str, str]] = field(default_factory=list)
    """The pieces that are not done, each with the reason."""
    seconds: float = 0.0
    stopped: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        document = asdict(self)
        document["failed"] = [{"piece": piece, "reason": reason} for piece, reason in self.failed]
        return document
