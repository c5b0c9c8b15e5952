"""`Summary`: how a service's run ended."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Summary:
    """The result of a run of a service: counts of records, where a record delivered again counts again."""

    service: str
    ok: int
    """Records whose results were sent."""
    dead: int
    """Records that went to the dead letter."""
    dropped: int
    """Records that a step dropped on purpose, and tombstones that were skipped."""
    passed: int
    """Records that passed by: they do not fit the `where` of their source, or its codec finds none in them."""
    failed: int
    """Records that failed and are lost: there is no dead letter (`on_error: drop`)."""
    seconds: float
    reason: Literal["stopped", "ended", "failed"]
    """`ended`: all sources came to their end."""
    error: str | None = None
    """Why the run failed."""
    waits: str | None = None
    """What it waited for at its end, and the next run waits for: the rest of a record at the end of a file."""

    def to_dict(self) -> dict[str, Any]:
        """The fields as a dictionary of plain values, for JSON."""
        return asdict(self)

    def followed_by(self, after: Summary) -> Summary:
        """The same over this run and one after it."""
        names = ("ok", "dead", "dropped", "passed", "failed")
        counts = {name: getattr(self, name) + getattr(after, name) for name in names}
        return replace(after, seconds=self.seconds + after.seconds, **counts)
