"""`Tally`: how the records of each variant of the models ended, and how long its calls took."""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from pipelines.data.batch import Batch
from pipelines.data.result import Result
from pipelines.errors import StreamerError
from pipelines.observe.meters import BOUNDS, Distributions, Reading

LABEL: Final = "label"
"""The output whose texts are counted."""
MOST_LABELS: Final = 1000
"""How many of them."""
LEAST_SPREAD: Final = 0.3
"""The standard deviation of calls' sizes, as a part of their mean, from which they say what a record costs."""
_OUTCOMES: Final = ("ok", "failed", "dropped")


@dataclass(slots=True)
class Counted:
    """Of one variant."""

    ok: int = 0
    failed: int = 0
    dropped: int = 0
    calls: int = 0
    seconds: float = 0.0
    """What its calls took, all together."""
    squares: float = 0.0
    """The sum of the squares of the calls' records."""
    products: float = 0.0
    """The sum of each call's records times its seconds."""
    square_seconds: float = 0.0
    """The sum of the squares of the calls' seconds."""
    labels: Mapping[str, int] = field(default_factory=dict)
    """Results by their label, if labels are counted."""

    @property
    def records(self) -> int:
        """How many it has run."""
        return self.ok + self.failed + self.dropped

    def since(self, before: Counted) -> Counted:
        """What was counted since then."""
        return Counted(
            self.ok - before.ok,
            self.failed - before.failed,
            self.dropped - before.dropped,
            self.calls - before.calls,
            self.seconds - before.seconds,
            self.squares - before.squares,
            self.products - before.products,
            self.square_seconds - before.square_seconds,
            {label: count - before.labels.get(label, 0) for label, count in self.labels.items()},
        )

    @property
    def seconds_error(self) -> float:
        """The standard error of the mean seconds of a call; infinite for fewer than two."""
        if self.calls < 2:
            return math.inf
        mean = self.seconds / self.calls
        return math.sqrt(max(0.0, self.square_seconds / self.calls - mean * mean) / (self.calls - 1))

    def seconds_for(self, rows: float) -> float:
        """What a call with so many records takes: by the line through the calls so far (least squares).

        The calls of variants have different sizes, so their times cannot be compared as they are. 0 without any calls.
        """
        if not self.calls:
            return 0.0
        mean, time = self.records / self.calls, self.seconds / self.calls
        spread = self.squares / self.calls - mean * mean
        # Calls that are nearly alike say nothing of others: then a call costs the same whatever its size.
        alike = spread <= (LEAST_SPREAD * mean) ** 2
        slope = 0.0 if alike else (self.products / self.calls - mean * time) / spread
        # Neither a record nor a call costs less than nothing.
        slope = min(max(slope, 0.0), time / mean) if mean else 0.0
        return time + slope * (rows - mean)


class Tally:
    """Counts the records of variants. From any thread."""

    def __init__(self, names: Sequence[str], *, labels: bool = False) -> None:
        """`labels`: whether to count the texts of the output `label`."""
        self._guard = threading.Lock()
        self._counted = {name: Counted() for name in names}
        self._labels: dict[str, Counter[str]] | None = {name: Counter() for name in names} if labels else None
        self._calls = Distributions(
            "streamer_variant_seconds", "Seconds a variant took for its part of a batch.", "variant", BOUNDS, names
        )

    def add(self, name: str, rows: int, result: Result, seconds: float) -> None:
        """A variant has run so many rows."""
        labels = [] if self._labels is None else _labels(result.batch)
        with self._guard:
            counted = self._counted[name]
            counted.failed += len(result.failed)
            counted.dropped += len(result.dropped)
            counted.ok += rows - len(result.failed) - len(result.dropped)
            counted.calls += 1
            counted.seconds += seconds
            counted.squares += rows * rows
            counted.products += rows * seconds
            counted.square_seconds += seconds * seconds
            self._calls[name].add_one(seconds)
            if self._labels is not None:
                known = self._labels[name]
                known.update(label for label in labels if label in known or len(known) < MOST_LABELS)

    def of(self, name: str) -> Counted:
        """What was counted of a variant so far."""
        with self._guard:
            labels = {} if self._labels is None else dict(self._labels[name])
            return replace(self._counted[name], labels=labels)

    def readings(self) -> Iterator[Reading]:
        """The metrics of all variants."""
        with self._guard:
            samples = [
                ((name, kind), getattr(each, kind)) for name, each in self._counted.items() for kind in _OUTCOMES
            ]
        text = "Records that a variant of the models has run, by outcome."
        yield Reading("streamer_variant_records_total", text, "counter", ("variant", "outcome"), samples)
        yield self._calls.reading()


def _labels(batch: Batch) -> list[str]:
    if LABEL not in batch:
        return []
    try:
        return [value for value in batch.column(LABEL).values() if isinstance(value, str)]
    except StreamerError:
        # A value that cannot be decoded fails later.
        return []
