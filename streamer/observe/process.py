"""Metrics of the process itself: CPU, memory, descriptors, garbage collection, versions."""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry, GCCollector, Metric, PlatformCollector, ProcessCollector
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from pipelines.hotpath import HotPathError, choose

_CGROUPS: Final = Path("/sys/fs/cgroup")
_MEMBERSHIP: Final = Path("/proc/self/cgroup")


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
        limit = memory_limit()
        if limit is not None:
            about = "Memory that the process may use: its control group's limit, or all that the machine has."
            yield GaugeMetricFamily("streamer_process_memory_limit_bytes", about, value=float(limit))


def memory_limit(cgroups: Path = _CGROUPS, membership: Path = _MEMBERSHIP) -> int | None:
    """The bytes of memory beyond which this process is killed or swapped; `None` where that cannot be known.

    Args:
        cgroups: Where Linux' control groups are mounted.
        membership: The file that lists the control groups of this process.

    Returns:
        The lowest limit of the process' control group (version 1 or 2) and of those that contain it, and of the
        machine's memory.
    """
    limits = []
    try:
        limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, ValueError, OSError):
        pass
    try:
        groups = membership.read_text().splitlines()
    except OSError:
        groups = []
    for line in groups:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            limits += _limits(cgroups, path, "memory.max")
        elif "memory" in controllers.split(","):
            limits += _limits(cgroups / "memory", path, "memory.limit_in_bytes")
    return min(limits, default=None)


def _limits(root: Path, path: str, name: str) -> Iterable[int]:
    """The limits in the files of this name, from the group at `path` up to the root of the tree.

    In a container the path may be that of the host, which does not exist here: then the root's file is its limit.
    """
    group = root / path.strip("/")
    for folder in (group, *group.parents):
        try:
            text = (folder / name).read_text().strip()
        except OSError:
            text = ""
        # "max" means no limit.
        if text.isdecimal():
            yield int(text)
        if folder == root:
            return


@cache
def _build() -> Metric:
    try:
        installed = version("streamer-inference")
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
