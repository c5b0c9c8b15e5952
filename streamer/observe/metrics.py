"""Metrics of a service: counted per batch with numpy, exported by `ServiceMeters`, a Prometheus collector.

`prometheus_client`'s `observe()` costs 0.7 us a call; a batch binned here costs 0.01 us a record. Each meter
is written by one thread only; reading while it is written may be a batch behind, never wrong by more.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from connectors.measures import Measure
from pipelines.observe.histogram import Histogram
from pipelines.observe.meters import BOUNDS, Counter, Counts, Distribution, Distributions, Gauge, Meter, Reading
from pipelines.observe.metrics import Metrics, summed
from pipelines.observe.observing import StepRun
from pipelines.observe.profiler import Profiler
from streamer.definition.hotpaths import PartHotPath

SECONDS = (*BOUNDS, 30.0)
"""Upper bounds of the buckets of durations, in seconds."""
OUTCOMES = ("ok", "dead", "dropped", "passed", "failed")
"""How records end: with results, as dead letters, dropped on purpose, or failed and lost."""
SIZES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0)
"""Upper bounds of the buckets of batch sizes, in records."""


_FAMILIES: Final[Mapping[str, Any]] = {
    "counter": CounterMetricFamily,
    "gauge": GaugeMetricFamily,
    "histogram": HistogramMetricFamily,
}
_log = logging.getLogger(__name__)


def _stages(*stages: str) -> Distributions:
    return Distributions("streamer_stage_seconds", "Seconds a batch spent in a stage.", "stage", SECONDS, stages)


class Timeline(Protocol):
    """Gets the times of the run thread's stages and of steps, for spans."""

    def step(self, step: str, began: float, seconds: float) -> None:
        """A step has run a batch, which is delivered next. From any thread."""

    def stage(self, stage: str, began: float, seconds: float) -> None:
        """A batch was in this stage for `seconds`, from `began` (`time.perf_counter`)."""

    def transaction(self, outcome: Literal["committed", "aborted"]) -> None:
        """The transaction of the batches that were delivered has ended."""


class SourceMeters:
    """The metrics that one intake thread writes."""

    def __init__(self) -> None:
        self.batch_records = Distribution("streamer_batch_records", "Records in a batch.", SIZES)
        self.closed = Counts("streamer_batch_closed", "Why batches were closed.", ("reason",))
        self.untimed = Counts(
            "streamer_untimed_records", "Records that do not say their time, and have that of the bus.", ("source",)
        )
        self.stages = _stages("poll", "decode")
        self.polled_rows = 0
        self.profiler: Profiler | None = None

    def batches(self, records: int, size: int, reason: str) -> None:
        """Count records that were gathered until `reason`, to be run in batches of `size` at most."""
        full, rest = divmod(records, size)
        if full:
            self.batch_records.add_one(size, full)
        if rest:
            self.batch_records.add_one(rest)
        self.closed[reason] += full + (rest > 0)
        self.polled_rows += records

    def stage(self, stage: Literal["poll", "decode"], began: float, seconds: float, rows: int) -> None:
        """Note that a batch spent `seconds` in this stage, from `began` (`time.perf_counter`)."""
        self.stages[stage].add_one(seconds)
        if self.profiler is not None:
            self.profiler.event(stage, "stage", began, seconds, rows=rows)


class RunMeters:
    """The metrics that the run thread writes. Also the executor's observer, which gets every step and batch."""

    def __init__(self) -> None:
        self.outcomes = Counts("streamer_records", "Records finished, by outcome.", ("source", "outcome"))
        self.dropped = Counts("streamer_messages_dropped", "Messages that a sink had no room for.", ("sink",))
        self.stages = _stages("run", "encode", "send")
        self.latency = Distribution("streamer_latency_seconds", "Record timestamp to confirmed result.", SECONDS)
        self.residence = Distribution(
            "streamer_residence_seconds", "Arrival of a record to its results' hand-over to the sinks.", SECONDS
        )
        self.late = Counter("streamer_late_records", "Records whose results came later than batch.target_latency.")
        self.batch_wait = Gauge("streamer_batch_wait_seconds", "How long records wait for others at most, at present.")
        self.transactions = Counts("streamer_transactions", "Transactions, by outcome.", ("outcome",))
        self.transaction_seconds = Distribution(
            "streamer_transaction_seconds", "From the beginning of a transaction to its outcome.", SECONDS
        )
        self.steps = Distributions("streamer_step_seconds", "Seconds a batch spent in a step.", "step", SECONDS)
        self.errors = Counts("streamer_step_errors", "Records that failed in a step.", ("step", "error"))
        self.profiler: Profiler | None = None
        self.timeline: Timeline | None = None

    def transaction(self, outcome: Literal["committed", "aborted"], seconds: float) -> None:
        """Count a transaction that has ended, `seconds` after it began."""
        self.transactions[outcome] += 1
        self.transaction_seconds.add_one(seconds)
        if self.timeline is not None:
            self.timeline.transaction(outcome)

    def stage(self, stage: Literal["run", "encode", "send"], began: float, seconds: float, rows: int) -> None:
        """Note that a batch spent `seconds` in this stage, from `began` (`time.perf_counter`)."""
        self.stages[stage].add_one(seconds)
        if self.timeline is not None:
            self.timeline.stage(stage, began, seconds)
        if self.profiler is not None:
            self.profiler.event(stage, "stage", began, seconds, rows=rows)

    def step(self, run: StepRun) -> None:
        """Count a run of one batch by one step."""
        self.step_ran(run.step, run.began, run.seconds, run.errors)
        if self.profiler is not None:
            self.profiler.step(run)

    def step_ran(self, step: str, began: float, seconds: float, errors: Mapping[str, int]) -> None:
        """Count a run of one batch by this step, with the records that failed in it by the error's class name."""
        self.steps[step].add_one(seconds)
        if self.timeline is not None:
            self.timeline.step(step, began, seconds)
        for error, count in errors.items():
            self.errors[step, error] += count


class Measured(NamedTuple):
    """A connector of a service that may have measures."""

    part: str
    """`source NAME` or `sink NAME`."""
    type: str
    """The connector's type, as in the service file."""
    measures: Callable[[], Sequence[Measure]]

    def readings(self) -> list[Reading]:
        """The connector's metrics; none if reading them raises, which is logged: the other metrics go on."""
        try:
            return [measure.reading(self.type, self.part) for measure in self.measures()]
        except Exception as error:  # noqa: BLE001 - a plug-in may fail in any way
            _log.warning("the measures of %s cannot be read: %s", self.part, error)
            return []


class ServiceMeters(Collector):
    """All metrics of one service, as a Prometheus collector. Names and labels are fixed (docs/metrics.md)."""

    def __init__(self, service: str, sources: list[str]) -> None:
        self.service = service
        self.sources = {name: SourceMeters() for name in sources}
        self.run = RunMeters()
        # Present from the start: `rate()` in Prometheus needs a zero before the first record.
        self.run.outcomes.update({(name, outcome): 0 for name in sources for outcome in OUTCOMES})
        self.in_flight: Callable[[], int] = lambda: 0
        self.oldest: Callable[[], float | None] = lambda: None
        self.lag: Callable[[], Mapping[tuple[str, int], int]] = dict
        self.paused: Callable[[], Collection[str]] = tuple
        """The names of the sources that a command has paused."""
        self.connectors: Callable[[], Iterable[Measured]] = list
        self.hot_paths: Callable[[], Iterable[PartHotPath]] = list
        self.models: Callable[[], Iterable[Reading]] = list
        """Readings about the versions of the service's models."""
        self.state: Callable[[], Iterable[Reading]] = list
        """Readings about saving what steps remember."""
        self.started = time.time()
        self.of_executors: Sequence[Metrics] = [Metrics()]
        """Metrics that the steps' own code keeps, of each open pipeline."""

    @property
    def step_metrics(self) -> Metrics:
        """Metrics that the steps' own code keeps, of all open pipelines together."""
        return summed(self.of_executors)

    def profile(self, profiler: Profiler) -> None:
        """Also write the times of stages and steps to `profiler`."""
        self.run.profiler = profiler
        for source in self.sources.values():
            source.profiler = profiler

    def outcome(self, source: str, outcome: str) -> int:
        """The number of this source's records with this outcome, one of `OUTCOMES`."""
        return self.run.outcomes[source, outcome]

    def total(self, outcome: str) -> int:
        """The number of records of all sources with this outcome, one of `OUTCOMES`."""
        return sum(count for (_, kind), count in list(self.run.outcomes.items()) if kind == outcome)

    def collect(self) -> Iterator[Metric]:
        """All metrics, for Prometheus."""
        return exported(self.service, self.readings())

    def readings(self) -> Iterator[Reading]:
        """All metrics with their values now."""
        for meters in (self.run, *self.sources.values()):
            yield from (meter.reading() for meter in vars(meters).values() if isinstance(meter, Meter))
        oldest = self.oldest()
        age = 0.0 if oldest is None else time.monotonic() - oldest
        yield _gauge("streamer_in_flight_bytes", "Bytes taken and not yet done with.", {(): self.in_flight()})
        yield _gauge("streamer_oldest_unacknowledged_seconds", "Age of the oldest record in flight.", {(): age})
        lag = {(topic, str(partition)): behind for (topic, partition), behind in self.lag().items()}
        yield _gauge("streamer_lag_records", "Records behind the end.", lag, "topic", "partition")
        paused = self.paused()
        states = {(source,): int(source in paused) for source in self.sources}
        yield _gauge("streamer_source_paused", "Whether a command has paused the source.", states, "source")
        paths = {(part, *path): 1 for part, path in self.hot_paths()}
        about = "Which hot path a part takes, and why not the compiled one."
        yield _gauge("streamer_hot_path_info", about, paths, "part", "path", "reason")
        for connector in self.connectors():
            yield from connector.readings()
        yield from self.models()
        yield from self.state()
        yield from self.step_metrics.readings()


def exported(service: str, readings: Iterable[Reading]) -> Iterator[Metric]:
    """A Prometheus family for each name, with the label `service`.

    The first reading of a name says its help text, kind and labels; others of the name that have another kind or other
    labels are left out. Values of the same labels are added up.
    """
    families: dict[str, list[Reading]] = {}
    for reading in readings:
        families.setdefault(reading.name, []).append(reading)
    for name, (first, *others) in families.items():
        values: dict[tuple[str, ...], float | Histogram] = dict(first.samples)
        for reading in others:
            if (reading.kind, reading.labels) == (first.kind, first.labels):
                for labels, value in reading.samples:
                    values[labels] = _sum(values[labels], value) if labels in values else value
        family = _FAMILIES[first.kind](name, first.text, labels=("service", *first.labels))
        for labels, value in values.items():
            shown = (value.buckets(), value.total) if isinstance(value, Histogram) else (float(value),)
            family.add_metric((service, *labels), *shown)
        yield family


def _gauge(name: str, text: str, values: Mapping[Any, float], *labels: str) -> Reading:
    return Reading(name, text, "gauge", labels, list(values.items()))


def _sum(a: float | Histogram, b: float | Histogram) -> float | Histogram:
    if isinstance(a, Histogram) and isinstance(b, Histogram):
        return a.merge(b)
    assert not isinstance(a, Histogram)
    assert not isinstance(b, Histogram)
    return a + b
