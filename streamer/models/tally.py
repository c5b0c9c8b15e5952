"""`Tally`: how the records of each variant of the models ended, and how long its batches took."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from pipelines.data.result import Result
from pipelines.observe.meters import BOUNDS, Distributions, Reading

_OUTCOMES = ("ok", "failed", "dropped")


class Counted(NamedTuple):
    """Of one variant, since the service began."""

    ok: int
    failed: int
    dropped: int
    seconds: float
    """What its calls took, all together."""


class Tally:
    """Counts the records of variants. From any thread."""

    def __init__(self, names: Sequence[str]) -> None:
        self._guard = threading.Lock()
        self._counts = {name: dict.fromkeys(_OUTCOMES, 0) for name in names}
        self._seconds = dict.fromkeys(names, 0.0)
        self.calls = Distributions(
            "streamer_variant_seconds", "Seconds a variant took for its part of a batch.", "variant", BOUNDS, names
        )

    def add(self, name: str, rows: int, result: Result, seconds: float) -> None:
        """A variant has run so many rows."""
        with self._guard:
            counts = self._counts[name]
            counts["failed"] += len(result.failed)
            counts["dropped"] += len(result.dropped)
            counts["ok"] += rows - len(result.failed) - len(result.dropped)
            self._seconds[name] += seconds
            self.calls[name].add_one(seconds)

    def of(self, name: str) -> Counted:
        """What was counted of a variant."""
        with self._guard:
            counts = self._counts[name]
            return Counted(counts["ok"], counts["failed"], counts["dropped"], self._seconds[name])

    def readings(self) -> Iterator[Reading]:
        """The metrics of all variants."""
        with self._guard:
            samples = [((name, kind), n) for name, counts in self._counts.items() for kind, n in counts.items()]
        text = "Records that a variant of the models has run, by outcome."
        yield Reading("streamer_variant_records_total", text, "counter", ("variant", "outcome"), samples)
        yield self.calls.reading()
