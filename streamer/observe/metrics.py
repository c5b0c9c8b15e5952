"""Metrics of a service: counted per batch with numpy, exported by a collector of our own.

`prometheus_client`'s `observe()` costs 0.7 us a call; a batch binned here costs 0.01 us a record. Each meter
is written by one thread only; reading while it is written may be a batch behind, never wrong by more.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from pipelines.observe.histogram import Histogram
from pipelines.observe.metrics import BOUNDS, Metrics
from pipelines.observe.observing import StepRun
from pipelines.observe.profiler import Profiler
from streamer.definition.hotpaths import PartHotPath
from streamer.observe.connectormetrics import Measured, connector_families
from streamer.observe.stepmetrics import families

SECONDS = (*BOUNDS, 30.0)
"""Upper bounds of the buckets of durations, in seconds."""
OUTCOMES = ("ok", "dead", "dropped", "failed")
"""How records end: with results, as dead letters, dropped on purpose, or failed and lost."""
SIZES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0)
"""Upper bounds of the buckets of batch sizes, in records."""


class SourceMeters:
    """The metrics that one intake thread writes."""

    def __init__(self) -> None:
        self.batch_records = Histogram(SIZES)
        self.closed: Counter[str] = Counter()
        self.poll = Histogram(SECONDS)
        self.decode = Histogram(SECONDS)
        self.polled_rows = 0
        self.profiler: Profiler | None = None

    def batches(self, records: int, size: int, reason: str) -> None:
        """Records were closed for this reason, to be run in batches of `size` at most."""
        full, rest = divmod(records, size)
        if full:
            self.batch_records.add_one(size, full)
        if rest:
            self.batch_records.add_one(rest)
        self.closed[reason] += full + (rest > 0)
        self.polled_rows += records

    def stage(self, stage: Literal["poll", "decode"], began: float, seconds: float, rows: int) -> None:
        """A batch was in this stage for so long, from `began` (`time.perf_counter`)."""
        (self.poll if stage == "poll" else self.decode).add_one(seconds)
        if self.profiler is not None:
            self.profiler.event(stage, "stage", began, seconds, rows=rows)


class RunMeters:
    """The metrics that the run thread writes. Also the executor's observer, which gets every step and batch."""

    def __init__(self) -> None:
        self.outcomes: Counter[tuple[str, str]] = Counter()
        self.stages = {stage: Histogram(SECONDS) for stage in ("run", "encode", "send")}
        self.latency = Histogram(SECONDS)
        self.steps: dict[str, Histogram] = {}
        self.errors: Counter[tuple[str, str]] = Counter()
        self.dropped: Counter[str] = Counter()
        """Messages that sinks had no room for, by sink."""
        self.transactions: Counter[str] = Counter()
        """Transactions by outcome: committed or aborted."""
        self.transaction_seconds = Histogram(SECONDS)
        self.profiler: Profiler | None = None

    def transaction(self, outcome: Literal["committed", "aborted"], seconds: float) -> None:
        """A transaction has ended, so long after it had begun."""
        self.transactions[outcome] += 1
        self.transaction_seconds.add_one(seconds)

    def stage(self, stage: Literal["run", "encode", "send"], began: float, seconds: float, rows: int) -> None:
        """A batch was in this stage for so long, from `began` (`time.perf_counter`)."""
        self.stages[stage].add_one(seconds)
        if self.profiler is not None:
            self.profiler.event(stage, "stage", began, seconds, rows=rows)

    def step(self, run: StepRun) -> None:
        """A step has run one batch."""
        histogram = self.steps.get(run.step)
        if histogram is None:
            histogram = self.steps[run.step] = Histogram(SECONDS)
        histogram.add_one(run.seconds)
        for error, count in run.errors.items():
            self.errors[run.step, error] += count
        if self.profiler is not None:
            self.profiler.step(run)


class ServiceMeters(Collector):
    """All metrics of one service, as a Prometheus collector. Names and labels are fixed (docs/metrics.md)."""

    def __init__(self, service: str, sources: list[str]) -> None:
        self.service = service
        self.sources = {name: SourceMeters() for name in sources}
        self.run = RunMeters()
        # From the start, as a rate needs a zero before the first of them.
        self.run.outcomes.update({(name, outcome): 0 for name in sources for outcome in OUTCOMES})
        self.in_flight: Callable[[], int] = lambda: 0
        self.oldest: Callable[[], float | None] = lambda: None
        self.lag: Callable[[], Mapping[tuple[str, int], int]] = dict
        self.connectors: Callable[[], Iterable[Measured]] = list
        self.hot_paths: Callable[[], Iterable[PartHotPath]] = list
        self.started = time.time()
        self.step_metrics = Metrics()
        """Metrics that the steps' own code keeps."""

    def profile(self, profiler: Profiler) -> None:
        """Also write the times of stages and steps to `profiler`."""
        self.run.profiler = profiler
        for source in self.sources.values():
            source.profiler = profiler

    def outcome(self, source: str, outcome: str) -> int:
        """Records of this source that ended so: one of `OUTCOMES`."""
        return self.run.outcomes[source, outcome]

    def total(self, outcome: str) -> int:
        """Records of all sources that ended so."""
        return sum(count for (_, kind), count in list(self.run.outcomes.items()) if kind == outcome)

    def collect(self) -> Iterator[Metric]:
        """All metrics, for Prometheus."""
        yield self._counter(
            "streamer_records", "Records finished, by outcome.", ("source", "outcome"), self.run.outcomes
        )
        yield self._counter(
            "streamer_messages_dropped", "Messages that a sink had no room for.", ("sink",), self.run.dropped
        )
        sizes, closed = Histogram(SIZES), Counter[str]()
        poll, decode = Histogram(SECONDS), Histogram(SECONDS)
        for meters in self.sources.values():
            sizes, poll, decode = (
                sizes.merge(meters.batch_records), poll.merge(meters.poll), decode.merge(meters.decode),
            )  # fmt: skip
            # A copy: its thread may be adding to it.
            closed.update(dict(meters.closed))
        yield self._histogram("streamer_batch_records", "Records in a batch.", (), {(): sizes})
        yield self._counter("streamer_batch_closed", "Why batches were closed.", ("reason",), closed)
        stages = {("poll",): poll, ("decode",): decode}
        stages.update({(name,): histogram for name, histogram in self.run.stages.items()})
        yield self._histogram("streamer_stage_seconds", "Seconds a batch spent in a stage.", ("stage",), stages)
        yield self._histogram(
            "streamer_latency_seconds", "Record timestamp to confirmed result.", (), {(): self.run.latency}
        )
        yield self._counter("streamer_transactions", "Transactions, by outcome.", ("outcome",), self.run.transactions)
        yield self._histogram(
            "streamer_transaction_seconds", "From the beginning of a transaction to its outcome.", (),
            {(): self.run.transaction_seconds},
        )  # fmt: skip
        steps = {(name,): histogram for name, histogram in list(self.run.steps.items())}
        yield self._histogram("streamer_step_seconds", "Seconds a batch spent in a step.", ("step",), steps)
        yield self._counter(
            "streamer_step_errors", "Records that failed in a step.", ("step", "error"), self.run.errors
        )
        yield self._gauge("streamer_in_flight_bytes", "Bytes taken and not yet done with.", float(self.in_flight()))
        oldest = self.oldest()
        age = 0.0 if oldest is None else time.monotonic() - oldest
        yield self._gauge("streamer_oldest_unacknowledged_seconds", "Age of the oldest record in flight.", age)
        lag = GaugeMetricFamily(
            "streamer_lag_records", "Records behind the end.", labels=("service", "topic", "partition")
        )
        for (topic, partition), behind in self.lag().items():
            lag.add_metric((self.service, topic, str(partition)), float(behind))
        yield lag
        taken = GaugeMetricFamily(
            "streamer_hot_path_info",
            "Which hot path a part takes, and why not the compiled one.",
            labels=("service", "part", "path", "reason"),
        )
        for part, (path, reason) in self.hot_paths():
            taken.add_metric((self.service, part, path, reason), 1.0)
        yield taken
        yield from connector_families(self.service, self.connectors())
        yield from families(self.service, self.step_metrics)

    def _counter(self, name: str, text: str, labels: tuple[str, ...], counts: Mapping[Any, int]) -> Metric:
        family = CounterMetricFamily(name, text, labels=("service", *labels))
        for key, count in list(counts.items()):
            family.add_metric((self.service, *(key if isinstance(key, tuple) else (key,))), float(count))
        return family

    def _gauge(self, name: str, text: str, value: float) -> Metric:
        family = GaugeMetricFamily(name, text, labels=("service",))
        family.add_metric((self.service,), value)
        return family

    def _histogram(self, name: str, text: str, labels: tuple[str, ...], found: Mapping[Any, Histogram]) -> Metric:
        family = HistogramMetricFamily(name, text, labels=("service", *labels))
        for key, histogram in found.items():
            family.add_metric((self.service, *key), histogram.buckets(), histogram.total)
        return family
