"""Meters: the metrics that this process counts, each declared with its name, help text and labels, as plain numbers.

Services and steps declare theirs with the classes of this module, connectors give a `connectors.measures.Measure`. All
come to the exporter (`streamer.observe.metrics`) as a `Reading`.
"""

from __future__ import annotations

import collections
import itertools
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, ClassVar, Final, Literal, NamedTuple, TypeAlias

from pipelines.errors import DataError
from pipelines.observe.histogram import Histogram

BOUNDS: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds of a timer's buckets, in seconds; one more bucket counts longer ones."""

MAX_LABELS: Final = 100
"""Default limit of the different labels of one metric."""

OTHER: Final = "other"
"""The label under which all labels beyond the limit are counted."""

_SETS: Final = itertools.count()

Exported: TypeAlias = Literal["counter", "gauge", "histogram"]
"""The type of a metric in Prometheus."""

Samples: TypeAlias = Sequence[tuple[tuple[str, ...], float | Histogram]]
"""The values of a metric, each with the values of its labels."""


class Reading(NamedTuple):
    """The values of a metric at one moment."""

    name: str
    """Without the `_total` of counters."""
    text: str
    """The help text: one sentence."""
    kind: Exported
    labels: tuple[str, ...]
    """The names of the labels."""
    samples: Samples


class Meter(ABC):
    """A metric and its values. Written by one thread only; read by any."""

    kind: ClassVar[str]
    """The name of the kind in messages."""
    exported: ClassVar[Exported]

    def __init__(self, name: str, text: str, labels: tuple[str, ...] = ()) -> None:
        self.name = name
        self.text = text
        """The metric's help text: one sentence."""
        self.label_names = labels

    @abstractmethod
    def samples(self) -> Samples:
        """The current values, each with the values of its labels."""

    def reading(self) -> Reading:
        """The metric with its current values."""
        return Reading(self.name, self.text, self.exported, self.label_names, self.samples())


class Number(Meter):
    """A single number, without labels."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(name, text)
        self.value = 0.0

    def samples(self) -> Samples:
        """The number."""
        return [((), self.value)]

    def __repr__(self) -> str:
        return f"{self.value:g}"


class Counter(Number):
    """A number that only grows."""

    exported = "counter"
    kind = "counter"

    def add(self, amount: float = 1) -> None:
        """Increase the counter. Raises `DataError` for a negative amount."""
        if amount < 0:
            raise DataError(f'the counter "{self.name}" cannot go down by {-amount}; use a gauge')
        self.value += amount


class Gauge(Number):
    """A number that goes up and down."""

    exported = "gauge"
    kind = "gauge"

    def __init__(self, name: str, text: str) -> None:
        super().__init__(name, text)
        self.last_set = -1
        """The place of the last `set` among those of all gauges of the process; -1: none yet."""

    def set(self, value: float) -> None:
        """Set the value."""
        self.value = float(value)
        # Not the time, which may be the same for two.
        self.last_set = next(_SETS)

    def add(self, amount: float) -> None:
        """Add to the value; a negative amount lowers it."""
        self.value += amount


class Timer(Meter):
    """Durations: how many, how long in all, and how many up to each of `BOUNDS`."""

    exported = "histogram"
    kind = "timer"

    def __init__(self, name: str, text: str) -> None:
        super().__init__(name, text)
        self.histogram = Histogram(BOUNDS)

    @property
    def count(self) -> int:
        """How many durations were recorded."""
        return self.histogram.count

    @property
    def seconds(self) -> float:
        """The sum of all durations, in seconds."""
        return self.histogram.total

    @property
    def buckets(self) -> list[int]:
        """How many durations fell between each two bounds, and above the last."""
        counts: list[int] = self.histogram.counts.tolist()
        return counts

    def record(self, seconds: float) -> None:
        """Record a duration in seconds."""
        self.histogram.add_one(seconds)

    def time(self) -> AbstractContextManager[None]:
        """`with timer.time():` records how long the block takes, also if it raises."""
        return self._timed()

    @contextmanager
    def _timed(self) -> Iterator[None]:
        began = time.perf_counter()
        try:
            yield
        finally:
            self.record(time.perf_counter() - began)

    def samples(self) -> Samples:
        """The histogram, which has no labels."""
        return [((), self.histogram)]

    def __repr__(self) -> str:
        return f"{self.count} in {self.seconds:g} s"


class Labels(Meter):
    """One count for each of the first `limit` labels; later labels are counted together, as `other`."""

    exported = "counter"
    kind = "labels"

    def __init__(self, name: str, text: str, limit: int = MAX_LABELS) -> None:
        super().__init__(name, text, ("label",))
        self.limit = limit
        self.counts: dict[str, int] = {}

    def add(self, label: object, count: int = 1) -> None:
        """Count a label. Other than strings count by their `str`, 3 as "3"; what UTF-8 cannot write becomes "?"."""
        if label.__class__ is not str or label not in self.counts:
            label = str(label).encode(errors="replace").decode()
            if label not in self.counts and len(self.counts) >= self.limit:
                label = OTHER
        self.counts[label] = self.counts.get(label, 0) + count

    def samples(self) -> Samples:
        """The counts by label."""
        return [((label,), count) for label, count in list(self.counts.items())]

    def __repr__(self) -> str:
        return ", ".join(f"{label}: {count}" for label, count in list(self.counts.items()))


class Counts(Meter, collections.Counter[Any]):
    """Numbers that only grow, by the values of their labels: a tuple, or a text where there is one label."""

    exported = "counter"
    kind = "counts"

    def __init__(self, name: str, text: str, labels: tuple[str, ...]) -> None:
        super().__init__(name, text, labels)

    def samples(self) -> Samples:
        """The numbers by the values of their labels."""
        return [(key if isinstance(key, tuple) else (key,), count) for key, count in list(self.items())]


class Distribution(Meter, Histogram):
    """A histogram without labels."""

    exported = "histogram"
    kind = "distribution"

    def __init__(self, name: str, text: str, bounds: tuple[float, ...]) -> None:
        Meter.__init__(self, name, text)
        Histogram.__init__(self, bounds)

    def samples(self) -> Samples:
        """The histogram."""
        return [((), self)]


class Distributions(Meter, dict[str, Histogram]):
    """Histograms by the value of their label, made when they are first asked for; those of `known` exist at once."""

    exported = "histogram"
    kind = "distributions"

    def __init__(self, name: str, text: str, label: str, bounds: tuple[float, ...], known: Iterable[str] = ()) -> None:
        super().__init__(name, text, (label,))
        self._bounds = bounds
        self.update({value: Histogram(bounds) for value in known})

    def __missing__(self, value: str) -> Histogram:
        made = self[value] = Histogram(self._bounds)
        return made

    def samples(self) -> Samples:
        """The histograms by label."""
        return [((value,), histogram) for value, histogram in list(self.items())]
