"""What a scrape of the control port returns: metrics and health of its services, and the metrics of the process."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from streamer.observe.process import ProcessMetrics


class Measurable(Protocol):
    """A running service as a scrape sees it."""

    @property
    def meters(self) -> Collector:
        """The service's metrics."""

    def live(self) -> str | None:
        """Why the service should be restarted; `None` while it makes progress."""

    def ready(self) -> str | None:
        """Why the service is not ready; `None` while it is."""


class ScrapeCollector(Collector):
    """The metrics of several services as one collector: each metric once, with the samples of all, since in
    Prometheus' format a name must not begin twice. Those of the process come once, whatever the number of services."""

    def __init__(self, services: Mapping[str, Measurable]) -> None:
        """`services` by name; the mapping may change between scrapes."""
        self._services = services
        self._process = ProcessMetrics()

    def collect(self) -> Iterable[Metric]:
        """All metrics, for Prometheus."""
        services = dict(self._services)
        families: dict[tuple[str, str], Metric] = {}
        for service in services.values():
            for metric in service.meters.collect():
                family = families.setdefault(
                    (metric.name, metric.type), Metric(metric.name, metric.documentation, metric.type)
                )
                family.samples.extend(metric.samples)
        yield from families.values()
        live = GaugeMetricFamily("streamer_live", "1 while /live answers 200 for the service, else 0.", labels=_LABELS)
        ready = GaugeMetricFamily(
            "streamer_ready", "1 while /ready answers 200 for the service, else 0.", labels=_LABELS
        )
        for name, service in services.items():
            live.add_metric((name,), float(service.live() is None))
            ready.add_metric((name,), float(service.ready() is None))
        yield live
        yield ready
        yield from self._process.collect()


_LABELS = ("service",)
