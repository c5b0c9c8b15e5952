"""Metrics of the process itself: CPU, memory, descriptors, garbage collection, versions."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from importlib.metadata import PackageNotFoundError, version

from prometheus_client import CollectorRegistry, GCCollector, Metric, PlatformCollector, ProcessCollector
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from pipelines.errors import DISTRIBUTION
from pipelines.hotpath import HotPathError, choose
from streamer.observe.limits import cgroup_limits, machine_memory


class ProcessMetrics(Collector):
    """What Prometheus' client libraries export of every process, with the version and the memory limit.

    It has a registry of its own: the global one of `prometheus_client` belongs to the user's program, which may export
    the same metrics from there. `process_*` exist on Linux only, where they are read from `/proc`.
    """

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        GCCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)

    def collect(self) -> Iterable[Metric]:
        """The metrics with their values now."""
        yield from self._registry.collect()
        yield _build()
        limit = _memory_limit()
        if limit is not None:
            about = "Memory that the process may use: its control group's limit, or all that the machine has."
            yield GaugeMetricFamily("streamer_process_memory_limit_bytes", about, value=float(limit))


def _memory_limit() -> int | None:
    """The bytes of memory beyond which this process is killed or swapped; `None` where that cannot be known."""
    return min((limit for limit in (machine_memory(), cgroup_limits().memory) if limit is not None), default=None)


@cache
def _build() -> Metric:
    try:
        installed = version(DISTRIBUTION)
    except PackageNotFoundError:
        installed = "unknown"
    try:
        path = "python" if choose().native is None else "native"
    except HotPathError:
        path = "none"
    about = "Always 1: the version of streamer, and the hot path that a service with hot_path auto takes."
    family = GaugeMetricFamily("streamer_build_info", about, labels=("version", "hot_path"))
    family.add_metric((installed, path), 1.0)
    return family
